"""State statements: what a store once said of itself as a whole, against what its statements add up to at that point.

Whoever takes statements out of the past, renumbers what is left and signs it all again has to make these agree, too;
and one that an auditor or a witness has seen in the log can't be made again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from auditor.evidence import Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.statements import of_kind
from tlog import cbor
from tlog.errors import MalformedError

KIND: Final = "state"
LAST: Final = "state.last"


@dataclass(slots=True)
class Recount:
    """What the statements up to a point add up to."""

    counts: Counter[str] = field(default_factory=Counter)
    tips: dict[bytes, int] = field(default_factory=dict)
    tombstone: list[int | bytes] | None = None
    manifest: list[int | bytes] | None = None
    number: int = 0
    last: Statement | None = None
    """The last state statement."""

    def take(self, statement: Statement) -> None:
        """Goes past a statement."""
        link = statement.link
        if link is None:
            return
        self.counts[link.kind] += 1
        self.tips[link.tenant] = max(link.tenant_seq, self.tips.get(link.tenant, 0))
        number, digest = link.details.get("number"), link.details.get("digest")
        if link.kind == "erase" and type(number) is int:
            self.tombstone = [number, statement.row.commitment]
        if link.kind == "manifest" and type(number) is int and isinstance(digest, bytes):
            self.manifest = [number, digest]
        if link.kind == KIND:
            self.number, self.last = self.number + 1, statement

    def sequences(self) -> bytes:
        """The digest of where the sequence of each tenant ends."""
        return hashlib.sha256(
            cbor.encode([[tenant, last] for tenant, last in sorted(self.tips.items())])
        ).digest()


def check_states(rows: StoreRows, statements: Sequence[Statement], before: Recount | None = None) -> Outcome:
    """Every state statement counted again, and that they are a chain of which none is missing.

    `before` is what other statements add up to, which came before these.
    """
    if rows.tenant_id is not None:
        note = Note("state", "state statements, which count the statements of all tenants")
        return Outcome(not_checked=(note,))
    findings: list[Finding] = []
    recount = Recount() if before is None else before
    # Without a state statement nothing asks for the counts.
    for statement in statements if of_kind(statements, KIND) else ():
        if statement.link is not None and statement.link.kind == KIND:
            findings += _compare(statement, statement.link.details, recount)
        recount.take(statement)
    findings += _check_last(rows, recount.last)
    checked = Note("state", "state statements, each counted again up to where it stands", recount.number)
    return Outcome(tuple(findings), (checked,), counts={"states": recount.number})


def _compare(statement: Statement, said: Mapping[str, Any], recount: Recount) -> Iterator[Finding]:
    place = statement.row.place
    previous = None if recount.last is None else recount.last.row.commitment
    counts = said.get("counts")
    if counts != dict(recount.counts):
        stated = counts if isinstance(counts, dict) else {}
        differ = {kind for kind in {*stated, *recount.counts} if stated.get(kind, 0) != recount.counts[kind]}
        total = sum(count for count in stated.values() if type(count) is int)
        evidence = {"kinds": len(differ), "stated": total, "counted": recount.counts.total()}
        what = "The state statement counts other statements than there are before it."
        yield Finding(
            "SEQUENCE_GAP" if total > recount.counts.total() else "FACT_ALTERED", place, what, evidence
        )
    if said.get("sequences") != recount.sequences():
        what = "The sequences of tenants do not end where the state statement says."
        yield Finding("SEQUENCE_GAP", place, what)
    if said.get("tombstone") != recount.tombstone:
        what = "The last erasure before the state statement is not the one that it names."
        yield Finding("FACT_ALTERED", place, what)
    if said.get("manifest") != recount.manifest:
        what = "The last manifest before the state statement is not the one that it names."
        yield Finding("FACT_ALTERED", place, what)
    if said.get("number") != recount.number + 1 or said.get("previous") != previous:
        what = "The state statement does not follow the one before it."
        yield Finding("SEQUENCE_GAP", place, what, {"expected": recount.number + 1})


def _check_last(rows: StoreRows, last: Statement | None) -> Iterator[Finding]:
    """The store goes on from the last state statement that there is."""
    stated = rows.meta.get(LAST)
    try:
        known = cbor.decode(stated, max_bytes=64) if isinstance(stated, bytes) else None
    except MalformedError:
        known = None
    seq = known[0] if isinstance(known, list) and len(known) == 2 else None
    if seq != (None if last is None else last.row.seq):
        what = "The store would go on from another state statement than the last one."
        yield Finding("FACT_ALTERED", f"store.db meta {LAST}", what)
