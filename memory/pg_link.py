"""Connections to the database of a shared log: few, and opened anew once they fail.

Nearly each statement is a transaction of its own, and the server ends within seconds what is left open between two
messages: a node that is stopped at any instant keeps no row locked.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from memory.engines import require_postgres
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    import psycopg

Result = TypeVar("Result")

CONNECT_SECONDS: Final = 5
_SETTINGS: Final = (
    "SET statement_timeout = '10s'; SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '2s'; "
    "SET synchronous_commit = on; SET client_min_messages = warning"
)
_MOST_IDLE: Final = 16


class Link:
    """A database, by its connection string. Any thread may use it."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._mutex = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        # Links are kept as long as the process, so its end is what closes them.
        weakref.finalize(self, _close_all, self._idle, os.getpid())

    def run(self, work: Callable[[psycopg.Connection[Any]], Result]) -> Result:
        """What `work` gives of a connection that is in no transaction; UnavailableError if the server is not there.

        What it was to write may then have been written.
        """
        require_postgres()
        import psycopg

        connection = self._take()
        try:
            result = work(connection)
        except psycopg.Error as error:
            connection.close()
            raise _translated(error) from None
        except BaseException:
            connection.close()
            raise
        with self._mutex:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return result
        connection.close()
        return result

    def close(self) -> None:
        """Closes what is not in use; the next call opens it again."""
        with self._mutex:
            idle = self._idle.copy()
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _take(self) -> psycopg.Connection[Any]:
        with self._mutex:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        return _connect(self._dsn)


def _close_all(connections: list[psycopg.Connection[Any]], process: int) -> None:
    # A fork has the same sockets, and would end the connections of the process that it came from.
    if process == os.getpid():
        for connection in connections:
            connection.close()


def _connect(dsn: str) -> psycopg.Connection[Any]:
    import psycopg

    try:
        connection = psycopg.connect(
            dsn,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name="muniment log",
            # A server that is gone without a word is noticed before a lock of ours has run out twice.
            tcp_user_timeout=8000,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
        )
        try:
            connection.execute(_SETTINGS)
        except BaseException:
            connection.close()
            raise
    except psycopg.ProgrammingError:
        raise MalformedError("expected the settings of a PostgreSQL connection") from None
    except psycopg.Error as error:
        raise _translated(error) from None
    return connection


def _translated(error: psycopg.Error) -> Exception:
    """The error as one of ours, without anything that the server said."""
    import psycopg
    from psycopg import errors

    if isinstance(error, errors.InsufficientPrivilege | errors.UndefinedTable | errors.InvalidSchemaName):
        return MalformedError(
            "expected a database prepared for a log, and a role that may write it", code="database"
        )
    passing = (
        *(psycopg.OperationalError, psycopg.InterfaceError),
        *(errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout),
    )
    if isinstance(error, passing):
        return UnavailableError(
            "the database cannot be reached, is busy, or is a standby; nothing is lost, try again",
            code="database_unavailable",
            retry_after_seconds=1,
        )
    return error
