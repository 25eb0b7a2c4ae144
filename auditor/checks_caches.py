"""Checks of what the store keeps beside statements and facts: conflicts, the value ledger, requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from auditor.evidence import FactRow, LedgerRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome

_WORD_TAG_BYTES: Final = 16


def check_caches(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Conflicts, ledger and requests agree with the facts and statements that they speak of."""
    findings = [*_check_conflicts(rows), *_check_ledger(rows), *_check_requests(rows, statements)]
    checked = (
        Note("conflicts", "conflicts compared with the facts that are in one", len(rows.conflicts)),
        Note("value ledger", "retired values whose row agrees with the fact it came from", len(rows.ledger)),
    )
    text = "that the value ledger has each retired value, tokens and idempotency keys: they are keyed hashes"
    return Outcome(
        tuple(findings), checked, (Note("keyed hashes", text),), {"retired_values": len(rows.ledger)}
    )


def _check_conflicts(rows: StoreRows) -> Iterator[Finding]:
    """A disagreement is open exactly as long as a fact of its key is in conflict."""
    disputed = {(fact.tenant_id, fact.key_tag) for fact in rows.facts if fact.status == "conflict"}
    open_rows = {(row.tenant_id, row.key_tag): row for row in rows.conflicts if row.closed_by is None}
    for key, row in open_rows.items():
        if key not in disputed:
            what = "A conflict is open, and no fact of its key is in conflict."
            yield Finding("FACT_ALTERED", f"store.db conflicts seq {row.seq}", what)
    for fact in rows.facts:
        if fact.status == "conflict" and (fact.tenant_id, fact.key_tag) not in open_rows:
            what = "A fact is in conflict, and the conflict of its key is not open."
            yield Finding("FACT_ALTERED", fact.place, what)
    for row in rows.conflicts:
        if row.closed_by is not None and row.closed_by <= row.seq:
            what = "A conflict was closed before it was opened."
            yield Finding("FACT_ALTERED", f"store.db conflicts seq {row.seq}", what)


def _check_ledger(rows: StoreRows) -> Iterator[Finding]:
    """A retired value is filed as the fact that held it, and as the other values of its key."""
    facts = {fact.seq: fact for fact in rows.facts}
    first: dict[tuple[int, bytes], LedgerRow] = {}
    for row in rows.ledger:
        where = f"store.db ledger row {row.id}"
        source = None if row.source is None else facts.get(row.source)
        if source is not None and not _filed_alike(row, source):
            yield Finding("FACT_ALTERED", where, "A retired value is filed under other tags than its fact.")
        like = first.setdefault((row.tenant_id, row.key_tag), row)
        if (row.agent_tag, row.name_tags) != (like.agent_tag, like.name_tags):
            what = "A retired value is filed under another agent or name than others of its key."
            yield Finding("FACT_ALTERED", where, what)
        if len(row.name_tags) % _WORD_TAG_BYTES or row.word_count < 0 or row.canon_version < 1:
            yield Finding("FACT_ALTERED", where, "A retired value has a field that it can't have.")


def _filed_alike(row: LedgerRow, fact: FactRow) -> bool:
    return (row.tenant_id, row.agent_tag, row.key_tag, row.subject_tag) == (
        fact.tenant_id,
        fact.agent_tag,
        fact.key_tag,
        fact.subject_tag,
    )


def _check_requests(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    tenants: Mapping[int, int] = {each.row.seq: each.row.tenant_id for each in statements}
    for row in rows.requests:
        if tenants.get(row.seq) != row.tenant_id:
            what = "A request names a statement that is not there, or of another tenant."
            yield Finding("FACT_ALTERED", f"store.db idempotency row {row.id}", what)
