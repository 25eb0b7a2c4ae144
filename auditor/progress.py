"""How far an audit has come, in a line on a terminal; nothing where nobody looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol, TextIO

# How much of an audit each stage is, in hundredths.
_SHARES: Final[Mapping[str, int]] = {
    "the log": 5,
    "the store": 10,
    "statements": 30,
    "pages": 15,
    "files": 5,
    "signatures": 35,
}
STAGES: Final = tuple(_SHARES)
EVERY: Final = 1024
"""After so many of anything a loop tells how many it has done."""
_WIDTH: Final = 24
_REDRAW_SECONDS: Final = 0.1
_KNOWN_AFTER_SECONDS: Final = 1.0
"""Before, a rate says nothing."""


class Tell(Protocol):
    """Is told the stage that begins, and, as it goes on, how much of how much of it is done."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, /) -> None: ...


def silent(stage: str, done: int = 0, total: int = 0, /) -> None:
    """Says nothing."""


@contextmanager
def told_on(stream: TextIO, clock: Callable[[], float] = time.monotonic) -> Iterator[Tell]:
    """What draws a bar on a terminal, which is wiped out at the end; silent on any other stream."""
    if not stream.isatty():
        yield silent
        return
    try:
        yield _Bar(stream, clock)
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


class _Bar:
    """A line that is drawn again, a few times a second."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._begun = self._stage_begun = clock()
        self._drawn = float("-inf")
        self._stage = ""

    def __call__(self, stage: str, done: int = 0, total: int = 0, /) -> None:
        now = self._clock()
        if stage != self._stage:
            self._stage, self._stage_begun = stage, now
        elif now - self._drawn < _REDRAW_SECONDS:
            return
        self._drawn = now
        before = sum(_SHARES[name] for name in STAGES[: STAGES.index(stage)])
        share = (before + _SHARES[stage] * (done / total if total else 0)) / 100
        filled = int(_WIDTH * share)
        parts = [f"\r\x1b[K[{'#' * filled}{'-' * (_WIDTH - filled)}] auditing {stage}"]
        if total:
            parts.append(f", {done:,} of {total:,}")
        spent = now - self._stage_begun
        if done and spent >= _KNOWN_AFTER_SECONDS:
            parts.append(f", {done / spent:,.0f} a second")
        if share and now - self._begun >= _KNOWN_AFTER_SECONDS:
            left = (now - self._begun) * (1 - share) / share
            parts.append(f", about {left:,.0f} s left")
        self._stream.write("".join(parts))
        self._stream.flush()
