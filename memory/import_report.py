"""What an import remembers, item by item, and the report of what became of each.

An item carries an idempotency key made from what it is, so an import may be interrupted and run again at any time:
what is there already adds nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tlog.errors import Error, MalformedError, RefusedError


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


def remember_lines(
    items: Iterable[Item],
    memory_of: Callable[[str | None], Any],
    progress: Callable[[int], None],
) -> Report:
    """The report of remembering each line through the memory of its client; `progress` gets each line number.

    A line that is bad input is reported and the rest goes on; a temporary failure stops the run, which may be
    started again.
    """
    report = Report()
    for line in items:
        report.lines += 1
        number = line[0] if isinstance(line, tuple) else line.number
        if isinstance(line, Skipped):
            report.skipped[line.what] += 1
            progress(number)
            continue
        try:
            if isinstance(line, tuple):
                raise line[1]
            memory = memory_of(line.client)
            if memory.has_request(line.arguments["idempotency_key"]):
                report.known += 1
                # An error if this is another line under the same key, or if the fact was erased.
                memory.remember(**line.arguments)
            else:
                report.outcomes[memory.remember(**line.arguments)["outcome"]] += 1
        except (MalformedError, RefusedError) as error:
            if error.code == "read_only":
                raise
            if error.code == "erased":
                report.erased += 1
            else:
                report.not_taken.append({"line": number, "code": error.code, "message": error.message})
        progress(number)
    return report


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
