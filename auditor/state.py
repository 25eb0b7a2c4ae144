"""The heads of logs that an auditor has seen, kept between audits in a folder of the auditor's own.

A log that was rewritten and signed again is whole in itself; only somebody who remembers its old head can tell.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from auditor.evidence import Entries
from auditor.findings import Finding, Note, Outcome
from tlog.certificates import peek_key_list, require_extends
from tlog.checkpoint import Checkpoint, parse_checkpoint
from tlog.errors import Error, MalformedError, UnavailableError
from tlog.merkle import Frontier
from tlog.note import format_note, parse_note
from tlog.policy import VerifiedCheckpoint

MAX_HEAD_BYTES: Final = 1 << 20


def check_head(folder: Path, verified: VerifiedCheckpoint, entries: Entries) -> Outcome:
    """The log extends the head that was seen last. That head is replaced only by one that extends it."""
    checkpoint = verified.checkpoint
    path = _head_path(folder, checkpoint.origin)
    seen = _load(path)
    if seen is not None and seen.origin == checkpoint.origin:
        finding = _compare(seen, checkpoint, entries.leaves)
        if finding is not None:
            return Outcome((finding,))
    if entries.proved:
        save_bytes(path, format_note(verified.note))
    text = "head that an earlier audit saw, extended by this one" if seen else "first head seen of this log"
    return Outcome(checked=(Note("heads", text, 1 if seen else 0),))


def check_gone(folder: Path, origins: Iterable[str], where: str) -> Outcome:
    """What there is to say where a log that may be any of these has no checkpoint that holds."""
    seen = [head for origin in origins if (head := _load(_head_path(folder, origin))) is not None]
    if not seen:
        return Outcome()
    what = "An earlier audit saw a head of the log, and it has none now."
    size = max(head.size for head in seen)
    return Outcome((Finding("LOG_ROLLED_BACK", f"{where} checkpoint", what, {"seen_size": size}),))


def _head_path(folder: Path, origin: str) -> Path:
    return folder / f"{hashlib.sha256(origin.encode()).hexdigest()}.checkpoint"


def check_key_list(folder: Path, data: bytes) -> None:
    """Returns if this key list, which a root certified, continues the one that was seen last; keeps it then.

    Raises VerificationError otherwise. A list that ended a key is in the way of whoever has that key, and somebody
    who shows an older one is found only by those who have seen the newer.
    """
    kid, key_list = peek_key_list(data)
    path = _key_list_path(folder, kid, key_list.store)
    seen = load_bytes(path)
    if seen is not None:
        require_extends(key_list, peek_key_list(seen)[1])
    save_bytes(path, data)


def seen_key_lists(folder: Path, kid: bytes, store: str) -> Iterator[bytes]:
    """The key list of a store and a root that was seen last, if one was."""
    seen = load_bytes(_key_list_path(folder, kid, store))
    if seen is not None:
        yield seen


def _key_list_path(folder: Path, kid: bytes, store: str) -> Path:
    return folder / f"{hashlib.sha256(kid + store.encode()).hexdigest()}.keys.cose"


def load_bytes(path: Path, max_bytes: int = MAX_HEAD_BYTES) -> bytes | None:
    """What an earlier audit kept in a file of its folder; None if it kept nothing."""
    try:
        # Without waiting: a pipe that lies there would hold the audit up for good.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        raise MalformedError("expected a folder of earlier audits that can be read") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise MalformedError("expected files in the folder of earlier audits, and no pipes or devices")
        return file.read(max_bytes)


def _compare(seen: Checkpoint, now: Checkpoint, leaves: Sequence[bytes]) -> Finding | None:
    evidence: dict[str, str | int] = {
        "seen_size": seen.size,
        "size": now.size,
        "seen_root": seen.root.hex(),
        "root": now.root.hex(),
    }
    if now.size < seen.size:
        what = "The log is shorter than an earlier audit saw it."
        return Finding("LOG_ROLLED_BACK", "log checkpoint", what, evidence)
    first = leaves[: seen.size]
    if len(first) < seen.size or Frontier().extend(first).root() == seen.root:
        return None
    what = "The log does not extend the head that an earlier audit saw: its past was rewritten."
    return Finding("LOG_FORK", "log checkpoint", what, evidence)


def _load(path: Path) -> Checkpoint | None:
    data = load_bytes(path)
    if data is None:
        return None
    try:
        return parse_checkpoint(parse_note(data).text)
    except Error:
        raise MalformedError("expected the head that an earlier audit kept") from None


def save_bytes(path: Path, data: bytes) -> None:
    """Returns once the file in the auditor's own folder is durable."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        raise UnavailableError("the head that was seen can't be kept in the given folder") from None
