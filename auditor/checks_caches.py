"""Checks of what the store keeps beside statements and facts: conflicts, the value ledger, requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Final

from auditor.evidence import FactRow, LedgerRow, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome

_WORD_TAG_BYTES: Final = 16
_ANSWER: Final = frozenset({"outcome", "reason", "message", "id", "retired", "conflict_with"})


def check_caches(rows: StoreRows, statements: Sequence[Statement]) -> Outcome:
    """Conflicts, ledger and requests agree with the facts and statements that they speak of."""
    conflicts = (*_check_conflicts(rows), *_check_openers(rows, statements))
    findings = [*conflicts, *_check_ledger(rows), *_check_requests(rows, statements)]
    checked = (
        Note("conflicts", "conflicts compared with the facts that are in one", len(rows.conflicts)),
        Note("value ledger", "retired values whose row agrees with the fact it came from", len(rows.ledger)),
    )
    text = (
        "which values the rows of the value ledger are hashes of, and what tokens and requests are bound to"
    )
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
    named = {(fact.tenant_id, fact.key_tag) for fact in (rows.facts if rows.conflicts else ())}
    for row in rows.conflicts:
        if (row.tenant_id, row.key_tag) not in named:
            # A keyed hash of the key alone: whoever holds the key of the hash could test a guess with it.
            what = "A conflict outlives every fact of its key, and still has the hash of the key."
            yield Finding("RESIDUE_ROW", f"store.db conflicts seq {row.seq}", what)


def _check_openers(rows: StoreRows, statements: Sequence[Statement]) -> Iterator[Finding]:
    """Statements of its own tenant opened and closed a conflict, which is filed as the facts of its key."""
    if not rows.conflicts:
        return
    tenant_of = {statement.row.seq: statement.row.tenant_id for statement in statements}
    agents = {(fact.tenant_id, fact.key_tag): fact.agent_tag for fact in rows.facts}
    for row in rows.conflicts:
        where = f"store.db conflicts seq {row.seq}"
        if any(tenant_of.get(seq) != row.tenant_id for seq in (row.seq, row.closed_by) if seq is not None):
            yield Finding(
                "FACT_ALTERED", where, "A conflict names a statement that its tenant does not have."
            )
        if agents.get((row.tenant_id, row.key_tag), row.agent_tag) != row.agent_tag:
            yield Finding("FACT_ALTERED", where, "A conflict is filed under another agent than its facts.")


def _check_ledger(rows: StoreRows) -> Iterator[Finding]:
    """A retired value is filed as the fact that held it, and as the other values of its key."""
    facts = {fact.seq: fact for fact in rows.facts}
    first: dict[tuple[int, bytes], LedgerRow] = {}
    for row in rows.ledger:
        where = f"store.db ledger row {row.id}"
        source = None if row.source is None else facts.get(row.source)
        if row.source is not None and source is None:
            yield Finding(
                "RESIDUE_ROW", where, "A retired value still names the fact it came from, which is gone."
            )
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
    """What was answered to a request is what its statement says; nothing is left of what was erased."""
    if not rows.requests and not rows.tokens:
        return
    by_seq = {statement.row.seq: statement for statement in statements}
    kept = _erased_and_kept(statements)
    for row in rows.requests:
        where = f"store.db idempotency row {row.id}"
        made = by_seq.get(row.seq)
        if made is None or made.row.tenant_id != row.tenant_id:
            what = "A request names a statement that is not there, or of another tenant."
            yield Finding("FACT_ALTERED", where, what)
        elif made.row.content is None and (row.body_tag or row.answer):
            # A keyed hash of the whole request: whoever holds the key could test a guess with it.
            what = "A request whose statement is erased still has its hash or its answer."
            yield Finding("RESIDUE_ROW", where, what)
        elif made.row.content is None and made.row.commitment not in kept:
            what = "A request was erased with its hashes, and that of its idempotency key is still there."
            yield Finding("RESIDUE_ROW", where, what)
        elif made.row.content is not None and not row.body_tag:
            what = "A request whose statement is there has lost its hash: it would be answered as if it were erased."
            yield Finding("FACT_ALTERED", where, what)
        elif made.row.content is not None and not _answers(row.answer, made):
            yield Finding(
                "FACT_ALTERED", where, "What was answered to a request is not what its statement says."
            )
    for token in rows.tokens:
        target = None if token.target is None else by_seq.get(token.target)
        if token.target is not None and (target is None or target.row.content is None):
            what = "A token speaks of a statement that is erased or not there."
            yield Finding("RESIDUE_ROW", f"store.db tokens row {token.id}", what)


def _erased_and_kept(statements: Sequence[Statement]) -> set[bytes]:
    """What was erased by requests that keep retired values refused, and with them that a retry is one."""
    links = (statement.link for statement in statements)
    return {
        target
        for link in links
        if link is not None and link.kind == "erase" and link.details.get("guard") == "keep"
        for target in link.acts.get("erases", ())
    }


def _answers(answer: str, made: Statement) -> bool:
    """Whether the kept answer speaks of this statement, as far as its link tells."""
    try:
        said = json.loads(answer)
    except ValueError:
        return False
    if not isinstance(said, dict) or said.keys() != _ANSWER or made.link is None:
        return False
    if said["id"] != _id(made.row.commitment):
        return False
    if said["outcome"] == "agreed":
        return True
    retired = [_id(target) for target in made.link.acts.get("retires", ())]
    beside = [_id(target) for target in made.link.acts.get("conflicts", ())]
    stated = (made.link.details.get("outcome"), made.link.details.get("reason"), retired, beside)
    return (said["outcome"], said["reason"], said["retired"], said["conflict_with"]) == stated


def _id(commitment: bytes) -> str:
    """The id by which people know a statement."""
    return base64.b32encode(commitment[:16]).decode("ascii").rstrip("=").lower()
