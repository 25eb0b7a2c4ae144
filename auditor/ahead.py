"""Signatures verified by processes of their own while the rest of an audit goes on.

What they say is only ever that a signature holds, and under which key that is they are told: whether the key counts is
judged by whoever asks, and so is everything about an entry of which they do not say it. If one of them is ended, what
it had left is verified where it is asked for.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from auditor.evidence import Entries
from auditor.progress import Tell
from tlog.cose import CoseKey, decode_key
from tlog.errors import Error
from tlog.replay import end_with_parent
from tlog.statement import require_signed, signer_of
from tlog.trust import Trust

PIECE: Final = 512
MIN_ENTRIES: Final = 8 * PIECE
"""For fewer it is not worth to begin a process."""
MAX_PROCESSES: Final = 4
"""The rest of an audit takes about as long as one process needs for the signatures."""


@contextmanager
def verified_ahead(entries: Entries, trust: Trust, processes: int, tell: Tell) -> Iterator[Entries]:
    """The same entries, with those signatures on the way that no earlier audit has verified."""
    keys = _keys_of(trust)
    due = [
        index
        for span in entries.spans
        for index in range(span.start + span.verified, span.start + span.size)
        if entries.entries[index] is not None
    ]
    if processes < 2 or len(due) < MIN_ENTRIES or not keys:
        yield entries
        return
    context = multiprocessing.get_context("spawn")  # a fork copies locks as threads happen to hold them
    begun = (tuple(key.encode() for key in keys.values()),)
    with ProcessPoolExecutor(min(processes, MAX_PROCESSES), context, _begin, begun) as pool:
        pieces = []
        for start in range(0, len(due), PIECE):
            own = due[start : start + PIECE]
            signed = [entry for index in own if (entry := entries.entries[index]) is not None]
            pieces.append(_Piece(pool.submit(_held_in_process, signed), own, signed))
        try:
            yield replace(entries, ahead=Ahead(pieces, keys, tell))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Entries handed out together, with their places, and what comes back of them."""

    future: Future[bytes]
    indexes: Sequence[int]
    entries: Sequence[bytes]


@dataclass(slots=True)
class Ahead:
    """What the processes found; to ask is to wait, and to do oneself what none of them has begun."""

    _pieces: Sequence[_Piece]
    _keys: Mapping[bytes, CoseKey]
    _tell: Tell
    _held: dict[int, CoseKey] | None = field(default=None)

    def holds(self, index: int, key: CoseKey) -> bool:
        """Whether the signature of the entry at `index` was found to hold under this very key."""
        if self._held is None:
            self._held = self._collect()
        found = self._held.get(index)
        return found is key or found == key

    def _collect(self) -> dict[int, CoseKey]:
        """The key under which each signature holds."""
        left = list(self._pieces)
        found: dict[int, bytes] = {}
        # From the end, where nobody is yet.
        while left and left[-1].future.cancel():
            piece = left.pop()
            found[len(left)] = _held(piece.entries, self._keys)
            self._tell_done(len(found) + sum(one.future.done() for one in left))
        for number, piece in enumerate(left):
            found[number] = _result(piece.future)
            self._tell_done(len(found))
        by_number = dict(enumerate((self._keys[kid] for kid in sorted(self._keys)), 1))
        return {
            index: by_number[one]
            for number, piece in enumerate(self._pieces)
            for index, one in zip(piece.indexes, found[number], strict=False)
            if one
        }

    def _tell_done(self, pieces: int) -> None:
        total = sum(len(piece.entries) for piece in self._pieces)
        self._tell("signatures", min(pieces * PIECE, total), total)


def _result(future: Future[bytes]) -> bytes:
    """What a process found; nothing if it was ended."""
    try:
        return future.result()
    except (BrokenProcessPool, CancelledError):
        return b""


def _keys_of(trust: Trust) -> dict[bytes, CoseKey]:
    """The keys of issuers by their kids; a kid of two keys tells nothing."""
    keys: dict[bytes, CoseKey] = {}
    doubted = set()
    for one in trust.keys_for("issuer"):
        if keys.setdefault(one.kid, one.key) != one.key:
            doubted.add(one.kid)
    # One byte has to tell them.
    return {kid: keys[kid] for kid in sorted(keys.keys() - doubted)[:255]}


def _held(entries: Sequence[bytes], keys: Mapping[bytes, CoseKey]) -> bytes:
    """For each entry the number, from 1, of the key under which its signature holds, by kid; else 0."""
    numbers = {kid: number for number, kid in enumerate(sorted(keys), 1)}
    return bytes(_number(entry, keys, numbers) for entry in entries)


def _number(entry: bytes, keys: Mapping[bytes, CoseKey], numbers: Mapping[bytes, int]) -> int:
    try:
        _, kid = signer_of(entry)
        if kid not in keys:
            return 0
        require_signed(entry, keys[kid])
    except Error:
        return 0
    return numbers[kid]


_own_keys: dict[bytes, CoseKey] = {}


def _begin(encoded: Sequence[bytes]) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    _own_keys.update((key.key_id, key) for key in map(decode_key, encoded))


def _held_in_process(entries: Sequence[bytes]) -> bytes:
    return _held(entries, _own_keys)
