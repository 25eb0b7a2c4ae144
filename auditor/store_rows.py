"""The rows of a store, read with the auditor's own SQL from a snapshot. A row that can't be read is a flaw.

SQLite keeps any type in any column, so what comes back is checked before it becomes a value: a store under
audit may be anything. Names of people and content leave this module only inside the rows of events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeVar

import apsw

from auditor.evidence import (
    ActRow,
    ConflictRow,
    ErasureRow,
    EventRow,
    FactRow,
    StoreFlaw,
    StoreRows,
    TenantRow,
)
from tlog.errors import Error, MalformedError

TABLES: Final = frozenset(
    {
        "meta",
        "tenants",
        "events",
        "acts",
        "contents",
        "facts",
        "search",
        "search_data",
        "search_idx",
        "search_docsize",
        "search_config",
        "ledger",
        "conflicts",
        "idempotency",
        "tokens",
        "erasures",
    }
)
MAX_STEPS: Final = 2_000_000_000
"""Steps of the SQLite machine before a statement is given up: a schema under audit may be a trap."""
_CHECK_STEPS: Final = 1_000_000
_MAX_VALUE_BYTES: Final = 128 * 1024 * 1024
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ .,:;()*=-]{1,200}")
_Row = TypeVar("_Row")

_EVENTS: Final = """
    SELECT e.seq, e.tenant, e.tenant_seq, e.commitment, e.link, e.link_salt, e.content_hash, e.entry,
           e.entry_index, c.content, c.salt
    FROM events e LEFT JOIN contents c ON c.seq = e.seq
"""
_FACTS: Final = """
    SELECT seq, tenant, agent_tag, key_tag, subject_tag, text_tag, status, valid_from, declared, valid_until,
           recorded_at, replaced_at, replaced_by, end_erased
    FROM facts
"""
_CONFLICTS: Final = "SELECT seq, tenant, key_tag, closed_by FROM conflicts"
_ERASURES: Final = "SELECT number, tenant, request, state, tombstone, manifest FROM erasures"
# i integer, b bytes, t text; a capital letter may be NULL.
_EVENT_TYPES: Final = "iiibbbbbIBB"
_FACT_TYPES: Final = "iibBBbtiiIiIIi"
_CONFLICT_TYPES: Final = "iibI"
_ERASURE_TYPES: Final = "iibtIB"
_TYPES: Final = {"i": int, "b": bytes, "t": str}


def read_rows(connection: apsw.Connection, tenant: str | None) -> StoreRows:
    """Everything that the checks of a store need; with `tenant`, the rows of that tenant alone.

    Raises MalformedError if the store has no such tenant.
    """
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    reader.limit()
    tenants = reader.rows("tenants", "SELECT id, number, last_seq FROM tenants", "ibi", TenantRow)
    tenant_id = None if tenant is None else _tenant_id(connection, tenant)
    where, bound = ("", ()) if tenant_id is None else (" WHERE {}tenant = ?", (tenant_id,))
    e_where, plain = where.format("e."), where.format("")
    events = reader.rows("events", f"{_EVENTS}{e_where} ORDER BY e.seq", _EVENT_TYPES, EventRow, bound)
    facts = reader.rows("facts", f"{_FACTS}{plain} ORDER BY seq", _FACT_TYPES, FactRow, bound)
    acts = reader.rows("acts", f"SELECT tenant, target, seq, act FROM acts{plain}", "iiit", ActRow, bound)
    conflicts = reader.rows(
        "conflicts", f"{_CONFLICTS}{plain} ORDER BY seq", _CONFLICT_TYPES, ConflictRow, bound
    )
    erasures = reader.rows(
        "erasures", f"{_ERASURES}{plain} ORDER BY number", _ERASURE_TYPES, ErasureRow, bound
    )
    if tenant_id is not None:
        tenants = [each for each in tenants if each.id == tenant_id]
    return StoreRows(
        tenants=tuple(tenants),
        events=tuple(events),
        facts=tuple(facts),
        acts=tuple(acts),
        conflicts=tuple(conflicts),
        erasures=tuple(erasures),
        stray_contents=tuple(_strays(reader)) if tenant_id is None else (),
        meta=_meta(reader),
        flaws=tuple(flaws),
        tenant_id=tenant_id,
    )


def check_soundness(connection: apsw.Connection) -> tuple[StoreFlaw, ...]:
    """What SQLite's own check of tables against their indexes finds, and what the schema has too much."""
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    reader.limit()
    for (line,) in reader.raw("the whole file", "PRAGMA integrity_check(100)"):
        if line != "ok":
            said = line if isinstance(line, str) and _PLAIN.fullmatch(line) else "something unsound"
            flaws.append(StoreFlaw("store.db", f"SQLite's own check says: {said}"))
    return tuple(flaws)


def unknown_tables(connection: apsw.Connection) -> tuple[str, ...]:
    """Tables, views and triggers that a store does not have: content could stand in them."""
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    named = reader.raw("sqlite_schema", "SELECT type, name FROM sqlite_schema WHERE type <> 'index'")
    unknown = [name for kind, name in named if kind != "table" or name not in TABLES]
    return tuple(
        name if isinstance(name, str) and _PLAIN.fullmatch(name) else "(name withheld)" for name in unknown
    )


def row_numbers(connection: apsw.Connection, table: Literal["contents", "facts"]) -> Iterator[int]:
    """The numbers of the rows that a table has now, of every tenant."""
    for (seq,) in _Reader(connection, []).raw(table, f"SELECT seq FROM {table}"):
        if type(seq) is int:
            yield seq


class _Reader:
    """Statements whose failure is a flaw of the store and not of the audit."""

    def __init__(self, connection: apsw.Connection, flaws: list[StoreFlaw]) -> None:
        self._connection = connection
        self._flaws = flaws
        self._steps = 0

    def limit(self) -> None:
        """Bound what one statement may cost, from now on."""
        self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        self._connection.set_progress_handler(self._spent, _CHECK_STEPS)

    def rows(
        self, table: str, sql: str, types: str, make: Callable[..., _Row], bound: Sequence[object] = ()
    ) -> list[_Row]:
        """The rows of a table as values; one of the wrong types is noted as a flaw and left out."""
        found = []
        for row in self.raw(table, sql, bound):
            if _fits(row, types):
                found.append(make(*row))
            else:
                place = row[0] if type(row[0]) is int else "unknown"
                where = f"store.db {table} row {place}"
                self._flaws.append(StoreFlaw(where, "A column has a value that it can't have."))
        return found

    def raw(self, table: str, sql: str, bound: Sequence[object] = ()) -> Iterator[Sequence[Any]]:
        """The rows of a statement, up to the first that can't be read."""
        self._steps = 0
        last: object = None
        try:
            for row in self._connection.execute(sql, tuple(bound)):
                last = row[0]
                yield row
        except (apsw.Error, Error):
            after = f" after row {last}" if type(last) is int else ""
            self._flaws.append(
                StoreFlaw(f"store.db {table}{after}", "The file can't be read there: it is damaged.")
            )

    def _spent(self) -> bool:
        self._steps += _CHECK_STEPS
        return self._steps > MAX_STEPS


def _fits(row: Sequence[Any], types: str) -> bool:
    return all(
        (value is None and kind.isupper()) or type(value) is _TYPES[kind.lower()]
        for value, kind in zip(row, types, strict=True)
    )


def _tenant_id(connection: apsw.Connection, tenant: str) -> int:
    try:
        found = connection.execute("SELECT id FROM tenants WHERE name = ?", (tenant,)).fetchall()
    except apsw.Error:
        found = []
    if len(found) != 1 or type(found[0][0]) is not int:
        raise MalformedError("expected the name of a tenant of the store", code="unknown_tenant")
    return found[0][0]


def _strays(reader: _Reader) -> Iterator[int]:
    sql = "SELECT seq FROM contents WHERE seq NOT IN (SELECT seq FROM events)"
    for (seq,) in reader.raw("contents", sql):
        if type(seq) is int:
            yield seq


def _meta(reader: _Reader) -> dict[str, int | bytes | str]:
    return {
        name: value
        for name, value in reader.raw("meta", "SELECT name, value FROM meta")
        if type(name) is str and type(value) in (int, bytes, str)
    }
