"""Needles in the rows of a database: every value of every table, as the server hands it out.

Contents come sealed and words as hashes, so nothing that somebody said stands there in the clear; whether that is so
is what is looked at. The pages beneath are another matter (auditor.pg_probe).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from auditor.encodings import encodings_of, is_plain
from auditor.hits import Hit, ScanResult
from auditor.patterns import CANARY, Patterns, Tally, compile_patterns, hits_in, search
from auditor.pg_copy import require_sees_all
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    import psycopg

_CHUNK_BYTES: Final = 1 << 20
_TABLES: Final = """
    SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'muniment' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1
"""


def scan_rows(dsn: str, needles: Sequence[str | bytes], *, canary: str) -> ScanResult:
    """What the rows of the home's database hold of the needles; `canary` is a text that is known to stand there."""
    import psycopg

    forms = [encodings_of(needle) for needle in needles]
    control = encodings_of(canary)
    if not control:
        raise MalformedError("expected a canary long enough to search for")
    patterns = compile_patterns(forms, control)
    empty = ScanResult(0, 0, (), False, sum(1 for each in forms if not each), (), ())
    try:
        with psycopg.connect(dsn, connect_timeout=10, application_name="muniment audit") as link:
            link.read_only = True
            link.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            require_sees_all(link)
            link.execute("SET LOCAL statement_timeout = 0")
            tables = [str(name) for (name,) in link.execute(_TABLES).fetchall()]
            found = empty
            for number, table in enumerate(tables, start=1):
                found = _and(found, _scan_table(link, table, number, patterns))
            return found
    except psycopg.Error:
        raise UnavailableError("the rows of the database cannot be read", code="scan_failed") from None


def _and(one: ScanResult, other: ScanResult) -> ScanResult:
    return replace(
        one,
        files=one.files + other.files,
        bytes_scanned=one.bytes_scanned + other.bytes_scanned,
        hits=(*one.hits, *other.hits),
        control_found=one.control_found or other.control_found,
    )


def _scan_table(link: psycopg.Connection[Any], table: str, number: int, patterns: Patterns) -> ScanResult:
    tally, size, carried = Tally(), 0, b""
    for window in _windows(link, table):
        data = carried + window
        search(patterns, data, len(carried), size - len(carried), tally, "")
        size += len(window)
        carried = data[-patterns.carry_bytes :] if patterns.carry_bytes else b""
    hits = tuple(
        Hit(
            class_code="RESIDUE_ROW" if is_plain(encoding) else "RESIDUE_ENCODED",
            # A table that no store has may be called anything.
            file=f"database table {number}",
            count=count,
            encoding=encoding,
            first_offset=offset,
            needle=needle,
        )
        for needle, encoding, count, offset in hits_in(tally)
    )
    found = any(needle == CANARY for needle, _ in tally.counts)
    return ScanResult(1, size, hits, found, 0, (), ())


def _windows(link: psycopg.Connection[Any], table: str) -> Iterator[bytes]:
    """The values of a table, row after row, as the server sends them."""
    from psycopg import sql

    asked = sql.SQL("COPY (SELECT * FROM {}) TO STDOUT (FORMAT binary)").format(
        sql.Identifier("muniment", table)
    )
    parts: list[bytes] = []
    size = 0
    with link.cursor().copy(asked) as copy:
        for block in copy:
            parts.append(bytes(block))
            size += len(parts[-1])
            if size >= _CHUNK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    yield b"".join(parts)
