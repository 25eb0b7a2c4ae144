"""What an audit says: findings, what was checked, what was not. Codes are those of the interfaces document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Severity = Literal["critical", "high", "medium"]
Verdict = Literal["clean", "findings", "inconclusive"]
Detail = str | int

SEVERITIES: Final[Mapping[str, Severity]] = {
    "LOG_FORK": "critical",
    "LOG_TRUNCATED": "critical",
    "LOG_ROLLED_BACK": "critical",
    "LOG_SIGNATURE": "critical",
    "RECEIPT_INVALID": "high",
    "KEY_NOT_VALID": "high",
    "QUORUM_NOT_MET": "high",
    "CHECKPOINT_STALE": "medium",
    "POLICY_CHANGED": "medium",
    "STATEMENT_NOT_ADMITTED": "high",
    "BUNDLE_ALTERED": "critical",
    "ENTRY_ALTERED": "critical",
    "FACT_ALTERED": "critical",
    "FACT_UNLOGGED": "high",
    "WRITE_MISSING": "critical",
    "WRITE_LOST": "critical",
    "PROMISE_BROKEN": "high",
    "SEQUENCE_GAP": "high",
    "RETIREMENT_UNDECLARED": "high",
    "RETIRED_RETURNED": "high",
    "RETIREMENT_FORGOTTEN": "high",
    "GUARD_OFF": "medium",
    "ORDER_ALTERED": "high",
    "TIME_IMPLAUSIBLE": "medium",
    "SALT_REUSED": "high",
    "TOMBSTONE_WITHOUT_MANIFEST": "high",
    "MANIFEST_ALTERED": "critical",
    "MANIFEST_INCOMPLETE": "high",
    "ERASURE_STATE_FALSE": "high",
    "ERASURE_EMPTY_SCOPE": "medium",
    "ERASED_STILL_PRESENT": "critical",
    "SALT_SURVIVES": "critical",
    "HELD_AND_SERVED": "high",
    "HOLD_BROKEN": "critical",
    "HOLD_OVERDUE": "medium",
    "REQUEST_OVERDUE": "medium",
    "RESIDUE_ROW": "critical",
    "RESIDUE_INDEX": "critical",
    "RESIDUE_VECTOR": "critical",
    "RESIDUE_FREE_SPACE": "high",
    "RESIDUE_WAL": "critical",
    "RESIDUE_FILE": "critical",
    "RESIDUE_ENCODED": "critical",
    "RESIDUE_LOG_CONFIRMABLE": "high",
    "CONTROL_FAILED": "high",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was promised, and where. `what` is one plain sentence without content."""

    code: str
    where: str
    what: str
    evidence: Mapping[str, Detail] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """How much it matters, by its code."""
        return SEVERITIES[self.code]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was checked, or was not, in plain words."""

    check: str
    text: str
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check, or several together, came to."""

    findings: tuple[Finding, ...] = ()
    checked: tuple[Note, ...] = ()
    not_checked: tuple[Note, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def merge(outcomes: Iterable[Outcome]) -> Outcome:
    """All outcomes in one, in order; counts of the same name are added up."""
    every = tuple(outcomes)
    counts: Counter[str] = Counter()
    for outcome in every:
        counts.update(outcome.counts)
    return Outcome(
        findings=tuple(finding for outcome in every for finding in outcome.findings),
        checked=tuple(note for outcome in every for note in outcome.checked),
        not_checked=tuple(note for outcome in every for note in outcome.not_checked),
        counts=dict(counts),
    )


def verdict(findings: Iterable[Finding]) -> Verdict:
    """`clean` without findings; `inconclusive` if all that was found is that a check could not show anything."""
    codes = {finding.code for finding in findings}
    if not codes:
        return "clean"
    return "inconclusive" if codes == {"CONTROL_FAILED"} else "findings"
