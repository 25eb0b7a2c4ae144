"""Whether a value that a key has retired came back without a reaffirmation, told from the statements alone.

A value that was replaced by one which said itself how long it holds may come back after that, unless something else
was said in between. Only values spelled alike are compared: what else counts as the same value is the guard's own
knowledge. Where an erasure gave up the guard of a tenant, what it had retired may rightly be learnt again and is not
held against it.
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
_TAKES: Final = ("confirms", "keeps", "lifts")
Slot = tuple[int, Any, Any]
"""Tenant, agent and key."""
Retired = dict[str, int | None]
"""The values that a key has retired, each with when that ends; None for good."""


def check_returned(statements: Sequence[Statement]) -> Outcome:
    """No write brought back a value that its key had retired, unless it was reaffirmed or nobody guarded it."""
    by_commitment = {statement.row.commitment: statement for statement in statements}
    retired: dict[Slot, Retired] = {}
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
            findings += _judge(statement, retired.get(slot, {}), value)
        for target in link.acts.get("lifts", ()):
            for place, back in _held_by(by_commitment.get(target)):
                retired.get(place, {}).pop(back, None)
        for target in (*link.acts.get("retires", ()), *link.acts.get("retracts", ())):
            # The past may be retracted, and its value is current or not as before.
            if target in writes and writes[target].status in _CURRENT:
                for place, gone in _held_by(by_commitment.get(target)):
                    if gone != value:
                        _note(retired.setdefault(place, {}), gone, _until(statement))
        _settle(statement, retired, by_commitment)
        advance(writes, statement)
    checked = Note(
        "returned values", "writes with a value compared with those that their key had retired", count
    )
    return Outcome(tuple(findings), (checked,))


def _note(retired: Retired, value: str, until: int | None) -> None:
    """A value is retired for good, or as long as what replaced it says that it holds."""
    known = retired.get(value, until)
    retired[value] = None if known is None or until is None else max(known, until)


def _until(statement: Statement) -> int | None:
    """When what a write says ends by itself; None for other statements: what a person decides is for good."""
    until = (statement.content or {}).get("valid_until")
    return (
        until
        if statement.link is not None and statement.link.kind == "write" and type(until) is int
        else None
    )


def _settle(
    statement: Statement, retired: Mapping[Slot, Retired], by_commitment: Mapping[bytes, Statement]
) -> None:
    """What was retired for a time is so for good, or as long as the record holds that a statement made current."""
    link, content = statement.link, statement.content or {}
    assert link is not None
    taken = [by_commitment.get(target) for act in _TAKES for target in link.acts.get(act, ())]
    begins, at = content.get("valid_from"), content.get("recorded_at")
    if link.kind == "write" and link.details.get("outcome") in _LANDED:
        begun = type(begins) is int and type(at) is int and begins <= at
        taken = [statement] if begun and "many" not in (content.get("flags") or ()) else []
    for current in taken:
        for slot, value in _held_by(current):
            ended = [
                one for one, until in retired.get(slot, {}).items() if until is not None and one != value
            ]
            for one in ended:
                _note(retired[slot], one, _until(statement))


def count_unguarded(statements: Sequence[Statement]) -> Outcome:
    """How many writes say of themselves that the guard was off when they were made."""
    writes = [statement for statement in statements if statement.link is not None and statement.content]
    count = sum("unguarded" in ((statement.content or {}).get("flags") or ()) for statement in writes)
    notes = () if not count else (Note("guard", "writes that were taken with the guard switched off", count),)
    return Outcome(not_checked=notes, counts={"unguarded_writes": count})


def _judge(statement: Statement, retired: Retired, value: str) -> Iterator[Finding]:
    assert statement.link is not None and statement.content is not None
    flags = statement.content.get("flags") or ()
    landed = statement.link.details.get("outcome") in _LANDED
    allowed = "lifts" in statement.link.acts or "reaffirmed" in flags or "unguarded" in flags
    until, at = retired.get(value), statement.content.get("recorded_at")
    ended = until is not None and type(at) is int and at >= until
    if value in retired and landed and not allowed and not ended:
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
