"""How far an audit has come, in a line on a terminal; nothing where nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

STAGES: Final = ("the log", "the store", "statements", "pages", "files")
Tell = Callable[[str], None]
"""Is told the stage that begins."""


def silent(stage: str) -> None:
    """Says nothing."""


@contextmanager
def told_on(stream: TextIO) -> Iterator[Tell]:
    """What draws a bar on a terminal, which is wiped out at the end; silent on any other stream."""
    if not stream.isatty():
        yield silent
        return

    def tell(stage: str) -> None:
        done = STAGES.index(stage)
        bar = "#" * (4 * done) + "-" * (4 * (len(STAGES) - done))
        stream.write(f"\r\x1b[K[{bar}] auditing {stage}")
        stream.flush()

    try:
        yield tell
    finally:
        stream.write("\r\x1b[K")
        stream.flush()
