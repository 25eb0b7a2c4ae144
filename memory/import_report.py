"""What an import remembers, item by item, and the report of what became of each.

An item carries an idempotency key made from what it is, so an import may be interrupted and run again at any time:
what is there already adds nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from tlog.errors import Error, MalformedError, RefusedError

AT_ONCE: Final = 64
"""As many items as are read before they are remembered, and share a commit."""


@dataclass(frozen=True, slots=True)
class Line:
    """One item that holds a fact: its number in the file, who said it, and the arguments of `remember`."""

    number: int
    client: str | None
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Skipped:
    """An item that is no fact, such as a picture: its number, and what it is in a word or two."""

    number: int
    what: str


class Remembered(Protocol):
    """What became of a line; `known` if an earlier run had brought it in."""

    @property
    def answer(self) -> Mapping[str, Any]: ...

    @property
    def known(self) -> bool: ...


WriteLines = Callable[[Sequence[Line]], Iterable[Remembered | Error]]
Item = Line | Skipped | tuple[int, Error]
"""An item, or its number and why it can't be one."""


@dataclass(slots=True)
class Report:
    """What became of the lines: how many were new, by outcome, and where a line was not taken, why.

    `known` are those that an earlier run, or one beside this, had brought in before; `erased` those of them that
    were erased since, and stay so. `skipped` says how many items of each kind are no facts.
    """

    lines: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    known: int = 0
    erased: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    not_taken: list[dict[str, Any]] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "lines": self.lines,
            "new": self.outcomes.total(),
            "known": self.known,
            "erased": self.erased,
            "outcomes": dict(self.outcomes),
            "skipped": dict(self.skipped),
            "not_taken": self.not_taken,
        }


def remember_lines(items: Iterable[Item], write: WriteLines, progress: Callable[[int], None]) -> Report:
    """The report of remembering each line; `progress` gets the number of each item.

    `write` remembers some lines in order, and gives for each of them what became of it or its error. A line that is bad
    input is reported and the rest goes on; a temporary failure stops the run, which may be started again.
    """
    report = Report()
    rest = iter(items)
    while some := list(islice(rest, AT_ONCE)):
        answers = iter(write([item for item in some if isinstance(item, Line)]))
        for item in some:
            report.lines += 1
            if isinstance(item, Skipped):
                report.skipped[item.what] += 1
            elif isinstance(item, Line):
                _count(report, item.number, next(answers))
            else:
                _count(report, *item)
            progress(item[0] if isinstance(item, tuple) else item.number)
    return report


def _count(report: Report, number: int, found: Remembered | Error) -> None:
    if not isinstance(found, Error):
        if found.known:
            report.known += 1
        else:
            report.outcomes[found.answer["outcome"]] += 1
        return
    if not isinstance(found, MalformedError | RefusedError) or found.code == "read_only":
        raise found
    # The line came before: what it said is erased, or it was another line.
    report.known += found.code in ("erased", "idempotency_conflict")
    if found.code == "erased":
        report.erased += 1
    else:
        report.not_taken.append({"line": number, "code": found.code, "message": found.message})


def count_items(items: Iterable[Item]) -> Report:
    """The report of what would be taken, skipped and not taken, by the items alone: nothing is remembered."""
    report = Report()
    for item in items:
        report.lines += 1
        if isinstance(item, Skipped):
            report.skipped[item.what] += 1
        elif isinstance(item, tuple):
            report.not_taken.append({"line": item[0], "code": item[1].code, "message": item[1].message})
        else:
            report.outcomes["readable"] += 1
    return report


def moment(value: object) -> str | int | None:
    """A time of another program as `remember` takes it; None for one without a zone, or that is none."""
    from memory.times import format_time, parse_time

    try:
        if isinstance(value, float):
            return format_time(round(value * 1_000_000))
        parse_time(value, 0)
    except (MalformedError, OverflowError, ValueError):
        return None
    return value if isinstance(value, str | int) else None


def identity(form: str, *parts: object) -> str:
    """The idempotency key of an item: what form of file it is from, and all that makes it what it is."""
    digest = hashlib.sha256()
    for part in parts:
        data = b"" if part is None else str(part).encode("utf-8", "surrogatepass")
        # The length first, so that no two lists of parts are written alike.
        digest.update(len(data).to_bytes(8, "big") + data)
    return f"{form}:{digest.hexdigest()}"
