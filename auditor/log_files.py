"""The public files of a log, in a folder, in a bucket or behind a URL, for the checks to read."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from auditor.evidence import LogFiles
from tlog.errors import MalformedError, UnavailableError

FOLDER: Final = "log"
KEY_LIST: Final = "keys.cose"
MAX_FILE_BYTES: Final = 80 * 1024 * 1024
TIMEOUT_SECONDS: Final = 4.0
MAX_LATE_SECONDS: Final = 5.0
MAX_DEPTH: Final = 12


def folder_files(folder: Path) -> LogFiles:
    """The files of a log in a folder. Links are not followed: a log's files are its own."""
    if not folder.is_dir():
        raise MalformedError("expected the folder of a log")

    def read(path: str) -> bytes | None:
        return _read(folder, path)

    return LogFiles(read, tuple(sorted(_names(folder, "", 0))))


@contextmanager
def url_files(url: str) -> Iterator[LogFiles]:
    """The files of a log behind a URL: they can be read, not listed.

    A log that is slow each time is given up: each file may take up to twice TIMEOUT_SECONDS, all of them together no
    more than MAX_LATE_SECONDS beyond a second each.
    """
    from tlog.client import UrlReader

    reader = UrlReader(url, TIMEOUT_SECONDS)
    late = 0.0

    def read(path: str) -> bytes | None:
        nonlocal late
        begun = time.monotonic()
        data = reader(path)
        late += max(0.0, time.monotonic() - begun - 1)
        if late > MAX_LATE_SECONDS:
            raise UnavailableError("log: answers too slowly", code="unreachable", path=path)
        return data

    try:
        yield LogFiles(read, None)
    finally:
        reader.close()


def bucket_files(url: str) -> LogFiles:
    """The files of a log in a bucket of an object store. Each is read when it is asked for."""
    from tlog.bucket import open_bucket

    bucket = open_bucket(url)

    def read(path: str) -> bytes | None:
        _require_within(path)
        stood = bucket.get(path)
        return None if stood is None or len(stood.data) > MAX_FILE_BYTES else stood.data

    return LogFiles(read, tuple(sorted(bucket.names(""))))


def _require_within(path: str) -> None:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise MalformedError("expected a path within the log")


def _read(folder: Path, path: str) -> bytes | None:
    _require_within(path)
    descriptor = _open(folder, path)
    if descriptor is None:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_FILE_BYTES:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES)
    finally:
        os.close(descriptor)


def _open(folder: Path, path: str) -> int | None:
    """A descriptor of the file, reached without following a link; None if it can't be."""
    *folders, name = path.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for part in folders:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, flags, dir_fd=at)
    except OSError:
        return None
    finally:
        os.close(at)


def _names(folder: Path, prefix: str, depth: int) -> Iterator[str]:
    """Names of regular files below the folder, as paths with slashes; bounded in depth."""
    if depth > MAX_DEPTH:
        return
    with os.scandir(folder) as listing:
        for entry in listing:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _names(folder / entry.name, name + "/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield name
