"""What a log keeps to itself, in PostgreSQL, so that any node can go on where another was killed.

    log_files        log, path → data: the files that lie in log-state/ of a home on one machine, under the same names
    log_identities   log, identity → the entry that has it
    log_indexed      log → up to which head that goes

Every write goes through `memory.pg_lease`: it is done only while the locks are ours. So the head is swapped by
comparison of its bytes and of the fencing token in one statement, and of two nodes that both believe to be the
publisher at most one commits anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from memory.pg_lease import HELD, LEASE_SECONDS, Leases, lost
from memory.pg_link import Link
from tlog.errors import UnavailableError
from tlog.staging import EMPTY_HEAD, Head
from tlog.storage import LOCK_TIMEOUT_SECONDS
from tlog.storage_rules import checked_path, folder_of_prefix, require_same

if TYPE_CHECKING:
    import psycopg

_PREPARED: Final = "SELECT to_regclass('muniment_log.log_indexed')"
# Two nodes that prepare one database at once do it one after the other.
_PREPARE: Final = """
SELECT pg_advisory_xact_lock(5566778899);
CREATE SCHEMA IF NOT EXISTS muniment_log;
CREATE TABLE IF NOT EXISTS muniment_log.log_lease (
    log text NOT NULL, name text NOT NULL, token bigint NOT NULL DEFAULT 0, holder text NOT NULL DEFAULT '',
    until timestamptz NOT NULL DEFAULT '-infinity', PRIMARY KEY (log, name));
CREATE TABLE IF NOT EXISTS muniment_log.log_files (
    log text NOT NULL, path text COLLATE "C" NOT NULL, data bytea NOT NULL, PRIMARY KEY (log, path));
CREATE TABLE IF NOT EXISTS muniment_log.log_identities (
    log text NOT NULL, identity bytea NOT NULL, entry_index bigint NOT NULL, PRIMARY KEY (log, identity));
CREATE TABLE IF NOT EXISTS muniment_log.log_indexed (
    log text PRIMARY KEY, size bigint NOT NULL, root bytea NOT NULL)
"""
_WRITE: Final = "write"
_READ: Final = "SELECT data FROM muniment_log.log_files WHERE log = %(log)s AND path = %(path)s"
_READ_START: Final = """
SELECT substring(data FROM 1 FOR %(size)s::int) FROM muniment_log.log_files WHERE log = %(log)s AND path = %(path)s
"""
_NAMES: Final = """
SELECT path FROM muniment_log.log_files WHERE log = %(log)s AND starts_with(path, %(path)s) ORDER BY path
"""
_ANSWER: Final = " SELECT (SELECT count(*) FROM whole), (SELECT count(*) FROM done)"
_CREATE: Final = (
    HELD
    + """, done AS (
    INSERT INTO muniment_log.log_files SELECT %(log)s, path, data
    FROM whole, unnest(%(paths)s::text[], %(contents)s::bytea[]) AS new (path, data)
    ON CONFLICT DO NOTHING RETURNING 1)"""
    + _ANSWER
)
_REPLACE: Final = (
    HELD
    + """, done AS (
    INSERT INTO muniment_log.log_files SELECT %(log)s, %(path)s, %(data)s::bytea FROM whole
    ON CONFLICT (log, path) DO UPDATE SET data = EXCLUDED.data RETURNING 1)"""
    + _ANSWER
)
_SWAP: Final = (
    HELD
    + """, done AS (
    UPDATE muniment_log.log_files SET data = %(data)s
    WHERE log = %(log)s AND path = %(path)s AND data = %(expected)s AND EXISTS (SELECT FROM whole) RETURNING 1)"""
    + _ANSWER
)
_REMOVE: Final = (
    HELD
    + """, done AS (
    DELETE FROM muniment_log.log_files
    WHERE log = %(log)s AND path = ANY(%(paths)s) AND EXISTS (SELECT FROM whole) RETURNING 1)"""
    + _ANSWER
)


class PgLogStorage:
    """The private files of the log of one origin. Any number of nodes may use it at once.

    What is written outside of every lock is written under one for that write alone; to read, none is needed.
    """

    def __init__(self, link: Link, log: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._link = link
        self._log = log
        self._leases = Leases(link, log, lease_seconds)

    def prepare(self) -> None:
        """Returns once the database has the tables; made if they are not there."""

        def work(connection: psycopg.Connection[Any]) -> None:
            row = connection.execute(_PREPARED).fetchone()
            if row is None or row[0] is None:
                with connection.transaction():
                    connection.execute(_PREPARE)

        self._link.run(work)

    def close(self) -> None:
        """Closes connections that are not in use."""
        self._link.close()

    def read(self, path: str) -> bytes | None:
        """The bytes of the file, None if there is none."""
        rows = self._rows(_READ, path=checked_path(path))
        return bytes(rows[0][0]) if rows else None

    def create(self, path: str, data: bytes) -> None:
        """Returns once the immutable file stands; VerificationError if other bytes stand there."""
        self.create_all({path: data})

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Like `create` for each file, all of them at once."""
        paths = [checked_path(path) for path in files]
        if not files:
            return
        if self._write(_CREATE, paths=paths, contents=list(files.values())) < len(files):
            for path, data in files.items():
                stood = self.read(path)
                if stood is None:
                    raise UnavailableError("log: a file came and went; try again", code="busy")
                require_same(path, stood, data)

    def replace(self, path: str, data: bytes) -> None:
        """Returns once the file holds `data`."""
        self._write(_REPLACE, path=checked_path(path), data=data)

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """True once the file holds `data`, False if it did not hold `expected` (None: no file)."""
        checked_path(path)
        if expected is None:
            return bool(self._write(_CREATE, paths=[path], contents=[data]))
        return bool(self._write(_SWAP, path=path, expected=expected, data=data))

    def swap_alone(self, path: str, expected: bytes, data: bytes, locks: Sequence[int]) -> bool:
        """Like `swap`, in a transaction that first has these advisory locks of the database, and has them alone."""
        fence = self._leases.fence()
        if fence is None:
            with self.lock(_WRITE):
                return self.swap_alone(path, expected, data, locks)
        values = {"log": self._log, "path": checked_path(path), "expected": expected, "data": data, **fence}

        def work(connection: psycopg.Connection[Any]) -> Any:
            with connection.transaction():
                for number in locks:
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
                return connection.execute(_SWAP, values).fetchone()

        whole, done = self._link.run(work)
        if not whole:
            raise lost()
        return bool(done)

    def read_start(self, path: str, size: int) -> bytes | None:
        """The first bytes of the file, None if there is none."""
        rows = self._rows(_READ_START, path=checked_path(path), size=size)
        return bytes(rows[0][0]) if rows else None

    def remove(self, paths: Iterable[str]) -> None:
        """Returns once the files are gone."""
        gone = [checked_path(path) for path in paths]
        if gone:
            self._write(_REMOVE, paths=gone)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all files whose path begins with `prefix`, sorted."""
        folder_of_prefix(prefix)
        return tuple(path for (path,) in self._rows(_NAMES, path=prefix))

    def lock(self, name: str, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> AbstractContextManager[None]:
        """A lock that one thread of one node holds at a time; of a node that dies or stops, another takes it."""
        return self._leases.hold(name, timeout_seconds)

    def identity_index(self) -> PgIdentityIndex:
        """The index of the identities of this log's entries."""
        return PgIdentityIndex(self._link, self._log)

    def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        def work(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
            return connection.execute(statement, {"log": self._log, **values}, binary=True).fetchall()

        return self._link.run(work)

    def _write(self, statement: str, **values: Any) -> int:
        """How many files were changed; UnavailableError if the locks of this thread are not ours any more."""
        fence = self._leases.fence()
        if fence is None:
            with self.lock(_WRITE):
                return self._write(statement, **values)
        ((whole, done),) = self._rows(statement, **fence, **values)
        if not whole:
            raise lost()
        return int(done)


_INDEXED: Final = "SELECT size, root FROM muniment_log.log_indexed WHERE log = %s"
_BEGIN: Final = """
INSERT INTO muniment_log.log_indexed VALUES (%s, 0, %s) ON CONFLICT (log) DO UPDATE SET size = log_indexed.size
RETURNING size
"""
_FIND: Final = """
SELECT identity, entry_index FROM muniment_log.log_identities WHERE log = %s AND identity = ANY(%s)
"""
_ADD: Final = """
INSERT INTO muniment_log.log_identities SELECT %s, identity, %s + place - 1
FROM unnest(%s::bytea[]) WITH ORDINALITY AS new (identity, place) ON CONFLICT DO NOTHING
"""
_ADVANCE: Final = "UPDATE muniment_log.log_indexed SET size = %s, root = %s WHERE log = %s"


class PgIdentityIndex:
    """Which identity has which entry, for all nodes. What it says follows from the committed entries alone."""

    def __init__(self, link: Link, log: str) -> None:
        self._link = link
        self._log = log

    def head(self) -> Head:
        """The head up to which the index is complete."""
        row = self._link.run(lambda connection: connection.execute(_INDEXED, (self._log,)).fetchone())
        return EMPTY_HEAD if row is None else Head(row[0], bytes(row[1]))

    def find(self, identities: Sequence[bytes]) -> dict[bytes, int]:
        """The entry index of each identity that is known."""
        values = (self._log, list(identities))
        rows = self._link.run(lambda connection: connection.execute(_FIND, values, binary=True).fetchall())
        return {bytes(identity): index for identity, index in rows}

    def add(self, identities: Sequence[bytes], head: Head) -> None:
        """Returns once the next entries are indexed, up to `head`."""
        first = head.size - len(identities)

        def work(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                row = connection.execute(_BEGIN, (self._log, EMPTY_HEAD.root)).fetchone()
                size = row[0] if row else 0
                if first > size:
                    raise UnavailableError("log: the identity index was emptied meanwhile", code="busy")
                if head.size <= size:
                    return  # by another node, which brought it up to date at the same time
                connection.execute(_ADD, (self._log, size, list(identities[size - first :])))
                connection.execute(_ADVANCE, (head.size, head.root, self._log))

        self._link.run(work)

    def clear(self) -> None:
        """Returns once the index is empty."""

        def work(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                connection.execute("SET LOCAL statement_timeout = 0")
                connection.execute(_BEGIN, (self._log, EMPTY_HEAD.root))
                connection.execute("DELETE FROM muniment_log.log_identities WHERE log = %s", (self._log,))
                connection.execute(_ADVANCE, (0, EMPTY_HEAD.root, self._log))

        self._link.run(work)

    def close(self) -> None:
        """Closes connections that are not in use."""
        self._link.close()
