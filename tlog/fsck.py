"""A log checked from its files alone: the root derived again from every bundle and every tile.

For the operator, over files that the log's own code wrote. It proves that they agree with each other and with
the checkpoint among them, not that the checkpoint is the one that others saw: a client and an audit do that,
with keys of their caller's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tlog import staging
from tlog.checkpoint import parse_checkpoint
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import EMPTY_ROOT, Frontier, leaf_hash, tree_root
from tlog.note import parse_note
from tlog.staging import Head, State
from tlog.storage import Storage
from tlog.tile import WIDTH, Tile, decode_bundle, decode_tile, encode_bundle, hash_reader, parse_path
from tlog.tile_reader import fetch_bundle, fetch_tile

Rows = dict[tuple[int | None, int], list[Tile]]
"""The tiles that there are files of, by level and index; a partial one may stand in several widths."""


@dataclass(frozen=True)
class Checked:
    """A log found whole: the tree of `size`, and the size that the public checkpoint covers."""

    size: int
    root: bytes
    published_size: int
    files: int


def fsck(public: Storage, private: Storage | None = None) -> Checked:
    """What the files of a log hold, once all of them agree; with `private` up to the committed head.

    Raises VerificationError with code `fsck`, or with that of the log state, naming the file at fault where it
    is one. Reads every file once.
    """
    if private is None:
        published = _published(public)
        files = _check_tiles(public, published)
        return Checked(published.size, published.root, published.size, files)
    with private.lock("append"):
        return _check_committed(public, private)


def _check_committed(public: Storage, private: Storage) -> Checked:
    published = _published(public)
    origin = _origin(private)
    state, _ = staging.load_state(public, private, origin)
    stored = hash_reader(state.integrated, lambda tile: fetch_tile(public.read, tile))
    files = _check_tiles(public, Head(state.integrated, tree_root(state.integrated, stored)))
    signed_file = private.read("signed")
    signed = staging.parse_head(signed_file, origin)
    for name, head in (("checkpoint", published), ("signed", signed)):
        _require_extended(state, head, name)
    if published.size > signed.size:
        raise _fault("the checkpoint is of a size that was never signed", "checkpoint")
    return Checked(state.head.size, state.head.root, published.size, files)


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


def _check_tiles(public: Storage, head: Head) -> int:
    """The number of tile files, each of which agrees with the tree of this head as far as that reaches."""
    rows, count = _rows(public)
    frontier = Frontier()
    above: list[bytes] = []
    for index in range(-(-head.size // WIDTH)):
        width = min(head.size - index * WIDTH, WIDTH)
        entries = fetch_bundle(public.read, Tile(None, index, width))
        for tile in rows.pop((None, index), ()):
            _require_same_bundle(public, tile, entries)
        leaves = [leaf_hash(entry) for entry in entries]
        frontier = frontier.extend(leaves)
        _check_row(public, rows, 0, index, leaves)
        above += _full_roots(leaves)
    if (frontier.root() if head.size else EMPTY_ROOT) != head.root:
        raise _fault("the entries do not lead to the root of the head", "checkpoint")
    level = 1
    while above:
        row, above = above, []
        for index in range(-(-len(row) // WIDTH)):
            hashes = row[index * WIDTH : (index + 1) * WIDTH]
            _check_row(public, rows, level, index, hashes)
            above += _full_roots(hashes)
        level += 1
    return count


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


def _check_row(public: Storage, rows: Rows, level: int, index: int, hashes: Sequence[bytes]) -> None:
    """Returns if the tile of these hashes can be fetched, and every file of it begins with them."""
    fetch_tile(public.read, Tile(level, index, len(hashes)))
    for tile in rows.pop((level, index), ()):
        held = decode_tile(tile, public.read(tile.path) or b"")
        shared = min(len(hashes), tile.width)
        if list(held[:shared]) != list(hashes[:shared]):
            raise _fault("a tile holds other hashes than its entries lead to", tile.path)


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
