"""A log replayed from its entries alone: each leaf hashed again, the signature of each statement checked again.

Nothing of it has to wait but the folding of the hashes at the end. So the entries are cut into pieces, complete
subtrees all but the last, and whichever process is free takes the next one. When a key may have signed, and for
whom, is for the caller to judge; what is found here is whether bytes and signatures hold.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Final

from tlog.ascii import MAX_SIZE
from tlog.cose import CoseKey, decode_key
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.merkle import Frontier, leaf_hash
from tlog.statement import parse_signed_statement, parse_statement, verify_signed_statement, verify_statement
from tlog.tile import WIDTH, Tile
from tlog.tile_reader import PathReader, fetch_bundle

PIECE: Final = 16 * WIDTH
MAX_FAULTS: Final = 100
_WAITING: Final = 4  # pieces handed out for each process, so that none is ever idle


@dataclass(frozen=True)
class Fault:
    """An entry that is not a statement, or whose signature does not hold; `code` is that of the error."""

    index: int
    code: str


@dataclass(frozen=True)
class Piece:
    """What entries side by side come to: the hashes of their largest complete subtrees, and the faults."""

    hashes: tuple[bytes, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Replayed:
    """The tree that the entries make, for the caller to compare with a checkpoint's, and the faults in order."""

    size: int
    root: bytes
    faults: tuple[Fault, ...]


def replay_piece(entries: Sequence[bytes], start: int, keys: Sequence[CoseKey]) -> Piece:
    """What the entries from index `start` on come to; after MAX_FAULTS faults no more signatures are checked."""
    by_kid = {key.key_id: key for key in keys}
    faults: list[Fault] = []
    neighbours = keys[0]
    for index, entry in enumerate(entries, start):
        try:
            neighbours = _verified(entry, neighbours, by_kid)
        except Error as error:
            faults.append(Fault(index, error.code))
            if len(faults) == MAX_FAULTS:
                break
    return Piece(Frontier().extend(map(leaf_hash, entries)).hashes, tuple(faults))


def replay_log(
    open_reader: Callable[[], PathReader], size: int, keys: Sequence[CoseKey], processes: int | None = None
) -> Replayed:
    """What the `size` entries of a log come to, read and checked by one process for each core.

    `open_reader` is called once in each of them, so it has to be something that can be pickled, such as a
    `partial` of a function. Raises VerificationError where a bundle is missing or damaged.
    """
    if not (0 <= size <= MAX_SIZE and keys):
        raise MalformedError("replay: expected the size of a log, and a key at least")
    count = max(1, min(processes or cores(), -(-size // PIECE)))
    context = multiprocessing.get_context("spawn")  # a fork copies locks as threads happen to hold them
    begun = (open_reader, tuple(key.encode() for key in keys))
    with ProcessPoolExecutor(count, context, _begin, begun) as pool:
        try:
            pieces = list(_in_order(pool, size, count * _WAITING))
        except BrokenProcessPool:
            raise UnavailableError("replay: a process of it was ended", code="replay") from None
    whole, edge = pieces[: size // PIECE], pieces[size // PIECE :]
    top = Frontier().extend(piece.hashes[0] for piece in whole).hashes
    hashes = (*top, *(one for piece in edge for one in piece.hashes))
    faults = tuple(fault for piece in pieces for fault in piece.faults)
    return Replayed(size, Frontier(size, hashes).root(), faults)


def _in_order(pool: ProcessPoolExecutor, size: int, waiting: int) -> Iterator[Piece]:
    """The pieces, of which only a few are handed out at a time: a size that is claimed may be any number."""
    under_way: deque[Future[Piece]] = deque()
    try:
        for start in range(0, size, PIECE):
            under_way.append(pool.submit(_replay_range, start, min(start + PIECE, size)))
            if len(under_way) > waiting:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


_read: PathReader
_keys: tuple[CoseKey, ...]


def _begin(open_reader: Callable[[], PathReader], encoded: Sequence[bytes]) -> None:
    global _read, _keys
    threading.Thread(target=end_with_parent, daemon=True).start()
    _read, _keys = open_reader(), tuple(map(decode_key, encoded))


def end_with_parent() -> None:
    """Ends this process when the one that began it is gone, which a killed one does not see to itself."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _replay_range(start: int, end: int) -> Piece:
    entries: list[bytes] = []
    for first in range(start, end, WIDTH):
        entries += fetch_bundle(_read, Tile(None, first // WIDTH, min(WIDTH, end - first)))
    return replay_piece(entries, start, _keys)


def _verified(entry: bytes, neighbours: CoseKey, by_kid: Mapping[bytes, CoseKey]) -> CoseKey:
    """The key that signed the entry: most often the one that signed its neighbour, so that is tried first."""
    try:
        verify_statement(entry, neighbours)
        return neighbours
    except MalformedError:
        key = _key_of(parse_signed_statement(entry).kid, by_kid)
        verify_signed_statement(entry, key)
        return key
    except VerificationError as error:
        if error.code != "kid":
            raise
    key = _key_of(parse_statement(entry).kid, by_kid)
    verify_statement(entry, key)
    return key


def _key_of(kid: bytes, by_kid: Mapping[bytes, CoseKey]) -> CoseKey:
    if kid not in by_kid:
        raise VerificationError("statement: signed by a key that was not given", code="key_unknown")
    return by_kid[kid]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
