"""What the commands of `muniment log` read and answer."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections.abc import Mapping
from typing import Any

from tlog.errors import MalformedError


def read_file(name: str, max_bytes: int) -> bytes:
    """The bytes of a file that the caller named."""
    try:
        with open(name, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise MalformedError(f"a file cannot be read: {error.strerror}", code="bad_input") from None
    if len(data) > max_bytes:
        raise MalformedError(f"expected a file of at most {max_bytes} bytes")
    return data


def read_regular_file(name: str, max_bytes: int) -> bytes:
    """The bytes of a file that the caller named and that is none that could keep its reader waiting."""
    try:
        # Without waiting for a writer, should it be a pipe.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = file.read(max_bytes + 1) if regular else b""
    except OSError as error:
        raise MalformedError(f"a file cannot be read: {error.strerror}", code="bad_input") from None
    if not regular:
        raise MalformedError("a file cannot be read: it is no regular file", code="bad_input")
    if len(data) > max_bytes:
        raise MalformedError(f"expected a file of at most {max_bytes} bytes")
    return data


def write_file(name: str, data: bytes) -> None:
    """Returns once the file that the caller named has these bytes."""
    try:
        with open(name, "wb") as file:
            file.write(data)
    except OSError as error:
        raise MalformedError(f"the output cannot be written: {error.strerror}") from None


def answer(args: argparse.Namespace, document: Mapping[str, Any], text: str) -> int:
    """Writes the text to the file asked for or to standard output, or the document with --json."""
    output = getattr(args, "output", None)
    data = text.encode("utf-8", "surrogateescape")
    if output is not None:
        write_file(output, data)
    if args.json:
        write_json(document)
    elif output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return 0


def write_json(document: Mapping[str, Any]) -> None:
    """Writes one JSON document and a line feed to standard output."""
    # ASCII, so that no terminal control character and no unpaired surrogate gets through.
    sys.stdout.write(json.dumps(document, separators=(",", ":")) + "\n")
    sys.stdout.flush()
