"""What every storage holds to: the names that files may have, what stands and is never rewritten, locks of threads."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tlog.errors import MalformedError, UnavailableError, VerificationError

# No name begins with a dot, so none leads upwards and none meets the folders that a directory keeps for itself.
PATH: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


def checked_path(path: str) -> str:
    """The path, if it is one of plain names."""
    if not PATH.fullmatch(path):
        raise MalformedError("storage: expected a relative path of plain names")
    return path


def folder_of_prefix(prefix: str) -> str:
    """The folder in which all paths lie that begin with `prefix`."""
    folder = prefix.rpartition("/")[0]
    if folder and not PATH.fullmatch(folder):
        raise MalformedError("storage: expected the beginning of a relative path")
    return folder


def require_same(path: str, existing: bytes | None, data: bytes) -> None:
    """Returns if there is no file there or one with these bytes."""
    if existing is not None and existing != data:
        raise VerificationError(
            f"storage: other bytes stand at {path}, which is never rewritten", code="file_altered", path=path
        )


def busy() -> UnavailableError:
    """What is raised where a lock is not had in time."""
    return UnavailableError("storage: another process holds the lock", code="busy", retry_after_seconds=1)


class ThreadLocks:
    """Locks by name, between the threads of this process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    @contextmanager
    def hold(self, name: str, timeout_seconds: float) -> Iterator[None]:
        """One thread at a time is within the block. It does not nest."""
        with self._mutex:
            lock = self._locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=timeout_seconds):
            raise busy()
        try:
            yield
        finally:
            lock.release()
