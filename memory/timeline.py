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
    valid_from_declared: bool = False
    ends_at: int | None = None
    replaced_at: int | None = None
    replaced_by: int | None = None
    """seq of the statement that retired or retracted it"""
    followed_by: bytes | None = None
    """the fact in its place"""
    end_erased: bool = False
    """What replaced it is erased, so nobody can tell when it ended: it is never served."""
    opponent_erased: bool = False
    """At the time asked about it was disputed, and what disputed it is erased since: nobody can tell any more."""


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
    facts: dict[bytes, FactState] = {}
    ends: dict[bytes, _Ended] = {}
    clock = 0
    for event in events:
        clock = clock if event.recorded_at is None else event.recorded_at
        arrived = _arrived(event)
        if arrived is not None:
            facts[event.commitment] = arrived
        _apply(event, clock, facts, ends)
    ahead = [fact for fact in facts.values() if _is_ahead(fact)]
    return {commitment: _with_end(fact, facts, ends, ahead) for commitment, fact in facts.items()}


def seen_at(fact: FactState, time: int) -> FactState:
    """The fact as it is at a time: superseded once what was written ahead of it has begun."""
    begun = fact.followed_by is not None and fact.ends_at is not None and fact.ends_at <= time
    return replace(fact, status="superseded") if begun and fact.status in SERVED_NOW else fact


def answer(facts: Iterable[FactState], as_of: int, now: int) -> Answer:
    """What one key says at a time, from the states of all its facts.

    Of facts with one value the one that began last answers, and beside it those of other clients that are in
    conflict with it. One whose end is erased answers nothing, and hides what began before it.
    """
    holding = [
        fact
        for fact in facts
        if _holds(fact, as_of) and (fact.end_erased or may_serve(fact.status, as_of, now))
    ]
    many = [fact for fact in holding if fact.many and not fact.end_erased]
    single = [fact for fact in holding if not fact.many or fact.end_erased]
    latest = max(single, key=_order, default=None)
    if latest is None or latest.end_erased:
        return Answer(tuple(many), content_erased=latest is not None)
    beside = _beside(latest, single)
    if latest.opponent_erased and not beside:
        return Answer((*many, latest), conflict=True, content_erased=True)
    served = sorted((*many, latest, *beside), key=lambda fact: fact.seq)
    return Answer(tuple(served), conflict=bool(beside))


def unopposed(facts: Mapping[bytes, FactState]) -> dict[bytes, FactState]:
    """The facts of a key as they are now: one whose opponents are all gone disagrees with nobody."""
    disputed = {fact.client for fact in facts.values() if fact.status == "conflict"}
    if len(disputed) != 1:
        return dict(facts)
    return {
        commitment: replace(fact, status="active") if fact.status == "conflict" else fact
        for commitment, fact in facts.items()
    }


def lost_opponents(
    facts: Mapping[bytes, FactState], events: Iterable[TimelineEvent]
) -> dict[bytes, frozenset[bytes]]:
    """Of the facts of a key in conflict after these statements, those whose opponents are all erased, with these."""
    against: dict[bytes, set[bytes]] = {}
    for event in events:
        for target in event.acts.get("conflicts", ()):
            against.setdefault(target, set()).add(event.commitment)
            against.setdefault(event.commitment, set()).add(target)
    return {
        commitment: frozenset(against[commitment])
        for commitment, fact in facts.items()
        if fact.status == "conflict" and commitment in against and against[commitment].isdisjoint(facts)
    }


def without_opponent(fact: FactState, erased_then: bool) -> FactState:
    """A fact whose opponents are erased: it disagrees with nobody once they are.

    Before that it was disputed, and nobody can tell any more with what.
    """
    return replace(fact, status="active") if erased_then else replace(fact, opponent_erased=True)


def current(facts: Iterable[FactState], now: int) -> Answer:
    """What one key says now."""
    return answer(facts, now, now)


def _arrived(event: TimelineEvent) -> FactState | None:
    if event.kind != "write" or event.outcome is None or event.outcome not in _INITIAL_STATUS:
        return None
    if event.recorded_at is None or event.valid_from is None:
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
        valid_from_declared=event.valid_from_declared,
    )


@dataclass(frozen=True, slots=True)
class _Ended:
    """When a fact was replaced or retracted, by which statement, and which fact took its place, if one did."""

    at: int
    seq: int
    by: bytes | None


# What each act makes of its targets. `lifts` counts in a reaffirmation alone: a write that redeems a token
# lifts a refusal too, and there the write becomes active, not the refusal.
_BECOMES: Final[Mapping[str, Status]] = {
    "conflicts": "conflict",
    "confirms": "active",
    "dates": "history",
    "keeps": "active",
    "lifts": "active",
    "discards": "discarded",
    "retires": "superseded",
    "retracts": "retracted",
}


def _apply(
    event: TimelineEvent, clock: int, facts: dict[bytes, FactState], ends: dict[bytes, _Ended]
) -> None:
    acts = event.acts
    if not acts:
        return
    took = [target for act in ("confirms", "keeps", "begins") for target in acts.get(act, ())]
    if event.kind == "write":
        took = [event.commitment]
    if event.kind == "reaffirm":
        took += acts.get("lifts", ())
    for act, status in _BECOMES.items():
        if act == "lifts" and event.kind != "reaffirm":
            continue
        for target in acts.get(act, ()):
            if status in ("superseded", "retracted"):
                by = took[0] if took and status == "superseded" else None
                ends[target] = _Ended(clock, event.seq, by)
            if target in facts:
                facts[target] = _changed(facts[target], status, act, clock)
    for target in acts.get("erases", ()):
        facts.pop(target, None)


def _changed(fact: FactState, status: Status, act: str, clock: int) -> FactState:
    # A held or refused write is nobody's fact before it is let through, so unless its writer said since when
    # it holds, it holds from then on.
    if act in ("confirms", "lifts") and not fact.valid_from_declared:
        return replace(fact, status=status, valid_from=max(fact.valid_from, clock))
    return replace(fact, status=status)


def _is_ahead(fact: FactState) -> bool:
    """Whether it was written before it begins: then it takes the place of what its client said when it does."""
    return fact.status in SERVED_NOW and not fact.many and fact.valid_from > fact.recorded_at


def _with_end(
    fact: FactState,
    facts: Mapping[bytes, FactState],
    ends: Mapping[bytes, _Ended],
    ahead: Sequence[FactState],
) -> FactState:
    ended = ends.get(fact.commitment)
    if ended is None or fact.status not in ("superseded", "retracted"):
        return _with_plan(fact, ahead)
    at: int | None
    if ended.by is None:
        at, erased = ended.at, False
    elif ended.by in facts:
        at, erased = facts[ended.by].valid_from, False
    else:
        at, erased = _end_of_erased(ended.by, facts, ends), True
    bounds = [bound for bound in (at, fact.valid_until) if bound is not None]
    return replace(
        fact,
        ends_at=min(bounds, default=None),
        replaced_at=ended.at,
        replaced_by=ended.seq,
        followed_by=ended.by,
        end_erased=erased,
    )


def _with_plan(fact: FactState, ahead: Sequence[FactState]) -> FactState:
    """A fact that nothing has ended yet holds until it says, or until what its client wrote ahead begins."""
    until = fact.valid_until
    if until is None and not ahead:
        return fact
    plans = [
        plan
        for plan in ahead
        if plan.client == fact.client
        and plan.valid_from > fact.valid_from
        and (until is None or plan.valid_from < until)
    ]
    if fact.many or fact.status not in SERVED_NOW or not plans:
        return replace(fact, ends_at=until)
    first = min(plans, key=_order)
    return replace(fact, ends_at=first.valid_from, followed_by=first.commitment)


def _end_of_erased(
    commitment: bytes, facts: Mapping[bytes, FactState], ends: Mapping[bytes, _Ended]
) -> int | None:
    """When an erased fact certainly held no more: links tell what followed it, though not what it said."""
    passed: set[bytes] = set()
    while commitment not in passed:
        passed.add(commitment)
        ended = ends.get(commitment)
        if ended is None:
            return None
        if ended.by is None:
            return ended.at
        if ended.by in facts:
            # What was kept instead, when a conflict was settled, may have begun before it.
            return max(facts[ended.by].valid_from, ended.at)
        commitment = ended.by
    return None


def _holds(fact: FactState, at: int) -> bool:
    return fact.valid_from <= at and (fact.ends_at is None or at < fact.ends_at)


def _order(fact: FactState) -> tuple[int, int]:
    return fact.valid_from, fact.seq


def _beside(latest: FactState, single: Sequence[FactState]) -> tuple[FactState, ...]:
    """The other clients' facts in conflict with the latest, one a client."""
    if latest.status != "conflict":
        return ()
    others: dict[str, FactState] = {}
    for fact in sorted(single, key=_order):
        if fact.status == "conflict" and fact.client != latest.client and not fact.end_erased:
            others[fact.client] = fact
    return tuple(others.values())
