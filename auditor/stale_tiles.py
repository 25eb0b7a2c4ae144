"""Partial tiles of earlier sizes behind a URL, which lists nothing: asked for by name, and compared with the log.

In a folder every tile there is gets compared. Behind a URL one that is no longer needed is found only by asking: for
those of every head that is known, and for each narrower one of those that the newest head ends in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from auditor.evidence import Entries, LogFiles
from auditor.findings import Finding, Note, Outcome
from tlog.errors import Error
from tlog.merkle import Frontier
from tlog.tile import WIDTH, Tile, encode_bundle, partial_tiles

MAX_SECONDS: Final = 10.0
"""What asking for files that are most likely not there may take: a log may answer slowly, and need not have them."""


def check_stale_tiles(files: LogFiles, entries: Entries, sizes: Iterable[int]) -> Outcome:
    """Each partial tile of an earlier size that the log still serves is the beginning of what came after it.

    `sizes` are those of heads that are known.
    """
    if files.names is not None or not entries.proved or len(entries.spans) != 1:
        return Outcome()
    size = entries.size
    known = {tile for each in sizes if 0 < each < size for tile in partial_tiles(each)}
    narrower = {
        Tile(last.level, last.index, width) for last in partial_tiles(size) for width in range(1, last.width)
    }
    # What somebody was shown comes first, should time run out.
    due = [*sorted(known, key=_place), *sorted(narrower - known, key=_place)]
    findings: list[Finding] = []
    until = time.monotonic() + MAX_SECONDS
    asked = there = 0
    for tile in due:
        if time.monotonic() > until:
            break
        try:
            data = files.read(tile.path)
        except Error as error:
            what = f"What the log serves for an earlier size is no tile: {error.message}."
            if error.code == "too_large":
                findings.append(Finding("ENTRY_ALTERED", f"log {tile.path}", what))
                continue
            break
        asked += 1
        there += data is not None
        if data is not None and data != b"".join(_expected(tile, entries)):
            what = "It is not the beginning of a wider bundle."
            if tile.level is not None:
                what = "A tile holds a hash that its entries do not have."
            findings.append(Finding("ENTRY_ALTERED", f"log {tile.path}", what))
    checked = Note("tiles of earlier sizes", f"partial tiles found among {asked} that were asked for", there)
    text = "partial tiles of earlier sizes that no known head had: a URL does not list them"
    if asked < len(due):
        text += ", and some that the log did not answer for"
    return Outcome(tuple(findings), (checked,), (Note("tiles of earlier sizes", text),))


def _place(tile: Tile) -> tuple[int, int, int]:
    return (-1 if tile.level is None else tile.level, tile.index, tile.width)


def _expected(tile: Tile, entries: Entries) -> Iterator[bytes]:
    start = tile.index * WIDTH
    if tile.level is None:
        own = entries.entries[start : start + tile.width]
        yield encode_bundle([entry for entry in own if entry is not None])
        return
    yield from (_subtree(entries.leaves, tile.level, start + n) for n in range(tile.width))


def _subtree(leaves: Sequence[bytes], level: int, at: int) -> bytes:
    """The hash over 256**level leaves, the one at this place in its row."""
    wide = WIDTH**level
    part = leaves[at * wide : at * wide + wide]
    return part[0] if wide == 1 else Frontier(0, ()).extend(part).root()
