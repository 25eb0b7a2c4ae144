"""What held when, and what was known of it when: two clocks as one fold of statements.

The record clock decides which statements count (`as_recorded`: those recorded by then); the valid clock picks
among the facts they leave (`as_of`). Intervals are derived from the facts, never from a cached field.
A fact whose replacement has been erased answers nothing: when it ended is gone, and the older value must not
come back for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memory.model import Status

# The one allow-list of reads. Whatever is not named here is served to nobody at no time.
SERVED_NOW: Final = frozenset({"active", "conflict"})
SERVED_THEN: Final = frozenset({"active", "conflict", "superseded", "history", "retracted"})

_INITIAL_STATUS: Final[Mapping[str, Status]] = {
    "stored": "active",
    "superseded": "active",
    "history": "history",
    "conflict": "conflict",
    "held": "held",
    "refused": "refused",
}


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A statement as the fold needs it. What only the content says is None once that is erased."""

    seq: int
    commitment: bytes
    kind: str
    outcome: str | None = None
    acts: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    recorded_at: int | None = None
    client: str = ""
    valid_from: int | None = None
    valid_until: int | None = None
    valid_from_declared: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class FactState:
    """A fact after the fold. It holds from `valid_from` up to, but not at, `ends_at` (None: open)."""

    commitment: bytes
    seq: int
    status: Status
    client: str
    many: bool
    valid_from: int
    valid_until: int | None
    recorded_at: int
    ends_at: int | None = None
    replaced_at: int | None = None
    replaced_by: int | None = None
    """seq of the statement that retired or retracted it"""
    end_erased: bool = False
    """What replaced it is erased, so nobody can tell when it ended: it is never served."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a key says at a time. `conflict`: clients disagree, so there is no current value."""

    served: tuple[FactState, ...] = ()
    conflict: bool = False
    content_erased: bool = False


def may_serve(status: Status, as_of: int, now: int) -> bool:
    """Whether a read about `as_of` may serve a fact of this status; first on every path."""
    return status in (SERVED_NOW if as_of >= now else SERVED_THEN)


def status_at(events: Sequence[TimelineEvent], as_recorded: int) -> dict[bytes, FactState]:
    """The fold of what was recorded by a time. What was erased since then is gone from it."""
    return fold(recorded_by(events, as_recorded))


def recorded_by(events: Sequence[TimelineEvent], as_recorded: int) -> tuple[TimelineEvent, ...]:
    """The statements, of those in log order, that were recorded by a time.

    recorded_at never goes back, so a statement whose own time is erased counts once the one before it does.
    """
    for place, event in enumerate(events):
        if event.recorded_at is not None and event.recorded_at > as_recorded:
            return tuple(events[:place])
    return tuple(events)


def fold(events: Iterable[TimelineEvent]) -> dict[bytes, FactState]:
    """The facts that statements in log order leave, by commitment; erased ones are not among them."""
    known = tuple(events)
    facts: dict[bytes, FactState] = {}
    clock = 0
    for event in known:
        clock = event.recorded_at if event.recorded_at is not None else clock
        if event.kind == "write":
            fact = _arrived(event)
            if fact is not None:
                facts[event.commitment] = fact
        _apply(event, clock, facts)
    return _with_ends(facts, {event.seq: event for event in known})


def answer(facts: Iterable[FactState], as_of: int, now: int) -> Answer:
    """What one key says at a time, from the states of its facts."""
    holding = [fact for fact in facts if may_serve(fact.status, as_of, now) or fact.end_erased]
    holding = [fact for fact in holding if _holds(fact, as_of)]
    many = [fact for fact in holding if fact.many and not fact.end_erased]
    single = [fact for fact in holding if not fact.many]
    if not single:
        return Answer(tuple(many), content_erased=any(fact.end_erased for fact in holding))
    latest = max(single, key=_order)
    if latest.end_erased:
        return Answer(tuple(many), content_erased=True)
    beside = _beside(latest, single)
    served = tuple(sorted((*many, latest, *beside), key=lambda fact: fact.seq))
    return Answer(served, conflict=bool(beside))


def current(facts: Iterable[FactState], now: int) -> Answer:
    """What one key says now."""
    return answer(facts, now, now)


def _arrived(event: TimelineEvent) -> FactState | None:
    if event.recorded_at is None or event.valid_from is None or event.outcome not in _INITIAL_STATUS:
        return None
    return FactState(
        commitment=event.commitment,
        seq=event.seq,
        status=_INITIAL_STATUS[event.outcome],
        client=event.client,
        many=event.many,
        valid_from=event.valid_from,
        valid_until=event.valid_until,
        recorded_at=event.recorded_at,
    )
