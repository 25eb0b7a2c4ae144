"""Checks of reading rights: each row finds a grant, and each grant has its row, under the hashes of its agents.

The hashes are keyed, and the keys are not the auditor's: that one name has one hash, and two names two, is all that
can be told of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from auditor.evidence import GrantRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.statements import by_seq, of_kind

Name = tuple[int, str]
"""Tenant and agent."""


def check_grants(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Rows and statements of reading rights compared, both ways."""
    known = by_seq(statements) if rows.grants else {}
    tags = _tags(rows, known)
    findings = [finding for row in rows.grants for finding in _check_row(row, known.get(row.seq), tags)]
    there = {(row.seq, row.tenant_id) for row in rows.grants}
    for statement in of_kind(statements, "grant"):
        if statement.content and (statement.row.seq, statement.row.tenant_id) not in there:
            what = "A reading right was granted, and the store has no row that finds it."
            findings.append(Finding("FACT_ALTERED", statement.row.place, what))
    checked = Note("grants", "reading rights compared with the statements that grant them", len(rows.grants))
    return Outcome(tuple(findings), (checked,))


def _check_row(row: GrantRow, granted: Statement | None, tags: Mapping[Name, bytes]) -> Iterator[Finding]:
    if granted is None:
        yield Finding("RESIDUE_ROW", row.place, "A row of reading rights is of no statement.")
    elif granted.link is None or granted.link.kind != "grant" or granted.row.tenant_id != row.tenant_id:
        what = "A row of reading rights points at a statement that grants none, or at another tenant's."
        yield Finding("FACT_ALTERED", row.place, what)
    elif granted.content is None:
        what = "A row of reading rights is of a grant that is erased, and still has its hashes."
        yield Finding("RESIDUE_ROW", row.place, what)
    elif not _is_filed(row, granted.content, tags):
        what = "A row of reading rights is filed under other agents than its statement names."
        yield Finding("FACT_ALTERED", row.place, what)


def _is_filed(row: GrantRow, content: Mapping[str, object], tags: Mapping[Name, bytes]) -> bool:
    for name, tag in ((content.get("agent"), row.owner_tag), (content.get("reader"), row.reader_tag)):
        known = tags.get((row.tenant_id, str(name)))
        if known not in (None, tag) or (known is None and tag in tags.values()):
            return False
    return row.owner_tag != row.reader_tag


def _tags(rows: StoreRows, by_seq: Mapping[int, Statement]) -> dict[Name, bytes]:
    """The hash of each agent that wrote something, by its name."""
    tags: dict[Name, bytes] = {}
    if not rows.grants:
        return tags
    for fact in rows.facts:
        statement = by_seq.get(fact.seq)
        agent = None if statement is None or statement.content is None else statement.content.get("agent")
        if isinstance(agent, str):
            tags.setdefault((fact.tenant_id, agent), fact.agent_tag)
    return tags
