"""What the write-ahead log of a database goes back to, and where else it goes, against what manifests say of it.

A manifest that calls it verified says that nothing in it is from before its erasure. When a transaction of the log was
committed, the server's own reader tells (the extension pg_walinspect); pages of the files are read as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from auditor.findings import Finding, Note, Outcome
from auditor.pg_indexes import EXTENSION
from auditor.pg_wal import look_at_copies, look_at_wal

if TYPE_CHECKING:
    import psycopg

_WHAT: Final = "database log"
_NEWEST: Final = 1 << 62
_MOST_FILES: Final = 4
_MICROSECONDS: Final = 1_000_000
# Files that are still part of the log, the oldest first: those with a later name wait to be written over.
_FILES: Final = """
    SELECT w.name, w.size FROM pg_catalog.pg_ls_waldir() AS w
    WHERE w.name ~ '^[0-9A-F]{24}$' AND w.name <= pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())
    ORDER BY 1
"""
_COMMITS: Final = """
    SELECT min(pg_catalog.split_part(r.description, ';', 1)::timestamptz)
    FROM SCHEMA.pg_get_wal_records_info(%s::pg_lsn, least(%s::pg_lsn, pg_catalog.pg_current_wal_flush_lsn())) AS r
    WHERE r.resource_manager = 'Transaction' AND r.record_type = 'COMMIT'
"""


def check_log(link: psycopg.Connection[Any], since: int) -> Outcome:
    """What there is to say of the log; `since` is when manifests say that it began anew, in microseconds, or 0."""
    whole = look_at_wal(link, _NEWEST)
    copies = look_at_copies(link)
    limits = Note(
        _WHAT,
        "what replication slots, standbys that are connected, and an archive keep of the log, and backups and dumps:"
        " how many of these the server knows",
        copies.slots + copies.standbys + copies.archived,
    )
    if not whole.older:
        what = "No page of the write-ahead log could be read, though there is always one: that shows nothing."
        return Outcome((Finding("CONTROL_FAILED", _WHAT, what),), not_checked=(limits,))
    pages = Note(_WHAT, "pages of the write-ahead log that are in use, or were", whole.older)
    oldest = _oldest(link)
    if oldest is None:
        text = "how far the write-ahead log goes back: without the extension pg_walinspect, or a commit, nothing tells"
        return Outcome(checked=(pages,), not_checked=(limits, Note(_WHAT, text)))
    findings: tuple[Finding, ...] = ()
    if oldest < since:
        what = "The write-ahead log goes back to before an erasure; a manifest says that nothing in it does."
        findings = (Finding("RESIDUE_WAL", _WHAT, what, {"seconds": (since - oldest) // _MICROSECONDS}),)
    return Outcome(
        findings, (pages, Note(_WHAT, "oldest transaction of it compared with erasures", 1)), (limits,)
    )


def _oldest(link: psycopg.Connection[Any]) -> int | None:
    """When the oldest transaction of the log was committed, in microseconds; None where nothing tells."""
    found = link.execute(EXTENSION, ("pg_walinspect",)).fetchone()
    if found is None:
        return None
    for name, size in link.execute(_FILES).fetchall()[:_MOST_FILES]:
        begin = _place(name, size)
        row = link.execute(
            _COMMITS.replace("SCHEMA", str(found[0])), (_lsn(begin), _lsn(begin + size))
        ).fetchone()
        if row is not None and row[0] is not None:
            return int(row[0].timestamp() * _MICROSECONDS)
    return None


def _place(name: str, size: int) -> int:
    """Where in the log a file begins: its name has the number of its part, and that of the file in it."""
    return int(name[8:16], 16) * (1 << 32) + int(name[16:], 16) * size


def _lsn(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"
