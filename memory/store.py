"""Opens the store: one SQLite file, its connections, its schema and its transactions.

SQL stands here and in the modules beside it that begin with store_, and nowhere else. A write is durable before it is
acknowledged (WAL, synchronous=FULL); what every connection must have is set and read back. A connection serves
one transaction at a time; processes and threads share the file and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import apsw

from memory import store_rewrite, vfs
from memory.store_read import Keeps, Snapshot
from memory.store_shared import SharedTxn
from memory.store_write import Txn
from memory.together import Together
from tlog.errors import MalformedError, UnavailableError, VerificationError

if TYPE_CHECKING:
    from memory.vault import Vault

Result = TypeVar("Result")
FIRST_SCHEMA: Final = 1
SCHEMA_VERSION: Final = 3
APPLICATION_ID: Final = 0x4D554E49  # "MUNI"
BUSY_MILLISECONDS: Final = 30_000
MAX_IDLE_CONNECTIONS: Final = 8
# 3.42: the first release whose FTS5 removes words from its index as they are deleted.
_MIN_SQLITE: Final = 3_042_000
_PRAGMAS: Final[tuple[tuple[str, str, object], ...]] = (
    ("auto_vacuum", "NONE", 0),
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("secure_delete", "ON", 1),
    ("temp_store", "MEMORY", 2),
    ("foreign_keys", "ON", 1),
    # In KiB: enough for the pages that hashes scatter writes over, in a store of some ten thousand facts.
    ("cache_size", "-16384", -16384),
    # The pages that one checkpoint copies are the same for many writes. As many as one table of the index of the
    # write-ahead log has room for, so that finding a page in it stays one look.
    ("wal_autocheckpoint", "4000", 4000),
    ("max_page_count", str(vfs.MAX_PAGES), vfs.MAX_PAGES),
)


class Store:
    """One store file. Any thread may use it; each transaction has a connection of its own."""

    def __init__(self, path: Path, vault: Vault) -> None:
        self.path = path
        self.vault = vault
        self.keeps_now: Callable[[], Keeps | None] = lambda: None
        """Which facts are within their retention when a transaction begins."""
        self._idle: list[apsw.Connection] = []
        self._idle_lock = threading.Lock()
        # For fairness between the threads of this process only: what is right is kept by BEGIN IMMEDIATE.
        self._write_lock = threading.Lock()
        self._together = Together(self._shared)

    def write_together(self, work: Callable[[Txn], Result]) -> Result:
        """What `work` gives, once it is durable; what it raises, once nothing of it is left.

        Writes that wait at the same time share a commit. `work` may be run more than once, and is committed once.
        """
        return self._together.write(work)

    def write_all_together(self, works: Sequence[Callable[[Txn], Result]]) -> list[Result | Exception]:
        """What each of these gives, or raises, in order and once all of them are durable; they share commits."""
        return self._together.write_all(works)

    @contextmanager
    def write(self) -> Iterator[Txn]:
        """A writing transaction: committed and durable at its end, undone as a whole if anything is raised."""
        with self._transaction() as connection:
            yield Txn(connection, self.keeps_now())

    @contextmanager
    def _shared(self) -> Iterator[Callable[[], SharedTxn]]:
        """What gives the one transaction to each of several writes; they are committed as one, or none is."""
        with self._transaction() as connection:
            txn = SharedTxn(connection, self.keeps_now())
            yield txn.next_write
            txn.finish()

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        with self._write_lock, self._connection() as connection:
            _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
            try:
                _require_version(connection)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """One consistent view of the store."""
        with self._connection() as connection:
            _patiently(lambda: _begin_read(connection))
            try:
                yield Snapshot(connection, self.keeps_now())
            finally:
                _roll_back(connection)

    # What is of the store as a whole, and of no one tenant: on this engine no other than the rest.

    def write_whole(self) -> AbstractContextManager[Txn]:
        """A writing transaction over all tenants."""
        return self.write()

    def write_alone(self) -> AbstractContextManager[Txn]:
        """The same, beside which nobody writes: every statement that has a smaller number is there."""
        return self.write()

    def settle(self) -> None:
        """Returns once whoever is writing now has ended, so that every number up to the last one is there."""

    def read_whole(self) -> AbstractContextManager[Snapshot]:
        """One consistent view of all tenants."""
        return self.read()

    @contextmanager
    def alone_erasing(self, deadline_seconds: float) -> Iterator[None]:
        """Keeps other machines from erasing meanwhile: here there are none."""
        yield

    @contextmanager
    def alone_editing(self, tag: bytes, deadline_seconds: float) -> Iterator[None]:
        """Keeps other machines from editing what a tag stands for meanwhile: here there are none."""
        yield

    def checkpoint_truncate(self, deadline_seconds: float = 10.0) -> bool:
        """True once the main file holds everything and the WAL is empty; False if a reader pins it until then."""
        until = time.monotonic() + deadline_seconds
        with self._connection() as connection:
            try:
                return _truncate_wal(connection, until)
            finally:
                connection.set_busy_timeout(BUSY_MILLISECONDS)

    def copy_to(self, target: Path) -> None:
        """Returns once `target`, an empty file, is a store with the same rows and no byte besides."""
        with self._connection() as connection:
            _patiently(lambda: connection.execute("VACUUM INTO ?", (str(target),)))

    def require_promises(self) -> None:
        """Returns if what an erasure relies on is on as it is read back; UnavailableError otherwise."""
        with self._connection() as connection:
            store_rewrite.require_promises(connection)

    def write_anew(self) -> None:
        """Returns once no byte of the file is older than this call: for a store with residue, never otherwise."""
        with self._write_lock, self._connection() as connection:
            _patiently(lambda: store_rewrite.write_anew(connection))

    def check(self) -> tuple[str, ...]:
        """What SQLite's own integrity check finds; empty if the file is sound."""
        with self._connection() as connection:
            rows = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
        return tuple(row for row in rows if row != "ok")

    def close(self) -> None:
        """Closes the idle connections; the store may be used again."""
        with self._idle_lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            # The last one to close empties the write-ahead log. If the disk is full it cannot, and nothing is
            # lost by that: what was acknowledged stays in the log, and the next one to open finds it there.
            with suppress(apsw.Error):
                connection.close(True)

    @contextmanager
    def _connection(self) -> Iterator[apsw.Connection]:
        connection = None
        try:
            connection = self._take() or _patiently(lambda: _connect(self.path))
            yield connection
        except apsw.Error as error:
            # Whatever failed below, the next transaction starts from a fresh connection. Closing the last one copies
            # the write-ahead log, which fails once more on a full disk, and then hides what failed first.
            if connection is not None:
                with suppress(apsw.Error):
                    connection.close(True)
            raise _translated(error, self.path) from None
        except BaseException:
            if connection is not None:
                self._give(connection)
            raise
        self._give(connection)

    def _take(self) -> apsw.Connection | None:
        with self._idle_lock:
            return self._idle.pop() if self._idle else None

    def _give(self, connection: apsw.Connection) -> None:
        with self._idle_lock:
            if len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


def open_store(path: Path, vault: Vault) -> Store:
    """The store in `path`, made if it is not there yet; its folder must be.

    One of an older version is brought to this one. Raises MalformedError for a file that is no store of ours or of a
    newer version.
    """
    if apsw.SQLITE_VERSION_NUMBER < _MIN_SQLITE:
        raise UnavailableError("expected SQLite 3.42 or newer in apsw", code="sqlite_too_old")
    store = Store(path, vault)
    try:
        connection = _patiently(lambda: _connect(path, _keep_promises))
        try:
            _patiently(lambda: _ensure_schema(connection, path, vault))
        except BaseException:
            connection.close(True)
            raise
    except apsw.Error as error:
        raise _translated(error, path) from None
    store._give(connection)
    return store


def _keep_promises(connection: apsw.Connection) -> None:
    store_rewrite.rewrite_if_needed(connection, APPLICATION_ID)


def _connect(path: Path, prepare: Callable[[apsw.Connection], None] = lambda _: None) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs=vfs.register())
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        # Plans do not depend on what is bound, so a statement is not planned anew for each value.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        prepare(connection)
        for name, wanted, expected in _PRAGMAS:
            connection.execute(f"PRAGMA {name} = {wanted}")
            found = connection.execute(f"PRAGMA {name}").fetchall()
            if found != [(expected,)]:
                raise UnavailableError(f"the store does not take the setting {name}", code="store_setting")
    except BaseException:
        connection.close(True)
        raise
    return connection


def _begin_read(connection: apsw.Connection) -> None:
    """Starts a transaction that sees what is committed now, whenever its first question comes."""
    connection.execute("BEGIN DEFERRED")
    try:
        _require_version(connection)
    except BaseException:
        _roll_back(connection)
        raise


def _patiently(attempt: Callable[[], Result]) -> Result:
    """What `attempt` gives, tried again for as long as any lock is waited for.

    While one process makes the file, or closes its last connection and clears the WAL away, SQLite tells others
    that it is busy without waiting.
    """
    until = time.monotonic() + BUSY_MILLISECONDS / 1000
    while True:
        try:
            return attempt()
        except apsw.BusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.005)


def _ensure_schema(connection: apsw.Connection, path: Path, vault: Vault) -> None:
    """Returns once the file has the schema of this version, made in one transaction by whoever is first."""
    version = _version(connection)
    if version == SCHEMA_VERSION:
        return
    if version:
        from memory import older_home, store_upgrade

        older_home.drop_older_indexes(path.parent)
        store_upgrade.upgrade(
            connection, vault, lambda: _version(connection) == SCHEMA_VERSION, SCHEMA_VERSION
        )
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _version(connection):
            from importlib import resources

            connection.execute(resources.files("memory").joinpath("schema.sql").read_text("utf-8"))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _version(connection: apsw.Connection) -> int:
    """Of which version of ours the file is, 0 if it is empty; an error if it is somebody else's or a newer one."""
    application = connection.execute("PRAGMA application_id").fetchall()[0][0]
    version = _user_version(connection)
    if application == APPLICATION_ID:
        if 0 < version <= SCHEMA_VERSION:
            return version
        raise _newer(version)
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if tables:
        raise MalformedError("expected a store, found another SQLite database")
    return 0


def _require_version(connection: apsw.Connection) -> None:
    """Returns if the transaction that has begun sees the schema that this program was written for.

    A process that runs while a newer program brings the store to its version must not go on by the older rules.
    """
    version = _user_version(connection)
    if version != SCHEMA_VERSION:
        raise _newer(version)


def _user_version(connection: apsw.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchall()[0][0])  # type: ignore[arg-type]  # a number


def _newer(version: int) -> MalformedError:
    return MalformedError(
        f"expected a store of version {SCHEMA_VERSION} at most, found version {version}: "
        "use the program that wrote it, or a newer one; nothing was changed",
        code="newer_store",
    )


def _truncate_wal(connection: apsw.Connection, until: float) -> bool:
    while True:
        left_seconds = max(until - time.monotonic(), 0.0)
        # SQLite waits for readers itself, as long as for any lock; here it is the caller who says how long.
        connection.set_busy_timeout(min(int(left_seconds * 1000), BUSY_MILLISECONDS))
        try:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
        except apsw.BusyError:
            busy = 1
        if not busy:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _translated(error: apsw.Error, path: Path) -> Exception:
    """What SQLite says about the file, the disk or a lock, as an error that says what to do; else as it is."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return UnavailableError(
            "the store is busy with another writer; try again", code="busy", retry_after_seconds=1
        )
    if isinstance(error, apsw.FullError):
        return UnavailableError("the disk is full; nothing was stored", code="disk_full")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.CantOpenError):
        return MalformedError(f"expected a home that can be written: {_why_not(path)}", code="read_only")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return VerificationError("the store file is damaged; nothing was changed", code="store_damaged")
    if isinstance(error, apsw.IOError):
        return UnavailableError("the disk failed under the store; nothing was stored", code="disk_error")
    return error


def _why_not(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return "its folder is not there"
    if path.exists() and not path.is_file():
        return "its store is not a file"
    return "the store cannot be opened for writing"
