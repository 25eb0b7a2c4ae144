"""Tiles and bundles fetched by path, and the same proved to belong to one tree before they are returned.

A log may delete a partial tile once the full one exists, so whoever asks for a partial one takes the
beginning of the full one instead (C2SP tlog-tiles, Partial Tiles).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tlog.ascii import HASH_BYTES
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import Frontier, HashReader, Node, leaf_hash, tree_root
from tlog.tile import WIDTH, Tile, decode_bundle, decode_tile, hash_reader, tile_at

PathReader = Callable[[str], bytes | None]
"""Returns the file at a path below a log's prefix, None if there is none."""

CACHED_TILES: Final = 1024


def fetch_tile(read: PathReader, tile: Tile) -> bytes:
    """The bytes of a hash tile of exactly this width; nothing about them is proved."""
    path = tile.path
    data = read(path)
    if data is None and tile.width < WIDTH:
        path = tile.full.path
        data = read(path)
        if data is not None:
            decode_tile(tile.full, data)
            data = data[: tile.width * HASH_BYTES]
    if data is None:
        raise _missing(tile)
    decode_tile(tile, data)
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
    """What a log serves, each hash and entry proved to be in the tree of one size and root.

    The partial tiles at the right edge are proved by the root, which all their hashes make up. Every other
    tile is proved by its hash in the tile above it, an entry by its leaf hash in the tile of level 0.
    """

    def __init__(self, read: PathReader, size: int, root: bytes) -> None:
        self.size = size
        self.root = root
        self._read = read
        self._edge: dict[Tile, tuple[bytes, ...]] | None = None
        self._cache: OrderedDict[Tile, tuple[bytes, ...]] = OrderedDict()

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees; a HashReader."""
        return self._hash_reader()(nodes)

    def entries(self, start: int, end: int) -> Iterator[bytes]:
        """The entries from `start` to before `end`, bundle by bundle."""
        if not 0 <= start <= end <= self.size:
            raise MalformedError(f"entries: expected a range within the {self.size} of the log")
        for index in range(start // WIDTH, -(-end // WIDTH) if start < end else 0):
            first = index * WIDTH
            yield from self._bundle(index)[max(start - first, 0) : end - first]

    def _hash_reader(self) -> HashReader:
        return hash_reader(self.size, lambda tile: b"".join(self._tile(tile)))

    def _bundle(self, index: int) -> tuple[bytes, ...]:
        bundle, tile = tile_at(None, index, self.size), tile_at(0, index, self.size)
        assert bundle is not None
        assert tile is not None
        entries = fetch_bundle(self._read, bundle)
        if tuple(map(leaf_hash, entries)) != self._tile(tile):
            raise VerificationError(
                "entry bundle: holds other entries than the log committed to", code="entry", path=bundle.path
            )
        return entries

    def _tile(self, tile: Tile) -> tuple[bytes, ...]:
        if self._edge is None:
            self._edge = self._verified_edge()
        hashes = self._edge.get(tile) or self._cache.get(tile)
        if hashes is None:
            hashes = self._verified_full(tile)
            self._cache[tile] = hashes
            if len(self._cache) > CACHED_TILES:
                self._cache.popitem(last=False)
        return hashes

    def _verified_edge(self) -> dict[Tile, tuple[bytes, ...]]:
        edge: dict[Tile, tuple[bytes, ...]] = {}

        def read(tile: Tile) -> bytes:
            data = fetch_tile(self._read, tile)
            edge[tile] = decode_tile(tile, data)
            return data

        # The nodes that make up [0, size) lie in the partial tiles, and use every hash in them.
        if tree_root(self.size, hash_reader(self.size, read)) != self.root:
            raise VerificationError("tiles: do not lead to the root of the checkpoint", code="tile")
        return edge

    def _verified_full(self, tile: Tile) -> tuple[bytes, ...]:
        assert tile.level is not None
        parent = tile_at(tile.level + 1, tile.index // WIDTH, self.size)
        assert parent is not None  # only full tiles get here, and each has its hash one level up
        expected = self._tile(parent)[tile.index % WIDTH]
        hashes = decode_tile(tile, fetch_tile(self._read, tile))
        if Frontier().extend(hashes).root() != expected:
            raise VerificationError(
                "tile: holds other hashes than the log committed to", code="tile", path=tile.path
            )
        return hashes


def _missing(tile: Tile) -> VerificationError:
    return VerificationError("tile: the log does not serve it", code="tile_missing", path=tile.path)
