"""What is checked after an erasure, each check as the manifest tells it: counts and words, nothing of content."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import event, scan_process
from memory.erase_needles import Explained, Needles, too_short
from memory.manifest_fields import RESIDUE
from tlog.errors import Error

if TYPE_CHECKING:
    from auditor.residue import Hit, ScanResult
    from memory.store import Store
    from memory.store_read import Snapshot
    from memory.wiring import Home

Check = dict[str, Any]
BYSTANDERS: Final = 8
# Automata of more needles than this would not fit in memory; the files are then read several times.
NEEDLES_AT_ONCE: Final = 10_000
GRAIN_BYTES: Final = 4096
"""To so many bytes manifests count what depends on what was erased."""


@dataclass(frozen=True)
class Bystander:
    """A record outside the selection, and a digest to know it by: made before and compared after, never kept."""

    seq: int
    digest: bytes


def check(name: str, result: str, counts: dict[str, int], why: Sequence[str] = ()) -> Check:
    """A check as a manifest has it."""
    made: Check = {"check": name, "result": result, "counts": counts}
    return made | {"why": sorted(set(why))} if why else made


def watch_bystanders(view: Snapshot, seqs: Sequence[int]) -> tuple[Bystander, ...]:
    """Some records next to those that will be erased: where a delete goes too far, it hits these first."""
    taken = set(seqs)
    found: list[Bystander] = []
    for near in sorted({seq + step for seq in seqs[:BYSTANDERS] for step in (-1, 1)} - taken):
        digest = _digest(view, near)
        if digest is not None and len(found) < BYSTANDERS:
            found.append(Bystander(near, digest))
    return tuple(found)


def check_bystanders(view: Snapshot, watched: Sequence[Bystander]) -> Check:
    """Whether the records next to the erased ones are as they were, and still open their statements."""
    damaged = sum(1 for one in watched if _digest(view, one.seq) != one.digest)
    counts = {"bystanders": len(watched)}
    return check("bystanders", "found" if damaged else "clean", counts, ["bystander_damaged"] * damaged)


def check_structure(view: Snapshot, seqs: Sequence[int]) -> Check:
    """Whether every erased statement is still there, and nothing of its content is."""
    remaining = 0
    for seq in seqs:
        row = view.event_by_seq(seq)
        if row is None or row.content is not None or row.content_salt is not None:
            remaining += 1
    counts = {"contents": len(seqs), "remaining": remaining}
    return check(
        "structure", "found" if remaining else "clean", counts, ["content_present"] if remaining else []
    )


def check_residue(
    home: Home, store: Store, needles: Needles, canary: str, tenant_id: int
) -> tuple[Check, int]:
    """What a scan of the whole home finds of the needles that nothing kept explains.

    With it, of how many records it says nothing because others than the tenant say their words: only `cover` may know.
    """
    try:
        # Once also without a needle: that the files can be searched at all is part of the answer.
        results = [
            home.scan(needles.all[at : at + NEEDLES_AT_ONCE], canary=canary)
            for at in range(0, max(len(needles.all), 1), NEEDLES_AT_ONCE)
        ]
    except Error:
        # What was to be looked for is in memory alone, so the erasure has to end here, and says so.
        return check("residue", "not_run", {"needles": len(needles.all)}, ["scan_not_available"]), 0
    return _judge(home, store, needles, results, tenant_id)


def _judge(
    home: Home, store: Store, needles: Needles, results: Sequence[ScanResult], tenant_id: int
) -> tuple[Check, int]:
    hits = [
        (number * NEEDLES_AT_ONCE + hit.needle, hit)
        for number, result in enumerate(results)
        for hit in result.hits
    ]
    size_bytes = max(result.bytes_scanned for result in results)
    short = {at for at, needle in enumerate(needles.all) if too_short(needle, size_bytes)}
    long_hits = [(at, hit) for at, hit in hits if at not in short]
    telling, shared, untold = _telling(home, store, needles, long_hits, tenant_id)
    not_covered = needles.not_covered(short | shared)
    hidden = needles.not_covered(short | shared | untold) - not_covered
    unread = max(len(result.not_read) + len(result.not_opened) for result in results)
    controls = sum(result.control_found for result in results)
    counts = {
        "files": max(result.files for result in results),
        "bytes": size_bytes,
        "needles": len(needles.all),
        "needles_shared": len(shared),
        "needles_not_searchable": len(short),
        **({"records_not_covered": not_covered} if not_covered else {}),
        "controls_planted": len(results),
        "controls_found": controls,
        "files_not_searched": unread,
        "hits": sum(hit.count for hit in telling),
    }
    if telling:
        made = check("residue", "found", counts, ["residue_found"])
        return made | {"residue": _classes(telling)}, hidden
    if controls < len(results) or unread:
        return check("residue", "inconclusive", counts, ["control_failed"]), hidden
    return check("residue", "clean", counts), hidden


def cover(scanned: tuple[Check, int], free_space: Check) -> Check:
    """The scan as it counts beside the check of free space: what it cannot tell of a record, that one has to.

    A needle that is short or common is looked for in vain, or found for nothing, and of words that were given again
    nobody knows any more whether they are those of the record. If then not every free byte of the store is known to
    be zero, or a file lies in the home that no home has, nothing shows that the record is gone.
    """
    residue, hidden = scanned
    counts = residue["counts"]
    why = {"records_not_covered": "needles_not_searchable", "needles_given": "needles_unconfirmed"}
    reasons = {reason for name, reason in why.items() if counts.get(name)}
    reasons |= {"needles_not_searchable"} if hidden else set()
    covered = free_space["result"] == "clean" and not free_space["counts"].get("files_not_known")
    if not reasons or covered:
        return residue
    result = "inconclusive" if residue["result"] == "clean" else residue["result"]
    return residue | {"result": result, "why": sorted({*residue.get("why", ()), *reasons})}


def check_free_space(home: Home) -> Check:
    """Whether every byte of the store that belongs to no row is zero, and no old page holds a row that is gone.

    The one check of what was erased that needs not to know it.
    """
    try:
        pages = scan_process.pages_apart(home.path)
    except Error:
        return check("free_space", "not_run", {}, ["scan_not_available"])
    counts = {
        "pages": pages.pages,
        # To the byte it would depend on what was erased, and a manifest is public.
        "free_bytes": pages.free_bytes // GRAIN_BYTES * GRAIN_BYTES,
        "pages_in_log": pages.pages_in_log,
        "controls_planted": pages.controls_planted,
        "controls_found": pages.controls_found,
        "hits": sum(pages.residue.values()),
        **({"files_not_known": pages.files_not_known} if pages.files_not_known else {}),
    }
    if pages.residue:
        made = check("free_space", "found", counts, ["residue_found"])
        return made | {"residue": [{"class": name, "count": n} for name, n in sorted(pages.residue.items())]}
    if pages.damaged or pages.controls_found < pages.controls_planted:
        return check("free_space", "inconclusive", counts, ["control_failed"])
    return check("free_space", "clean", counts)


def _telling(
    home: Home, store: Store, needles: Needles, hits: Sequence[tuple[int, Hit]], tenant_id: int
) -> tuple[list[Hit], set[int], set[int]]:
    """The hits that nothing kept explains, the needles that had only such that something does, and those of them of
    which that is not said."""
    if not hits:
        return [], set(), set()
    with store.read_whole() as view:
        explained = Explained(home, view, [(needles.all[at], hit) for at, hit in hits], tenant_id)
    telling = [(at, hit) for at, hit in hits if not explained(needles.all[at], hit)]
    shared = {at for at, _ in hits} - {at for at, _ in telling}
    untold = {at for at in shared if explained.tells_of_others(needles.all[at])}
    return [hit for _, hit in telling], shared - untold, untold


def _classes(hits: Sequence[Hit]) -> list[dict[str, Any]]:
    counts: Counter[str] = Counter()
    for hit in hits:
        code = "RESIDUE_WAL" if hit.file == "store.db-wal" else hit.class_code
        counts[code if code in RESIDUE else "RESIDUE_FILE"] += hit.count
    return [{"class": code, "count": count} for code, count in sorted(counts.items())]


def _digest(view: Snapshot, seq: int) -> bytes | None:
    row = view.event_by_seq(seq)
    if row is None or row.content is None or row.content_salt is None:
        return None
    try:
        event.open_content(row.commitment, row.link, row.link_salt, row.content, row.content_salt)
    except Error:
        return None
    return hashlib.sha256(row.content_salt + row.content).digest()
