"""A bar for people: in order, wiped out at the end, and nothing where no terminal is."""

from __future__ import annotations

import io
from typing import Any

from auditor.progress import STAGES, told_on


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_stages_are_told_in_order(copy: Any) -> None:
    told: list[str] = []
    copy.audit(tell=told.append)
    assert tuple(told) == STAGES


def test_a_terminal_gets_a_bar_that_goes() -> None:
    terminal = Terminal()
    with told_on(terminal) as tell:
        for stage in STAGES:
            tell(stage)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1] == "[--------------------] auditing the log"
    assert lines[-2] == "[################----] auditing files"
    assert lines[-1] == ""


def test_nothing_is_written_where_nobody_looks() -> None:
    stream = io.StringIO()
    with told_on(stream) as tell:
        tell("files")
    assert stream.getvalue() == ""
