"""What a witness must never forget: per log, the last head that it cosigned. Many processes may share it.

The safety of a witness is the one UPDATE that `Store.advance_all` makes for a head. SQLite runs it alone, and
flushes it before the call returns (WAL, synchronous=FULL), so of two heads that follow the same head one is
stored and the other is not.

A witness that has lost its database would cosign a fork without noticing. So `create_store` leaves a marker
beside it, and `open_store` never creates a database: a folder with the marker alone is an error.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from tlog.checkpoint import Checkpoint
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.merkle import EMPTY_ROOT
from tlog.note import SignatureType, VerifierKey, format_note
from tlog.storage import DirectoryStorage
from witness.decide import KnownHead, Suspect
from witness.marker import MARKER, KeySource, Marker, format_marker, parse_marker
from witness.records import Advance, Cosigned, Evidence, LogRecord, Terms
from witness.rows import LOGS, ONE_LOG, advance_row, insert_log, keys_of, record_of

DATABASE = "witness.db"
BUSY_TIMEOUT_MS = 5000
MAX_UNPROVEN_PER_LOG = 100
MAX_FORKS_PER_LOG = 1000
MAX_REMEMBERED_LOGS = 4096
PROBE_SECONDS = 5.0

_LOG_KINDS = (SignatureType.ED25519, SignatureType.MLDSA44)

_SCHEMA = """
CREATE TABLE identity (id TEXT PRIMARY KEY) STRICT;

CREATE TABLE log (
    origin       TEXT PRIMARY KEY,
    digest       BLOB NOT NULL UNIQUE,
    size         INTEGER CHECK (size >= 0),
    root         BLOB CHECK (length(root) = 32),
    time         INTEGER CHECK (time > 0),
    note         BLOB,              -- the checkpoint as the log signed it: evidence, should the log fork
    cosignatures BLOB,
    -- all of them, or none before the first cosignature
    CHECK ((size IS NULL) + (root IS NULL) + (time IS NULL) + (note IS NULL) + (cosignatures IS NULL)
           IN (0, 5))
) STRICT, WITHOUT ROWID;

CREATE TABLE log_key (
    origin TEXT NOT NULL REFERENCES log,
    vkey   TEXT NOT NULL,
    PRIMARY KEY (origin, vkey)
) STRICT, WITHOUT ROWID;

CREATE TABLE evidence (
    id            INTEGER PRIMARY KEY,
    origin        TEXT NOT NULL REFERENCES log,
    kind          TEXT NOT NULL CHECK (kind IN ('fork', 'unproven')),
    size          INTEGER NOT NULL,
    root          BLOB NOT NULL,
    note          BLOB NOT NULL,
    known_size    INTEGER NOT NULL,
    known_root    BLOB NOT NULL,
    known_note    BLOB NOT NULL,
    recorded_at   INTEGER NOT NULL,
    UNIQUE (origin, kind, size, root)
) STRICT;

CREATE TABLE log_terms (
    origin           TEXT PRIMARY KEY REFERENCES log,
    requests_per_day INTEGER NOT NULL CHECK (requests_per_day > 0),
    contact          TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 0), written_at INTEGER NOT NULL) STRICT;
"""

_LATER_TABLES = ("log_terms", "probe")


def create_store(
    folder: Path, name: str, vkeys: Sequence[str], sources: Sequence[tuple[str, KeySource]] = ()
) -> None:
    """Returns once an empty database, and then the marker, stand durably in `folder`.

    RefusedError if any of the two stands there already: nothing is ever overwritten.
    """
    try:
        if (folder / MARKER).exists():
            raise FileExistsError
        os.close(os.open(folder / DATABASE, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        raise RefusedError(
            "witness: this folder already holds a witness, or part of one", code="exists"
        ) from None
    marker = Marker(name, tuple(vkeys), secrets.token_hex(16), tuple(sources))
    connection = apsw.Connection(str(folder / DATABASE))
    try:
        _make_durable(connection)
        with connection:
            connection.execute(_SCHEMA)
            connection.execute("INSERT INTO identity VALUES (?)", (marker.database,))
    finally:
        connection.close()
    # Last, and it flushes the folder: where the marker stands, the database stood.
    DirectoryStorage(folder).create(MARKER, format_marker(marker))


def open_store(folder: Path) -> Store:
    """The store of a witness; it refuses to start from nothing.

    RefusedError with code `not_initialised`, `not_owner` for another user's state, or `state_lost` where
    something was lost; UnavailableError if the database can't be opened at the moment.
    """
    data, path = DirectoryStorage(folder).read(MARKER), folder / DATABASE
    if data is None and path.exists():
        raise _lost(f"{MARKER} is gone, or `muniment witness init` was stopped before it wrote it")
    if data is None:
        raise RefusedError(
            "witness: no witness was set up in this folder; make one with `muniment witness init`",
            code="not_initialised",
        )
    if (folder / MARKER).stat().st_uid != os.geteuid():
        # What root writes beside a service of another user, a new key among it, the service can't read.
        raise RefusedError(
            "witness: this folder is another user's; run this as the user that the witness runs as",
            code="not_owner",
        )
    marker = parse_marker(data)
    if not path.is_file():
        raise _lost("the database is gone")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        if connection.execute("SELECT id FROM identity").fetchall() != [(marker.database,)]:
            raise _lost("the database is that of another witness")
        _make_durable(connection)
        _add_missing_tables(connection)
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
        raise _lost("the database can't be read") from None
    except (apsw.BusyError, apsw.CantOpenError, apsw.IOError, apsw.ReadOnlyError):
        raise UnavailableError("witness: the database can't be opened at the moment") from None
    return Store(marker, connection)


def replace_marker(folder: Path, expected: Marker, changed: Marker) -> None:
    """Returns once the marker says who the witness is from now on; RefusedError if another was faster."""
    if not DirectoryStorage(folder).swap(MARKER, format_marker(expected), format_marker(changed)):
        raise RefusedError("witness: its keys were changed by somebody else just now", code="raced")


def _lost(what: str) -> RefusedError:
    return RefusedError(
        f"witness: {what}. Without it this key could cosign a head that contradicts an earlier one, so "
        "nothing is served. Put the database back as it was last written, not an older copy. If it is lost, "
        "give up this name and key: set up a new witness in an empty folder, and have its vkey put into the "
        "policies in place of this one's",
        code="state_lost",
    )


def _make_durable(connection: apsw.Connection) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        # A statement that gives a row stops where it is until the row is fetched.
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _add_missing_tables(connection: apsw.Connection) -> None:
    """A state of an earlier version lacks those that came later. The others are never made anew, empty."""
    for name in _LATER_TABLES:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).fetchall():
            statement = next(one for one in _SCHEMA.split(";") if f"CREATE TABLE {name} " in one)
            connection.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))


class Store:
    """The logs that a witness knows and what it cosigned. Threads may share one."""

    def __init__(self, marker: Marker, connection: apsw.Connection) -> None:
        self.marker = marker
        self._connection = connection
        self._lock = threading.Lock()
        self._known: dict[str, LogRecord] = {}
        self._known_version: int | None = None
        self._probing = threading.Lock()
        self._probe_due = 0.0
        self._probe_error: Error | None = None

    def close(self) -> None:
        """Returns once the database is closed."""
        with self._lock:
            self._connection.close()

    def add_log(self, origin: str, key: VerifierKey, terms: Terms | None = None) -> bool:
        """True once the key is trusted for the origin, False if it was already."""
        if key.kind not in _LOG_KINDS:
            raise MalformedError("witness: expected the vkey of a log, of type 1 (Ed25519) or 6 (ML-DSA-44)")
        Checkpoint(origin, 0, EMPTY_ROOT)  # an origin that no checkpoint can have is refused here
        with self._changing() as database:
            for other in keys_of(database, origin):
                if (other.name, other.key_id) == (key.name, key.key_id) and other != key:
                    raise RefusedError("witness: another key of this log has this name and key id")
            return insert_log(database, origin, key, terms)

    def import_logs(self, listed: Sequence[tuple[str, VerifierKey, Terms]]) -> int:
        """How many of these logs were not known, once all are, with these terms; all of them or none.

        RefusedError with code `other_key` where a log is known by other keys: whoever writes a list may not
        give a log that was added by hand another key.
        """
        with self._changing() as database:
            for origin, key, _ in listed:
                if any(known != key for known in keys_of(database, origin)):
                    raise RefusedError(
                        "witness: the list gives a log another key than the one it is known by; nothing was "
                        "imported",
                        code="other_key",
                        origin=origin,
                    )
            return sum(insert_log(database, origin, key, terms) for origin, key, terms in listed)

    def remove_log(self, origin: str) -> bool:
        """True once nothing is cosigned for the log any more, False if it was not known.

        The last head stays: were the log added again, a head that contradicts it would still be refused.
        """
        with self._changing() as database:
            database.execute("DELETE FROM log_key WHERE origin = ?", (origin,))
            removed = database.changes() > 0
            database.execute("DELETE FROM log_terms WHERE origin = ?", (origin,))
            return removed

    def log(self, origin: str) -> LogRecord | None:
        """The log with this origin, None if it is not known here."""
        with self._database() as database:
            # Changes with every commit of another connection; until then what was read is what is there.
            version: Any = database.execute("PRAGMA data_version").fetchall()[0][0]
            if version != self._known_version or len(self._known) > MAX_REMEMBERED_LOGS:
                self._known_version = version
                self._known.clear()
            if origin not in self._known:
                rows: list[Any] = database.execute(ONE_LOG, (origin,)).fetchall()
                if not rows:
                    return None
                self._known[origin] = record_of(rows[0])
            return self._known[origin]

    def log_by_digest(self, digest: bytes) -> LogRecord | None:
        """The log whose origin hashes to `digest`, None if it is not known here."""
        return next(iter(self._logs("WHERE digest = ?", (digest,))), None)

    def logs(self) -> tuple[LogRecord, ...]:
        """All logs, sorted by origin."""
        return tuple(self._logs("", ()))

    def advance(self, origin: str, last: Cosigned | None, new: Cosigned) -> bool:
        """True once `new` is durably stored in place of `last`; False if `last` was not the latest any more.

        A signature may leave the process only after a True. After an exception the outcome is unknown, and
        the signature must be dropped.
        """
        return self.advance_all((Advance(origin, last, new),))[0]

    def advance_all(self, steps: Sequence[Advance]) -> tuple[bool, ...]:
        """What `advance` says of each step, once all that were taken are durable, in one commit.

        A step may follow another one of the same log in the same call. If one is not taken, the others are
        none the less.
        """
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                taken = tuple(advance_row(database, step) for step in steps)
                database.execute("COMMIT")
            except BaseException:
                self._known.clear()  # whether it was stored or not is unknown
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            for step, stored in zip(steps, taken, strict=True):
                known = self._known.pop(step.origin, None)
                if stored and known:
                    self._known[step.origin] = replace(known, cosigned=step.new)
        return taken

    def check_writable(self) -> None:
        """Returns if a head could be stored a moment ago; UnavailableError if not.

        A row is stored, for on a full disk a transaction begins and ends like any other. Whatever comes of it
        stands for `PROBE_SECONDS`: whoever asks more often wears no disk.
        """
        with self._probing:
            if time.monotonic() >= self._probe_due:
                try:
                    self._write_probe()
                    self._probe_error = None
                except Error as error:
                    self._probe_error = error
                self._probe_due = time.monotonic() + PROBE_SECONDS
            if self._probe_error:
                raise self._probe_error.with_traceback(None)

    def _write_probe(self) -> None:
        with self._database() as database:
            database.execute("INSERT OR REPLACE INTO probe VALUES (0, ?)", (int(time.time()),))

    def evidence_counts(self) -> dict[str, int]:
        """How much evidence of each kind there is."""
        with self._database() as database:
            rows: list[Any] = database.execute("SELECT kind, count(*) FROM evidence GROUP BY kind").fetchall()
        return dict(rows)

    def record_evidence(self, origin: str, last: Cosigned, suspect: Suspect, recorded_at: int) -> None:
        """Returns once a refused head stands beside the cosigned one that it contradicts, each head once.

        Only the newest unproven heads are kept: anybody can make one from a log's public checkpoint. Forks
        are kept up to a number that no honest log comes near.
        """
        head, note = suspect.head, format_note(suspect.note)
        row = (head.size, head.root, note, last.head.size, last.head.root, last.note, recorded_at)
        with self._database() as database, database:
            database.execute(
                "INSERT INTO evidence"
                " (origin, kind, size, root, note, known_size, known_root, known_note, recorded_at)"
                " SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE"
                " (SELECT count(*) FROM evidence WHERE origin = ? AND kind = 'fork') < ?"
                " ON CONFLICT DO NOTHING",
                (origin, suspect.kind, *row, origin, MAX_FORKS_PER_LOG),
            )
            database.execute(
                "DELETE FROM evidence WHERE kind = 'unproven' AND origin = ? AND id NOT IN"
                " (SELECT id FROM evidence WHERE kind = 'unproven' AND origin = ? ORDER BY id DESC LIMIT ?)",
                (origin, origin, MAX_UNPROVEN_PER_LOG),
            )

    def evidence(self) -> tuple[Evidence, ...]:
        """All evidence, in the order in which it came."""
        with self._database() as database:
            rows: list[Any] = database.execute(
                "SELECT id, origin, kind, size, root, note, known_size, known_root, known_note, recorded_at"
                " FROM evidence ORDER BY id"
            ).fetchall()
        return tuple(
            Evidence(
                id, origin, kind, KnownHead(size, root), note, KnownHead(*known), known_note, recorded_at
            )
            for id, origin, kind, size, root, note, *known, known_note, recorded_at in rows
        )

    def _logs(self, where: str, values: tuple[object, ...]) -> Iterable[LogRecord]:
        with self._database() as database:
            rows: list[Any] = database.execute(f"{LOGS} {where} ORDER BY origin", values).fetchall()
        return map(record_of, rows)

    @contextmanager
    def _changing(self) -> Iterator[apsw.Connection]:
        """The connection in a transaction that changes which logs are known, and how."""
        with self._database() as database:
            self._known.clear()
            with database:
                yield database
            self._known.clear()

    @contextmanager
    def _database(self) -> Iterator[apsw.Connection]:
        """The connection, to one thread at a time; what may pass by itself becomes an UnavailableError."""
        with self._lock:
            try:
                yield self._connection
            except (apsw.BusyError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError):
                raise UnavailableError("witness: the database can't be written at the moment") from None
            except (apsw.CorruptError, apsw.NotADBError):
                raise VerificationError("witness: the database is damaged", code="state_lost") from None
