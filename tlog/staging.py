"""What a log has committed and not yet written as tiles, and the state read from it.

    head                      origin, size and root of the committed tree, as checkpoint text
    integrated                the size up to which tiles and bundles stand in the public storage, durably
    staging/START.END.OLD.NEW the entries START to END, between the trees with these sizes and roots

A segment counts only if it lies on the chain that ends at the head: one that was written and never committed
names a root that no head has.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tlog.ascii import parse_decimal
from tlog.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from tlog.errors import MalformedError, RefusedError, VerificationError
from tlog.merkle import EMPTY_ROOT, Frontier, HashReader, Node, leaf_hash, node_hash, parent_hashes
from tlog.storage import Storage
from tlog.tile import WIDTH, Tile, decode_bundle, encode_bundle, grow, hash_reader, partial_tiles
from tlog.tile_reader import PathReader, fetch_bundle, fetch_tile

HEAD: Final = "head"
INTEGRATED: Final = "integrated"
STAGING: Final = "staging/"

_SEGMENT: Final = re.compile(
    r"staging/(?P<start>0|[1-9][0-9]{0,18})\.(?P<end>[1-9][0-9]{0,18})"
    r"\.(?P<old>[A-Za-z0-9_-]{43})\.(?P<new>[A-Za-z0-9_-]{43})"
)


@dataclass(frozen=True)
class Head:
    """Size and root of a tree."""

    size: int
    root: bytes


EMPTY_HEAD: Final = Head(0, EMPTY_ROOT)


@dataclass(frozen=True)
class Segment:
    """A staging file: the entries that lead from one head to the next."""

    old: Head
    new: Head

    @property
    def path(self) -> str:
        """Where it lies; the name is short enough for file systems that take 143 bytes."""
        old, new = (urlsafe_b64encode(head.root).decode().rstrip("=") for head in (self.old, self.new))
        return f"{STAGING}{self.old.size}.{self.new.size}.{old}.{new}"


def parse_segment(path: str) -> Segment | None:
    """The segment that a path of the staging folder names, None if it is not the name of one."""
    match = _SEGMENT.fullmatch(path)
    if not match:
        return None
    old, new = (urlsafe_b64decode(match[name] + "=") for name in ("old", "new"))
    segment = Segment(Head(int(match["start"]), old), Head(int(match["end"]), new))
    return segment if segment.path == path else None


def encode_segment(entries: Sequence[bytes]) -> bytes:
    """The bytes of a staging file: the entries as in bundles, one after the other."""
    return b"".join(encode_bundle(entries[at : at + WIDTH]) for at in range(0, len(entries), WIDTH))


def format_head(origin: str, head: Head) -> bytes:
    """The bytes of a head file."""
    return format_checkpoint(Checkpoint(origin, head.size, head.root)).encode()


def parse_head(data: bytes | None, origin: str) -> Head:
    """The head in a head file; the empty one if there is no file. RefusedError if it is another log's."""
    if data is None:
        return EMPTY_HEAD
    try:
        checkpoint = parse_checkpoint(data.decode())
    except (UnicodeDecodeError, MalformedError):
        raise VerificationError("log state: the head is not readable", code="log_state") from None
    if checkpoint.origin != origin:
        raise RefusedError("log state: belongs to a log of another origin", code="origin")
    return Head(checkpoint.size, checkpoint.root)


@dataclass(frozen=True)
class State:
    """A committed tree: tiles up to `integrated`, the entries after it in memory. Never changes.

    `read_stored` reads the hashes of the tree of the integrated size and keeps the tiles that it read last; `edge`
    is that tree's frontier, and what is read of partial tiles has to lead to it before it is copied anywhere.
    """

    head: Head
    head_file: bytes | None
    integrated: int
    integrated_file: bytes | None
    segments: tuple[Segment, ...]
    entries: tuple[bytes, ...]
    leaves: tuple[bytes, ...]
    edge: Frontier
    frontier: Frontier
    read_public: PathReader
    read_stored: HashReader

    def extended(self, entries: Sequence[bytes], origin: str) -> tuple[Segment, State]:
        """The segment that appends `entries`, and the state once its head is committed."""
        leaves = tuple(map(leaf_hash, entries))
        frontier = self.frontier.extend(leaves)
        segment = Segment(self.head, Head(frontier.size, frontier.root()))
        return segment, replace(
            self,
            head=segment.new,
            head_file=format_head(origin, segment.new),
            segments=(*self.segments, segment),
            entries=self.entries + tuple(entries),
            leaves=self.leaves + leaves,
            frontier=frontier,
        )

    def integrated_to(self, size: int) -> State:
        """The state once all tiles of `size` stand and the segments below are dropped."""
        dropped = size - self.integrated
        return replace(
            self,
            integrated=size,
            integrated_file=format_integrated(size),
            segments=tuple(segment for segment in self.segments if segment.new.size > size),
            entries=self.entries[dropped:],
            leaves=self.leaves[dropped:],
            edge=self.edge.extend(self.leaves[:dropped]),
            read_stored=_stored_reader(size, self.read_public),
        )

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees of the committed tree; a HashReader."""
        in_tiles: list[Node] = []
        for node in nodes:
            self._collect(node, in_tiles)
        hashes = dict(zip(in_tiles, self.read_stored(in_tiles), strict=True)) if in_tiles else {}
        return [self._hash(node, hashes) for node in nodes]

    def read_entries(self, start: int, end: int) -> list[bytes]:
        """The entries from `start` to before `end`; VerificationError if a bundle is not what its tile says."""
        entries: list[bytes] = []
        at = start
        while at < min(end, self.integrated):
            index = at // WIDTH
            width = min(self.integrated - index * WIDTH, WIDTH)
            first = index * WIDTH
            entries += self._bundle(Tile(None, index, width))[at - first : end - first]
            at = first + width
        entries += self.entries[max(at - self.integrated, 0) : max(end - self.integrated, 0)]
        return entries

    def read_each(self, indexes: Iterable[int]) -> Iterator[bytes]:
        """The entry at each index; those in one bundle, if they are in order, at the cost of reading it once."""
        first, bundle = 0, list[bytes]()
        for index in indexes:
            if not first <= index < first + len(bundle):
                first = index - index % WIDTH
                bundle = self.read_entries(first, min(first + WIDTH, self.head.size))
            yield bundle[index - first]

    def tiles(self, size: int) -> Iterator[tuple[str, bytes]]:
        """Path and contents of each tile and bundle to write when this is integrated up to `size`.

        Raises VerificationError before the first if a partial tile or bundle that grows is not what was
        committed: what it says would stand in a full one for good, signed.
        """
        edges = self.sound_edges()
        for index in range(self.integrated // WIDTH, -(-size // WIDTH)):
            bundle = Tile(None, index, min(size - index * WIDTH, WIDTH))
            first = index * WIDTH
            yield bundle.path, encode_bundle(self.read_entries(first, first + bundle.width))
        leaves = self.leaves[: size - self.integrated]
        for tile, data in grow(self.integrated, leaves, edges.__getitem__):
            yield tile.path, data

    def sound_edges(self) -> dict[Tile, bytes]:
        """The partial tiles of the integrated size, once their hashes and the bundle beside them are proved."""
        tiles = [tile for tile in partial_tiles(self.integrated) if tile.level is not None]
        edges = {tile: fetch_tile(self.read_public, tile) for tile in tiles}

        def read(tile: Tile) -> bytes:
            return edges[tile] if tile in edges else fetch_tile(self.read_public, tile)

        # Every hash of a partial tile is below the frontier, so none of them can differ unseen.
        if Frontier.from_reader(self.integrated, hash_reader(self.integrated, read)) != self.edge:
            raise VerificationError(
                "log state: a tile holds other hashes than were committed; nothing is written",
                code="log_state",
            )
        width = self.integrated % WIDTH
        if width:
            self._bundle(Tile(None, self.integrated // WIDTH, width))
        return edges

    def _bundle(self, bundle: Tile) -> tuple[bytes, ...]:
        """The entries of a bundle within the integrated size, each with the leaf hash that its tile has."""
        entries = fetch_bundle(self.read_public, bundle)
        first = bundle.index * WIDTH
        hashes = self.read_stored([(0, first + at) for at in range(bundle.width)])
        if [leaf_hash(entry) for entry in entries] != list(hashes):
            raise VerificationError(
                f"log state: a bundle holds other entries than were committed: {bundle.path}",
                code="log_state",
                path=bundle.path,
            )
        return entries

    def _collect(self, node: Node, in_tiles: list[Node]) -> None:
        level, index = node
        if (index + 1) << level <= self.integrated:
            in_tiles.append(node)
        elif index << level < self.integrated:
            self._collect((level - 1, 2 * index), in_tiles)
            self._collect((level - 1, 2 * index + 1), in_tiles)

    def _hash(self, node: Node, in_tiles: dict[Node, bytes]) -> bytes:
        level, index = node
        if node in in_tiles:
            return in_tiles[node]
        start = (index << level) - self.integrated
        if start >= 0:
            row: Sequence[bytes] = self.leaves[start : start + (1 << level)]
            while len(row) > 1:
                row = parent_hashes(row)
            return row[0]
        children = ((level - 1, 2 * index), (level - 1, 2 * index + 1))
        left, right = (self._hash(child, in_tiles) for child in children)
        return node_hash(left, right)


def load_state(public: Storage, private: Storage, origin: str) -> tuple[State, tuple[str, ...]]:
    """The committed state, and the staging files that are no part of it. The append lock must be held.

    Every staged entry is hashed again: the state is returned only if it leads to the head's root.
    """
    head_file, integrated_file = private.read(HEAD), private.read(INTEGRATED)
    head = parse_head(head_file, origin)
    integrated = parse_integrated(integrated_file)
    if integrated > head.size:
        raise VerificationError("log state: the head is older than the tiles", code="rolled_back")
    chain, rest = _chain(private.names(STAGING), head, integrated)
    entries: list[bytes] = []
    for segment in chain:
        entries += _read_segment(private, segment)[max(integrated - segment.old.size, 0) :]
    leaves = tuple(map(leaf_hash, entries))
    stored = _stored_reader(integrated, public.read)
    edge = Frontier.from_reader(integrated, stored)
    frontier = edge.extend(leaves)
    if (frontier.size, frontier.root()) != (head.size, head.root):
        raise VerificationError(
            "log state: tiles and staged entries do not lead to the head", code="log_state"
        )
    state = State(
        head=head,
        head_file=head_file,
        integrated=integrated,
        integrated_file=integrated_file,
        segments=chain,
        entries=tuple(entries),
        leaves=leaves,
        edge=edge,
        frontier=frontier,
        read_public=public.read,
        read_stored=stored,
    )
    return state, rest


def _stored_reader(integrated: int, read_public: PathReader) -> HashReader:
    return hash_reader(integrated, lambda tile: fetch_tile(read_public, tile))


def _chain(names: Sequence[str], head: Head, integrated: int) -> tuple[tuple[Segment, ...], tuple[str, ...]]:
    segments = [segment for segment in map(parse_segment, names) if segment is not None]
    by_end = {segment.new: segment for segment in segments}
    chain: list[Segment] = []
    at = head
    while at.size > integrated and at in by_end:
        chain.append(by_end[at])
        at = by_end[at].old
    if at.size > integrated:
        raise VerificationError("log state: committed entries are missing", code="log_state")
    return tuple(reversed(chain)), tuple(segment.path for segment in set(segments).difference(chain))


def _read_segment(private: Storage, segment: Segment) -> tuple[bytes, ...]:
    try:
        return decode_bundle(private.read(segment.path) or b"", segment.new.size - segment.old.size)
    except MalformedError:
        raise VerificationError("log state: a staged file is damaged", code="log_state") from None


def parse_integrated(data: bytes | None) -> int:
    """The size in the file that says up to where tiles stand; 0 without one."""
    try:
        return 0 if data is None else parse_decimal(data.decode("ascii").removesuffix("\n"), "integrated")
    except (UnicodeDecodeError, MalformedError):
        raise VerificationError("log state: the integrated size is not readable", code="log_state") from None


def format_integrated(size: int) -> bytes:
    """The bytes of the file that says up to where tiles stand."""
    return b"%d\n" % size
