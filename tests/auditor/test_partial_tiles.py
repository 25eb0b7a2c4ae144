"""Partial tiles of earlier sizes that still lie about say what the tiles that came after them say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tampering as by

from auditor.evidence import Entries, LogFiles, Span
from auditor.stale_tiles import check_stale_tiles
from tlog.errors import UnavailableError
from tlog.merkle import Frontier, leaf_hash
from tlog.tile import Tile, encode_bundle, partial_tiles

WIDTH = 10


def stale(copy: Any) -> tuple[Path, Path]:
    """A partial bundle and a partial tile of hashes of an earlier size."""
    entries = by.entries_of(copy)[:WIDTH]
    bundle, hashes = (copy.home / "log" / Tile(level, 0, WIDTH).path for level in (None, 0))
    for path in (bundle, hashes):
        path.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(encode_bundle(entries))
    hashes.write_bytes(b"".join(map(leaf_hash, entries)))
    return bundle, hashes


def test_those_that_agree_are_no_finding(copy: Any) -> None:
    stale(copy)
    assert copy.codes() == set()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1] + bytes((data[-1] ^ 1,)),
        lambda data: data[:-32],
        lambda data: data + data[:32],
        lambda data: b"",
    ],
)
def test_one_that_differs_is_found(copy: Any, which: int, spoil: Callable[[bytes], bytes]) -> None:
    path = stale(copy)[which]
    path.write_bytes(spoil(path.read_bytes()))
    found = [finding for finding in copy.audit().outcome.findings if finding.code == "ENTRY_ALTERED"]
    assert [finding.where for finding in found] == [f"log {path.relative_to(copy.home / 'log')}"]


# Behind a URL, which lists nothing

LARGE = 300


def served(*stale: Tile, size: int = LARGE) -> tuple[dict[str, bytes], Entries]:
    """What a log of that size serves beside its newest tiles, and its entries."""
    entries = tuple(b"%d" % number for number in range(size))
    leaves = tuple(map(leaf_hash, entries))
    files = {}
    for tile in stale:
        start = tile.index * 256
        part = leaves[start : start + tile.width]
        if tile.level == 1:
            part = tuple(
                Frontier(0, ()).extend(leaves[256 * n : 256 * n + 256]).root()
                for n in range(start, start + tile.width)
            )
        whole = encode_bundle(entries[start : start + tile.width]) if tile.level is None else b"".join(part)
        files[tile.path] = whole
    return files, Entries(size, entries, True, (Span(0, size, "log", None),), leaves=leaves)


KNOWN = 260
STALE = (
    *partial_tiles(KNOWN),
    Tile(None, 1, 20),
    Tile(0, 1, 30),
    *partial_tiles(200),
    *partial_tiles(600),
)


def test_partial_tiles_of_earlier_sizes_are_asked_for_by_name() -> None:
    files, entries = served(*STALE, size=900)
    outcome = check_stale_tiles(LogFiles(files.get, None), entries, [KNOWN, 200, 600])
    assert outcome.findings == ()
    # Of those in the middle nobody knows: only heads tell of them.
    assert outcome.checked[0].count == len(STALE) - 2


@pytest.mark.parametrize("tile", [*partial_tiles(260), Tile(None, 1, 20), Tile(0, 1, 30)], ids=str)
@pytest.mark.parametrize("change", [lambda data: data[:-1] + b"?", lambda data: data + b"kumquat"])
def test_one_behind_a_url_that_differs_is_found(tile: Tile, change: Callable[[bytes], bytes]) -> None:
    files, entries = served(*partial_tiles(KNOWN), tile)
    files[tile.path] = change(files[tile.path])
    (finding,) = check_stale_tiles(LogFiles(files.get, None), entries, [KNOWN]).findings
    assert (finding.code, finding.where) == ("ENTRY_ALTERED", f"log {tile.path}")


def test_a_log_that_does_not_answer_is_not_waited_for() -> None:
    _, entries = served()
    asked = []

    def read(path: str) -> bytes | None:
        asked.append(path)
        raise UnavailableError("no")

    outcome = check_stale_tiles(LogFiles(read, None), entries, [KNOWN])
    assert len(asked) == 1
    assert "did not answer" in outcome.not_checked[0].text
    assert check_stale_tiles(LogFiles(read, ()), entries, [KNOWN]).not_checked == ()
