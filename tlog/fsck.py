"""A log checked from its files alone: the root derived again from every bundle and every tile.

For the operator, over files that the log's own code wrote. It proves that they agree with each other and with
the checkpoint among them, not that the checkpoint is the one that others saw: a client and an audit do that,
with keys of their caller's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from tlog import staging
from tlog.checkpoint import parse_checkpoint
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import EMPTY_ROOT, Frontier, leaf_hash, tree_root
from tlog.note import parse_note
from tlog.staging import Head, State
from tlog.statement import entry_identity
from tlog.storage import Storage
from tlog.tile import (
    WIDTH,
    Tile,
    decode_bundle,
    decode_tile,
    encode_bundle,
    parse_path,
    partial_tiles,
    tile_at,
)
from tlog.tile_reader import fetch_bundle, fetch_tile

_SIGN1: Final = b"\xd2"
_SHORT: Final = 16  # of an identity: two that share so much are one
Rows = dict[tuple[int | None, int], list[Tile]]
"""The tiles that there are files of, by level and index; a partial one may stand in several widths."""


@dataclass(frozen=True)
class Checked:
    """A log found whole: the tree of `size`, and the size that the public checkpoint covers.

    `doubled` counts the entries that stand in it a second time. No file is at fault for that: an index that had
    forgotten them let them in again, and what is in a log stays.
    """

    size: int
    root: bytes
    published_size: int
    files: int
    doubled: int = 0


@dataclass(frozen=True)
class _Tree:
    """What to check files against: the tree of `head`, of which all tiles up to `standing` have to stand."""

    head: Head
    standing: int
    bundle: Callable[[int, int], Sequence[bytes]]


def _identity(entry: bytes) -> bytes:
    """By what the log knows an entry, or its digest where it is none that a log of statements takes."""
    if entry.startswith(_SIGN1):
        try:
            return entry_identity(entry)
        except MalformedError:
            pass
    return sha256(entry).digest()


def fsck(
    public: Storage, private: Storage | None = None, identify: Callable[[bytes], bytes] = _identity
) -> Checked:
    """What the files of a log hold, once all of them agree; with `private` up to the committed head.

    Raises VerificationError with code `fsck`, or with that of the log state, naming the file at fault where it
    is one. Reads every file once. Without `private` tiles beyond the checkpoint are no fault: they are those of
    the next.
    """
    if private is None:
        published = _published(public)
        tree = _Tree(published, published.size, lambda index, width: _bundle(public, index, width))
        return _check_tiles(public, tree, identify)[0]
    with private.lock("append"):
        return _check_committed(public, private, identify)


def _check_committed(public: Storage, private: Storage, identify: Callable[[bytes], bytes]) -> Checked:
    published = _published(public)
    origin = _origin(private)
    state, _ = staging.load_state(public, private, origin)

    def bundle(index: int, width: int) -> Sequence[bytes]:
        first = index * WIDTH
        return state.read_entries(first, first + width)

    checked, beyond = _check_tiles(public, _Tree(state.head, state.integrated, bundle), identify)
    if beyond:
        raise _fault("a file stands where the log would have to write another as it grows", min(beyond))
    # Readers of the public checkpoint ask for these, or for the full ones.
    for tile in partial_tiles(published.size):
        if tile.level is None:
            _bundle(public, tile.index, tile.width)
        else:
            fetch_tile(public.read, tile)
    signed = staging.parse_head(private.read("signed"), origin)
    for name, head in (("checkpoint", published), ("signed", signed)):
        _require_extended(state, head, name)
    if published.size > signed.size:
        raise _fault("the checkpoint is of a size that was never signed", "checkpoint")
    return replace(checked, published_size=published.size)


def _bundle(public: Storage, index: int, width: int) -> tuple[bytes, ...]:
    return fetch_bundle(public.read, Tile(None, index, width))


def _require_extended(state: State, head: Head, name: str) -> None:
    if head.size > state.head.size or tree_root(head.size, state.read_hashes) != head.root:
        raise _fault("the committed log does not extend this head", name)


def _origin(private: Storage) -> str:
    data = private.read(staging.HEAD)
    return "" if data is None else data.partition(b"\n")[0].decode("utf-8", "replace")


def _published(public: Storage) -> Head:
    data = public.read("checkpoint")
    if data is None:
        return staging.EMPTY_HEAD
    try:
        checkpoint = parse_checkpoint(parse_note(data).text)
    except MalformedError as error:
        raise _fault(error.message, "checkpoint") from None
    return Head(checkpoint.size, checkpoint.root)


def _check_tiles(
    public: Storage, tree: _Tree, identify: Callable[[bytes], bytes]
) -> tuple[Checked, tuple[str, ...]]:
    """What the tiles hold, each file in agreement with the tree as far as that reaches, and the files beyond it."""
    rows, count = _rows(public)
    size = tree.head.size
    frontier = Frontier()
    above: list[bytes] = []
    beyond: list[str] = []
    known: set[bytes] = set()
    for index in range(-(-size // WIDTH)):
        entries = tree.bundle(index, min(size - index * WIDTH, WIDTH))
        known.update(identify(entry)[:_SHORT] for entry in entries)
        leaves = [leaf_hash(entry) for entry in entries]
        frontier = frontier.extend(leaves)
        for tile in rows.pop((None, index), ()):
            _require_same_bundle(public, tile, entries)
            beyond += [tile.path] if tile.width > len(entries) else []
        beyond += _check_row(public, rows, Tile(0, index, len(leaves)), leaves, tree.standing)
        above += _full_roots(leaves)
    if (frontier.root() if size else EMPTY_ROOT) != tree.head.root:
        raise _fault("the entries do not lead to the root of the head", "checkpoint")
    level = 1
    while above:
        row, above = above, []
        for index in range(-(-len(row) // WIDTH)):
            hashes = row[index * WIDTH : (index + 1) * WIDTH]
            beyond += _check_row(public, rows, Tile(level, index, len(hashes)), hashes, tree.standing)
            above += _full_roots(hashes)
        level += 1
    beyond += [tile.path for tiles in rows.values() for tile in tiles]
    return Checked(size, tree.head.root, size, count, size - len(known)), tuple(beyond)


def _rows(public: Storage) -> tuple[Rows, int]:
    rows: Rows = defaultdict(list)
    names = public.names("tile/")
    for name in names:
        try:
            tile = parse_path(name)
        except MalformedError as error:
            raise _fault(error.message, name) from None
        rows[tile.level, tile.index].append(tile)
    return rows, len(names)


def _check_row(public: Storage, rows: Rows, whole: Tile, hashes: Sequence[bytes], standing: int) -> list[str]:
    """The files of this place that reach beyond these hashes, once every file of it begins with them.

    As much of the tile as the tree of the size `standing` has can be fetched.
    """
    needed = tile_at(whole.level, whole.index, standing)
    if needed is not None:
        fetch_tile(public.read, needed)
    beyond = []
    for tile in rows.pop((whole.level, whole.index), ()):
        held = decode_tile(tile, public.read(tile.path) or b"")
        shared = min(whole.width, tile.width)
        if list(held[:shared]) != list(hashes[:shared]):
            raise _fault("a tile holds other hashes than its entries lead to", tile.path)
        beyond += [tile.path] if tile.width > whole.width else []
    return beyond


def _require_same_bundle(public: Storage, tile: Tile, entries: Sequence[bytes]) -> None:
    data = public.read(tile.path) or b""
    shared = min(len(entries), tile.width)
    try:
        held = decode_bundle(data, tile.width)
    except MalformedError as error:
        raise _fault(error.message, tile.path) from None
    if encode_bundle(held[:shared]) != encode_bundle(entries[:shared]):
        raise _fault("a bundle holds other entries than another of the same place", tile.path)


def _full_roots(hashes: Sequence[bytes]) -> list[bytes]:
    return [Frontier().extend(hashes).root()] if len(hashes) == WIDTH else []


def _fault(message: str, path: str) -> VerificationError:
    return VerificationError(f"fsck: {message}", code="fsck", path=path)
