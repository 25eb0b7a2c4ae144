"""What the statements add up to: the status of each write, by an own fold of the links in log order.

Written from the rules, not from the code that serves, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

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
_AFTER: Final[Mapping[str, str]] = {
    "retires": "superseded",
    "retracts": "retracted",
    "confirms": "active",
    "discards": "discarded",
    "keeps": "active",
    "conflicts": "conflict",
}
_ENDS: Final = frozenset({"retires", "retracts"})


@dataclass(frozen=True, slots=True)
class Folded:
    """One write after all statements. `replaced_at` means nothing where `ended_unknown`: whoever ended it has
    been erased, and its time with it.
    """

    seq: int
    status: str
    replaced_at: int | None = None
    replaced_by: int | None = None
    ended_unknown: bool = False


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
        link = statement.link
        if link is None:
            continue
        if link.kind == "write":
            status = AT_WRITING.get(str(link.details.get("outcome")), "unknown")
            writes[statement.row.commitment] = Folded(statement.row.seq, status)
        for act, targets in link.acts.items():
            for target in targets:
                if act == "erases":
                    erased_by.setdefault(target, statement.row.commitment)
                elif target in writes:
                    writes[target] = _after(writes[target], act, statement)
    return Fold(writes, erased_by)


def _after(write: Folded, act: str, statement: Statement) -> Folded:
    assert statement.link is not None
    status = "active" if act == "lifts" and statement.link.kind == "reaffirm" else _AFTER.get(act)
    if status is None:
        return write
    if act in _ENDS:
        at = statement.recorded_at
        return replace(
            write, status=status, replaced_at=at, replaced_by=statement.row.seq, ended_unknown=at is None
        )
    return replace(write, status=status, replaced_at=None, replaced_by=None, ended_unknown=False)
