"""The report of an audit: as a document for programs, and in plain words for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from auditor.findings import Finding, Note, Outcome, Verdict, verdict

VERSION: Final = 1
MAX_FINDINGS_PER_CODE: Final = 200
_ORDER: Final = {"critical": 0, "high": 1, "medium": 2}
_SHOWN: Final = 30
_VERDICTS: Final[Mapping[Verdict, str]] = {
    "clean": "CLEAN: everything that was checked holds.",
    "findings": "FINDINGS: not everything is as it was promised.",
    "inconclusive": "INCONCLUSIVE: a check could not show that it would have found something.",
}
LIMITS: Final = (
    ("not_truth", "an audit proves what was recorded and kept, not that it is true"),
    ("device", "free blocks of the file system, flash cells, memory, swap and backups were not looked at"),
    (
        "completeness",
        "a statement that was never logged and of which no trace is left is found by its receipt alone",
    ),
)


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit came to, with where it looked and when. Times are ISO-8601."""

    outcome: Outcome
    made_at: str
    subject: Mapping[str, str | int] = field(default_factory=dict)
    """What was audited: origin, size and root of the log; never a path or a name of a person."""

    @property
    def verdict(self) -> Verdict:
        """clean, findings or inconclusive."""
        return verdict(self.outcome.findings)


def to_document(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    findings, left_out = _bounded(report.outcome.findings)
    counts = {"findings": len(report.outcome.findings), "findings_left_out": left_out}
    return {
        "version": VERSION,
        "verdict": report.verdict,
        "made_at": report.made_at,
        "subject": dict(report.subject),
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "where": finding.where,
                "what": finding.what,
                "evidence": dict(finding.evidence),
            }
            for finding in findings
        ],
        "checked": [_note(note) for note in report.outcome.checked],
        "not_checked": [_note(note) for note in report.outcome.not_checked]
        + [{"check": check, "text": text} for check, text in LIMITS],
        "counts": counts | dict(sorted(report.outcome.counts.items())),
    }


def to_text(report: Report) -> str:
    """The report in lines for people, without a line feed at the end."""
    lines = [_VERDICTS[report.verdict]]
    origin = report.subject.get("origin")
    if origin is not None:
        lines.append(f"Log {origin}, {report.subject.get('size')} entries.")
    findings = sorted(report.outcome.findings, key=lambda finding: _ORDER[finding.severity])
    if findings:
        lines += ["", f"Findings ({len(findings)}):"]
        lines += [f"  {f.severity:8}  {f.code}  {f.where}\n            {f.what}" for f in findings[:_SHOWN]]
        if len(findings) > _SHOWN:
            lines.append(f"  and {len(findings) - _SHOWN} more; --json or --report has them")
    lines += ["", "Checked:"]
    lines += [f"  {_line(note)}" for note in report.outcome.checked]
    lines += ["", "Not checked:"]
    lines += [f"  {_line(note)}" for note in report.outcome.not_checked]
    lines += [f"  {check}: {text}" for check, text in LIMITS]
    return "\n".join(lines)


def _bounded(findings: tuple[Finding, ...]) -> tuple[list[Finding], int]:
    """The findings to list, worst first, and how many are only counted."""
    seen: Counter[str] = Counter()
    listed = []
    for finding in sorted(findings, key=lambda finding: _ORDER[finding.severity]):
        seen[finding.code] += 1
        if seen[finding.code] <= MAX_FINDINGS_PER_CODE:
            listed.append(finding)
    return listed, len(findings) - len(listed)


def _note(note: Note) -> dict[str, Any]:
    document: dict[str, Any] = {"check": note.check, "text": note.text}
    return document if note.count is None else {**document, "count": note.count}


def _line(note: Note) -> str:
    return f"{note.check}: {note.text}" if note.count is None else f"{note.check}: {note.count} {note.text}"
