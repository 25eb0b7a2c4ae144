"""Checks of legal holds: what is on hold is neither served nor erased, and somebody looks at it in time.

A hold names the records that it keeps, a release names the holds that it ends. Which records are on hold follows
from that alone; the store's own count of it is a cache, and every read leaves out what that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from auditor.evidence import Asked, FactRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.statements import by_seq, unusual


def check_holds(rows: StoreRows, statements: Sequence[Statement], asked: Asked) -> Outcome:
    """Each record has as many holds as the statements say; none was erased under one; none waits past its review."""
    in_force: dict[bytes, Statement] = {}
    kept: Counter[bytes] = Counter()
    findings: list[Finding] = []
    for statement in unusual(statements):
        if statement.link is None:
            continue
        acts = statement.link.acts
        if acts.get("holds"):
            in_force[statement.row.commitment] = statement
            kept.update(acts["holds"])
        for released in acts.get("releases", ()):
            ended = in_force.pop(released, None)
            if ended is not None and ended.link is not None:
                kept.subtract(ended.link.acts["holds"])
        broken = sum(1 for target in acts.get("erases", ()) if kept[target] > 0)
        if broken:
            what = "It erases records that were under a legal hold."
            findings.append(Finding("HOLD_BROKEN", statement.row.place, what, {"records": broken}))
    findings += _check_cache(rows.facts, statements, kept)
    findings += _check_reviews(in_force.values(), asked)
    checked = Note(
        "legal holds", "records on hold, by the statements that hold and release them", _count(kept)
    )
    return Outcome(tuple(findings), (checked,), counts={"holds": len(in_force), "on_hold": _count(kept)})


def _check_cache(
    facts: Sequence[FactRow], statements: Sequence[Statement], kept: Counter[bytes]
) -> Iterator[Finding]:
    if not kept and not any(fact.on_hold for fact in facts):
        return
    known = by_seq(statements)
    for fact in facts:
        expected = kept[known[fact.seq].row.commitment if fact.seq in known else b""]
        if fact.on_hold == expected:
            continue
        evidence = {"stored": fact.on_hold, "stated": expected}
        if expected > 0 and fact.on_hold <= 0:
            what = "The record is under a legal hold, and the store serves it."
            yield Finding("HELD_AND_SERVED", fact.place, what, evidence)
        else:
            what = "The store counts other holds on the record than the statements say."
            yield Finding("FACT_ALTERED", fact.place, what, evidence)


def _check_reviews(in_force: Iterable[Statement], asked: Asked) -> Iterator[Finding]:
    for statement in in_force:
        due = None if statement.content is None else statement.content.get("review_by")
        if type(due) is not int:
            what = "A hold is in force, and nothing says when it is to be reviewed."
            yield Finding("HOLD_OVERDUE", statement.row.place, what)
        elif due < asked.now:
            what = "A hold is in force past the time at which it was to be reviewed."
            yield Finding("HOLD_OVERDUE", statement.row.place, what)


def _count(kept: Counter[bytes]) -> int:
    return sum(1 for count in kept.values() if count > 0)
