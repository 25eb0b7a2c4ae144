"""What the statements add up to: the status of each write, by an own fold of the links in log order.

Written from the rules, not from the code that serves, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from auditor.evidence import Statement

AT_WRITING: Final[Mapping[str, str]] = {
    "stored": "active",
    "superseded": "active",
    "history": "history",
    "conflict": "conflict",
    "held": "held",
    "refused": "refused",
}
# What an act makes of the write it names. `lifts` by a person's reaffirmation alone revives a refusal; a write
# that redeems a token stands in its place.
# In the order in which the acts of one statement count.
_AFTER: Final[Mapping[str, str]] = {
    "conflicts": "conflict",
    "confirms": "active",
    "dates": "history",
    "keeps": "active",
    "lifts": "active",
    "discards": "discarded",
    "retires": "superseded",
    "retracts": "retracted",
}
_ENDS: Final = frozenset({"retires", "retracts"})
_STARTS: Final = frozenset({"confirms", "lifts"})


class Folded(NamedTuple):
    """One write after all statements. `starts_at` and `replaced_at` are None where the content that would tell
    is erased: the write's own, or that of whoever let it through or ended it.
    """

    seq: int
    status: str
    starts_at: int | None = None
    declared: bool = False
    replaced_at: int | None = None
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """All writes by commitment, and the tombstone (its commitment) of each erased statement."""

    writes: Mapping[bytes, Folded]
    erased_by: Mapping[bytes, bytes]


def fold(statements: Iterable[Statement]) -> Fold:
    """The state after the statements, which come in the order of their numbers."""
    writes: dict[bytes, Folded] = {}
    erased_by: dict[bytes, bytes] = {}
    for statement in statements:
        if statement.link is not None:
            for target in statement.link.acts.get("erases", ()):
                erased_by.setdefault(target, statement.row.commitment)
        advance(writes, statement)
    return Fold(writes, erased_by)


def advance(writes: dict[bytes, Folded], statement: Statement) -> None:
    """Take the writes by commitment from before a statement to after it."""
    link = statement.link
    if link is None:
        return
    if link.kind == "write":
        status = AT_WRITING.get(str(link.details.get("outcome")), "unknown")
        writes[statement.row.commitment] = _written(statement, status)
    if not link.acts:
        return
    for act, status in _AFTER.items():
        if act not in link.acts or (act == "lifts" and link.kind != "reaffirm"):
            continue
        for target in link.acts[act]:
            if target in writes:
                writes[target] = _after(writes[target], act, status, statement)


def _written(statement: Statement, status: str) -> Folded:
    content = statement.content or {}
    start = content.get("valid_from")
    return Folded(
        statement.row.seq,
        status,
        starts_at=start if type(start) is int else None,
        declared="valid_from_declared" in (content.get("flags") or ()),
    )


def _after(write: Folded, act: str, status: str, statement: Statement) -> Folded:
    at = statement.recorded_at
    if act in _ENDS:
        return write._replace(status=status, replaced_at=at, replaced_by=statement.row.seq)
    starts_at = write.starts_at
    if act in _STARTS and not write.declared and starts_at is not None:
        # What was withheld is nobody's fact before it is let through: it holds from then on.
        starts_at = None if at is None else max(starts_at, at)
    return write._replace(status=status, starts_at=starts_at, replaced_at=None, replaced_by=None)
