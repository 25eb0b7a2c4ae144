"""Every page of the tables that an erasure takes from, as a superuser of the database may look at them.

A row that no transaction of now sees lies in its page until a vacuum, and its bytes longer. Each table is looked at
in a short transaction of its own: what holds a view of the database keeps dead rows in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from auditor.engines import build_engine
from auditor.pg_pages import Page, PageRow, Sought, read_index_page, read_page
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    import psycopg

_AT_ONCE: Final = 256
_FEW: Final = 16
_BITS: Final = 1 << 32
# A statement that others put into the database must not run with the rights of whoever looks at it.
_GUARDED: Final = """
    SELECT set_config(name, 'view, foreign-table', false) FROM pg_catalog.pg_settings
    WHERE name = 'restrict_nonsystem_relation_kind'
"""
_EXTENSION: Final = """
    SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    JOIN pg_catalog.pg_roles r ON r.oid = e.extowner WHERE e.extname = 'pageinspect' AND r.rolsuper
"""
_ROLE: Final = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
# The parts of a table, or the table where it has none, and what lies beside them because it is long.
_PARTS: Final = """
    WITH RECURSIVE parts AS (
      SELECT c.oid, c.relkind, c.reltoastrelid FROM pg_catalog.pg_class c
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'muniment' AND c.relname = %s
      UNION ALL
      SELECT c.oid, c.relkind, c.reltoastrelid FROM parts p JOIN pg_catalog.pg_inherits i ON i.inhparent = p.oid
      JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid)
    SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname), c.oid = p.oid
    FROM parts p JOIN pg_catalog.pg_class c ON c.oid IN (p.oid, p.reltoastrelid)
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 't')
    AND (%s::bigint IS NULL OR NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class o ON o.oid = i.inhrelid
        WHERE i.inhrelid = p.oid AND NOT pg_catalog.satisfies_hash_partition(i.inhparent,
          substring(pg_catalog.pg_get_expr(o.relpartbound, o.oid) FROM 'modulus (\\d+)')::int,
          substring(pg_catalog.pg_get_expr(o.relpartbound, o.oid) FROM 'remainder (\\d+)')::int, %s::bigint)))
    ORDER BY 1
"""
_INDEXES: Final = """
    SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname), columns.names, columns.fixed
    FROM pg_catalog.pg_index i CROSS JOIN LATERAL (
      SELECT pg_catalog.array_agg(a.attname::text ORDER BY k.place) AS names,
             pg_catalog.array_agg(a.atttypid = 'pg_catalog.int8'::regtype ORDER BY k.place) AS fixed
      FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
      LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number) AS columns
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE i.indrelid = %s::regclass
    AND c.relam = (SELECT m.oid FROM pg_catalog.pg_am m WHERE m.amname = 'btree') ORDER BY 1
"""
_SNAPSHOT: Final = """
    SELECT pg_catalog.pg_snapshot_xmax(s)::text::bigint,
           ARRAY(SELECT x::text::bigint FROM pg_catalog.pg_snapshot_xip(s) AS x)
    FROM pg_catalog.pg_current_snapshot() AS s
"""
_PAGES: Final = """
    SELECT pg_catalog.pg_relation_size(%s::regclass) / pg_catalog.current_setting('block_size')::bigint
"""
_IDENTITY: Final = """
    SELECT s.system_identifier, d.oid::bigint FROM pg_catalog.pg_control_system() AS s
    JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
"""


class NotAllowedError(Exception):
    """The pages may not be looked at; what it says is for people."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table to look at, and the rows that nothing may be left of."""

    name: str
    sought: Sought
    number: str = "seq"
    """The column that tells a row from others of its tenant."""
    tenant: int | None = None
    """Whose parts alone are looked at; None for all."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the pages of a table have."""

    name: str
    pages: int = 0
    dead: int = 0
    """Rows that were there, and that no transaction of now sees."""
    undone: int = 0
    """Rows that never were, for what wrote them came to nothing."""
    dead_sought: int = 0
    """Of the dead rows those that nothing may be left of."""
    free_bytes: int = 0
    """Bytes that belong to no row and are not zero."""
    leftovers: int = 0
    """Places in these where a row stands that nothing may be left of."""
    leftovers_anew: int = 0
    """Those of them of which no byte may be left."""
    texts: int = 0
    """Places in whole pages where bytes stand that were in such rows alone."""


@dataclass(frozen=True, slots=True)
class SeenIndexes:
    """What the pages of indexes have."""

    name: str
    pages: int = 0
    dead: int = 0
    """Entries that are marked as of no row any more."""
    free_bytes: int = 0
    """Bytes that belong to no entry and are not zero."""
    entries: int = 0
    """Places, free or not, with an entry of a row that nothing may be left of."""
    texts: int = 0
    unsure: bool = False
    """Whether there is one whose entries do not say at a fixed place whose they are."""


@contextmanager
def probing(dsn: str, home_dsn: str) -> Iterator[Probe]:
    """A probe of the database of a home over a connection of the caller's. NotAllowedError if it may not look."""
    import psycopg

    try:
        with _connected(home_dsn) as theirs, _connected(dsn) as link:
            link.execute("SET search_path = pg_catalog")
            link.execute(_GUARDED)
            if link.execute(_IDENTITY).fetchone() != theirs.execute(_IDENTITY).fetchone():
                raise NotAllowedError("it is another database than the one of the home")
            yield Probe(link, _require_allowed(link))
    except psycopg.errors.InsufficientPrivilege:
        raise NotAllowedError("the role may not look at pages") from None
    except psycopg.OperationalError:
        raise UnavailableError(
            "the database cannot be reached", code="database_unavailable", retry_after_seconds=1
        ) from None


def _connected(dsn: str) -> psycopg.Connection[Any]:
    import psycopg

    return psycopg.connect(dsn, connect_timeout=10, application_name="muniment audit", autocommit=True)


def _require_allowed(link: psycopg.Connection[Any]) -> str:
    row = link.execute(_ROLE).fetchone()
    if row is None or not row[0]:
        raise NotAllowedError("its role is no superuser, and no other may look at pages")
    found = link.execute(_EXTENSION).fetchone()
    if found is None:
        raise NotAllowedError("the database has no extension pageinspect (CREATE EXTENSION pageinspect)")
    recovering = link.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
    if recovering is None or recovering[0]:
        raise NotAllowedError("it is a standby, where nothing can be planted to show that the probe sees it")
    return str(found[0])


class Probe:
    """Looks at pages over one connection."""

    def __init__(self, link: psycopg.Connection[Any], schema: str) -> None:
        self._link = link
        self._schema = schema

    def look(self, table: Table) -> Seen:
        """What all pages of a table have, with its parts and what lies beside them."""
        seen = Seen(table.name)
        with self.view():
            for part, is_main in self._parts(table):
                # What lies beside a table are pieces of its values, which do not say whose they are.
                beside = replace(table.sought, rows=frozenset(), anew=frozenset())
                seen = _sum(seen, self._part(part, table.sought if is_main else beside))
        return seen

    @property
    def link(self) -> psycopg.Connection[Any]:
        """The connection that it looks over."""
        return self._link

    def number(self, statement: str) -> int:
        """The one number that a statement gives."""
        (row,) = self._rows(statement)
        return int(row[0])

    def look_at_indexes(self, table: Table) -> SeenIndexes:
        """What all pages of the indexes of a table have, with those of its parts."""
        seen = SeenIndexes(table.name)
        with self.view():
            for part, is_main in self._parts(table):
                for index, names, fixed in self._rows(_INDEXES, part) if is_main else ():
                    sought = sought_in_index(table, names, fixed)
                    seen = _plus(seen, self._index(index, sought, table.sought.texts))
        return seen

    def _parts(self, table: Table) -> Iterator[tuple[Any, ...]]:
        return self._rows(_PARTS, table.name, table.tenant, table.tenant)

    def _index(self, index: str, sought: Sought | None, texts: tuple[bytes, ...]) -> SeenIndexes:
        seen = SeenIndexes(index, unsure=sought is None)
        for raw in self.pages_of(index):
            page = read_index_page(raw)
            entries = 0 if sought is None else sought.count(page.body)
            found = counter_of(texts)(raw)
            seen = _plus(seen, SeenIndexes(index, 1, page.dead, page.free_bytes, entries, found))
        return seen

    def pages_of(self, part: str) -> Iterator[bytes]:
        """Every page of a table, or of a part, an index, or what lies beside one."""
        (count,), *_ = self._rows(_PAGES, part)
        for begin in range(0, count, _AT_ONCE):
            for _, raw in self._raw_pages(part, begin, min(begin + _AT_ONCE, count)):
                yield raw

    def control(self) -> tuple[int, int]:
        """Of three things planted in a table that is this connection's alone, how many the probe sees: a row that was
        deleted, its entry in an index, and its bytes after a vacuum. With it, how many were planted.
        """
        columns = "tenant bigint, seq bigint, box bytea, PRIMARY KEY (tenant, seq)"
        self._link.execute(f"CREATE TEMPORARY TABLE muniment_control ({columns})")
        text = os.urandom(32)
        try:
            place = "pg_temp.muniment_control"
            sought = Sought((0, 1), frozenset({(1, 1)}), texts=(text,))
            # The last of them lies in front, where a vacuum moves nothing over it.
            for seq in (3, 2, 1):
                box = text + bytes(168) if seq == 1 else bytes(200)
                self._link.execute(f"INSERT INTO {place} VALUES (1, %s, %s)", (seq, box))
            self._link.execute(f"DELETE FROM {place} WHERE seq = 1")
            self._link.execute(f"DELETE FROM {place} WHERE seq = 3")
            with self.view():
                dead = self._part(place, sought)
                index = self._index("pg_temp.muniment_control_pkey", sought, sought.texts)
            self._link.execute(f"VACUUM {place}")
            with self.view():
                freed = self._part(place, sought)
        finally:
            self._link.execute("DROP TABLE pg_temp.muniment_control")
        found = (
            dead.dead == 2 and dead.dead_sought == 1 and dead.texts == 1,
            index.entries > 0,
            freed.free_bytes > 0 and freed.leftovers > 0 and freed.texts == 1,
        )
        return sum(found), len(found)

    @contextmanager
    def view(self) -> Iterator[None]:
        """One view of the database, until its end."""
        self._link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            self._link.execute("ROLLBACK")

    def _part(self, part: str, sought: Sought) -> Seen:
        (newest, running), *_ = self._rows(_SNAPSHOT)
        under_way = {number % _BITS for number in running}
        (count,), *_ = self._rows(_PAGES, part)
        seen = Seen(part)
        for begin in range(0, count, _AT_ONCE):
            end = min(begin + _AT_ONCE, count)
            live = self._live(part, begin, end)
            for block, raw in self._raw_pages(part, begin, end):
                page = read_page(raw)
                gone = [
                    row
                    for row in page.rows
                    if (block, row.pointer) not in live
                    and row.began_by not in under_way
                    and not _is_later(row.began_by, newest)
                ]
                dead = [row for row in gone if row.ended]
                found = _seen_of(page, dead, len(gone) - len(dead), sought)
                seen = _sum(seen, replace(found, texts=counter_of(sought.texts)(raw)))
        return seen

    def _live(self, part: str, begin: int, end: int) -> set[tuple[int, int]]:
        """Block and pointer of the rows that are seen now: of a table itself, so that no policy or view has a say."""
        from psycopg import sql

        asked = sql.SQL(f"SELECT ctid::text FROM ONLY {part} WHERE ctid >= {{}}::tid AND ctid < {{}}::tid")
        rows = self._link.execute(asked.format(f"({begin},0)", f"({end},0)"))
        return {(int(block), int(at)) for (place,) in rows for block, at in [place.strip("()").split(",")]}

    def _raw_pages(self, part: str, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        from psycopg import sql

        get = sql.Identifier(self._schema, "get_raw_page")
        asked = sql.SQL("SELECT b, {}(%s, b) FROM pg_catalog.generate_series(%s::bigint, %s::bigint) AS b")
        rows = self._link.cursor(binary=True).execute(asked.format(get), (part, begin, end - 1))
        for block, raw in rows.fetchall():
            yield block, bytes(raw)

    def _rows(self, statement: str, *params: object) -> Iterator[tuple[Any, ...]]:
        yield from self._link.execute(statement, params or None)


def _is_later(number: int, newest: int) -> bool:
    """Whether a transaction began after the view was taken. Numbers go round, and half of them are ahead."""
    return (number - newest) % _BITS < _BITS // 2 and number > 2


def _seen_of(page: Page, dead: Sequence[PageRow], undone: int, sought: Sought) -> Seen:
    return Seen(
        "",
        pages=1,
        dead=len(dead),
        undone=undone,
        dead_sought=sum(sought.is_in(row.data) for row in dead),
        free_bytes=page.free_bytes,
        leftovers=page.leftovers(sought),
        leftovers_anew=page.leftovers(replace(sought, rows=sought.anew)) if sought.anew else 0,
    )


def _sum(one: Seen, other: Seen) -> Seen:
    return Seen(
        one.name,
        one.pages + other.pages,
        one.dead + other.dead,
        one.undone + other.undone,
        one.dead_sought + other.dead_sought,
        one.free_bytes + other.free_bytes,
        one.leftovers + other.leftovers,
        one.leftovers_anew + other.leftovers_anew,
        one.texts + other.texts,
    )


@lru_cache(maxsize=4)
def counter_of(texts: tuple[bytes, ...]) -> Callable[[bytes], int]:
    """What counts at how many places of some bytes one of these stands."""
    if len(texts) <= _FEW:
        return lambda raw: sum(raw.count(text) for text in texts)
    find = build_engine(texts)
    return lambda raw: len(find(raw))


def _plus(one: SeenIndexes, other: SeenIndexes) -> SeenIndexes:
    return SeenIndexes(
        one.name,
        one.pages + other.pages,
        one.dead + other.dead,
        one.free_bytes + other.free_bytes,
        one.entries + other.entries,
        one.texts + other.texts,
        one.unsure or other.unsure,
    )


def sought_in_index(table: Table, names: Sequence[str], fixed: Sequence[bool]) -> Sought | None:
    """The same rows as entries of an index have them; None where what stands before is of no fixed size.

    `names` are those of its columns, `fixed` whether each has eight bytes. An entry begins with eight bytes of its own.
    """
    wanted = ("tenant", table.number)
    if not all(name in names for name in wanted):
        return None
    first, second = (names.index(name) for name in wanted)
    if not all(fixed[: max(first, second) + 1]):
        return None
    return replace(table.sought, columns=(first, second))
