"""The SQL of a store that moves: a connection beside which nobody has one, and its rows batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from memory import vfs
from memory.rows import EVENT_COLUMNS
from memory.store import APPLICATION_ID
from memory.store_backup import columns_of
from memory.store_read import Snapshot
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    Row = tuple[Any, ...]

WHOLE: Final = (
    "acts",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "access",
    "openings",
    "backups",
    "grants",
    "erasures",
    "vectors",
)
"""Tables that are moved as they are, in the place of whatever an earlier attempt has left."""
_TENANT: Final = ("id", "number", "name_tag", "last_seq")
_OF_STATEMENT: Final = (*(f"e.{name}" for name in EVENT_COLUMNS), "c.content", "c.salt")


@contextmanager
def alone(path: Path) -> Iterator[Snapshot]:
    """A view of a store beside which no other process has one: it could write what is not moved."""
    connection = apsw.Connection(str(path), vfs=vfs.register())
    try:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            mode = connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError:
            mode = []
        if mode != [("delete",)]:
            raise UnavailableError(
                "another process has this home open; end it first", code="busy", retry_after_seconds=5
            )
        if connection.execute("PRAGMA application_id").fetchall() != [(APPLICATION_ID,)]:
            raise MalformedError("expected a store of a home")
        yield Snapshot(connection)
    finally:
        connection.close(True)


def commitments(view: Snapshot) -> set[bytes]:
    """The commitment of every statement."""
    return {bytes(row[0]) for row in view.rows("SELECT commitment FROM events")}


def tenants(view: Snapshot) -> list[Row]:
    """Row id, number, tag, name and last number of each tenant."""
    return view.rows("SELECT id, number, name_tag, name, last_seq FROM tenants ORDER BY id")


def statements(view: Snapshot, after: int, limit: int) -> list[tuple[Row, dict[str, Any]]]:
    """Statements after a number, in order, each with content and salt, and the row of its fact, if there is one."""
    facts = columns_of(view, "facts")
    rows = view.rows(
        f"""SELECT {", ".join((*_OF_STATEMENT, *(f"f.{name}" for name in facts)))}
            FROM events e LEFT JOIN contents c ON c.seq = e.seq LEFT JOIN facts f ON f.seq = e.seq
            WHERE e.seq > ? ORDER BY e.seq LIMIT ?""",
        after,
        limit,
    )
    count = len(_OF_STATEMENT)
    return [(row[:count], dict(zip(facts, row[count:], strict=True))) for row in rows]


def columns(view: Snapshot, table: str) -> tuple[str, ...]:
    """The columns of a table that are the same on both engines."""
    return _TENANT if table == "tenants" else columns_of(view, table)


def rows(view: Snapshot, table: str, names: Sequence[str]) -> Iterator[Row]:
    """All rows of a table, one after the other."""
    yield from view.connection.execute(f"SELECT {', '.join(names)} FROM {table}")


def meta(view: Snapshot) -> list[Row]:
    """What the store keeps of itself."""
    return view.rows("SELECT name, value FROM meta")


def count_contents(view: Snapshot) -> int:
    """How many contents there are."""
    return int(view.rows("SELECT count(*) FROM contents")[0][0])
