"""Reads: what is current, what was, and what is found by words. Each serves through the fold and nothing else.

`as_of` asks about a time in the world, `as_recorded` asks what this memory had recorded by then; without them
both are now. Nothing here returns a fact that `memory.timeline` did not serve for that pair of times, save the
history of a key, which says of each fact what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memory import edge, store_holds, store_ledger, store_requests
from memory.allow import told_to
from memory.answers import (
    NOTICE,
    Answer,
    Receipts,
    Told,
    fact_shape,
    key_shown,
    presented,
    receipts,
    scope_shape,
    shape_at,
    value_of,
)
from memory.grants import open_reading
from memory.key_view import (
    KeyView,
    all_agree,
    fact_now,
    fact_then,
    key_now,
    key_then,
    keys_now,
    replaced_by_plans,
    states_of_key,
)
from memory.model import Principal, fact_id
from memory.principal import require
from memory.scope import Scope, open_scope
from memory.timeline import FactState, seen_at
from memory.times import format_time, parse_time
from tlog.ascii import encode_base64

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.store_read import Snapshot


COUNTED_TO: Final = 20_000
"""As how many facts of a status a scope has at most in `status`, and the store at all: to count takes time for each."""


@dataclass(frozen=True)
class Asked:
    """About when, as known when, and of whose memory: as a caller says it. None is now, and the caller's own."""

    as_of: object = None
    as_recorded: object = None
    owner: object = None


@dataclass(frozen=True)
class Times:
    """The two clocks of a read, and the present it is measured against."""

    now: int
    as_of: int
    as_recorded: int

    @property
    def is_now(self) -> bool:
        """Whether the read is about the present, as known at present."""
        return self.as_of == self.now and self.as_recorded >= self.now


@dataclass(frozen=True)
class ReadAt:
    """A read under way: one view of the store, one scope, one pair of times."""

    view: Snapshot
    scope: Scope
    times: Times

    def key(self, key_tag: bytes) -> KeyView:
        """What a key says at these times."""
        times = self.times
        if times.is_now:
            return key_now(self.view, self.scope.tenant_id, key_tag, times.now)
        return key_then(self.view, self.scope.tenant_id, key_tag, times.as_of, times.as_recorded, times.now)

    def keys(self, key_tags: Sequence[bytes]) -> dict[bytes, KeyView]:
        """What each of some keys says at these times."""
        if self.times.is_now:
            return keys_now(self.view, self.scope.tenant_id, key_tags, self.times.now)
        return {key_tag: self.key(key_tag) for key_tag in key_tags}

    def fact(self, fact: FactRow) -> KeyView:
        """What a fact without a key says at these times."""
        times = self.times
        if times.is_now:
            return fact_now(fact, times.now)
        return fact_then(self.view, fact, times.as_of, times.as_recorded, times.now)


def get(parts: Parts, principal: Principal, key: object, asked: Asked) -> Answer:
    """The current value of a key, and every fact that is served of it."""
    require(principal, "memory:read")
    checked = edge.check_key(key)
    lifted: frozenset[int] = frozenset()
    with parts.store.read() as view:
        times = times_of(parts, view, asked)
        reading = open_reading(view, parts, principal, asked.owner)
        scope = reading.scope
        found = KeyView() if scope is None else ReadAt(view, scope, times).key(scope.key_tag(checked))
        if scope is not None:
            lifted = store_ledger.reaffirmed(view, scope.tenant_id, [row for row, _ in found.facts])
    states = receipts(parts)
    many = any(state.many for _, state in found.facts)
    alone = len(found.facts) == 1 and not many and not found.conflict
    return {
        "key": key_shown(checked, [fact for fact, _ in found.facts]),
        "current": value_of(found.facts[0][0]) if alone else None,
        "active": [served(fact, state, states, lifted) for fact, state in found.facts],
        "conflict": found.conflict,
        "content_erased": found.content_erased,
        "withheld": found.withheld,
        "as_of": format_time(times.as_of),
        "as_recorded": format_time(times.as_recorded),
        "notice": NOTICE,
        "scope": reading.shape(),
    }


def history(parts: Parts, principal: Principal, key: object, asked: Asked) -> Answer:
    """Everything that was said about a key, in order, each with what became of it.

    With `as_of` it is what had begun by then. What was refused or held is shown to those who may review it.
    """
    require(principal, "memory:read")
    checked = edge.check_key(key)
    with parts.store.read() as view:
        times = times_of(parts, view, asked)
        reading = open_reading(view, parts, principal, asked.owner)
        scope = reading.scope
        rows: tuple[FactRow, ...] = ()
        found: dict[bytes, FactState] = {}
        lifted: frozenset[int] = frozenset()
        if scope is not None:
            key_tag = scope.key_tag(checked)
            rows = view.facts_of_key(scope.tenant_id, key_tag)
            found = states_of_key(view, scope.tenant_id, key_tag, times.as_recorded)
            lifted = store_ledger.reaffirmed(view, scope.tenant_id, rows)
    told = [
        (row, seen_at(found[row.commitment], min(times.as_recorded, times.now)))
        for row in rows
        if row.commitment in found
    ]
    told = [(row, state) for row, state in told if state.status in told_to(reading.principal.scopes)]
    if asked.as_of is not None:
        told = [(row, state) for row, state in told if state.valid_from <= times.as_of]
    states = receipts(parts)
    return {
        "key": key_shown(checked, rows),
        "facts": [served(row, state, states, lifted) for row, state in told if not state.end_erased],
        "content_erased": any(state.end_erased for _, state in told),
        "as_of": None if asked.as_of is None else format_time(times.as_of),
        "as_recorded": format_time(times.as_recorded),
        "notice": NOTICE,
        "scope": reading.shape(),
    }


def conflicts(parts: Parts, principal: Principal, owner: object = None) -> Answer:
    """The disagreements between clients that nobody has settled yet."""
    require(principal, "memory:read")
    states = receipts(parts)
    found = []
    with parts.store.read() as view:
        reading = open_reading(view, parts, principal, owner)
        scope = reading.scope
        rows = () if scope is None else view.open_conflicts(scope.tenant_id, scope.agent_tag)
        for row in rows:
            assert scope is not None
            facts = view.facts_of_key(scope.tenant_id, row.key_tag, ("conflict",))
            opened = view.facts_by_seq(scope.tenant_id, scope.agent_tag, (row.seq,))
            if is_open(view, scope.tenant_id, row.key_tag, facts):
                found.append(
                    {
                        "id": row.id,
                        "key": presented(facts[0], "key").text,
                        "facts": [fact_shape(fact, states) for fact in facts],
                        "opened_at": format_time((opened or facts)[-1].recorded_at),
                    }
                )
    return {"conflicts": found, "notice": NOTICE, "scope": reading.shape()}


def is_open(view: Snapshot, tenant_id: int, key_tag: bytes, facts: Collection[FactRow]) -> bool:
    """Whether a conflict has two sides still: one of them may be erased, or on hold."""
    if facts and store_holds.is_disputed_on_hold(view, tenant_id, key_tag):
        return True
    return len(facts) > 1 and not all_agree(fact.content for fact in facts)


def status(parts: Parts, principal: Principal) -> Answer:
    """How much there is in the caller's scope and in the store as a whole, and how the log stands.

    Facts are counted up to COUNTED_TO, which stands for that many or more.
    Of the log: how many entries it has, size and root of its public checkpoint, whether that has the quorum of the
    policy, and how many statements are not in the log yet.
    """
    require(principal, "memory:read")
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        counts = Counter(
            {} if scope is None else view.status_counts(scope.tenant_id, scope.agent_tag, COUNTED_TO)
        )
        if scope is not None:
            now = max(parts.clock(), view.last_recorded_at())
            # What a plan that has begun has replaced is stated to be so by whoever acts next, and is so already.
            for key_tag in store_ledger.keys_begun(view, scope.tenant_id, scope.agent_tag, now):
                replaced = replaced_by_plans(view, scope.tenant_id, key_tag, now)
                # What was counted to its end stays there.
                counts.subtract(status for status in replaced if counts[status] < COUNTED_TO)
                counts["superseded"] = min(counts["superseded"] + len(replaced), COUNTED_TO)
        open_conflicts = 0
        for row in () if scope is None else view.open_conflicts(scope.tenant_id, scope.agent_tag):
            facts = view.facts_of_key(scope.tenant_id, row.key_tag, ("conflict",)) if scope else ()
            open_conflicts += scope is not None and is_open(view, scope.tenant_id, row.key_tag, facts)
        held = store_holds.summary(view, scope, parts.clock())
        requests = store_requests.summary(view, scope, parts.clock())
    with parts.store.read_whole() as view:
        store = view.counts(COUNTED_TO)
        size = view.last_logged_index() + 1 - parts.home.first_position
    public = receipts(parts).published()
    return {
        "facts": {status: count for status, count in sorted(counts.items()) if count},
        "conflicts": open_conflicts,
        "holds": held,
        "requests": requests,
        "store": store,
        "log": {
            "size": size,
            "published": public.size,
            "root": None if public.root is None else encode_base64(public.root),
            "witnessed": public.witnessed,
            "pending": store["unlogged"],
        },
        "guard": parts.guard,
        "scope": scope_shape(principal),
    }


def has_request(parts: Parts, principal: Principal, idempotency_key: object) -> bool:
    """Whether a write of this caller with this idempotency key was answered before."""
    require(principal, "memory:write")
    checked = edge.check_idempotency_key(idempotency_key)
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        if scope is None:
            return False
        return view.idempotency(scope.tenant_id, scope.request_tag(principal.client, checked)) is not None


def served(
    fact: FactRow, state: FactState, states: Receipts, lifted: Collection[int], score: float | None = None
) -> Answer:
    """A fact as it is at the times of the read. `lifted`: the numbers of those that a person has reaffirmed."""
    told = Told(state.status, state.valid_from, state.ends_at, state.replaced_at)
    shape = shape_at(fact, told, states, score=score)
    if fact.seq in lifted and state.status not in ("refused", "discarded"):
        shape["flags"] = sorted({*shape["flags"], "reaffirmed"})
    shape["followed_by"] = None if state.followed_by is None else fact_id(state.followed_by)
    return shape


def times_of(parts: Parts, view: Snapshot, asked: Asked) -> Times:
    # Should the clock have gone back, the present is still not before what is recorded already.
    now = max(parts.clock(), view.last_recorded_at())
    recorded = now if asked.as_recorded is None else parse_time(asked.as_recorded, now, name="as_recorded")
    recorded = min(recorded, now)
    valid = recorded if asked.as_of is None else parse_time(asked.as_of, now, name="as_of")
    return Times(now, valid, recorded)
