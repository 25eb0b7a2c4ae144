"""What the statements add up to: the status of each write, by an own fold of the links in log order.

Written from the rules, not from the code that serves, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from auditor.evidence import Statement
from memory.event import Link

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
WITHHELD: Final = frozenset({"held", "refused", "discarded"})
"""Held back from the start, or dropped from there: found by nobody."""
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


Change = tuple[bytes, str, str]
"""A write that a statement acted on, by its commitment, with its status before and after."""
Changes = tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """All writes by commitment, and the tombstone (its commitment) of each erased statement."""

    writes: Mapping[bytes, Folded]
    erased_by: Mapping[bytes, bytes]
    changes: Sequence[Changes] = ()
    """What each statement made of the writes that it acts on."""


def fold(statements: Iterable[Statement]) -> Fold:
    """The state after the statements, which come in the order of their numbers."""
    writes: dict[bytes, Folded] = {}
    erased_by: dict[bytes, bytes] = {}
    changes = []
    for statement in statements:
        link = statement.link
        if link is not None and "erases" in link.acts:
            for target in link.acts["erases"]:
                erased_by.setdefault(target, statement.row.commitment)
        changes.append(advance(writes, statement))
    return Fold(writes, erased_by, changes)


def advance(writes: dict[bytes, Folded], statement: Statement) -> Changes:
    """Take the writes by commitment from before a statement to after it; what it changed of those it acts on."""
    link = statement.link
    if link is None:
        return ()
    if link.kind == "write":
        writes[statement.row.commitment] = _written(statement)
    acts = link.acts
    if not acts:
        return ()
    if len(acts) == 1:
        ((act, targets),) = acts.items()
        if len(targets) == 1:
            return _act(writes, statement, act, targets)
    before = {
        target: writes[target].status for targets in acts.values() for target in targets if target in writes
    }
    for act in _AFTER:
        if act in acts:
            _act(writes, statement, act, acts[act])
    return tuple((target, status, writes[target].status) for target, status in before.items())


def at_writing(link: Link) -> str:
    """The status that a write has as it is written."""
    outcome = link.details.get("outcome")
    return AT_WRITING.get(outcome, "unknown") if isinstance(outcome, str) else "unknown"


def _act(writes: dict[bytes, Folded], statement: Statement, act: str, targets: Sequence[bytes]) -> Changes:
    """One act on its targets. What comes back is right for a target that it alone acts on."""
    assert statement.link is not None
    status = _AFTER.get(act)
    changes = []
    for target in targets:
        write = writes.get(target)
        if write is None:
            continue
        if status is None or (act == "lifts" and statement.link.kind != "reaffirm"):
            changes.append((target, write.status, write.status))
            continue
        writes[target] = _after(write, act, status, statement)
        changes.append((target, write.status, status))
    return tuple(changes)


def _written(statement: Statement) -> Folded:
    assert statement.link is not None
    status, content = at_writing(statement.link), statement.content
    if content is None:
        return Folded(statement.row.seq, status)
    start, flags = content.get("valid_from"), content.get("flags")
    declared = "valid_from_declared" in (flags or ())
    return Folded(statement.row.seq, status, start if type(start) is int else None, declared)


def _after(write: Folded, act: str, status: str, statement: Statement) -> Folded:
    at = statement.recorded_at
    if act in _ENDS:
        return Folded(write.seq, status, write.starts_at, write.declared, at, statement.row.seq)
    starts_at = write.starts_at
    if act in _STARTS and not write.declared and starts_at is not None:
        # What was withheld is nobody's fact before it is let through: it holds from then on.
        starts_at = None if at is None else max(starts_at, at)
    return Folded(write.seq, status, starts_at, write.declared)
