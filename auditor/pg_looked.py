"""What a checker of a database sees of one erasure: pages of tables and of indexes, statistics, and the log.

The checker is a connection of its own, whose role may look at pages. What it was given to look for is numbers of rows,
and bytes that stood in them; nothing of it is content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from auditor.pg_elsewhere import look_elsewhere
from auditor.pg_pages import Sought
from auditor.pg_probe import Probe, Table, probing
from auditor.pg_wal import look_at_copies, look_at_wal

if TYPE_CHECKING:
    from auditor.pg_gone import Erased

# Where in a row, in columns of eight bytes, tenant and number stand.
OF_RECORDS: Final[Mapping[str, tuple[int, int]]] = {
    "content_boxes": (0, 1),
    "content_keys": (0, 1),
    "facts": (1, 0),
    "vectors": (1, 0),
    "words": (0, 2),
    "grants": (1, 0),
}
OTHERS: Final = ("subject_keys", "tenant_keys", "conflicts", "tokens", "tenants", "access")
LARGE: Final = ("events", "acts", "openings")
"""What no erasure takes from, and what an audit compares with the log row by row."""
_BY_ID: Final = (1, 0)
_NOTHING: Final = Sought((0, 1), frozenset())
_NEWEST: Final = 1 << 62
"""Later than any place in a log: every page that was used is from before."""
STATISTICS: Final = """
    SELECT count(*) FROM pg_catalog.pg_statistic s
    JOIN pg_catalog.pg_attribute a ON a.attrelid = s.starelid AND a.attnum = s.staattnum
    JOIN pg_catalog.pg_class c ON c.oid = s.starelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'muniment' AND c.relkind IN ('r', 'p')
    AND a.attname IN ('wrapped', 'content', 'salt', 'vector', 'text_tag', 'body_tag', 'sealed')
"""
"""Columns of which the server has samples, though it is to have none."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen. `residue` counts by the codes of an audit; of the log, `log_is_new` says that all is younger."""

    pages: int = 0
    dead_rows: int = 0
    free_bytes: int = 0
    planted: int = 0
    found: int = 0
    residue: Mapping[str, int] = field(default_factory=dict)
    log_is_new: bool = False
    copies_are_none: bool = False


def look_for(dsn: str, home_dsn: str, erased: Erased, since: int | None) -> Looked:
    """What is there of an erasure. pg_probe.NotAllowedError if this connection may not look."""
    with probing(dsn, home_dsn) as probe:
        found, planted = probe.control()
        residue: Counter[str] = Counter()
        looked = Looked(planted=planted + 2, found=found)
        for table, with_indexes in tables_of(erased):
            looked = _and(looked, probe, table, residue)
            if with_indexes:
                indexes = probe.look_at_indexes(table)
                residue["RESIDUE_INDEX"] += indexes.entries + indexes.texts
                looked = replace(looked, pages=looked.pages + indexes.pages)
        ours = (*(table.name for table, _ in tables_of(erased)), *LARGE)
        others = look_elsewhere(probe, ours, erased.texts)
        residue["RESIDUE_ROW"] += others.texts
        residue["RESIDUE_INDEX"] += probe.number(STATISTICS)
        used = look_at_wal(probe.link, _NEWEST).older
        old = 1 if since is None else look_at_wal(probe.link, since).older
        return replace(
            looked,
            pages=looked.pages + others.pages,
            found=looked.found + (used > 0) + others.control_found,
            residue={code: count for code, count in sorted(residue.items()) if count},
            log_is_new=used > 0 and old == 0,
            copies_are_none=look_at_copies(probe.link).are_none,
        )


def tables_of(erased: Erased) -> Iterator[tuple[Table, bool]]:
    """The tables to look at for an erasure, each with whether its indexes have nothing of the rows, either."""
    pairs = frozenset((erased.tenant, seq) for seq in erased.seqs)
    for name, columns in OF_RECORDS.items():
        yield Table(name, Sought(columns, pairs, texts=erased.texts), tenant=erased.tenant), True
    ledger, requests = (
        Sought(_BY_ID, frozenset((erased.tenant, number) for number in numbers), texts=erased.texts)
        for numbers in (erased.ledger, erased.requests)
    )
    yield Table("ledger", ledger, "id", erased.tenant), True
    # A request may stay without its values: then its row is another, and its entry in an index the same.
    yield Table("idempotency", requests, "id", erased.tenant), False
    for name in OTHERS:
        yield Table(name, replace(_NOTHING, texts=erased.texts), tenant=erased.tenant), True


def _and(looked: Looked, probe: Probe, table: Table, residue: Counter[str]) -> Looked:
    seen = probe.look(table)
    residue["RESIDUE_ROW"] += seen.dead_sought
    residue["RESIDUE_FREE_SPACE"] += seen.leftovers + seen.texts
    return replace(
        looked,
        pages=looked.pages + seen.pages,
        dead_rows=looked.dead_rows + seen.dead,
        free_bytes=looked.free_bytes + seen.free_bytes,
    )


def as_answer(looked: Looked) -> dict[str, Any]:
    """The same as it goes through a pipe."""
    return {name: getattr(looked, name) for name in Looked.__slots__}
