"""Maps of the files of a store: what each page is, for a report to draw."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from auditor.exhibits import KINDS, PageMap
from auditor.findings import Finding
from auditor.sqlite_file import Pages
from auditor.sqlite_format import FRAME_HEADER_BYTES, WAL_HEADER_BYTES
from auditor.sqlite_pages import PageReport

MAX_RUNS: Final = 20_000
MAIN: Final = "store.db"
WAL: Final = "store.db-wal"
_FRAME: Final = re.compile(r"store\.db-wal frame ([0-9]{1,12})\b")
_ON_PAGE: Final = re.compile(r"store\.db page ([0-9]{1,12})\b")
_RESIDUE: Final = "RESIDUE_"


def page_maps(pages: Pages, report: PageReport, findings: Iterable[Finding]) -> tuple[PageMap, ...]:
    """A map of the main file, and one of the write-ahead log if it has frames.

    `findings` are those of the whole audit: a page in which a text was found is a page with residue.
    """
    found = list(findings)
    size = pages.header.page_bytes
    maps = [make_map(MAIN, "page", size, _main_kinds(report, found))]
    if pages.frames:
        maps.append(make_map(WAL, "frame", size, _frame_kinds(pages, report, found)))
    return tuple(maps)


def make_map(file: str, unit: str, unit_bytes: int, kinds: Iterable[str]) -> PageMap:
    """The map of a file of which each page is of these kinds, coarser where it would have too many runs."""
    every = [KINDS.index(kind) for kind in kinds]
    totals = {KINDS[rank]: count for rank, count in sorted(Counter(every).items())}
    share = 1
    runs = _runs(every, share)
    while len(runs) > MAX_RUNS:
        share = max(share * 2, -(-len(every) // MAX_RUNS))
        runs = _runs(every, share)
    return PageMap(file, unit, unit_bytes, runs, totals)


def _main_kinds(report: PageReport, findings: list[Finding]) -> Iterable[str]:
    residue = {flaw.page for flaw in report.flaws if flaw.kind == "residue" and not flaw.in_wal}
    residue |= _numbers(_ON_PAGE, findings)
    broken = {flaw.page for flaw in report.flaws if flaw.kind == "broken"}
    for number in range(1, report.page_count + 1):
        owner = report.owners.get(number)
        if number in residue:
            yield "residue"
        elif number in broken or owner == "nobody":
            yield "broken"
        else:
            yield "zero" if owner in ("free", None) else "live"


def _frame_kinds(pages: Pages, report: PageReport, findings: list[Finding]) -> Iterable[str]:
    """Frames with the newest version of their page are live, all others old."""
    newest = {
        (offset - FRAME_HEADER_BYTES - WAL_HEADER_BYTES)
        // (pages.header.page_bytes + FRAME_HEADER_BYTES): page
        for page, offset in pages.newest.items()
    }
    flawed = {flaw.page for flaw in report.flaws if flaw.kind == "residue" and flaw.in_wal}
    residue = _numbers(_FRAME, findings)
    for frame in range(pages.frames):
        if frame + 1 in residue or newest.get(frame) in flawed:
            yield "residue"
        else:
            yield "live" if frame in newest else "old"


def _numbers(place: re.Pattern[str], findings: list[Finding]) -> set[int]:
    matches = (place.match(one.where) for one in findings if one.code.startswith(_RESIDUE))
    return {int(match[1]) for match in matches if match is not None}


def _runs(ranks: Sequence[int], share: int) -> tuple[tuple[str, int], ...]:
    """Runs of equal neighbours, `share` of which are taken together and have the kind of the worst."""
    parts = ((max(ranks[at : at + share]), len(ranks[at : at + share])) for at in range(0, len(ranks), share))
    return tuple(
        (KINDS[rank], sum(count for _, count in group))
        for rank, group in groupby(parts, key=lambda one: one[0])
    )
