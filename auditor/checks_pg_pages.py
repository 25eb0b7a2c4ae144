"""What the pages of a database have of records that manifests say are gone from them.

A manifest that calls the heap verified says that no dead row is left of what it erased, and that the tables of keys
and vectors were written anew. Dead rows of others are of every life: they are counted, and a vacuum takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from auditor.findings import Finding, Note, Outcome
from auditor.manifests import decode_manifest, list_in, map_of
from auditor.pg_pages import Sought
from auditor.pg_probe import NotAllowedError, Seen, Table, probing
from tlog.errors import MalformedError

if TYPE_CHECKING:
    import apsw

# The tables that have a row for a record, and which of their columns of eight bytes are tenant and number of it.
_OF_RECORDS: Final = {
    "content_boxes": (0, 1),
    "content_keys": (0, 1),
    "facts": (1, 0),
    "vectors": (1, 0),
    "words": (0, 2),
    "grants": (1, 0),
}
_OTHERS: Final = (
    "subject_keys",
    "tenant_keys",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
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


def gone_of(copy: apsw.Connection) -> frozenset[tuple[int, int]]:
    """Tenant and number of the records whose manifests say that the pages were cleared of them."""
    found: set[tuple[int, int]] = set()
    rows: list[Any] = copy.execute(_MANIFESTS).fetchall()
    for tenant, tombstone, manifest in rows:
        if _says_cleared(manifest):
            found.update((tenant, seq) for (seq,) in copy.execute(_ERASED, (tenant, tombstone)))
    return frozenset(found)


def _says_cleared(manifest: bytes) -> bool:
    try:
        systems = list_in(decode_manifest(manifest).document, "systems")
    except MalformedError:
        return False  # which is a finding elsewhere
    return any(
        (one := map_of(each)).get("kind") == "heap" and one.get("result") == "verified" for each in systems
    )


def check_pg_pages(dsn: str, home_dsn: str, gone: frozenset[tuple[int, int]]) -> Outcome:
    """What a probe over this connection has to say; that it could not look, if so."""
    tables = [
        *(Table(name, Sought(columns, gone)) for name, columns in _OF_RECORDS.items()),
        *(Table(name, Sought((0, 1), frozenset())) for name in _OTHERS),
    ]
    try:
        with probing(dsn, home_dsn) as probe:
            found, planted = probe.control()
            seen = [probe.look(table) for table in tables]
    except NotAllowedError as error:
        return _not_looked(f"The pages of the database were not looked at: {error}.")
    except MalformedError as error:
        return _not_looked(f"The pages of the database were not looked at to the end: {error.message}.")
    missed = (
        _not_looked("What was planted for the check of pages was not found by it.")
        if found < planted
        else Outcome()
    )
    return Outcome(
        (*missed.findings, *judge(seen)),
        (
            Note(_WHAT, "pages of the tables that an erasure takes from", sum(one.pages for one in seen)),
            Note(_WHAT, "dead rows in them", sum(one.dead for one in seen)),
            Note(_WHAT, "free bytes in them that are not zero", sum(one.free_bytes for one in seen)),
            Note(
                _WHAT,
                "places of erased records in free bytes: sealed or hashed, and there until others take the place",
                sum(one.leftovers for one in seen if one.name not in _WRITTEN_ANEW),
            ),
            Note("controls", "rows planted in a table of the check's own and found in its pages", found),
        ),
    )


def judge(seen: Sequence[Seen]) -> Iterator[Finding]:
    """What there is that manifests say is not."""
    for one in seen:
        where = f"database {one.name}"
        if one.dead_sought:
            what = "Dead rows of erased records are in the pages of a table; a manifest says that they were taken out."
            yield Finding("RESIDUE_ROW", where, what, {"rows": one.dead_sought})
        if one.leftovers and one.name in _WRITTEN_ANEW:
            what = "Rows of erased records are in the free bytes of a table; a manifest says that it was written anew."
            yield Finding("RESIDUE_FREE_SPACE", where, what, {"rows": one.leftovers})


def _not_looked(what: str) -> Outcome:
    return Outcome((Finding("CONTROL_FAILED", "database pages", what),))
