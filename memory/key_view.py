"""What a key says, from the rows of the store: statements go through the fold of `memory.timeline`, always.

For the present the fold starts from the statuses that the store caches, so its cost does not grow with the
length of a key's history; for any other time it starts from the statements themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import canon, store_ledger, store_search, timeline
from memory.event import decode_content, decode_link
from memory.model import own_name
from memory.timeline import FactState, TimelineEvent

if TYPE_CHECKING:
    from memory.model import Status
    from memory.rows import EventRow, FactRow
    from memory.store_read import Snapshot

STANDING: Final[tuple[Status, ...]] = ("active", "conflict")
_OUTCOME_OF: Final[Mapping[str, str]] = {"active": "stored", "conflict": "conflict"}


@dataclass(frozen=True, slots=True)
class KeyView:
    """What is served of a key at a time: rows with their states, in the order they were recorded."""

    facts: tuple[tuple[FactRow, FactState], ...] = ()
    conflict: bool = False
    content_erased: bool = False
    withheld: bool = False
    """A fact that would be served is on hold or past its retention: it is left out, and nothing older comes instead."""


def key_now(view: Snapshot, tenant_id: int, key_tag: bytes, now: int) -> KeyView:
    """What a key says now."""
    return standing_now(view, tenant_id, key_tag, view.facts_of_key(tenant_id, key_tag, STANDING), now)


def keys_now(view: Snapshot, tenant_id: int, key_tags: Sequence[bytes], now: int) -> dict[bytes, KeyView]:
    """What each of some keys says now."""
    rows = store_search.facts_of_keys(view, tenant_id, key_tags, STANDING)
    hidden = store_search.partly_hidden(view, tenant_id, key_tags)
    return {
        key_tag: key_then(view, tenant_id, key_tag, now, now, now)
        if key_tag in hidden
        else _standing(tuple(rows[key_tag]), now)
        for key_tag in key_tags
    }


def standing_now(
    view: Snapshot, tenant_id: int, key_tag: bytes, rows: tuple[FactRow, ...], now: int
) -> KeyView:
    """What a key says now, of which these are the rows with a status in STANDING."""
    if view.is_partly_hidden(tenant_id, key_tag):
        # Then it takes the links of what is erased, or on hold, to tell which of the remaining facts have ended.
        return key_then(view, tenant_id, key_tag, now, now, now)
    return _standing(rows, now)


def _standing(rows: tuple[FactRow, ...], now: int) -> KeyView:
    return _answered(timeline.unopposed(timeline.fold(_cached_write(row) for row in rows)), rows, now, now)


def fact_now(fact: FactRow, now: int) -> KeyView:
    """What a fact without a key says now."""
    return _answered(
        timeline.fold([_cached_write(fact)]) if fact.status in STANDING else {}, (fact,), now, now
    )


def key_then(
    view: Snapshot, tenant_id: int, key_tag: bytes, as_of: int, as_recorded: int, now: int
) -> KeyView:
    """What a key said about `as_of`, as far as it was recorded by `as_recorded`."""
    states = states_of_key(view, tenant_id, key_tag, as_recorded)
    return _answered(states, view.facts_of_key(tenant_id, key_tag), as_of, min(now, as_recorded))


def fact_then(view: Snapshot, fact: FactRow, as_of: int, as_recorded: int, now: int) -> KeyView:
    """What a fact without a key said about `as_of`, as far as it was recorded by `as_recorded`."""
    states = timeline.status_at(timeline_events(view.story_of_fact(fact.tenant_id, fact.seq)), as_recorded)
    return _answered(states, (fact,), as_of, min(now, as_recorded))


def replaced_by_plans(view: Snapshot, tenant_id: int, key_tag: bytes, now: int) -> tuple[Status, ...]:
    """The statuses, as the store caches them, of facts of a key in whose place a plan that has begun stands."""
    rows = view.facts_of_key(tenant_id, key_tag, STANDING)
    states = timeline.fold(_cached_write(row) for row in rows)
    return tuple(
        row.status for row in rows if timeline.seen_at(states[row.commitment], now).status != row.status
    )


def states_of_key(view: Snapshot, tenant_id: int, key_tag: bytes, as_recorded: int) -> dict[bytes, FactState]:
    """Every fact of a key with its state, as far as it was recorded by a time."""
    told = timeline.recorded_by(timeline_events(view.story_of_key(tenant_id, key_tag)), as_recorded)
    states = timeline.fold(told)
    for commitment, opponents in timeline.lost_opponents(states, told).items():
        erased = all(store_ledger.was_erased(view, tenant_id, one, as_recorded) for one in opponents)
        states[commitment] = timeline.without_opponent(states[commitment], erased)
    return states


def state_of_fact(view: Snapshot, fact: FactRow, as_recorded: int) -> FactState | None:
    """The state of one fact, as far as it was recorded by a time."""
    events = timeline_events(view.story_of_fact(fact.tenant_id, fact.seq))
    return timeline.status_at(events, as_recorded).get(fact.commitment)


def timeline_events(rows: Iterable[EventRow]) -> tuple[TimelineEvent, ...]:
    """Statements as the fold takes them."""
    return tuple(_timeline_event(row) for row in rows)


def _timeline_event(row: EventRow) -> TimelineEvent:
    link = decode_link(row.link)
    content: dict[str, Any] = {} if row.content is None else decode_content(row.content)
    flags = content.get("flags", ())
    return TimelineEvent(
        seq=row.seq,
        commitment=row.commitment,
        kind=link.kind,
        outcome=link.details.get("outcome"),
        acts=link.acts,
        recorded_at=content.get("recorded_at"),
        client=own_name(content.get("client", ""), "reported" in flags),
        valid_from=content.get("valid_from"),
        valid_until=content.get("valid_until"),
        valid_from_declared="valid_from_declared" in flags,
        many="many" in flags,
    )


def _cached_write(row: FactRow) -> TimelineEvent:
    flags = row.content.get("flags", ())
    return TimelineEvent(
        seq=row.seq,
        commitment=row.commitment,
        kind="write",
        outcome=_OUTCOME_OF.get(row.status, "stored"),
        recorded_at=row.recorded_at,
        client=own_name(row.content.get("client", ""), "reported" in flags),
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        valid_from_declared="valid_from_declared" in flags,
        many="many" in flags,
    )


def _answered(states: Mapping[bytes, FactState], rows: Iterable[FactRow], as_of: int, now: int) -> KeyView:
    answer = timeline.answer(states.values(), as_of, now)
    by_commitment = {row.commitment: row for row in rows}
    served = [
        (by_commitment[state.commitment], state)
        for state in answer.served
        if state.commitment in by_commitment
    ]
    withheld = len(served) < len(answer.served)
    single = [row.content for row, state in served if not state.many]
    if answer.conflict and not (withheld or answer.content_erased) and all_agree(single):
        # What they disagree with has not begun.
        latest = max(state.valid_from for _, state in served if not state.many)
        return KeyView(tuple(one for one in served if one[1].many or one[1].valid_from == latest))
    return KeyView(tuple(served), answer.conflict, answer.content_erased, withheld)


def all_agree(contents: Iterable[Mapping[str, Any]]) -> bool:
    """Whether facts with these contents, one or more, all say the same."""
    first, *others = contents
    return all(_said_alike(first, other) for other in others)


def _said_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    left, right = one.get("value"), other.get("value")
    if left is None or right is None:
        return left is right and canon.canonical_text(one["text"]) == canon.canonical_text(other["text"])
    return canon.same_value(left, right)
