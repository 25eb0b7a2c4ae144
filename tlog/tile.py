"""C2SP tlog-tiles: where hashes and entries lie in a log's files, and what is in those files.

Level L of a log holds one hash for every complete subtree of 256**L leaves. A tile is 256 such hashes in a
row, an entry bundle the 256 entries below a tile of level 0. Both are written when full and never changed;
the one at the right edge is partial and has its width in its name, so that it is never changed either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tlog.ascii import HASH_BYTES, MAX_SIZE
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import HashReader, Node, parent_hashes, tree_root

HEIGHT = 8
WIDTH = 1 << HEIGHT
MAX_LEVEL = 63
KEPT_TILES = 64
MAX_ENTRY_BYTES = 65535
MAX_BUNDLE_BYTES = WIDTH * (2 + MAX_ENTRY_BYTES)

_Rows = Sequence[Sequence[bytes]]  # a tile's hashes, and above them each row of their complete parents

_PATH = re.compile(
    r"tile/(?P<level>entries|0|[1-9][0-9]?)/(?P<index>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?"
)


@dataclass(frozen=True)
class Tile:
    """The place of a hash tile, or of an entry bundle where `level` is None."""

    level: int | None
    index: int
    width: int = WIDTH

    def __post_init__(self) -> None:
        level_holds = self.level is None or 0 <= self.level <= MAX_LEVEL
        if not (level_holds and 0 <= self.index <= MAX_SIZE and 1 <= self.width <= WIDTH):
            raise MalformedError("tile: expected level 0 to 63, index 0 to 2^63-1 and width 1 to 256")

    @property
    def path(self) -> str:
        """Where it lies under the log's prefix. tlog-tiles, Merkle Tree."""
        groups = f"{self.index % 1000:03d}"
        rest = self.index // 1000
        while rest:
            groups = f"x{rest % 1000:03d}/{groups}"
            rest //= 1000
        folder = "entries" if self.level is None else self.level
        suffix = "" if self.width == WIDTH else f".p/{self.width}"
        return f"tile/{folder}/{groups}{suffix}"

    @property
    def full(self) -> Tile:
        """The full tile that takes its place once the log is large enough."""
        return Tile(self.level, self.index)


TileReader = Callable[[Tile], bytes]
"""Returns the bytes of a tile that exists, exactly as long as its width says; whoever reads falls back to the
full tile where the partial one is gone."""


def hash_tile_path(level: int, index: int, width: int = WIDTH) -> str:
    """The path of a hash tile."""
    return Tile(level, index, width).path


def bundle_path(index: int, width: int = WIDTH) -> str:
    """The path of an entry bundle."""
    return Tile(None, index, width).path


def parse_path(path: str) -> Tile:
    """The tile at a path, which is read in its one spelling only."""
    match = _PATH.fullmatch(path)
    if match:
        level = None if match["level"] == "entries" else int(match["level"])
        # Bounded before int(), which is quadratic.
        index = int(re.sub("[x/]", "", match["index"])) if len(match["index"]) <= 35 else MAX_SIZE + 1
        tile = Tile(level, index, int(match["width"] or WIDTH))
        if tile.path == path:  # no x000 group, no width of 256 or more, no .p of a full tile
            return tile
    raise MalformedError("tile path: expected tile/LEVEL/INDEX[.p/WIDTH] as tlog-tiles writes it")


# Which tiles there are


def tile_at(level: int | None, index: int, size: int) -> Tile | None:
    """The tile at this place as it is in a log of `size`: full, partial, or None."""
    width = min((size >> (HEIGHT * (level or 0))) - index * WIDTH, WIDTH)
    return Tile(level, index, width) if width > 0 else None


def tiles_at(size: int) -> Iterator[Tile]:
    """Every tile and bundle of a log of `size`: bundles first, then level by level."""
    return _tiles_between(0, size)


def partial_tiles(size: int) -> tuple[Tile, ...]:
    """The partial tiles and bundle that must be served as long as `size` is a log's published size."""
    last = ((level, count) for level, count in _levels(size) if count % WIDTH)
    return tuple(Tile(level, count // WIDTH, count % WIDTH) for level, count in last)


def tiles_for_growth(old_size: int, new_size: int) -> tuple[Tile, ...]:
    """Every tile and bundle to write when a log grows: those completed, and the partial ones of the new size.

    Bundles first, then level by level, each left to right. Nothing is listed that a log of the old size had.
    """
    if not 0 <= old_size <= new_size <= MAX_SIZE:
        raise MalformedError("size: expected an old size not above the new one")
    return tuple(_tiles_between(old_size, new_size))


def _levels(size: int) -> Iterator[tuple[int | None, int]]:
    yield None, size
    level = 0
    while size:
        yield level, size
        size >>= HEIGHT
        level += 1


def _tiles_between(old_size: int, new_size: int) -> Iterator[Tile]:
    for level, count in _levels(new_size):
        before = old_size >> (HEIGHT * (level or 0))
        if before == count:
            continue
        for index in range(before // WIDTH, count // WIDTH):
            yield Tile(level, index)
        if count % WIDTH:
            yield Tile(level, count // WIDTH, count % WIDTH)


# What is in them


def encode_bundle(entries: Iterable[bytes]) -> bytes:
    """The bytes of an entry bundle: up to 256 entries, each after its length in two bytes, big-endian."""
    parts: list[bytes] = []
    for entry in entries:
        if len(entry) > MAX_ENTRY_BYTES:
            raise MalformedError(f"entry: expected at most {MAX_ENTRY_BYTES} bytes", code="too_large")
        parts += (len(entry).to_bytes(2), entry)
    if not 1 <= len(parts) // 2 <= WIDTH:
        raise MalformedError(f"entry bundle: expected 1 to {WIDTH} entries")
    return b"".join(parts)


def decode_bundle(data: bytes, count: int) -> tuple[bytes, ...]:
    """The `count` entries of a bundle, with no byte left over."""
    entries = []
    position = 0
    for _ in range(count):
        start = position + 2
        position = start + int.from_bytes(data[position:start])
        entries.append(data[start:position])
    if position != len(data):  # a cut or overlong entry moves the end too
        raise MalformedError(f"entry bundle: expected exactly {count} entries")
    return tuple(entries)


def require_width(tile: Tile, data: bytes) -> None:
    """Returns if the bytes are as many as a hash tile of its width has."""
    if len(data) != tile.width * HASH_BYTES:
        raise VerificationError(
            f"tile: expected {tile.width * HASH_BYTES} bytes", code="tile", path=tile.path
        )


def decode_tile(tile: Tile, data: bytes) -> tuple[bytes, ...]:
    """The hashes of a hash tile, left to right."""
    require_width(tile, data)
    return tuple(data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES))


def grow(old_size: int, leaves: Iterable[bytes], read_tile: TileReader) -> Iterator[tuple[Tile, bytes]]:
    """Each hash tile of `tiles_for_growth` with its bytes, when these leaf hashes are appended.

    Reads the partial tiles of the old size and nothing else.
    """
    level, before, row = 0, old_size, list(leaves)
    while row:
        first, width = divmod(before, WIDTH)
        if width:
            edge = Tile(level, first, width)
            row = [*decode_tile(edge, read_tile(edge)), *row]
        parents = []
        for at in range(0, len(row), WIDTH):
            hashes = row[at : at + WIDTH]
            yield Tile(level, first + at // WIDTH, len(hashes)), b"".join(hashes)
            if len(hashes) == WIDTH:
                parents.append(_rows(hashes)[HEIGHT][0])
        level, before, row = level + 1, first, parents


def hash_reader(size: int, read_tile: TileReader) -> HashReader:
    """A reader of a log's hashes that fetches only tiles that exist at `size`, and keeps the last 64 of them.

    It believes what it reads: for one's own log. For any other there is `verified_hash_reader`.
    """

    @lru_cache(maxsize=KEPT_TILES)
    def rows_of(tile: Tile) -> _Rows:
        return _rows(decode_tile(tile, read_tile(tile)))

    return lambda nodes: [_hash_of(node, size, rows_of) for node in nodes]


def verified_hash_reader(size: int, root: bytes, read_tile: TileReader) -> HashReader:
    """A reader of a log's hashes that believes no tile unless it leads to the root; it keeps the last 64.

    The partial tiles are fetched together, once, and together have to make the root. A full tile has its hash
    in the tile above, which is fetched and checked in turn. Raises VerificationError with code `tile`.
    """
    edge: dict[Tile, _Rows] = {}

    @lru_cache(maxsize=KEPT_TILES)
    def rows_of(tile: Tile) -> _Rows:
        if tile.width < WIDTH:
            edge.update(edge or _verified_edge(size, root, read_tile))
            return edge[tile]
        rows = _rows(decode_tile(tile, read_tile(tile)))
        above = tile_at((tile.level or 0) + 1, tile.index // WIDTH, size)
        if above is None or rows_of(above)[0][tile.index % WIDTH] != rows[HEIGHT][0]:
            raise VerificationError(
                "tile: does not lead to the checkpoint's root", code="tile", path=tile.path
            )
        return rows

    return lambda nodes: [_hash_of(node, size, rows_of) for node in nodes]


def _verified_edge(size: int, root: bytes, read_tile: TileReader) -> dict[Tile, _Rows]:
    # Every subtree that a tree's root is folded from lies in a partial tile, and every hash of a partial tile
    # in such a subtree: that the root is right leaves no hash of the right edge unchecked.
    edge = [tile for tile in partial_tiles(size) if tile.level is not None]
    tiles = {tile: _rows(decode_tile(tile, read_tile(tile))) for tile in edge}
    if tree_root(size, lambda nodes: [_hash_of(node, size, tiles.__getitem__) for node in nodes]) != root:
        raise VerificationError("tiles: the right edge does not lead to the checkpoint's root", code="tile")
    return tiles


def _rows(hashes: Sequence[bytes]) -> _Rows:
    rows = [hashes]
    while len(rows[-1]) > 1:
        rows.append(parent_hashes(rows[-1]))
    return rows


def _hash_of(node: Node, size: int, rows_of: Callable[[Tile], _Rows]) -> bytes:
    level, index = node
    tile_level, height = divmod(level, HEIGHT)
    position = index % (WIDTH >> height)
    tile = tile_at(tile_level, (index << height) // WIDTH, size)
    if tile is None or (position + 1) << height > tile.width:
        raise MalformedError("node: expected a subtree complete at the tree's size")
    return rows_of(tile)[height][position]
