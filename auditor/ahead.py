"""Signatures verified by processes of their own while the rest of an audit goes on.

What they say is only ever that a signature holds, and under which key that is they are told: whether the key counts is
judged by whoever asks, and so is everything about an entry of which they do not say it. If one of them is ended, what
it had left is verified where it is asked for.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from auditor.evidence import Entries
from auditor.progress import Tell
from tlog.bulk_signatures import verify_signature
from tlog.cose import CoseKey, decode_key
from tlog.errors import Error
from tlog.replay import end_with_parent
from tlog.statement import signed_by
from tlog.trust import Trust

PIECE: Final = 2048
MIN_ENTRIES: Final = 2 * PIECE
"""For fewer it is not worth to begin a process."""
MAX_PROCESSES: Final = 3
"""The rest of an audit takes about twice as long as one process needs for the signatures."""


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
    pieces = [due[start : start + PIECE] for start in range(0, len(due), PIECE)]
    signed = [
        _Piece(own, [entry for index in own if (entry := entries.entries[index]) is not None])
        for own in pieces
    ]
    count = min(processes - 1, MAX_PROCESSES)  # one core has the rest of the audit
    with ProcessPoolExecutor(count, context, _begin, begun) as pool:
        handed = _Handed(pool, signed)
        handed.begin(2 * count + 1)
        try:
            yield replace(entries, ahead=Ahead(handed, signed, keys, tell))
        finally:
            handed.stop()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Entries handed out together, with their places."""

    indexes: Sequence[int]
    entries: Sequence[bytes]


class _Handed:
    """Pieces given to processes, the next one whenever one comes back: none has to be called back from them."""

    def __init__(self, pool: ProcessPoolExecutor, pieces: Sequence[_Piece]) -> None:
        self._pool = pool
        self._pieces = pieces
        self._lock = threading.Lock()
        self.futures: list[Future[bytes]] = []
        self._end = len(pieces)

    def begin(self, count: int) -> None:
        """Hand out as many pieces: that many are on their way from then on."""
        for _ in range(count):
            self._hand_out()

    def stop(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._end = 0

    def take_last(self) -> int | None:
        """The number of the last piece that nobody has, which nobody gets any more; None if there is none."""
        with self._lock:
            if self._end <= len(self.futures):
                return None
            self._end -= 1
            return self._end

    def _hand_out(self) -> None:
        with self._lock:
            number = len(self.futures)
            if number >= self._end:
                return
            try:
                future = self._pool.submit(_held_in_process, self._pieces[number].entries)
            except BrokenProcessPool:
                return
            self.futures.append(future)
        future.add_done_callback(self._come_back)

    def _come_back(self, future: Future[bytes]) -> None:
        # A pool that broke says so while it holds its own lock: it must not be asked for more.
        if future.exception() is None:
            self._hand_out()


@dataclass(slots=True)
class Ahead:
    """What the processes found; to ask is to wait, and to do oneself what none of them has begun."""

    _handed: _Handed
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
        found: dict[int, bytes] = {}
        # From the end, where nobody is yet.
        while (number := self._handed.take_last()) is not None:
            found[number] = _held(self._pieces[number].entries, self._keys)
            self._tell_done(len(found) + sum(one.done() for one in self._handed.futures))
        for number, future in enumerate(self._handed.futures):
            found[number] = _result(future)
            self._tell_done(len(found))
        by_number = dict(enumerate((self._keys[kid] for kid in sorted(self._keys)), 1))
        return {
            index: by_number[one]
            for number, piece in enumerate(self._pieces)
            for index, one in zip(piece.indexes, found.get(number, b""), strict=False)
            if one
        }

    def _tell_done(self, pieces: int) -> None:
        total = sum(len(piece.entries) for piece in self._pieces)
        self._tell("signatures", min(pieces * PIECE, total), total)


def _result(future: Future[bytes]) -> bytes:
    """What a process found; nothing if it was ended."""
    try:
        return future.result()
    except BrokenProcessPool:
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
    held = bytearray(len(entries))
    for place, entry in enumerate(entries):
        try:
            held[place] = numbers[signed_by(entry, keys, verify_signature)]
        except Error:
            continue
    return bytes(held)


_own_keys: dict[bytes, CoseKey] = {}


def _begin(encoded: Sequence[bytes]) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    _own_keys.update((key.key_id, key) for key in map(decode_key, encoded))


def _held_in_process(entries: Sequence[bytes]) -> bytes:
    return _held(entries, _own_keys)
