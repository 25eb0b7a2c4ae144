"""A log brought back from a newer copy of its public files: the way out of a rolled-back folder.

The copy is a mirror, another folder, or a URL that serves the log. Its checkpoint has to satisfy the caller's policy
and to extend every head that was signed or published here; every entry is proved to be in its tree before a file is
written, and all hashes are made again from the entries. What was committed here and never signed, and is not in the
copy, is appended after it: nothing that was acknowledged gets lost, though its index changes.

The same call may be repeated after any error; until it returns, the log opens with an error or with a head that
extends those before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlog import staging
from tlog.bucket_reader import BucketReader, is_bucket
from tlog.certificates import peek_key_list, require_extends
from tlog.client import UrlReader, folder_reader, limit_of
from tlog.errors import Error, MalformedError, RefusedError, VerificationError
from tlog.known_heads import CHECKPOINT, SIGNED, KnownHeads
from tlog.log import FROZEN, MAX_BATCH, Log
from tlog.log_settings import LogSettings
from tlog.merkle import leaf_hash, tree_root
from tlog.mirror import KEY_LIST, other_files
from tlog.mirror import MARKER as MIRROR_MARKER
from tlog.policy import verify_checkpoint
from tlog.staging import Head
from tlog.storage import DirectoryStorage, Storage
from tlog.tile import WIDTH, Tile, decode_bundle, encode_bundle, grow, parse_path, tile_at, tiles_at
from tlog.tile_reader import PathReader, VerifiedTiles

LEFT: Final = "left-over"
_STEP: Final = WIDTH * 16
_MAX_MANIFESTS: Final = 1_000_000


@dataclass(frozen=True)
class Source:
    """A copy of a log: how to read a file of it, and the documents that it has beside tiles and checkpoint."""

    read: PathReader
    documents: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Restored:
    """What the log is now: its head, the first index that may hold another entry than before, and how many
    entries that were here alone now stand after those of the copy."""

    head: Head
    same_to: int
    appended: int


@contextmanager
def open_source(place: str) -> Iterator[Source]:
    """The copy in a folder, in a bucket or at a URL; where there is no list, documents with a known name are had."""
    if "://" not in place:
        storage = DirectoryStorage(Path(place))
        names = [name for name in other_files(storage) if name != MIRROR_MARKER]
        yield Source(folder_reader(place), tuple((name, storage.read(name) or b"") for name in names))
        return
    if is_bucket(place):
        from_bucket = BucketReader(place, limit_of)
        yield Source(from_bucket, tuple(_served_documents(from_bucket)))
        return
    read = UrlReader(place)
    try:
        yield Source(read, tuple(_served_documents(read)))
    finally:
        read.close()


def _served_documents(read: PathReader) -> Iterator[tuple[str, bytes]]:
    key_list = read(KEY_LIST)
    if key_list is not None:
        yield KEY_LIST, key_list
    for number in range(1, _MAX_MANIFESTS):
        path = f"erasures/{number}.cose"
        data = read(path)
        if data is None:
            return
        yield path, data
    raise MalformedError(f"log restore: expected a server with less than {_MAX_MANIFESTS} deletion manifests")


def restore_log(source: Source, public: Storage, private: Storage, settings: LogSettings) -> Restored:
    """The log once it holds all that the copy does; its settings need a policy to judge the copy's checkpoint by.

    Raises VerificationError with code `fork` if the copy is of another history than what was signed here, and
    RefusedError with code `not_newer` if it is older. Nothing is changed then.
    """
    with private.lock("publish"), private.lock("append"):
        if private.read(FROZEN) is not None:
            raise RefusedError("log: is frozen; another log has taken its place", code="frozen")
        note, head = _newer_head(source, settings)
        tiles = VerifiedTiles(source.read, head.size, head.root)
        signed = _require_one_history(tiles, KnownHeads(public, private, settings))
        here = _entries_since(public, private, settings, signed)
        same = _same(tiles, here, signed)
        _require_documents(public, source.documents)
        left = _keep_left(private, here[same - signed :])
        _write_tiles(public, tiles)
        _write_documents(public, source.documents)
        _commit(private, settings.origin, head)
        public.replace(CHECKPOINT, note)
    log = Log(public, private, settings)
    try:
        size = log.head().size
        for at in range(0, len(left), MAX_BATCH):
            log.append(left[at : at + MAX_BATCH])
        private.remove([LEFT])
        return Restored(log.head(), same, log.head().size - size)
    finally:
        log.close()


def _newer_head(source: Source, settings: LogSettings) -> tuple[bytes, Head]:
    note = source.read(CHECKPOINT)
    if note is None or settings.policy is None:
        raise MalformedError("log restore: expected a copy with a checkpoint in it", code="no_checkpoint")
    checkpoint = verify_checkpoint(settings.policy, note, settings.origin).checkpoint
    return note, Head(checkpoint.size, checkpoint.root)


def _require_one_history(tiles: VerifiedTiles, known: KnownHeads) -> int:
    """The size of the last head that was signed or published here, each of which the copy extends."""
    heads = (known.signed(), known.published())
    for head in heads:
        if head.size > tiles.size:
            raise RefusedError(
                "log restore: what was signed here is newer than the copy; nothing is changed",
                code="not_newer",
                size=head.size,
                copy=tiles.size,
            )
        if tree_root(head.size, tiles.read_hashes) != head.root:
            raise VerificationError(
                "log restore: the copy does not extend a head that was signed here: two histories, of which a"
                " person has to say which one holds; nothing is changed",
                code="fork",
                size=head.size,
            )
    return max(head.size for head in heads)


def _entries_since(public: Storage, private: Storage, settings: LogSettings, start: int) -> list[bytes]:
    """What is committed here beyond a size, as far as it can be read: a folder that lost files has nothing."""
    try:
        state, _ = staging.load_state(public, private, settings.origin)
        return state.read_entries(start, state.head.size)
    except (VerificationError, MalformedError):
        return []


def _same(tiles: VerifiedTiles, here: Sequence[bytes], start: int) -> int:
    """Up to which index the entries here are those of the copy."""
    end = min(start + len(here), tiles.size)
    for index, entry in enumerate(tiles.entries(start, end), start):
        if here[index - start] != entry:
            return index
    return end


def _keep_left(private: Storage, entries: Sequence[bytes]) -> list[bytes]:
    """What will be appended again, durably kept until it is; also what an attempt before kept."""
    data = private.read(LEFT) or b""
    kept = list(_unframed(data))
    known = set(kept)
    kept += [entry for entry in entries if entry not in known]
    if kept:
        private.replace(LEFT, b"".join(encode_bundle([entry]) for entry in kept))
    return kept


def _unframed(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2])
        yield decode_bundle(data[at:end], 1)[0]
        at = end


def _write_tiles(public: Storage, tiles: VerifiedTiles) -> None:
    """Returns once each tile and bundle of the tree stands, and no other that is not the beginning of one."""
    edges: dict[Tile, bytes] = {}
    last = {tile for tile in tiles_at(tiles.size) if tile.width < WIDTH}
    for start in range(0, tiles.size, _STEP):
        entries = list(tiles.entries(start, min(start + _STEP, tiles.size)))
        for at in range(0, len(entries), WIDTH):
            some = entries[at : at + WIDTH]
            _put(public, Tile(None, (start + at) // WIDTH, len(some)).path, encode_bundle(some))
        grown = dict(grow(start, map(leaf_hash, entries), edges.__getitem__))
        for tile, data in grown.items():
            if tile.width == WIDTH or tile in last:
                _put(public, tile.path, data)
        edges.update((tile, data) for tile, data in grown.items() if tile.width < WIDTH)
    public.remove(name for name in public.names("tile/") if not _belongs(public, name, tiles.size))


def _put(public: Storage, path: str, data: bytes) -> None:
    """The file with these bytes, which are proved; others there are of a past that nobody signed, or damaged."""
    if public.read(path) != data:
        public.replace(path, data)


def _belongs(public: Storage, path: str, size: int) -> bool:
    """Whether a file is a tile of the tree, or a narrower one that a smaller checkpoint may still need."""
    with suppress(Error):
        tile = parse_path(path)
        whole = tile_at(tile.level, tile.index, size)
        if whole is not None and tile.width <= whole.width:
            return (public.read(whole.path) or b"").startswith(public.read(path) or b"\0")
    return False


def _require_documents(public: Storage, documents: Sequence[tuple[str, bytes]]) -> None:
    """Returns if no document of the copy is another than the one here; a key list may be newer."""
    for path, data in documents:
        standing = public.read(path)
        if standing is None or standing == data:
            continue
        if path != KEY_LIST:
            raise VerificationError(
                f"log restore: {path} is another in the copy: two histories; nothing is changed",
                code="fork",
                path=path,
            )
        require_extends(peek_key_list(data)[1], peek_key_list(standing)[1])


def _write_documents(public: Storage, documents: Sequence[tuple[str, bytes]]) -> None:
    for path, data in documents:
        if path == KEY_LIST:
            public.replace(path, data)
        else:
            public.create(path, data)


def _commit(private: Storage, origin: str, head: Head) -> None:
    """Returns once the private state says what the tiles do. What opens the log between two of these finds an error,
    or staged entries that lead to no head."""
    data = staging.format_head(origin, head)
    private.replace(staging.HEAD, data)
    private.replace(staging.INTEGRATED, staging.format_integrated(head.size))
    private.replace(SIGNED, data)
    private.remove(private.names(staging.STAGING))
