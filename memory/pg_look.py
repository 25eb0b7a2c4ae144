"""An erasure in a database looked at below its rows, by the auditor's code in a process apart.

That rows are gone is read back over a connection of its own, in every home. Pages of tables and indexes, and the
write-ahead log, are looked at where the settings name a connection whose role may do that (`database_checker`); without
one they are not, and a manifest says so. A log whose every page is younger than the erasure has nothing of it; what
archives and standbys keep is nobody's to look at, and has the time that the operator declares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory import scan_process
from memory.erase_checks import GRAIN_BYTES, Check, check
from memory.erase_look import Looked, Traces
from memory.pg_copies import declared_until
from tlog.errors import Error

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.pg_txn import PgSnapshot
    from memory.scan_process import DatabaseResult
    from memory.store_read import Snapshot

_TEXT_BYTES: Final = 64
_OF_RECORDS: Final = (
    "SELECT wrapped FROM content_keys WHERE tenant = %s AND seq = ANY(%s)",
    "SELECT content FROM content_boxes WHERE tenant = %s AND seq = ANY(%s)",
    "SELECT salt FROM content_boxes WHERE tenant = %s AND seq = ANY(%s)",
    "SELECT vector FROM vectors WHERE tenant = %s AND seq = ANY(%s)",
)
# Of subjects that no other record has: their keys go with these.
_OF_SUBJECTS: Final = """
    SELECT s.wrapped FROM subject_keys s WHERE s.tenant = %s AND EXISTS (
      SELECT 1 FROM content_keys k WHERE k.tenant = s.tenant AND k.subject = s.subject AND k.seq = ANY(%s))
    AND NOT EXISTS (
      SELECT 1 FROM content_keys k WHERE k.tenant = s.tenant AND k.subject = s.subject AND k.seq <> ALL(%s))
"""


def texts_of(view: Snapshot, tenant_id: int, seqs: tuple[int, ...]) -> tuple[bytes, ...]:
    """The beginnings of what stands in rows of these records alone: wrapped keys, boxes, vectors."""
    pg: PgSnapshot = view  # type: ignore[assignment]  # of a store in a database
    numbers = list(seqs)
    found: dict[bytes, None] = {}
    for statement in _OF_RECORDS:
        for (value,) in pg.pg.run(statement, (tenant_id, numbers)):
            found[bytes(value)[:_TEXT_BYTES]] = None
    for (value,) in pg.pg.run(_OF_SUBJECTS, (tenant_id, numbers, numbers)):
        found[bytes(value)[:_TEXT_BYTES]] = None
    return tuple(found)


def look_at_database(parts: Parts, cleared: tuple[dict[str, Any], ...], traces: Traces) -> Looked:
    """What is found of an erasure; `cleared` is what is known without looking."""
    since = _begin_log_anew(parts)
    try:
        seen = scan_process.database_apart(parts.home.path, traces, since)
    except Error:
        pages, rows = (check(one, "not_run", {}, ["scan_not_available"]) for one in ("free_space", "rows"))
        return Looked(cleared, pages, (rows,))
    pages = _check_pages(seen)
    return Looked(_systems(parts, cleared, traces, seen, pages), pages, (_check_rows(traces, seen),))


def _begin_log_anew(parts: Parts) -> int | None:
    """From which place on the log of the database has nothing of the erasure; None if that was not to be had."""
    if parts.home.config.database_checker is None:
        return None
    from memory.pg_wal import empty_log

    try:
        return empty_log(parts.home.config.database_checker)
    except Error:
        return None


def _check_rows(traces: Traces, seen: DatabaseResult) -> Check:
    counts = {
        "contents": len(traces.seqs),
        "remaining": seen.remaining,
        "controls_planted": seen.rows_planted,
        "controls_found": seen.rows_found,
    }
    if seen.remaining:
        return check("rows", "found", counts, ["content_present"])
    if seen.rows_found < seen.rows_planted:
        return check("rows", "inconclusive", counts, ["control_failed"])
    return check("rows", "clean", counts)


def _check_pages(seen: DatabaseResult) -> Check:
    if not seen.looked:
        return check("free_space", "not_run", {}, ["scan_not_available"])
    counts = {
        "pages": seen.pages,
        "dead_rows": seen.dead_rows,
        # To the byte it would depend on what was erased, and a manifest is public.
        "free_bytes": seen.free_bytes // GRAIN_BYTES * GRAIN_BYTES,
        "controls_planted": seen.planted,
        "controls_found": seen.found,
        "hits": sum(seen.residue.values()),
        **({"files_not_known": seen.files_not_known} if seen.files_not_known else {}),
    }
    if seen.residue:
        made = check("free_space", "found", counts, ["residue_found"])
        return made | {"residue": [{"class": name, "count": n} for name, n in sorted(seen.residue.items())]}
    if seen.found < seen.planted:
        return check("free_space", "inconclusive", counts, ["control_failed"])
    return check("free_space", "clean", counts)


def _systems(
    parts: Parts, cleared: tuple[dict[str, Any], ...], traces: Traces, seen: DatabaseResult, pages: Check
) -> tuple[dict[str, Any], ...]:
    """The lines of a manifest, by what was seen where that says more than was known."""
    if pages["result"] == "not_run":
        return cleared
    heap, *_ = cleared
    until = traces.until or declared_until(parts.home.config, parts.clock())
    wal: dict[str, Any] = {"kind": "wal", "method": "truncate", "erased": 0}
    if seen.log_is_new:
        wal |= {"result": "verified"}
    else:
        wal |= {"result": "not_verified", "why": ["copies_remain"]}
    return heap, wal, _replica(parts, seen, until)


def _replica(parts: Parts, seen: DatabaseResult, until: int | None) -> dict[str, Any]:
    """What is to be said of standbys and archives: that the server knows of none, or for how long they keep it."""
    line: dict[str, Any] = {"kind": "replica", "method": "none", "erased": 0}
    if until is None:
        if seen.copies_are_none:
            return line | {"result": "verified"}
        return line | {"result": "not_verified", "why": ["copies_remain"]}
    line |= {"until": until}
    if parts.clock() >= until:
        return line | {"result": "verified"}
    return line | {"result": "not_verified", "why": ["backups_remain"]}
