"""Connections to PostgreSQL: what the modules of the store ask of one, and its errors as ours.

What fails because the server is away, is being replaced or is busy can be tried again: nothing of it is stored, or,
where the connection was lost during a commit, what an idempotency key tells of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors
from psycopg.types.numeric import Int8Dumper

from memory.pg_dialect import translate
from tlog.errors import MalformedError, UnavailableError, VerificationError

if TYPE_CHECKING:
    from memory.sql import Rows

CONNECT_SECONDS: Final = 10
STATEMENT_MILLISECONDS: Final = 60_000
LOCK_MILLISECONDS: Final = 30_000
IDLE_MILLISECONDS: Final = 600_000
_RETRY_SECONDS: Final = 1
_SETTINGS: Final = (
    "SET search_path = muniment; SET client_min_messages = warning; "
    f"SET statement_timeout = {STATEMENT_MILLISECONDS}; SET lock_timeout = {LOCK_MILLISECONDS}; "
    # A node that is stopped in the middle of a transaction does not keep the others waiting for ever.
    f"SET idle_in_transaction_session_timeout = {IDLE_MILLISECONDS}; SET synchronous_commit = on"
)
_AGAIN: Final = (errors.SerializationFailure, errors.DeadlockDetected)
_BUSY: Final = (*_AGAIN, errors.LockNotAvailable, errors.QueryCanceled, errors.TooManyConnections)
_DAMAGED: Final = (errors.DataCorrupted, errors.IndexCorrupted)


def connect(dsn: str) -> psycopg.Connection[Any]:
    """A connection without a transaction; UnavailableError where there is no server to be had."""
    with translated():
        try:
            raw = psycopg.connect(
                dsn, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="muniment"
            )
        except psycopg.ProgrammingError:
            raise MalformedError("expected the settings of a PostgreSQL connection") from None
        try:
            # Whatever its size, a number has one type, and so a statement one plan.
            raw.adapters.register_dumper(int, Int8Dumper)
            raw.execute(_SETTINGS)
        except BaseException:
            raw.close()
            raise
        return raw


def is_to_be_run_again(error: BaseException | None) -> bool:
    """Whether a transaction was undone because of others beside it, and may be run again."""
    return isinstance(error, _AGAIN)


def is_loss(error: psycopg.Error) -> bool:
    """Whether the connection is gone, and not what was asked over it refused."""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return lost and not isinstance(error, _BUSY)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the server as ours, which say what to do and never what was asked."""
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error) from error


def _translate(error: psycopg.Error) -> Exception:
    if isinstance(error, _BUSY):
        return UnavailableError(
            "the database is busy with others; try again", code="busy", retry_after_seconds=_RETRY_SECONDS
        )
    if isinstance(error, errors.DiskFull):
        return UnavailableError("the disk of the database is full; nothing was stored", code="disk_full")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        # After a failover, until the name of the server stands for the new primary.
        return UnavailableError(
            "the database takes no writes: it is a standby; try again",
            code="database_unavailable",
            retry_after_seconds=_RETRY_SECONDS,
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return MalformedError("expected a database role that may do this", code="read_only")
    if isinstance(error, _DAMAGED):
        return VerificationError("the database is damaged; nothing was changed", code="store_damaged")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return UnavailableError(
            "the database cannot be reached, or the connection to it was lost; try again",
            code="database_unavailable",
            retry_after_seconds=_RETRY_SECONDS,
        )
    return error


class PgConnection:
    """A connection as the modules of the store use one (memory.sql).

    In a pipeline a statement is sent without waiting for the one before it, until a row of an answer is asked for.
    What fails is then raised by a later statement, or as the transaction ends: it is the whole of it that is undone.
    """

    def __init__(self, raw: psycopg.Connection[Any], pipeline: psycopg.Pipeline | None = None) -> None:
        self.raw = raw
        self._pipeline = pipeline
        self._last: psycopg.Cursor[Any] | None = None

    def execute(self, statement: str, values: Any = None, /) -> Rows:
        """Runs a statement in the dialect of SQLite."""
        translation = translate(statement)
        return self.run(translation.sql, translation.values(values or ()))

    def executemany(self, statement: str, values: Any, /) -> None:
        """Runs a statement in the dialect of SQLite for each of many values."""
        translation = translate(statement)
        self._last = self.raw.cursor(binary=True)
        self._last.executemany(translation.sql, [translation.values(one) for one in values])

    def run(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """Runs a statement as it stands."""
        self._last = cursor = self.raw.cursor(binary=True)
        cursor.execute(sql, values)
        return cursor

    def changes(self) -> int:
        """How many rows the last statement changed."""
        if self._pipeline is not None:
            self._pipeline.sync()
        return 0 if self._last is None else max(self._last.rowcount, 0)
