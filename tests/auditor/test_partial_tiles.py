"""Partial tiles of earlier sizes that still lie about say what the tiles that came after them say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tampering as by

from tlog.merkle import leaf_hash
from tlog.tile import Tile, encode_bundle

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
