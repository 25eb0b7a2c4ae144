"""Facts from a file of JSON lines, one a line: checked, given an identity, and remembered one by one.

A line is an object with `text` and, where they apply, key, value, subject, valid_from, valid_until, client, source,
provisional, many, restatement. Running a file twice adds nothing: each line carries an idempotency key made from
its bytes and from how often the same bytes came before it, so it may be interrupted and run again at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tlog.errors import Error, MalformedError, RefusedError

MAX_LINE_BYTES: Final = 1024 * 1024
_TEXTS: Final = ("text", "key", "value", "subject", "client", "source")
_TIMES: Final = ("valid_from", "valid_until")
_FLAGS: Final = ("provisional", "many", "restatement")
FIELDS: Final = frozenset((*_TEXTS, *_TIMES, *_FLAGS))


@dataclass(frozen=True, slots=True)
class Line:
    """One line that holds a fact: its number, who said it, and the arguments of `remember`."""

    number: int
    client: str | None
    arguments: dict[str, Any]


@dataclass(slots=True)
class Report:
    """What became of the lines: how many were new, by outcome, and where a line was not taken, why.

    `known` are those that an earlier run, or one beside this, had brought in before; `erased` those of them that
    were erased since, and stay so.
    """

    lines: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    known: int = 0
    erased: int = 0
    not_taken: list[dict[str, Any]] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            "lines": self.lines,
            "new": self.outcomes.total(),
            "known": self.known,
            "erased": self.erased,
            "outcomes": dict(self.outcomes),
            "not_taken": self.not_taken,
        }


def parse_lines(lines: Iterable[bytes]) -> Iterator[Line | tuple[int, Error]]:
    """Each line that is not blank, as a fact or as (number, why it is not one)."""
    seen: Counter[bytes] = Counter()
    for number, raw in enumerate(lines, 1):
        stripped = raw.strip()
        if not stripped:
            continue
        try:
            fields = _parse(stripped)
        except MalformedError as error:
            yield number, error
            continue
        digest = hashlib.sha256(stripped).digest()
        seen[digest] += 1
        client = fields.pop("client", None)
        fields["idempotency_key"] = f"jsonl:{digest.hex()}:{seen[digest]}"
        yield Line(number, client, fields)


def remember_lines(
    lines: Iterable[Line | tuple[int, Error]],
    memory_of: Callable[[str | None], Any],
    progress: Callable[[int], None],
) -> Report:
    """The report of remembering each line through the memory of its client; `progress` gets each line number.

    A line that is bad input is reported and the rest goes on; a temporary failure stops the run, which may be
    started again.
    """
    report = Report()
    for line in lines:
        report.lines += 1
        number = line[0] if isinstance(line, tuple) else line.number
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


def _parse(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_LINE_BYTES:
        raise MalformedError(f"expected a line of at most {MAX_LINE_BYTES} bytes")
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        raise MalformedError("expected a line to be one JSON object in UTF-8") from None
    if not isinstance(fields, dict):
        raise MalformedError("expected a line to be a JSON object")
    if not set(fields) <= FIELDS:
        raise MalformedError(f"expected only the fields {', '.join(sorted(FIELDS))}", code="unknown_argument")
    if "text" not in fields:
        raise MalformedError("expected a line to have a text")
    for name in _TEXTS:
        if not isinstance(fields.get(name, ""), str):
            raise MalformedError(f"expected {name} to be a string")
    for name in _FLAGS:
        if not isinstance(fields.get(name, False), bool):
            raise MalformedError(f"expected {name} to be true or false")
    for name in _TIMES:
        if isinstance(fields.get(name, ""), bool) or not isinstance(fields.get(name, ""), (str, int, float)):
            raise MalformedError(f"expected {name} to be a time")
    return fields
