"""What an audit that found nothing keeps in the auditor's own folder, for a later one to know the same bytes by.

Nothing of it is content, and nothing of it is believed but that these very bytes were looked at. A file that is
damaged, or was written by other code, only makes the next audit look at everything anew, and say so.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import apsw
import cryptography

from auditor.evidence import Entries
from auditor.findings import Note, Outcome
from auditor.state import load_bytes, save_bytes
from tlog.checkpoint import Checkpoint
from tlog.merkle import Frontier
from tlog.trust import Trust

MAX_BYTES: Final = 1 << 26
_DAMAGED: Final = "what an earlier audit kept is damaged: everything was looked at anew"
_OTHER: Final = "what an earlier audit kept is of other code, trust or log: everything was looked at anew"


@dataclass(frozen=True, slots=True)
class Before:
    """What an earlier audit found nothing wrong with: the first entries of a log by their root, blocks of rows by
    their digests, and what it said of the store as a whole (`auditor.unchanged`)."""

    size: int = 0
    root: bytes = b""
    rows: tuple[bytes, ...] = ()
    store: Mapping[str, Any] = field(default_factory=dict)


def load_verified(folder: Path, origin: str, trust: Trust, entries: Entries) -> tuple[Outcome, Before]:
    """What an earlier audit found nothing wrong with, under this very trust and by this code; and a note where that
    is nothing though something is there.

    The entries are compared by the root that they had then: a signature that held on the same bytes still holds.
    """
    data = load_bytes(_path(folder, origin), MAX_BYTES)
    if data is None:
        return Outcome(), Before()
    try:
        before, marks = _parse(data)
    except (ValueError, TypeError, KeyError, RecursionError):
        return Outcome(not_checked=(Note("earlier audits", _DAMAGED),)), Before()
    first = entries.leaves[: before.size]
    same = marks == _marks(trust) and 0 < before.size <= entries.size and len(first) == before.size
    if not same or Frontier().extend(first).root() != before.root:
        return Outcome(not_checked=(Note("earlier audits", _OTHER),)), Before()
    return Outcome(), before


def keep_verified(
    folder: Path, checkpoint: Checkpoint, trust: Trust, rows: Iterable[bytes], store: Mapping[str, Any]
) -> None:
    """Remembers that nothing was found wrong with the entries under a checkpoint, nor with rows of these digests, nor
    with a store of which this was said."""
    judge, digest = _marks(trust)
    kept = {
        "code": judge,
        "trust": digest,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "rows": [row.hex() for row in rows],
        "store": dict(store),
    }
    text = json.dumps(kept, separators=(",", ":"), sort_keys=True).encode()
    save_bytes(_path(folder, checkpoint.origin), text + b"\n" + _seal(text) + b"\n")


def _parse(data: bytes) -> tuple[Before, tuple[object, object]]:
    """What is in the file, and the marks it was kept under; ValueError, TypeError or KeyError if it is damaged."""
    text, seal, end = data.split(b"\n")
    if seal != _seal(text) or end:
        raise ValueError
    kept = json.loads(text)
    size, store = kept["size"], kept["store"]
    if type(size) is not int or type(store) is not dict:
        raise TypeError
    rows = tuple(bytes.fromhex(one) for one in kept["rows"])
    return Before(size, bytes.fromhex(kept["root"]), rows, store), (kept["code"], kept["trust"])


def _marks(trust: Trust) -> tuple[object, object]:
    parts = (trust.text.encode("utf-8", "surrogateescape"), *trust.key_lists)
    return code(), hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@cache
def code() -> str:
    """What tells one version of the code that judges from another: what one has passed over, another may not."""
    called = (platform.python_version(), apsw.sqlite_lib_version(), cryptography.__version__)
    versions = (*called, *map(version, ("cbor2", "pycose", "pynacl")))
    digest = hashlib.sha256(" ".join(versions).encode())
    for package, names in (("auditor", None), ("tlog", None), ("memory", ("event.py", "schema.sql"))):
        for path in sorted(files(package).iterdir(), key=lambda one: one.name):
            if path.name in names if names is not None else path.name.endswith(".py"):
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _seal(text: bytes) -> bytes:
    """Finds damage. It keeps out nobody who can write the folder: that has to be the auditor's alone."""
    return hashlib.sha256(b"muniment audit\n" + text).hexdigest().encode()


def _path(folder: Path, origin: str) -> Path:
    return folder / f"{hashlib.sha256(origin.encode()).hexdigest()}.verified"
