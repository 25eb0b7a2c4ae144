"""What an operator has declared lost: entries of the log that nobody can open any more, after a restore.

Declared, they are one finding, in the operator's own words, and no longer one each. What is declared must be in
the log, and must not be at hand: nobody gets rid of a statement by calling it lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from auditor.evidence import Entries, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.statements import of_kind
from tlog.errors import MalformedError
from tlog.statement import payload_hash_of

_MAX_COUNT: Final = 1 << 40


def lost_of(statements: Sequence[Statement]) -> frozenset[bytes]:
    """The commitments that statements of kind `lost` name."""
    return frozenset(
        commitment for statement in of_kind(statements, "lost") for commitment in _named(statement)
    )


def count_lost(statements: Sequence[Statement]) -> int:
    """How many statements were declared lost, those with them that never reached the log and have no name."""
    return sum(map(_stated, of_kind(statements, "lost")))


def check_lost(rows: StoreRows, statements: Sequence[Statement], entries: Entries) -> Outcome:
    """Each declaration is a finding; so is one of what the log does not have, or the store still opens."""
    if rows.tenant_id is not None:
        return Outcome()
    declared = of_kind(statements, "lost")
    opened = {one.row.commitment for one in (statements if declared else ()) if one.content is not None}
    logged = _commitments(entries) if declared else frozenset()
    findings = []
    count = 0
    for statement in declared:
        assert statement.link is not None
        named = _named(statement)
        count += _stated(statement)
        what = "Statements were declared lost: what they said can't be shown any more."
        evidence: dict[str, str | int] = {"statements": _stated(statement), "logged": len(named)}
        findings.append(Finding("WRITE_LOST", statement.row.place, what, evidence))
        if _stated(statement) < max(len(named), 1) or not named <= logged or named & opened:
            what = "It declares lost what the log does not have, or what is still there."
            findings.append(Finding("FACT_ALTERED", statement.row.place, what))
    return Outcome(tuple(findings), (Note("lost", "statements declared lost, looked for in the log", count),))


def _named(statement: Statement) -> frozenset[bytes]:
    assert statement.link is not None
    named = statement.link.details.get("statements")
    return (
        frozenset(one for one in named if isinstance(one, bytes)) if isinstance(named, list) else frozenset()
    )


def _stated(statement: Statement) -> int:
    """How many it says that they are: what was acknowledged and never logged is counted, and not named."""
    assert statement.link is not None
    stated = statement.link.details.get("count")
    return stated if type(stated) is int and 0 <= stated < _MAX_COUNT else 0


def _commitments(entries: Entries) -> frozenset[bytes]:
    return frozenset(_parsed(entries))


def _parsed(entries: Entries) -> Iterator[bytes]:
    for entry in entries.entries:
        if entry is None:
            continue
        try:
            yield payload_hash_of(entry)
        except MalformedError:
            continue  # named elsewhere
