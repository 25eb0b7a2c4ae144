"""Which entry of the log has which identity: what makes appending idempotent.

The index is a cache. It says up to which size and root it goes, so that whoever opens it can tell whether it
belongs to this log, and what it lacks is added from the log's entries; losing it costs that time and no more.

Identities are hashes, so each one falls on another page of a search tree, and a batch would write as many pages
as it has entries. They are therefore written down in the order of entries, the last ones are searched in memory,
and only when there are many of those do they go to the tree, all at once and in its order. Its keys are the first
eight bytes; the whole identity is compared before an entry counts as found. A filter knows what cannot be in the
tree, so that most new identities are not even looked for.

What is missing from a damaged index would be appended a second time, and no entry can tell that it is missing. So
the index says what it has to be: whoever opens it checks all three against sums that grew with them.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from tlog.ascii import HASH_BYTES
from tlog.dedup_check import (
    FILTER_BYTES,
    NO_SUMS,
    NOTHING,
    DamagedError,
    chained,
    parse_meta,
    read_meta,
    read_sums,
    require_rows,
    require_sound,
)
from tlog.errors import MalformedError, UnavailableError
from tlog.staging import EMPTY_HEAD, Head
from tlog.storage import DirectoryStorage, Storage

if TYPE_CHECKING:
    import apsw

FILE: Final = "identities.sqlite"
RECENT: Final = 65_536
_TOGETHER: Final = 120  # identities in a row, which with them fits one page
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS known (first INTEGER PRIMARY KEY, identities BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS settled
    (key INTEGER, entry_index INTEGER, PRIMARY KEY (key, entry_index)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS filter
    (one INTEGER PRIMARY KEY CHECK (one = 1), bits BLOB NOT NULL, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS indexed
    (one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER, root BLOB, settled INTEGER, cleared INTEGER,
     known BLOB, sums TEXT);
"""
# The keys of a batch come as one JSON array, so that one statement handles it.
_FIND: Final = """
SELECT (SELECT substr(identities, 1 + 32 * (entry_index - first), 32) FROM known
        WHERE first <= entry_index ORDER BY first DESC LIMIT 1),
       entry_index
FROM settled WHERE key IN (SELECT value FROM json_each(?)) ORDER BY entry_index DESC
"""
_SETTLE: Final = "INSERT INTO settled SELECT value, ?2 + key FROM json_each(?1) ORDER BY value, key"
_KNOWN: Final = "SELECT identities FROM known WHERE first >= ? ORDER BY first"
# A write to begin with: a transaction that reads first may find that it is too late to write.
_BEGIN: Final = """
INSERT INTO indexed VALUES (1, 0, ?1, 0, 0, ?2, ?3) ON CONFLICT DO UPDATE SET one = 1
RETURNING size, root, settled, cleared, known, sums
"""
_CLEAR: Final = """
DELETE FROM known;
DELETE FROM settled;
DELETE FROM filter;
UPDATE indexed SET size = 0, root = ?1, settled = 0, cleared = cleared + 1, known = x'', sums = '[0,0,0,0]';
"""


class IdentityIndex(Protocol):
    """The entry index of every identity of a log up to some head."""

    def head(self) -> Head:
        """The head up to which the index is complete."""

    def find(self, identities: Sequence[bytes]) -> dict[bytes, int]:
        """The entry index of each identity that is known."""

    def add(self, identities: Sequence[bytes], head: Head) -> None:
        """Returns once the next entries are indexed, up to `head`."""

    def clear(self) -> None:
        """Returns once the index is empty."""

    def close(self) -> None:
        """Lets go of files."""


@runtime_checkable
class Indexed(Protocol):
    """A storage with an index of its own, which all that use it share."""

    def identity_index(self) -> IdentityIndex:
        """The index of the identities of this log's entries."""


class MemoryIndex:
    """An index that lives as long as the object."""

    def __init__(self) -> None:
        self._head = EMPTY_HEAD
        self._entries: dict[bytes, int] = {}

    def head(self) -> Head:
        """The head up to which the index is complete."""
        return self._head

    def find(self, identities: Sequence[bytes]) -> dict[bytes, int]:
        """The entry index of each identity that is known."""
        return {identity: self._entries[identity] for identity in identities if identity in self._entries}

    def add(self, identities: Sequence[bytes], head: Head) -> None:
        """Returns once the next entries are indexed, up to `head`."""
        for entry_index, identity in enumerate(identities, self._head.size):
            self._entries.setdefault(identity, entry_index)
        self._head = head

    def clear(self) -> None:
        """Returns once the index is empty."""
        self._head = EMPTY_HEAD
        self._entries = {}

    def close(self) -> None:
        """Nothing to let go of."""


@dataclass
class _Recent:
    """The identities in memory: those of entries from `settled` to `size`, since the index was last cleared.

    `bits` is the filter of what is in the tree, nothing while that is empty.
    """

    settled: int = 0
    size: int = 0
    cleared: int = 0
    bits: bytes = b""
    entries: dict[bytes, int] = field(default_factory=dict)


class FileIndex:
    """An index in an SQLite file. Used under the append lock only, which also keeps threads apart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None
        self._recent = _Recent()
        self._sound = False

    def head(self) -> Head:
        """The head up to which the index is complete; a damaged file is thrown away first.

        The first call after opening reads the whole index.
        """
        import apsw

        try:
            with self._database() as database:
                meta = read_meta(database)
                if not self._sound:
                    require_sound(database, meta)
                    self._sound = True
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, DamagedError, UnicodeDecodeError):
            self._throw_away()
            return EMPTY_HEAD
        except apsw.Error as error:
            raise _unusable(error) from error
        return meta.head

    def find(self, identities: Sequence[bytes]) -> dict[bytes, int]:
        """The entry index of each identity that is known."""
        beginnings = struct.iter_unpack(">I28x", _joined(identities))
        with self._transaction() as database:
            recent = self._read_recent(database)
            bits = recent.bits
            asked = b"".join(
                identity
                for identity, (beginning,) in zip(identities, beginnings, strict=True)
                if bits and bits[beginning >> 11] & 1 << (beginning >> 8 & 7)
            )
            # The later of two entries with one identity comes first, and the earlier one takes its place.
            settled = dict(database.execute(_FIND, (_keys(asked),))) if asked else {}
        found = ((one, settled.get(one, recent.entries.get(one))) for one in identities)
        return {identity: index for identity, index in found if index is not None}

    def _read_recent(self, database: apsw.Connection) -> _Recent:
        """The identities that are not in the tree, once those that anybody added meanwhile are among them."""
        meta = read_meta(database)
        size, settled, cleared = meta.size, meta.settled, meta.cleared
        recent = self._recent
        if (recent.settled, recent.cleared) != (settled, cleared) or recent.size > size:
            recent = self._recent = _Recent(settled, settled, cleared, _filter(database))
        if recent.size < size:
            for (identities,) in database.execute(_KNOWN, (recent.size,)):
                require_rows(identities)
                for at in range(0, len(identities), HASH_BYTES):
                    recent.entries.setdefault(identities[at : at + HASH_BYTES], recent.size)
                    recent.size += 1
        return recent

    def add(self, identities: Sequence[bytes], head: Head) -> None:
        """Returns once the next entries are indexed, up to `head`."""
        joined, first = _joined(identities), head.size - len(identities)
        with self._transaction() as database:
            begin = (EMPTY_HEAD.root, NOTHING, NO_SUMS)
            meta = parse_meta(list(database.execute(_BEGIN, begin)))
            size, settled, sums = meta.size, meta.settled, meta.sums
            if first > size:
                raise UnavailableError("log: the identity index was emptied meanwhile", code="busy")
            if head.size <= size:
                return  # by another process, which brought it up to date at the same time
            rows = list(_rows(size, joined[(size - first) * HASH_BYTES :]))
            known = meta.known
            for _, some in rows:
                known = chained(known, some)
            database.executemany("INSERT INTO known VALUES (?, ?)", rows)
            if head.size - settled >= RECENT:
                _settle(database, settled)
                settled, sums = head.size, read_sums(database)
            row = (head.size, head.root, settled, known, sums)
            database.execute("UPDATE indexed SET size = ?, root = ?, settled = ?, known = ?, sums = ?", row)

    def clear(self) -> None:
        """Returns once the index is empty."""
        with self._transaction() as database:
            database.execute(_CLEAR, (EMPTY_HEAD.root,))

    def close(self) -> None:
        """Closes the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._recent = _Recent()
        self._sound = False

    def _throw_away(self) -> None:
        self.close()
        try:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"log: the identity index is damaged and cannot be removed: {error.strerror}",
                code="storage_failed",
                errno=error.errno,
            ) from error

    def _database(self) -> apsw.Connection:
        import apsw

        if self._connection is None:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _make_private(self._path)
            except OSError as error:
                raise UnavailableError(
                    f"log: the identity index cannot be opened: {error.strerror}",
                    code="storage_failed",
                    errno=error.errno,
                ) from error
            connection = apsw.Connection(str(self._path))
            try:
                connection.set_busy_timeout(30_000)
                connection.pragma("journal_mode", "wal")
                # A crash may cost the last additions, which are found missing and added again.
                connection.pragma("synchronous", "normal")
                connection.execute(_SCHEMA)
            except apsw.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        import apsw

        try:
            with self._database() as database:
                yield database
        except (apsw.CorruptError, apsw.NotADBError, DamagedError, UnicodeDecodeError) as error:
            self._throw_away()
            raise UnavailableError(
                "log: the identity index is damaged; it is made again at the next try", code="busy"
            ) from error
        except apsw.Error as error:
            raise _unusable(error) from error


def _unusable(error: apsw.Error) -> UnavailableError:
    """What a caller is told; `errno` is the operating system's, and marks it as no flush that failed."""
    number = _ERRNO.get(type(error).__name__, errno.EIO)
    return UnavailableError(
        f"log: the identity index cannot be used ({os.strerror(number)})", code="storage_failed", errno=number
    )


_ERRNO: Final = {
    "FullError": errno.ENOSPC,
    "ReadOnlyError": errno.EROFS,
    "PermissionsError": errno.EACCES,
    "CantOpenError": errno.EACCES,
}


def _make_private(path: Path) -> None:
    """The file is its owner's alone before SQLite opens it: the files beside it get the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # Not opened: to close a descriptor of it would drop the locks of a connection that this process has.
        path.chmod(0o600)


def _settle(database: apsw.Connection, settled: int) -> None:
    """Puts the identities of all entries from `settled` on in the tree, and in its filter."""
    known = b"".join(row for (row,) in database.execute(_KNOWN, (settled,)))
    database.execute(_SETTLE, (_keys(known), settled))
    bits = bytearray(_filter(database) or bytes(FILTER_BYTES))
    for (beginning,) in struct.iter_unpack(">I28x", known):
        bits[beginning >> 11] |= 1 << (beginning >> 8 & 7)
    row = (bytes(bits), sha256(bits).digest())
    database.execute("INSERT OR REPLACE INTO filter VALUES (1, ?, ?)", row)


def _filter(database: apsw.Connection) -> bytes:
    return b"".join(bits for (bits,) in database.execute("SELECT bits FROM filter"))


def _joined(identities: Sequence[bytes]) -> bytes:
    if set(map(len, identities)) - {HASH_BYTES}:
        raise MalformedError(f"log: expected identities of {HASH_BYTES} bytes")
    return b"".join(identities)


def _rows(first: int, identities: bytes) -> Iterator[tuple[int, bytes]]:
    row_bytes = _TOGETHER * HASH_BYTES
    for at in range(0, len(identities), row_bytes):
        yield first + at // HASH_BYTES, identities[at : at + row_bytes]


def _keys(identities: bytes) -> str:
    """The keys of identities that stand one after the other, as a JSON array."""
    return json.dumps([key for (key,) in struct.iter_unpack(">q24x", identities)])


def open_index(private: Storage) -> IdentityIndex:
    """The identity index beside a log's private files; in memory where they have none and are no files."""
    if isinstance(private, Indexed):
        return private.identity_index()
    return FileIndex(private.folder / FILE) if isinstance(private, DirectoryStorage) else MemoryIndex()


def complete(
    index: IdentityIndex,
    head: Head,
    root_at: Callable[[int], bytes],
    identities: Callable[[int], Sequence[bytes]],
) -> None:
    """Returns once the index goes up to `head`.

    `root_at(size)` tells an index of this log from any other; `identities(start)` gives those of some entries
    from `start` on.
    """
    indexed = index.head()
    if indexed == head:
        return
    if indexed.size > head.size or root_at(indexed.size) != indexed.root:
        index.clear()
        indexed = EMPTY_HEAD
    size = indexed.size
    while size < head.size:
        added = identities(size)
        size += len(added)
        index.add(added, Head(size, root_at(size)))
