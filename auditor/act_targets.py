"""Whether each act has an object: what it acts on is of the kind, and in the state, that such an act is for.

A release without a hold, a confirmation of what nobody held, an erasure that a write calls for: each is a statement
that its own store would not have made. The fold would take them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from auditor.evidence import Statement
from auditor.findings import Finding, Note, Outcome
from auditor.fold import Fold, fold
from auditor.statements import by_commitment

CODE: Final = "ORDER_ALTERED"
_CURRENT: Final = frozenset({"active", "conflict"})
_ANY: Final = frozenset(
    {"active", "conflict", "superseded", "history", "held", "refused", "retracted", "discarded"}
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which kinds act so, on which kind, and on writes in which states."""

    kinds: frozenset[str]
    on: str
    states: frozenset[str] = _ANY


_RULES: Final[Mapping[str, _Rule]] = {
    "retires": _Rule(frozenset({"write", "begin", "confirm", "resolve", "reaffirm"}), "write", _CURRENT),
    "conflicts": _Rule(frozenset({"write"}), "write", _CURRENT),
    "confirms": _Rule(frozenset({"confirm"}), "write", frozenset({"held"})),
    "dates": _Rule(frozenset({"confirm"}), "write", frozenset({"held"})),
    "corroborates": _Rule(frozenset({"corroborate"}), "write", _CURRENT | {"history"}),
    "discards": _Rule(frozenset({"discard"}), "write", frozenset({"held", "refused"})),
    "retracts": _Rule(frozenset({"retract"}), "write", _CURRENT | {"history"}),
    "keeps": _Rule(frozenset({"resolve", "retract", "write"}), "write", frozenset({"conflict"})),
    "begins": _Rule(frozenset({"begin"}), "write", _CURRENT),
    "lifts": _Rule(frozenset({"reaffirm", "write"}), "write", frozenset({"refused"})),
    "holds": _Rule(frozenset({"hold"}), "write"),
    "releases": _Rule(frozenset({"release"}), "hold"),
    "revokes": _Rule(frozenset({"revoke"}), "grant"),
}
"""Of all acts but `erases`, which is for anything but a tombstone."""
_BY_TOKEN: Final = ("lifts", "write")
_WITHHELD: Final = frozenset({"refused", "discarded"})
"""A token that was given for a refusal holds also once somebody has dropped what was refused."""
_ENDS: Final = frozenset({"releases", "revokes"})
_ACTS_OF: Final[Mapping[str, frozenset[str]]] = {
    "retract": frozenset({"retracts"}),
    "confirm": frozenset({"confirms", "dates"}),
    "corroborate": frozenset({"corroborates"}),
    "discard": frozenset({"discards"}),
    "resolve": frozenset({"keeps"}),
    "begin": frozenset({"begins"}),
    "reaffirm": frozenset({"lifts"}),
    "hold": frozenset({"holds"}),
    "release": frozenset({"releases"}),
    "revoke": frozenset({"revokes"}),
}
"""The acts without one of which a statement of a kind does nothing."""


def check_acts(statements: Sequence[Statement], folded: Fold | None = None) -> Outcome:
    """Each act is one of its kind, on what is there for it. A hold or grant ends once, and a manifest is told once."""
    known = by_commitment(statements)
    changes = (fold(statements) if folded is None else folded).changes
    ended: set[bytes] = set()
    told: set[object] = set()
    findings: list[Finding] = []
    count = 0
    for statement, changed in zip(statements, changes, strict=True):
        link = statement.link
        if link is None or (not link.acts and link.kind == "write"):
            continue
        place = statement.row.place
        before = {target: status for target, status, _ in changed}
        if link.kind in _ACTS_OF and _ACTS_OF[link.kind].isdisjoint(link.acts):
            what = "It acts on nothing: there is nothing that it changes."
            findings.append(Finding(CODE, place, what, {"kind": link.kind}))
        for act, targets in link.acts.items():
            count += len(targets)
            if act == "erases":
                faults = 0 if link.kind == "erase" else len(targets)
            else:
                faults = sum(
                    _is_fault(act, link.kind, known.get(target), target, before) for target in targets
                )
            if act in _ENDS:
                faults += sum(target in ended for target in targets)
                ended.update(targets)
            if faults:
                what = "It acts on what is not there for such an act: of another kind, or in another state."
                findings.append(Finding(CODE, place, what, {"act": act, "targets": faults}))
        findings += _check_told(statement, told)
    checked = Note("acts", "acts on what is of the kind, and in the state, that they are for", count)
    return Outcome(tuple(findings), (checked,))


def _is_fault(
    act: str, kind: str, found: Statement | None, target: bytes, before: Mapping[bytes, str]
) -> bool:
    rule, on = _RULES[act], None if found is None or found.link is None else found.link.kind
    if kind not in rule.kinds or on not in (None, rule.on):
        return True
    # What is not there, or comes later, is found by the check of order.
    return target in before and before[target] not in (_WITHHELD if (act, kind) == _BY_TOKEN else rule.states)


def _check_told(statement: Statement, told: set[object]) -> Iterator[Finding]:
    """Each manifest is announced once: of two digests for one number, one is of a manifest that nobody shows."""
    link = statement.link
    if link is None or link.kind != "manifest":
        return
    number = link.details.get("number")
    if number in told:
        what = "A manifest of this number was announced before."
        yield Finding("SEQUENCE_GAP", statement.row.place, what, {"number": str(number)[:20]})
    told.add(number)
