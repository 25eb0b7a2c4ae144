"""The report of an audit: as a document for programs, and in plain words for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from auditor.exhibits import Card, Exhibits, PageMap
from auditor.findings import Finding, Note, Outcome, Verdict, verdict

VERSION: Final = 1
MAX_FINDINGS_PER_CODE: Final = 200
DAY: Final = 86_400
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


Trusted = Literal["caller", "home"]
OWN_TRUST: Final = "under the home's own trust: this shows consistency, not independence"
"""What a verdict means that was reached with nobody's trust but that of whoever is audited."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit came to, with where it looked and when. Times are ISO-8601."""

    outcome: Outcome
    made_at: str
    subject: Mapping[str, str | int] = field(default_factory=dict)
    """What was audited: origin, size and root of the log; never a path or a name of a person."""
    exhibits: Exhibits = field(default_factory=Exhibits)
    now: int = 0
    """When the audit was made, in seconds: what the age of a request is counted to."""
    trust: Trusted = "caller"
    """Whose word it was whom to trust: the caller's, or, for want of that, the home's own."""

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
        "trust": report.trust,
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
        "exhibits": _exhibits(report),
    }


def _exhibits(report: Report) -> dict[str, Any]:
    """What is shown beside the findings. Ages are in whole days, times in seconds."""
    shown = report.exhibits
    return {
        "heads": [
            {**asdict(head), "cosigned": [{"witness": name, "at": at} for name, at in head.cosigned]}
            for head in shown.heads
        ],
        "population": {"statements": dict(shown.kinds), "facts": dict(shown.statuses)},
        "sample": [asdict(one) for one in shown.sample],
        "requests": [_request(card, report.now) for card in shown.cards],
        "ageing": ageing(shown.cards, report.now),
        "backups": [asdict(one) for one in shown.backups],
        "pages": [_page_map(one) for one in shown.maps],
    }


AGES: Final = (("up to 1 day", 1), ("up to 7 days", 7), ("up to 30 days", 30), ("more than 30 days", None))


def ageing(cards: Iterable[Card], now: int) -> list[dict[str, Any]]:
    """How old requests are, or were when they closed: one row for each span of time."""
    rows = [{"age": name, "open": 0, "closed": 0} for name, _ in AGES]
    untold = {"age": "not told", "open": 0, "closed": 0}
    for card in cards:
        age = card.age_seconds(now)
        row = untold
        if age is not None:
            at = next(at for at, (_, days) in enumerate(AGES) if days is None or age <= days * DAY)
            row = rows[at]
        row["open" if card.is_open else "closed"] += 1  # type: ignore[operator]  # the two are numbers
    return [*rows, *([untold] if untold["open"] or untold["closed"] else [])]


def _request(card: Card, now: int) -> dict[str, Any]:
    age = card.age_seconds(now)
    times = ("started_at", "erased_at", "closed_at", "due_at")
    fields = asdict(card)
    return {
        **{name: value for name, value in fields.items() if name not in times},
        **{name: None if fields[name] is None else fields[name] // 1_000_000 for name in times},
        "backups": [
            {"backup": number, "expires_at": None if at is None else at // 1_000_000}
            for number, at in card.backups
        ],
        "exceptions": [{"why": why, "count": count} for why, count in card.exceptions],
        "checks": [{"check": name, "result": result} for name, result in card.checks],
        "open": card.is_open,
        "age_days": None if age is None else age // DAY,
    }


def _page_map(one: PageMap) -> dict[str, Any]:
    return {**asdict(one), "runs": [list(run) for run in one.runs]}


def to_text(report: Report) -> str:
    """The report in lines for people, without a line feed at the end."""
    lines = [_VERDICTS[report.verdict]]
    if report.trust == "home":
        lines.append(f"That is {OWN_TRUST}.")
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


def listed_findings(report: Report) -> tuple[list[Finding], int]:
    """The findings to list, worst first, and how many are only counted."""
    return _bounded(report.outcome.findings)


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
