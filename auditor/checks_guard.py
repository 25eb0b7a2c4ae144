"""Whether a value that a key has retired came back without a reaffirmation, told from the statements alone.

Only values spelled alike are compared: what else counts as the same value is the guard's own knowledge. Where an
erasure gave up the guard of a tenant, what it had retired may rightly be learnt again and is not held against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from auditor.evidence import Statement
from auditor.findings import Finding, Note, Outcome
from auditor.fold import Folded, advance

_LANDED: Final = frozenset({"stored", "superseded", "conflict"})
_CURRENT: Final = frozenset({"active", "conflict"})
_KEPT: Final = "keep"
Slot = tuple[int, Any, Any]
"""Tenant, agent and key."""


def check_returned(statements: Sequence[Statement]) -> Outcome:
    """No write brought back a value that its key had retired, unless it was reaffirmed or nobody guarded it."""
    by_commitment = {statement.row.commitment: statement for statement in statements}
    retired: dict[Slot, set[str]] = {}
    writes: dict[bytes, Folded] = {}
    findings: list[Finding] = []
    count = 0
    for statement in statements:
        link = statement.link
        if link is None:
            continue
        if link.kind == "erase" and link.details.get("guard") != _KEPT:
            retired = {slot: values for slot, values in retired.items() if slot[0] != statement.row.tenant_id}
        slot, value = _slot(statement), _text(statement.content, "value")
        if link.kind == "write" and slot is not None and value is not None:
            count += 1
            findings += _judge(statement, retired.get(slot, set()), value)
        for target in link.acts.get("lifts", ()):
            for place, back in _held_by(by_commitment.get(target)):
                retired.get(place, set()).discard(back)
        for target in (*link.acts.get("retires", ()), *link.acts.get("retracts", ())):
            # The past may be retracted, and its value is current or not as before.
            if target in writes and writes[target].status in _CURRENT:
                for place, gone in _held_by(by_commitment.get(target)):
                    retired.setdefault(place, set()).update({gone} - {value})
        advance(writes, statement)
    checked = Note(
        "returned values", "writes with a value compared with those that their key had retired", count
    )
    return Outcome(tuple(findings), (checked,))


def _judge(statement: Statement, retired: set[str], value: str) -> Iterator[Finding]:
    assert statement.link is not None and statement.content is not None
    flags = statement.content.get("flags") or ()
    landed = statement.link.details.get("outcome") in _LANDED
    allowed = "lifts" in statement.link.acts or "reaffirmed" in flags or "unguarded" in flags
    if value in retired and landed and not allowed:
        what = "A value that its key had retired was stored again, and nobody reaffirmed it."
        yield Finding("RETIRED_RETURNED", statement.row.place, what)


def _held_by(statement: Statement | None) -> Iterator[tuple[Slot, str]]:
    """Where a write filed its value, and the value; nothing if it had none or is erased."""
    if statement is not None:
        slot, value = _slot(statement), _text(statement.content, "value")
        if slot is not None and value is not None:
            yield slot, value


def _slot(statement: Statement) -> Slot | None:
    content = statement.content or {}
    key = _text(content, "key")
    return None if key is None else (statement.row.tenant_id, content.get("agent"), key)


def _text(content: Mapping[str, Any] | None, name: str) -> str | None:
    value = (content or {}).get(name)
    return value if isinstance(value, str) else None
