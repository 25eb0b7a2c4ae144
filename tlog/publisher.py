"""A thread that publishes a log on a fixed cadence.

Never because something was written: a checkpoint that follows each write would tell everybody when it was
made. What is published is what was committed when its turn came; without anything new a turn passes, unless
the public checkpoint has become old enough to want fresh cosignatures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tlog.errors import Error, MalformedError

REFRESH_SECONDS: Final = 3600.0
DEADLINE_SECONDS: Final = 10.0  # what witnesses are granted, where the interval is shorter

Publish = Callable[[float], object]
"""Publishes what is committed, within so many seconds."""


@dataclass(frozen=True)
class Cadence:
    """How often the log is published, and after how long without anything new it is published anyway."""

    every_seconds: float = 10.0
    refresh_seconds: float = REFRESH_SECONDS

    def __post_init__(self) -> None:
        if not (0.01 <= self.every_seconds <= 86_400 and self.refresh_seconds >= self.every_seconds):
            raise MalformedError("publishing: expected an interval of 0.01 seconds to a day")


@dataclass(frozen=True)
class Turn:
    """How the last turn that published ended: `error` is None if the checkpoint is public."""

    at: float
    seconds: float
    error: Error | None


class Publisher:
    """Publishes one log between `start` and `stop`. Any number of processes may do so for the same log."""

    def __init__(
        self,
        publish: Publish,
        is_due: Callable[[], bool],
        cadence: Cadence,
        on_turn: Callable[[Turn | None], None],
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_due` says whether there is something to publish; `on_turn` is told of each turn, None if not.

        `on_death` is called if the thread ends of a fault and not because it was stopped.
        """
        self._publish = publish
        self._is_due = is_due
        self._cadence = cadence
        self._on_turn = on_turn
        self._on_death = on_death
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muniment-publisher", daemon=True)
        self._published_at: float | None = None
        self._next = time.monotonic()
        self.last: Turn | None = None

    def start(self) -> None:
        """Begins with a turn at once."""
        self._thread.start()

    def stop(self) -> None:
        """Returns once the turn under way, if there is one, has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def running(self) -> bool:
        """Whether turns are taken."""
        return self._thread.is_alive()

    def next_in_seconds(self) -> float:
        """How long until the next turn begins."""
        return max(self._next - time.monotonic(), 0.0)

    def _run(self) -> None:
        ended = False
        try:
            self._take_turns()
            ended = True
        finally:
            if not ended:
                self._on_death()

    def _take_turns(self) -> None:
        while True:
            self._turn()
            self._next += self._cadence.every_seconds
            behind = time.monotonic() - self._next
            if behind > 0:
                # Turns that were missed are not made up for; the grid stays where it was.
                self._next += (behind // self._cadence.every_seconds + 1) * self._cadence.every_seconds
            if self._stopping.wait(self.next_in_seconds()):
                return

    def _turn(self) -> None:
        began = time.monotonic()
        turn = None
        try:
            if self._is_due() or self._is_old(began):
                self._publish(max(self._cadence.every_seconds, DEADLINE_SECONDS))
                self._published_at = began
                turn = Turn(time.time(), time.monotonic() - began, None)
        except Error as error:
            turn = Turn(time.time(), time.monotonic() - began, error)
        if turn is not None:
            self.last = turn
        self._on_turn(turn)

    def _is_old(self, now: float) -> bool:
        return self._published_at is None or now - self._published_at >= self._cadence.refresh_seconds
