"""The rows of a store, read with the auditor's own SQL from a snapshot. A row that can't be read is a flaw.

SQLite keeps any type in any column, so what comes back is checked before it becomes a value: a store under
audit may be anything. Names of people and content leave this module only inside the rows of events.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeVar

import apsw

from auditor.evidence import (
    ActRow,
    BackupRow,
    ConflictRow,
    ErasureRow,
    EventRow,
    FactRow,
    GrantRow,
    LedgerRow,
    OpeningRow,
    RequestRow,
    StoreFlaw,
    StoreRows,
    TenantRow,
    TokenRow,
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
        "vectors",
        "search",
        "search_data",
        "search_idx",
        "search_config",
        "ledger",
        "conflicts",
        "idempotency",
        "tokens",
        "access",
        "erasures",
        "openings",
        "backups",
        "grants",
    }
)
MAX_STEPS: Final = 2_000_000_000
"""Steps of the SQLite machine before a statement is given up: a schema under audit may be a trap."""
_CHECK_STEPS: Final = 1_000_000
_CACHE_BYTES: Final = 32 * 1024 * 1024
_READING_BYTES: Final = 2 * 1024 * 1024
"""Tables are read from end to end: a page is hardly asked for twice."""
_WORD_BYTES: Final = 24
_MAX_VALUE_BYTES: Final = 128 * 1024 * 1024
_PLAIN: Final = re.compile(r"[A-Za-z0-9_ .,:;()*=-]{1,200}")
_VERSION: Final = 3
_MARKS: Final = {"application_id": 0x4D554E49, "user_version": _VERSION}
_Row = TypeVar("_Row")
Take = Callable[[Iterable[EventRow], Sequence[TenantRow]], Iterable[EventRow]]

# i integer, b bytes, t text, read as bytes; a capital letter may be NULL. n and h are
# integers and bytes that other rows have as well: each is in memory once. A table's first column names the row.
_EVENTS: Final = (
    "SELECT e.seq, e.tenant, e.tenant_seq, e.commitment, e.link, e.link_salt, e.content_hash, "
    # What is longer than it can be is cut, so that it is wrong and costs no more memory than what is right.
    "iif(length(e.entry) > 65535, substr(e.entry, 1, 65536), e.entry), e.entry_index, "
    "iif(length(c.content) > 1048576, substr(c.content, 1, 1048577), c.content), c.salt "
    "FROM events e LEFT JOIN contents c ON c.seq = e.seq",
    "ninbbbbbNBB",
)
_FACTS: Final = (
    "SELECT seq, tenant, agent_tag, key_tag, subject_tag, text_tag, CAST(status AS BLOB), valid_from, declared, "
    "valid_until, recorded_at, replaced_at, replaced_by, end_erased, on_hold FROM facts",
    "nihHHbtniInNNii",
)
_ACTS: Final = ("SELECT tenant, target, seq, CAST(act AS BLOB) FROM acts", "innt")
_CONFLICTS: Final = ("SELECT seq, tenant, agent_tag, key_tag, closed_by FROM conflicts", "iihhI")
_LEDGER: Final = (
    "SELECT id, tenant, agent_tag, key_tag, subject_tag, name_tags, word_count, canon_version, source, "
    "expires_at, until FROM ledger",
    "iihhHhiiNII",
)
_REQUESTS: Final = ("SELECT id, tenant, seq, body_tag, CAST(answer AS BLOB) FROM idempotency", "iiibt")
_TENANTS: Final = ("SELECT id, number, CAST(name AS BLOB), last_seq FROM tenants", "ibti")
_TOKENS: Final = ("SELECT id, tenant, target FROM tokens", "iiI")
_ERASURES: Final = (
    "SELECT number, tenant, request, CAST(state AS BLOB), tombstone, "
    "iif(length(detail) > 4194304, substr(detail, 1, 4194305), detail), "
    "iif(typeof(manifest) = 'blob', own_sha256(manifest), manifest) FROM erasures",
    "iibtIbB",
)
_OPENINGS: Final = (
    "SELECT id, tenant, seq, recipient, CAST(kind AS BLOB), given_at FROM openings",
    "iiibti",
)
_BACKUPS: Final = ("SELECT number, last_seq, made_at, expires_at FROM backups", "biii")
_GRANTS: Final = ("SELECT seq, tenant, owner_tag, reader_tag FROM grants", "iibb")
_TYPES: Final[dict[str, type]] = {"i": int, "n": int, "b": bytes, "h": bytes, "t": bytes}
_SHARED: Final = "nNhH"


def _as_they_are(rows: Iterable[EventRow], tenants: Sequence[TenantRow]) -> Iterable[EventRow]:
    return rows


def read_rows(connection: apsw.Connection, tenant: str | None, take: Take = _as_they_are) -> StoreRows:
    """Everything that the checks of a store need; with `tenant`, the rows of that tenant alone.

    `take` gets the rows of events as they are read, and the tenants; what it makes of them is kept.
    Raises MalformedError if the store has no such tenant.
    """
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    reader.limit()
    tenants = reader.rows("tenants", _TENANTS, TenantRow)
    tenant_id = None if tenant is None else tenant_id_of(connection, tenant)
    chosen = "" if tenant_id is None else f" WHERE tenant = {tenant_id}"
    if tenant_id is not None:
        tenants = tuple(each for each in tenants if each.id == tenant_id)
    of_events = f"{chosen.replace('tenant', 'e.tenant')} ORDER BY e.seq"
    rows = StoreRows(
        tenants=tenants,
        events=tuple(take(reader.each("events", _EVENTS, EventRow, of_events), tenants)),
        facts=reader.rows("facts", _FACTS, FactRow, f"{chosen} ORDER BY seq"),
        acts=reader.rows("acts", _ACTS, ActRow, chosen),
        conflicts=reader.rows("conflicts", _CONFLICTS, ConflictRow, f"{chosen} ORDER BY seq"),
        ledger=reader.rows("ledger", _LEDGER, LedgerRow, f"{chosen} ORDER BY id"),
        requests=reader.rows("idempotency", _REQUESTS, RequestRow, f"{chosen} ORDER BY id"),
        tokens=reader.rows("tokens", _TOKENS, TokenRow, chosen),
        erasures=reader.rows("erasures", _ERASURES, ErasureRow, f"{chosen} ORDER BY number"),
        openings=reader.rows("openings", _OPENINGS, OpeningRow, chosen),
        backups=reader.rows("backups", _BACKUPS, BackupRow),
        grants=reader.rows("grants", _GRANTS, GrantRow, f"{chosen} ORDER BY seq"),
        stray_contents=tuple(_strays(reader)) if tenant_id is None else (),
        meta=_meta(reader),
        flaws=tuple(flaws),
        tenant_id=tenant_id,
    )
    reader.end()
    return rows


def read_some(connection: apsw.Connection, chosen: Mapping[str, str], take: Take) -> StoreRows:
    """The same, of some tables only those rows that a condition chooses."""
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    reader.limit()
    tenants = reader.rows("tenants", _TENANTS, TenantRow)
    of_events = f" WHERE {chosen['events']} ORDER BY e.seq"
    return StoreRows(
        tenants=tenants,
        events=tuple(take(reader.each("events", _EVENTS, EventRow, of_events), tenants)),
        facts=reader.rows("facts", _FACTS, FactRow, f" WHERE {chosen['facts']} ORDER BY seq"),
        acts=reader.rows("acts", _ACTS, ActRow, f" WHERE {chosen['acts']}"),
        conflicts=reader.rows(
            "conflicts", _CONFLICTS, ConflictRow, f" WHERE {chosen['conflicts']} ORDER BY seq"
        ),
        ledger=reader.rows("ledger", _LEDGER, LedgerRow, f" WHERE {chosen['ledger']} ORDER BY id"),
        requests=reader.rows(
            "idempotency", _REQUESTS, RequestRow, f" WHERE {chosen['idempotency']} ORDER BY id"
        ),
        tokens=reader.rows("tokens", _TOKENS, TokenRow),
        erasures=reader.rows("erasures", _ERASURES, ErasureRow, " ORDER BY number"),
        openings=reader.rows("openings", _OPENINGS, OpeningRow),
        backups=reader.rows("backups", _BACKUPS, BackupRow),
        grants=reader.rows("grants", _GRANTS, GrantRow, " ORDER BY seq"),
        stray_contents=tuple(_strays(reader)) if chosen["facts"] != "0" else (),
        meta=_meta(reader),
        flaws=tuple(flaws),
    )


def read_few(connection: apsw.Connection) -> StoreRows:
    """The rows of which a store has few: tenants and erasures."""
    reader = _Reader(connection, [])
    reader.limit()
    return StoreRows(
        tenants=reader.rows("tenants", _TENANTS, TenantRow),
        erasures=reader.rows("erasures", _ERASURES, ErasureRow, " ORDER BY number"),
    )


def check_soundness(connection: apsw.Connection) -> tuple[StoreFlaw, ...]:
    """What SQLite's own check of tables against their indexes finds, and what the schema has too much."""
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    reader.limit(_CACHE_BYTES)
    for name, expected in _MARKS.items():
        if [value for (value,) in reader.raw("file header", f"PRAGMA {name}")] != [expected]:
            flaws.append(StoreFlaw("store.db file header", f"The {name} of the file is not that of a store."))
    for (line,) in reader.raw("the whole file", "PRAGMA integrity_check(100)"):
        if line != "ok":
            said = line if isinstance(line, str) and _PLAIN.fullmatch(line) else "something unsound"
            flaws.append(StoreFlaw("store.db", f"SQLite's own check says: {said}"))
    return tuple(flaws)


def require_this_version(connection: apsw.Connection) -> None:
    """Returns unless the store is one of an older version, of which nothing here says what it may hold."""
    reader = _Reader(connection, [])
    marks = {name: [value for (value,) in reader.raw("file header", f"PRAGMA {name}")] for name in _MARKS}
    if marks["application_id"] != [_MARKS["application_id"]]:
        return
    if any(type(version) is int and 0 < version < _VERSION for version in marks["user_version"]):
        raise MalformedError(
            f"the store is of an older version than {_VERSION}: open the home once with this program (muniment "
            "status), which brings it up to date, or audit it with the program that wrote it",
            code="older_store",
        )


def missing_tables(connection: apsw.Connection) -> bool:
    """Whether a table of a store is not there, or is a view or a virtual table that only calls itself so.

    Then nothing is read: what stands in its place may be a program without end.
    """
    flaws: list[StoreFlaw] = []
    sql = """SELECT CAST(name AS BLOB) FROM sqlite_schema
             WHERE type = 'table' AND (rootpage > 0 OR name = 'search')"""
    found = {
        _text(name) for (name,) in _Reader(connection, flaws).raw("sqlite_schema", sql) if type(name) is bytes
    }
    return not found >= TABLES


def unknown_tables(connection: apsw.Connection) -> tuple[int, ...]:
    """Tables, views and triggers that a store does not have, by their row in the schema: a name may be content."""
    flaws: list[StoreFlaw] = []
    reader = _Reader(connection, flaws)
    sql = "SELECT rowid, type = 'table', CAST(name AS BLOB) FROM sqlite_schema WHERE type <> 'index'"
    unknown = []
    for rowid, is_table, name in reader.raw("sqlite_schema", sql):
        text = name.decode("utf-8", "replace") if type(name) is bytes else ""
        if not is_table or text not in TABLES:
            unknown.append(rowid)
    return tuple(unknown)


def row_numbers(connection: apsw.Connection, table: Literal["contents", "events", "facts"]) -> Iterator[int]:
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
        self._alike: dict[Any, Any] = {}

    def limit(self, cache_bytes: int = _READING_BYTES) -> None:
        """Bound what one statement may cost, and what the connection keeps in memory, from now on."""
        self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        self._connection.set_progress_handler(self._spent, _CHECK_STEPS)
        # A manifest may be large, and is compared alone.
        self._connection.create_scalar_function("own_sha256", _sha256, 1, deterministic=True)
        for _ in self.raw("sqlite_schema", f"PRAGMA cache_size = -{cache_bytes // 1024}"):
            pass

    def end(self) -> None:
        """Forget what was read: the connection keeps this reader, which counts the steps of its statements."""
        self._alike.clear()

    def rows(
        self, table: str, query: tuple[str, str], make: Callable[..., _Row], rest: str = ""
    ) -> tuple[_Row, ...]:
        """All rows of a table as values."""
        return tuple(self.each(table, query, make, rest))

    def each(
        self, table: str, query: tuple[str, str], make: Callable[..., _Row], rest: str = ""
    ) -> Iterator[_Row]:
        """The rows of a table as values; one of the wrong types is noted as a flaw and left out."""
        sql, types = query
        texts = tuple(at for at, kind in enumerate(types) if kind == "t")
        shared = tuple(at for at, kind in enumerate(types) if kind in _SHARED)
        right: set[tuple[type, ...]] = set()
        build = _maker(make)
        same = self._alike.setdefault
        for row in self.raw(table, sql + rest):
            kinds = tuple(map(type, row))
            # Rows of a table are of few sorts: each is judged once.
            if kinds not in right:
                if not _is_right(kinds, types):
                    place = row[0] if type(row[0]) is int else "unknown"
                    where = f"store.db {table} row {place}"
                    self._flaws.append(StoreFlaw(where, "A column has a value that it can't have."))
                    continue
                right.add(kinds)
            values = row
            if texts or shared:
                values = list(row)
                for at in texts:
                    # Not UTF-8: a text that no store writes, and that equals none of ours.
                    values[at] = _text(values[at])
                # The very values that other rows have as well.
                for at in shared:
                    value = values[at]
                    values[at] = same(value, value)
            yield build(values)

    def raw(self, table: str, sql: str) -> Iterator[Sequence[Any]]:
        """The rows of a statement, up to the first that can't be read."""
        self._steps = 0
        last: object = None
        try:
            for row in self._connection.execute(sql):
                last = row[0]
                yield row
        except (apsw.Error, Error, UnicodeDecodeError):
            after = f" after row {last}" if type(last) is int else ""
            self._flaws.append(
                StoreFlaw(f"store.db {table}{after}", "The file can't be read there: it is damaged.")
            )

    def _spent(self) -> bool:
        self._steps += _CHECK_STEPS
        return self._steps > MAX_STEPS


def _maker(make: Callable[..., _Row]) -> Any:
    """What makes a value of columns that are as many as its fields: a named tuple of a row as it is, in a fraction of
    the time."""
    if isinstance(make, type) and issubclass(make, tuple):
        return partial(tuple.__new__, make)
    return lambda values: make(*values)


def _is_right(kinds: Sequence[type], types: str) -> bool:
    """Whether the values of a row, of these kinds, are of the types of its columns."""
    return all(
        kind is _TYPES[letter.lower()] or (kind is type(None) and letter.isupper())
        for kind, letter in zip(kinds, types, strict=True)
    )


def _text(value: bytes) -> str:
    return _word(value) if len(value) <= _WORD_BYTES else str(value, "utf-8", "backslashreplace")


@lru_cache(maxsize=256)
def _word(value: bytes) -> str:
    """The text of few bytes: those of a column are mostly the same few words, and each is in memory once."""
    return str(value, "utf-8", "backslashreplace")


def _sha256(*values: Any) -> bytes:
    return hashlib.sha256(values[0]).digest()


def tenant_id_of(connection: apsw.Connection, tenant: str) -> int:
    """The row of a tenant by its name; MalformedError if the store has no such tenant."""
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
        name.decode("utf-8", "backslashreplace"): value
        for name, value in reader.raw("meta", "SELECT CAST(name AS BLOB), value FROM meta")
        if type(name) is bytes and type(value) in (int, bytes, str)
    }
