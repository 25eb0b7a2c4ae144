"""Whether a value that a key has retired came back without a reaffirmation, told from the statements alone.

A value that was replaced by one which said itself how long it holds may come back after that, unless something else
was said in between. Only values spelled alike are compared: what else counts as the same value is the guard's own
knowledge. Where an erasure gave up the guard of what it took, the values of those keys may rightly be learnt again and
are not held against them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from auditor.evidence import Statement
from auditor.findings import Finding, Note, Outcome
from auditor.fold import Changes, Fold, at_writing, fold
from auditor.standing import Slot, Standing
from auditor.statements import by_commitment as statements_by_commitment

_LANDED: Final = frozenset({"stored", "superseded", "conflict"})
_CURRENT: Final = frozenset({"active", "conflict"})
_KEPT: Final = "keep"
_TAKES: Final = frozenset({"confirms", "keeps", "begins", "lifts"})
_TIES: Final = frozenset(
    {
        "retires",
        "retracts",
        "conflicts",
        "confirms",
        "dates",
        "keeps",
        "begins",
        "lifts",
        "discards",
        "corroborates",
    }
)
Retired = dict[str, int | None]
"""The values that a key has retired, each with when that ends; None for good."""


def check_returned(statements: Sequence[Statement], folded: Fold | None = None) -> Outcome:
    """No write brought back a value that its key had retired, unless it was reaffirmed or nobody guarded it."""
    by_commitment = statements_by_commitment(statements)
    changes = (fold(statements) if folded is None else folded).changes
    retired: dict[Slot, Retired] = {}
    near: Mapping[bytes, set[bytes]] | None = None
    standing = Standing(by_commitment)
    given_up: set[Slot] = set()
    findings: list[Finding] = []
    count = 0
    for statement, changed in zip(statements, changes, strict=True):
        link = statement.link
        if link is None:
            continue
        if link.kind == "erase" and link.details.get("guard") != _KEPT:
            near = _neighbours(statements) if near is None else near
            taken = _taken(statement, retired, near, by_commitment)
            given_up |= taken
            retired = {slot: values for slot, values in retired.items() if slot not in taken}
        slot, value = _slot(statement), _text(statement.content, "value")
        if link.kind == "write" and slot is not None and value is not None:
            count += 1
            findings += _judge(statement, retired[slot], value) if slot in retired else ()
        if link.acts:
            begins = link.acts.get("begins")
            began = by_commitment.get(begins[0]) if begins else None
            instead = value if began is None else _text(began.content, "value")
            until = _until(statement if began is None else began)
            _lift_and_retire(statement, (instead, until), retired, changed, by_commitment, standing)
        if link.kind != "write" or slot in retired or link.acts.keys() & _TAKES:
            _settle(statement, retired, by_commitment)
        if link.kind == "write":
            standing.take(((statement.row.commitment, at_writing(link)),))
        if changed:
            standing.take([(target, after) for target, _, after in changed])
    checked = Note(
        "returned values", "writes with a value compared with those that their key had retired", count
    )
    return Outcome(tuple(findings), (checked,), _not_compared(retired, given_up, count))


def _lift_and_retire(
    statement: Statement,
    said: tuple[str | None, int | None],
    retired: dict[Slot, Retired],
    changed: Changes,
    by_commitment: Mapping[bytes, Statement],
    standing: Standing,
) -> None:
    """What a statement gives back is retired no more, and what it ends is, unless it was not current or another record
    says it, too. `said` is what stands in its place, and until when.
    """
    link, (instead, until) = statement.link, said
    assert link is not None
    for target in link.acts.get("lifts", ()):
        refused = by_commitment.get(target)
        if _is_for_good(statement if link.kind == "write" else refused):
            for place, back in _held_by(refused):
                retired.get(place, {}).pop(back, None)
    current = {target for target, before, _ in changed if before in _CURRENT}
    ended = (*link.acts.get("retires", ()), *link.acts.get("retracts", ()))
    for target in ended:
        # The past may be retracted, and its value is current or not as before.
        if target in current:
            for place, gone in _held_by(by_commitment.get(target)):
                if gone != instead and not standing.is_said(place, gone, ended, statement.recorded_at):
                    _note(retired.setdefault(place, {}), gone, until)


def _not_compared(retired: Mapping[Slot, Retired], given_up: set[Slot], count: int) -> tuple[Note, ...]:
    """What of the values that came back no statement can tell."""
    notes = []
    if retired:
        text = (
            "writes whose value may be one that was retired, spelled otherwise: only like ones are compared"
        )
        notes.append(Note("other spellings", text, count))
    if given_up:
        text = "keys of which an erasure took retired values: whether those came back is not asked"
        notes.append(Note("returned values", text, len(given_up)))
    return tuple(notes)


def _neighbours(statements: Sequence[Statement]) -> Mapping[bytes, set[bytes]]:
    """Which statements are tied to which by an act, both ways: those of one key are, and an erased one still is."""
    near: dict[bytes, set[bytes]] = {}
    for statement in statements:
        link = statement.link
        for act, targets in () if link is None or link.kind == "erase" else link.acts.items():
            for target in targets if act in _TIES else ():
                near.setdefault(statement.row.commitment, set()).add(target)
                near.setdefault(target, set()).add(statement.row.commitment)
    return near


def _taken(
    tombstone: Statement,
    retired: Mapping[Slot, Retired],
    near: Mapping[bytes, set[bytes]],
    by_commitment: Mapping[bytes, Statement],
) -> set[Slot]:
    """The keys whose retired values an erasure gave up. One that took hashes alone does not say of which keys."""
    targets = () if tombstone.link is None else tombstone.link.acts.get("erases", ())
    if targets:
        return retired.keys() & _slots_of(targets, near, by_commitment)
    return {slot for slot in retired if slot[0] == tombstone.row.tenant_id}


def _slots_of(
    targets: Sequence[bytes], near: Mapping[bytes, set[bytes]], by_commitment: Mapping[bytes, Statement]
) -> set[Slot]:
    """The keys of what was erased, told by the statements tied to it that are still there."""
    seen, left = set(targets), list(targets)
    slots: set[Slot] = set()
    while left:
        statement = by_commitment.get(left.pop())
        if statement is None:
            continue
        slot = _slot(statement)
        if slot is not None:
            slots.add(slot)
            continue  # one that is there tells its own key, and need not be gone through
        following = near.get(statement.row.commitment, set()) - seen
        seen |= following
        left += following
    return slots


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
    taken: list[Statement | None]
    if link.kind == "write" and link.details.get("outcome") in _LANDED:
        begins, at = content.get("valid_from"), content.get("recorded_at")
        begun = type(begins) is int and type(at) is int and begins <= at
        taken = [statement] if begun and "many" not in (content.get("flags") or ()) else []
    else:
        taken = [by_commitment.get(target) for act in _TAKES for target in link.acts.get(act, ())]
    for current in taken:
        for slot, value in _held_by(current):
            if slot not in retired:
                continue
            until = _until(current if link.kind == "begin" and current is not None else statement)
            ended = [one for one, ends in retired[slot].items() if ends is not None and one != value]
            for one in ended:
                _note(retired[slot], one, until)


def _is_for_good(statement: Statement | None) -> bool:
    """Whether what a reaffirmation brought back holds at once and without an end: else it stays retired beside that."""
    content = None if statement is None else statement.content
    if content is None:
        return True
    begins, at, until = (content.get(name) for name in ("valid_from", "recorded_at", "valid_until"))
    return until is None and not (type(begins) is int and type(at) is int and begins > at)


def count_unguarded(statements: Sequence[Statement]) -> Outcome:
    """How many writes say of themselves that the guard was off when they were made."""
    count = 0
    for _, link, content in statements:
        flags = (content.get("flags") if link is not None and content else None) or ()
        count += "unguarded" in flags
    notes = () if not count else (Note("guard", "writes that were taken with the guard switched off", count),)
    return Outcome(not_checked=notes, counts={"unguarded_writes": count})


def _judge(statement: Statement, retired: Retired, value: str) -> Iterator[Finding]:
    assert statement.link is not None and statement.content is not None
    flags = statement.content.get("flags") or ()
    landed = statement.link.details.get("outcome") in _LANDED
    allowed = "lifts" in statement.link.acts or "reaffirmed" in flags
    until, at = retired.get(value), statement.content.get("recorded_at")
    ended = until is not None and type(at) is int and at >= until
    if value in retired and landed and not allowed and not ended:
        if "unguarded" in flags:
            what = "A value that its key had retired was stored again while the guard was switched off."
            yield Finding("GUARD_OFF", statement.row.place, what)
            return
        what = "A value that its key had retired was stored again, and nobody reaffirmed it."
        yield Finding("RETIRED_RETURNED", statement.row.place, what)


def _held_by(statement: Statement | None) -> Iterator[tuple[Slot, str]]:
    """Where a write filed its value, and the value; nothing if it had none or is erased."""
    if statement is not None:
        slot, value = _slot(statement), _text(statement.content, "value")
        if slot is not None and value is not None:
            yield slot, value


def _slot(statement: Statement) -> Slot | None:
    content = statement.content
    key = None if content is None else content.get("key")
    return (statement.row.tenant_id, _text(content, "agent"), key) if isinstance(key, str) else None


def _text(content: Mapping[str, Any] | None, name: str) -> str | None:
    value = None if content is None else content.get(name)
    return value if isinstance(value, str) else None
