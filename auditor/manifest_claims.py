"""What a manifest says of the world around its erasure, against what the store and the caller's policy say of that.

Who was given openings of the erased, which backups held it, whose log it is, and what must not be missing from an
erasure that is called complete: a scan whose control was found, the write-ahead log, and what was not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from auditor.evidence import StoreRows
from auditor.findings import Finding
from auditor.manifest_form import is_first_form
from auditor.manifests import list_in, map_in, map_of, number_in

COMPLETE: Final = "closed_complete"
_MAX_ITEMS: Final = 1000
_SYSTEMS: Final = frozenset({"store", "wal"})
_CHECKS: Final = frozenset({"structure", "residue", "free_space"})
_FIRST_CHECKS: Final = frozenset({"structure", "residue"})
"""Before manifests of schema 2 nobody looked at the free space."""
_LIMITS: Final = frozenset(
    {
        "file_system_free_space",
        "memory_and_swap",
        "other_systems",
        "paraphrases",
        "storage_hardware",
        "who_had_an_opening",
    }
)
"""What no erasure of this kind looks at."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure took: the tenant, the numbers of the statements, and that of the tombstone."""

    tenant_id: int
    seqs: frozenset[int]
    tombstone: int
    restored: bool
    """A restore took it from its manifest: the store knows no more who was given what since its backup."""


def check_claims(
    document: Mapping[str, Any], place: str, origins: Collection[str], rows: StoreRows, erased: Erased
) -> Iterator[Finding]:
    """Each thing that a manifest lacks, or says otherwise than the store."""
    if origins and map_in(document, "log").get("origin") not in origins:
        what = "The manifest names another log than the one it is audited with."
        yield Finding("MANIFEST_ALTERED", place, what)
    yield from _check_parts(document, place)
    given = _recipients(rows, erased)
    told = _told(document, "recipients", "recipient", "kind")
    if is_first_form(document):
        # At first nothing but openings was given, and no kind was named.
        told = Counter({(who, kind or "opening"): count for (who, kind), count in told.items()})
    if len(given) < _MAX_ITEMS and (not given <= told if erased.restored else given != told):
        what = "The manifest names other recipients of what was erased than the store."
        yield Finding("MANIFEST_INCOMPLETE", place, what)
    if rows.tenant_id is None and len(list_in(document, "backups")) < _MAX_ITEMS:
        yield from _check_backups(document, place, rows, erased)


def _check_parts(document: Mapping[str, Any], place: str) -> Iterator[Finding]:
    lacking = _LIMITS - {one for one in list_in(document, "limits") if isinstance(one, str)}
    if lacking:
        what = "The manifest does not say what was not looked at."
        yield Finding("MANIFEST_INCOMPLETE", place, what, {"limits": len(lacking)})
    systems = {map_of(one).get("kind") for one in list_in(document, "systems")}
    checks = {map_of(one).get("check"): map_of(one) for one in list_in(document, "checks")}
    if not systems >= _SYSTEMS and document.get("state") != "closed_denied":
        what = "The manifest does not say what became of the store and its write-ahead log."
        yield Finding("MANIFEST_INCOMPLETE", place, what)
    if document.get("state") != COMPLETE:
        return
    needed = _FIRST_CHECKS if is_first_form(document) else _CHECKS
    # In a database nothing is known of rows and pages but by a look that showed that it sees them.
    controlled = ("residue", "rows", "free_space") if "heap" in systems else ("residue",)
    needed |= set(controlled)
    if not checks.keys() >= needed:
        what = "The erasure is called complete, and checks of it are not in its manifest."
        yield Finding("ERASURE_STATE_FALSE", place, what, {"checks": len(needed - checks.keys())})
    elif not all(_is_controlled(map_in(checks[name], "counts")) for name in controlled):
        what = "The erasure is called complete, and its scan did not find its own control."
        yield Finding("ERASURE_STATE_FALSE", place, what)


def _is_controlled(counts: Mapping[str, Any]) -> bool:
    found = number_in(counts, "controls_found")
    return found > 0 and found == number_in(counts, "controls_planted")


def _recipients(rows: StoreRows, erased: Erased) -> Counter[tuple[Any, ...]]:
    """Those who were given something, each with how many of the statements."""
    return Counter(
        (row.recipient, row.kind)
        for row in rows.openings
        if row.tenant_id == erased.tenant_id and row.seq in erased.seqs
    )


def _told(document: Mapping[str, Any], name: str, *fields: str) -> Counter[tuple[Any, ...]]:
    told: Counter[tuple[Any, ...]] = Counter()
    for one in list_in(document, name):
        line = map_of(one)
        key = tuple(value if isinstance(value := line.get(field), str | bytes) else None for field in fields)
        # What says no count says one.
        told[key] += number_in(line, "count") or 1
    return told


def _check_backups(
    document: Mapping[str, Any], place: str, rows: StoreRows, erased: Erased
) -> Iterator[Finding]:
    """Each backup that held some of the erased is named, and each that is named is one of the store's."""
    told = _told(document, "backups", "backup")
    known = {row.number: row for row in rows.backups}
    for (number,) in told:
        if number not in known:
            what = "The manifest names a backup that the store does not know of."
            yield Finding("MANIFEST_INCOMPLETE", place, what)
    for one in map(map_of, list_in(document, "backups")):
        row = known.get(one.get("backup", b""))
        if row is not None and (one.get("made_at"), one.get("expires_at")) != (row.made_at, row.expires_at):
            what = "The manifest says that a backup was made, or ends, at another time than the store says."
            yield Finding("MANIFEST_INCOMPLETE", place, what)
    for row in rows.backups:
        held = sum(seq <= row.last_seq for seq in erased.seqs)
        # One that was made since may be named or not: it has nothing of what was erased before it.
        if held and row.last_seq < erased.tombstone and not _names(told[row.number,], held, erased):
            what = "The manifest does not name a backup that held some of what was erased."
            yield Finding("MANIFEST_INCOMPLETE", place, what)


def _names(told: int, held: int, erased: Erased) -> bool:
    """Whether it tells of as many as there were; after a restore, how far a backup goes is known at most."""
    return 0 < told <= held if erased.restored else told == held
