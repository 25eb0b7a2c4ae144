"""What the pages of a database have of records that manifests say are gone from them.

A manifest that calls the heap verified says that no dead row is left of what it erased, and that the tables of keys
and vectors were written anew; by its method, also that all that it took from was, with the indexes. Dead rows of others
are of every life: they are counted, and a vacuum takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from auditor.checks_pg_log import check_log
from auditor.findings import Finding, Note, Outcome, merge
from auditor.manifests import decode_manifest, list_in, map_in, map_of, number_in
from auditor.pg_indexes import check_indexes
from auditor.pg_looked import OF_RECORDS, STATISTICS
from auditor.pg_pages import Sought
from auditor.pg_probe import NotAllowedError, Seen, SeenIndexes, Table, probing
from tlog.errors import MalformedError

if TYPE_CHECKING:
    import apsw

_OTHERS: Final = (
    "subject_keys",
    "tenant_keys",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "access",
    "tenants",
    "meta",
)
_WRITTEN_ANEW: Final = frozenset({"content_keys", "vectors"})
_WHAT: Final = "pages"
_MANIFESTS: Final = "SELECT tenant, tombstone, manifest FROM erasures WHERE manifest IS NOT NULL"
_ERASED: Final = """
    SELECT a.target FROM acts a WHERE a.tenant = ? AND a.seq = ? AND a.act = 'erases'
    AND NOT EXISTS (SELECT 1 FROM contents c WHERE c.seq = a.target)
"""
_REWRITE: Final = "rewrite"


@dataclass(frozen=True, slots=True)
class Gone:
    """Tenant and number of the records whose manifests say that pages were cleared of them.

    `anew` are those of which nothing was left at all. `log_since` is when the last erasure was whose manifest says that
    the write-ahead log has nothing from before it, in microseconds and to the hour; 0 for none.
    """

    rows: frozenset[tuple[int, int]] = frozenset()
    anew: frozenset[tuple[int, int]] = frozenset()
    log_since: int = 0


def gone_of(copy: apsw.Connection) -> Gone:
    """What manifests say is gone from the pages of the database."""
    rows: set[tuple[int, int]] = set()
    anew: set[tuple[int, int]] = set()
    log_since = 0
    manifests: list[Any] = copy.execute(_MANIFESTS).fetchall()
    for tenant, tombstone, manifest in manifests:
        methods, erased_at = _said_of(manifest)
        log_since = max(log_since, erased_at if "wal" in methods else 0)
        if "heap" in methods:
            erased = {(tenant, seq) for (seq,) in copy.execute(_ERASED, (tenant, tombstone))}
            rows |= erased
            anew |= erased if methods["heap"] == _REWRITE else set()
    return Gone(frozenset(rows), frozenset(anew), log_since)


def _said_of(manifest: bytes) -> tuple[dict[object, object], int]:
    """What a manifest calls verified, with the method of each, and when the erasure was."""
    try:
        document = decode_manifest(manifest).document
    except MalformedError:
        return {}, 0  # which is a finding elsewhere
    systems = [map_of(each) for each in list_in(document, "systems")]
    verified = {one.get("kind"): one.get("method") for one in systems if one.get("result") == "verified"}
    return verified, number_in(map_in(document, "times"), "erased_at")


def check_pg_pages(dsn: str, home_dsn: str, gone: Gone) -> Outcome:
    """What a probe over this connection has to say; that it could not look, if so."""
    of_records = [Table(name, Sought(columns, gone.rows, gone.anew)) for name, columns in OF_RECORDS.items()]
    others = [Table(name, Sought((0, 1), frozenset())) for name in _OTHERS]
    try:
        with probing(dsn, home_dsn) as probe:
            found, planted = probe.control()
            seen = [probe.look(table) for table in (*of_records, *others)]
            indexes = [probe.look_at_indexes(_of_anew(table)) for table in (*of_records, *others)]
            sampled = probe.number(STATISTICS)
            below = merge([check_indexes(probe.link), check_log(probe.link, gone.log_since)])
    except NotAllowedError as error:
        return _not_looked(f"The pages of the database were not looked at: {error}.")
    except MalformedError as error:
        return _not_looked(f"The pages of the database were not looked at to the end: {error.message}.")
    missed = (
        _not_looked("What was planted for the check of pages was not found by it.")
        if found < planted
        else Outcome()
    )
    controls = Note("controls", "rows planted in a table of the check's own and found in its pages", found)
    findings = (*missed.findings, *judge(seen), *judge_indexes(indexes), *_judge_samples(sampled))
    return merge([Outcome(findings, (*_counted(seen), *_counted_indexes(indexes), controls)), below])


def _of_anew(table: Table) -> Table:
    return Table(table.name, Sought(table.sought.columns, table.sought.anew))


def _counted(seen: Sequence[Seen]) -> tuple[Note, ...]:
    return (
        Note(_WHAT, "pages of the tables that an erasure takes from", sum(one.pages for one in seen)),
        Note(_WHAT, "dead rows in them", sum(one.dead for one in seen)),
        Note(_WHAT, "free bytes in them that are not zero", sum(one.free_bytes for one in seen)),
        Note(
            _WHAT,
            "places of erased records in free bytes: sealed or hashed, and there until others take the place",
            sum(one.leftovers - one.leftovers_anew for one in seen if one.name not in _WRITTEN_ANEW),
        ),
    )


def _counted_indexes(seen: Sequence[SeenIndexes]) -> tuple[Note, ...]:
    return (
        Note(_WHAT, "pages of their indexes", sum(one.pages for one in seen)),
        Note(_WHAT, "entries of indexes that are marked as of no row", sum(one.dead for one in seen)),
        Note(_WHAT, "free bytes of indexes that are not zero", sum(one.free_bytes for one in seen)),
    )


def judge(seen: Sequence[Seen]) -> Iterator[Finding]:
    """What there is that manifests say is not."""
    for one in seen:
        where = f"database {one.name}"
        if one.dead_sought:
            what = "Dead rows of erased records are in the pages of a table; a manifest says that they were taken out."
            yield Finding("RESIDUE_ROW", where, what, {"rows": one.dead_sought})
        left = one.leftovers if one.name in _WRITTEN_ANEW else one.leftovers_anew
        if left:
            what = "Rows of erased records are in the free bytes of a table; a manifest says that it was written anew."
            yield Finding("RESIDUE_FREE_SPACE", where, what, {"rows": left})


def judge_indexes(seen: Sequence[SeenIndexes]) -> Iterator[Finding]:
    """Entries that manifests say are gone with the indexes that they stood in."""
    for one in seen:
        if one.entries:
            what = "Entries of erased records are in an index; a manifest says that it was written anew."
            yield Finding("RESIDUE_INDEX", f"database {one.name}", what, {"entries": one.entries})


def _judge_samples(columns: int) -> Iterator[Finding]:
    if columns:
        what = "The server keeps samples of columns that it is to keep none of: what is erased stays in them."
        yield Finding("RESIDUE_INDEX", "database statistics", what, {"columns": columns})


def _not_looked(what: str) -> Outcome:
    return Outcome((Finding("CONTROL_FAILED", "database pages", what),))
