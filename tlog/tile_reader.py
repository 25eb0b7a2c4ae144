"""Tiles and bundles fetched by path, and the same proved to belong to one tree before they are returned.

A log may delete a partial tile once the full one exists, so whoever asks for a partial one takes the
beginning of the full one instead (C2SP tlog-tiles, Partial Tiles).
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tlog.ascii import HASH_BYTES
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import Frontier, Node, leaf_hash, range_nodes
from tlog.tile import WIDTH, Tile, decode_bundle, require_width, verified_hash_reader

PathReader = Callable[[str], bytes | None]
"""Returns the file at a path below a log's prefix, None if there is none."""

CACHED_TILES: Final = 1024


def fetch_tile(read: PathReader, tile: Tile) -> bytes:
    """The bytes of a hash tile of exactly this width; nothing about them is proved."""
    data = read(tile.path)
    if data is None and tile.width < WIDTH:
        data = read(tile.full.path)
        if data is not None:
            require_width(tile.full, data)  # a cut file is no tile, though its beginning might be this one
            data = data[: tile.width * HASH_BYTES]
    if data is None:
        raise _missing(tile)
    require_width(tile, data)
    return data


def fetch_bundle(read: PathReader, bundle: Tile) -> tuple[bytes, ...]:
    """The entries of a bundle of exactly this width; nothing about them is proved."""
    data, count = read(bundle.path), bundle.width
    if data is None and count < WIDTH:
        data, count = read(bundle.full.path), WIDTH
    if data is None:
        raise _missing(bundle)
    try:
        return decode_bundle(data, count)[: bundle.width]
    except MalformedError as error:
        raise VerificationError(error.message, code="tile", path=bundle.path) from None


class VerifiedTiles:
    """What a log serves, each hash and each entry proved to be in the tree of one size and root."""

    def __init__(self, read: PathReader, size: int, root: bytes) -> None:
        self.size = size
        self.root = root
        self._read = read
        self._read_verified = verified_hash_reader(size, root, self._fetch)
        self._proved: OrderedDict[Tile, bytes] = OrderedDict()
        self._fetched: dict[Tile, bytes] = {}

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees; a HashReader."""
        self._fetched = {}
        hashes = self._read_verified(nodes)
        # Kept only now: a tile that failed is asked for again, the log may have been repaired.
        self._proved.update(self._fetched)
        while len(self._proved) > CACHED_TILES:
            self._proved.popitem(last=False)
        return hashes

    def entries(self, start: int, end: int) -> Iterator[bytes]:
        """The entries from `start` to before `end`, read bundle by bundle."""
        if not 0 <= start <= end <= self.size:
            raise MalformedError(f"entries: expected a range within the {self.size} of the log")
        step = WIDTH * WIDTH  # as many bundles as one tile of level 1 has hashes
        for first in range(start - start % step, end, step):
            yield from self._entries(max(start, first), min(end, first + step))

    def _entries(self, start: int, end: int) -> Iterator[bytes]:
        bundles = [
            Tile(None, index, min(self.size - index * WIDTH, WIDTH))
            for index in range(start // WIDTH, -(-end // WIDTH))
        ]
        nodes = [_subtrees(bundle) for bundle in bundles]
        expected = iter(self.read_hashes([node for group in nodes for node in group]))
        for bundle, group in zip(bundles, nodes, strict=True):
            entries = self._bundle(bundle, tuple(itertools.islice(expected, len(group))))
            first = bundle.index * WIDTH
            yield from entries[max(start - first, 0) : end - first]

    def _fetch(self, tile: Tile) -> bytes:
        data = self._proved.get(tile) or fetch_tile(self._read, tile)
        self._fetched[tile] = data
        return data

    def _bundle(self, bundle: Tile, expected: tuple[bytes, ...]) -> tuple[bytes, ...]:
        entries = fetch_bundle(self._read, bundle)
        if Frontier().extend(map(leaf_hash, entries)).hashes != expected:
            raise VerificationError(
                "entry bundle: holds other entries than the log committed to", code="entry", path=bundle.path
            )
        return entries


def _subtrees(bundle: Tile) -> tuple[Node, ...]:
    """The complete subtrees over a bundle's entries: one where it is full."""
    first = bundle.index * WIDTH
    return range_nodes(first, first + bundle.width)


def _missing(tile: Tile) -> VerificationError:
    return VerificationError("tile: the log does not serve it", code="tile_missing", path=tile.path)
