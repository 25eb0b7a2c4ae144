"""A bar for people: in order, with rate and time left, wiped out at the end, and nothing where no terminal is."""

from __future__ import annotations

import io
from typing import Any

from auditor.progress import STAGES, told_on


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(terminal: Terminal) -> list[str]:
    return terminal.getvalue().split("\r\x1b[K")[1:]


def test_the_stages_are_told_in_order_and_to_their_end(copy: Any) -> None:
    told: list[tuple[str, int, int]] = []
    copy.audit(tell=lambda stage, done=0, total=0: told.append((stage, done, total)))
    assert tuple(dict.fromkeys(stage for stage, _, _ in told)) == STAGES
    assert all(0 <= done <= total for _, done, total in told)


def test_a_terminal_gets_a_bar_that_goes() -> None:
    terminal = Terminal()
    with told_on(terminal, lambda: 0.0) as tell:
        for stage in STAGES:
            tell(stage)
    lines = lines_of(terminal)
    assert lines[0] == "[------------------------] auditing the log"
    assert lines[-2] == "[###############---------] auditing signatures"
    assert lines[-1] == ""


def test_the_bar_says_how_fast_and_how_much_longer() -> None:
    terminal, seconds = Terminal(), iter((100.0, 100.0, 104.0, 104.05, 112.0, 112.0))
    with told_on(terminal, lambda: next(seconds)) as tell:
        tell("statements")
        tell("statements", 20_480, 100_000)
        tell("statements", 20_992, 100_000)  # too soon after the one before to be drawn
        tell("statements", 100_000, 100_000)
        tell("signatures")
    lines = lines_of(terminal)
    assert lines[1] == (
        "[#####-------------------] auditing statements, 20,480 of 100,000, 5,120 a second, about 15 s left"
    )
    assert lines[2] == (
        "[##########--------------] auditing statements, 100,000 of 100,000, 8,333 a second, about 15 s left"
    )
    assert lines[3].startswith("[###############---------] auditing signatures, about ")
    assert len(lines) == 5


def test_nothing_is_written_where_nobody_looks() -> None:
    stream = io.StringIO()
    with told_on(stream) as tell:
        tell("files")
        tell("files", 1, 2)
    assert stream.getvalue() == ""
