"""Which entry has which id: SCRAPI names an entry by the SHA-256 of its bytes.

The index is a cache beside the log's private files. It covers every entry of the log, whoever appended it, and
is brought up to date when it is asked; what it finds is compared with the entry itself, so that an index of
another log, or a damaged one, costs time and never gives a wrong answer.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from tlog.dedup import FileIndex, IdentityIndex, MemoryIndex
from tlog.errors import UnavailableError
from tlog.log import MAX_BATCH, Log
from tlog.registration import entry_id_of
from tlog.staging import EMPTY_HEAD, Head
from tlog.storage import DirectoryStorage

FILE: Final = "entry-ids.sqlite"
_LOCK: Final = "entry-ids"


@dataclass(frozen=True)
class Found:
    """An entry and its index."""

    index: int
    entry: bytes


class EntryIds:
    """The ids of one log. Threads may share one; processes share the file."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._index: IdentityIndex = (
            FileIndex(log.private.folder / FILE)
            if isinstance(log.private, DirectoryStorage)
            else MemoryIndex()
        )
        self._mutex = threading.Lock()
        self._closed = False
        self._checked = False

    def find(self, entry_id: bytes) -> Found | None:
        """The entry with this id and its index, None if the log has no such entry."""
        with self._open():
            self._complete()
            found = self._lookup(entry_id)
            if found is None or entry_id_of(found.entry) == entry_id:
                return found
            with self._log.private.lock(_LOCK):
                self._index.clear()
            self._complete()
            return self._lookup(entry_id)

    def complete(self) -> int:
        """The number of entries of the log, every one of which is in the index now."""
        with self._open():
            return self._complete()

    def close(self) -> None:
        """Lets go of the file for good."""
        with self._mutex:
            self._closed = True
            self._index.close()

    def _open(self) -> threading.Lock:
        if self._closed:
            raise UnavailableError("entry ids: closed", code="busy")
        return self._mutex

    def _lookup(self, entry_id: bytes) -> Found | None:
        index = self._index.find([entry_id]).get(entry_id)
        if index is None or index >= self._log.head().size:
            return None
        return Found(index, self._log.read_entry(index))

    def _complete(self) -> int:
        if self._checked and self._index.head().size == self._log.head().size:
            return self._log.head().size
        with self._log.private.lock(_LOCK):  # what is added follows what is there
            size, indexed = self._log.head().size, self._index.head()
            if not self._is_of_this_log(indexed, size):
                self._index.clear()
                indexed = EMPTY_HEAD
            self._checked = True
            for at in range(indexed.size, size, MAX_BATCH):
                end = min(at + MAX_BATCH, size)
                ids = [entry_id_of(entry) for entry in self._log.read_entries(at, end)]
                self._index.add(ids, Head(end, ids[-1]))
        return size

    def _is_of_this_log(self, indexed: Head, size: int) -> bool:
        """Whether what was indexed last, which stands in place of a root, is what the log has there."""
        if indexed.size == 0:
            return True
        return indexed.size <= size and entry_id_of(self._log.read_entry(indexed.size - 1)) == indexed.root
