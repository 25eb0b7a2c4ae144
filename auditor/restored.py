"""Whether a restore explains that statements of the store itself have lost their content, which is the time alone.

A restore takes what came after its backup from manifests and from sealed files, which have no such content. So what
has none without an erasure follows a backup, and nothing in between has any.
"""

from __future__ import annotations

from collections.abc import Sequence

from auditor.checks_facts import is_told_by_its_link
from auditor.evidence import Statement, StoreRows
from auditor.findings import Finding, Note, Outcome


def check_restored(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Each statement without its time follows a backup with nothing but statements without content in between."""
    ends = sorted({backup.last_seq for backup in rows.backups})
    findings = []
    count = 0
    last = 0
    """The last statement so far that has its content."""
    for statement in statements:
        if statement.row.content is not None:
            last = statement.row.seq
        elif is_told_by_its_link(statement):
            count += 1
            if not any(last <= end < statement.row.seq for end in ends):
                what = "When the statement was made is gone, and no restore from a backup explains it."
                findings.append(Finding("WRITE_MISSING", statement.row.place, what))
    checked = Note(
        "restored", "statements without their time, each behind a backup that a restore began with", count
    )
    return Outcome(tuple(findings), (checked,) if count else ())
