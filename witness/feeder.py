"""Heads of logs that publish tiles and ask no witness: fetched, proved from the tiles, and judged like any other.

Nothing that a log serves is believed. A tile counts once it leads to the root that the log signed, and what is
submitted then goes through the same judgement as a request from outside.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tlog.checkpoint import open_checkpoint, parse_checkpoint
from tlog.errors import Error, RefusedError, UnavailableError, VerificationError
from tlog.merkle import prove_consistency
from tlog.note import Note, parse_note
from tlog.tile_reader import PathReader, VerifiedTiles
from witness.decide import KnownHead, Refuse, Suspect
from witness.records import LogRecord
from witness.service import Witness
from witness.store import Store
from witness.wire import format_add_checkpoint

REFRESH_SECONDS: Final = (
    600  # an unchanged head is cosigned again after this, to say that it is still the last
)
MAX_WAIT_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class Fed:
    """What became of a log's published head."""

    origin: str
    outcome: Literal["cosigned", "unchanged"]
    size: int


def feed(read: PathReader, store: Store, witness: Witness, now: int) -> Fed:
    """Has the head that a log publishes cosigned; `read` returns the file at a path below the log's prefix.

    Raises RefusedError for a log that the witness does not know, UnavailableError where another try may help,
    and VerificationError for what the log should not do: `rolled_back`, `tile`, `fork`, `proof` … The head is then
    kept as evidence, beside the last one that was cosigned.
    """
    data = read("checkpoint")
    if data is None:
        raise UnavailableError("log: has no checkpoint yet", code="no_checkpoint")
    origin = parse_checkpoint(parse_note(data).text).origin
    log = store.log(origin)
    if log is None or not log.keys:
        raise RefusedError(
            "the log's origin is not known here; `muniment witness add-log` makes it so",
            code="unknown_origin",
        )
    opened = open_checkpoint(data, log.keys, origin)
    head = KnownHead(opened.checkpoint.size, opened.checkpoint.root)
    last = log.cosigned
    if last and last.head == head and now - last.time < REFRESH_SECONDS:
        return Fed(origin, "unchanged", head.size)
    note = Note(opened.note.text, tuple(line.line for line in opened.lines))
    old_size = last.head.size if last else 0
    try:
        proof = _prove(read, log, head)
    except VerificationError:
        if last:  # the log signed this head, and serves nothing that leads to it from the last one
            store.record_evidence(origin, last, Suspect("unproven", head, note), now)
        raise
    answer = witness.add_checkpoint(format_add_checkpoint(old_size, proof, note))
    if isinstance(answer, Refuse):
        raise _refused(answer)
    return Fed(origin, "cosigned", head.size)


def _prove(read: PathReader, log: LogRecord, head: KnownHead) -> tuple[bytes, ...]:
    """The proof from the last cosigned head, from tiles that lead to the new one."""
    old_size = log.cosigned.head.size if log.cosigned else 0
    if old_size > head.size:
        raise VerificationError(
            "log: publishes a smaller head than one that was cosigned; either its files are behind, or it was "
            "rolled back",
            code="rolled_back",
            size=head.size,
        )
    if old_size in (0, head.size):
        return ()
    return prove_consistency(old_size, head.size, VerifiedTiles(read, head.size, head.root).read_hashes)


def _refused(refusal: Refuse) -> Error:
    if refusal.status == 409:  # the log, or another process, was faster
        return UnavailableError("another head was cosigned meanwhile", code="raced")
    if refusal.status == 422:
        return VerificationError(f"log: {refusal.detail}; see `muniment witness evidence`", code=refusal.code)
    return RefusedError(refusal.detail, code=refusal.code)


class Follower:
    """One log followed for good: asked at a steady pace, and ever more rarely while it fails."""

    def __init__(
        self,
        url: str,
        feed_once: Callable[[], Fed],
        every_seconds: float,
        tell: Callable[[str, Fed | Error], None],
    ) -> None:
        """`feed_once` has the log's head cosigned; `tell` is given each outcome with the URL."""
        self._url = url
        self._feed_once = feed_once
        self._every_seconds = every_seconds
        self._tell = tell

    def run(self, stop: threading.Event) -> None:
        """Returns once `stop` is set."""
        failures = 0
        while not stop.is_set():
            failures = 0 if self.step() else failures + 1
            stop.wait(wait_seconds(self._every_seconds, failures, random.random()))

    def step(self) -> bool:
        """Whether one try succeeded."""
        try:
            fed = self._feed_once()
        except Error as error:
            self._tell(self._url, error)
            return False
        self._tell(self._url, fed)
        return True


def wait_seconds(every_seconds: float, failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row; `chance`, from 0 to 1, keeps followers out of step."""
    longest = max(MAX_WAIT_SECONDS, every_seconds)
    return min(every_seconds * 2.0 ** min(failures, 32), longest) * (0.9 + 0.2 * chance)


def now_seconds() -> int:
    """Seconds since 1970."""
    return int(time.time())
