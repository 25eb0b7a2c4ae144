"""What is served of a key at any time, on both clocks, against a slow model that asks by definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import timeline
from memory.model import Status
from memory.timeline import Answer, TimelineEvent

ALL_STATUSES: tuple[Status, ...] = get_args(Status)


def c(number: int) -> bytes:
    """The commitment of the statement with this number."""
    return number.to_bytes(32, "big")


def write(
    seq: int,
    outcome: str = "stored",
    retires: Sequence[int] = (),
    conflicts: Sequence[int] = (),
    **content: Any,
) -> TimelineEvent:
    """A write recorded at ten times its number, by the same client, holding from then on."""
    given = {"recorded_at": 10 * seq, "client": "desk", "valid_from": 10 * seq, **content}
    acts = {"retires": [c(n) for n in retires], "conflicts": [c(n) for n in conflicts]}
    return TimelineEvent(seq=seq, commitment=c(seq), kind="write", outcome=outcome, acts=acts, **given)


def act(seq: int, kind: str, **acts: Sequence[int]) -> TimelineEvent:
    """A statement that is no write, recorded at ten times its number."""
    named = {name: [c(n) for n in targets] for name, targets in acts.items()}
    return TimelineEvent(seq=seq, commitment=c(seq), kind=kind, acts=named, recorded_at=10 * seq)


def erased(event: TimelineEvent) -> TimelineEvent:
    """What an erasure leaves of a statement."""
    return TimelineEvent(event.seq, event.commitment, event.kind, event.outcome, event.acts)


def served(events: Sequence[TimelineEvent], as_of: int, as_recorded: int | None = None) -> list[int]:
    return [fact.seq for fact in asked(events, as_of, as_recorded).served]


def asked(events: Sequence[TimelineEvent], as_of: int, as_recorded: int | None = None) -> Answer:
    now = 1000 if as_recorded is None else as_recorded
    return timeline.answer(timeline.status_at(events, now).values(), as_of, now)


CHAIN = [write(1), write(2, "superseded", retires=[1]), write(3, "superseded", retires=[2])]


def test_each_time_has_its_own_value() -> None:
    assert [served(CHAIN, at) for at in (9, 10, 19, 20, 29, 30, 1000)] == [[], [1], [1], [2], [2], [3], [3]]


def test_what_was_believed_stays_as_it_was() -> None:
    assert [served(CHAIN, 1000, at) for at in (9, 10, 19, 20, 30)] == [[], [1], [1], [2], [3]]
    assert served(CHAIN, 15, 25) == [1]


def test_a_superseded_fact_says_when_and_by_what() -> None:
    fact = timeline.fold(CHAIN)[c(1)]
    assert (fact.status, fact.ends_at, fact.replaced_at, fact.replaced_by, fact.followed_by) == (
        "superseded",
        20,
        20,
        2,
        c(2),
    )


def test_an_interval_ends_where_the_next_fact_begins_not_where_it_was_recorded() -> None:
    events = [write(1), write(5, "superseded", retires=[1], valid_from=30)]
    assert served(events, 29) == [1]
    assert served(events, 30) == [5]


def test_a_retracted_fact_held_until_it_was_retracted() -> None:
    events = [write(1), act(2, "retract", retracts=[1])]
    assert [served(events, at) for at in (10, 19, 20, 1000)] == [[1], [1], [], []]
    assert served(events, 15, 15) == [1]


def test_history_is_served_for_its_time_alone() -> None:
    events = [write(1, valid_from=10), write(2, "history", valid_from=3, valid_until=10)]
    assert [served(events, at) for at in (2, 3, 9, 10, 1000)] == [[], [2], [2], [1], [1]]
    assert served([*events, act(3, "retract", retracts=[1])], 1000) == []


@pytest.mark.parametrize("outcome", ["held", "refused"])
def test_withheld_writes_are_served_at_no_time(outcome: str) -> None:
    events = [write(1), write(2, outcome, valid_from=1)]
    assert [served(events, at) for at in (5, 10, 20, 1000)] == [[], [1], [1], [1]]


def test_a_confirmed_write_holds_from_its_confirmation() -> None:
    events = [
        write(1),
        write(2, "held"),
        write(3, "superseded", retires=[1]),
        act(4, "confirm", confirms=[2], retires=[3]),
    ]
    assert [served(events, at) for at in (20, 30, 39, 40, 1000)] == [[1], [3], [3], [2], [2]]
    assert served(events, 1000, 39) == [3]


def test_a_confirmed_write_holds_since_when_it_was_said_to() -> None:
    events = [
        write(1),
        write(2, "held", valid_from=15, valid_from_declared=True),
        act(3, "confirm", confirms=[2], retires=[1]),
    ]
    assert [served(events, at) for at in (14, 15, 1000)] == [[1], [2], [2]]


def test_a_discarded_write_is_served_at_no_time() -> None:
    events = [write(1, "held"), act(2, "discard", discards=[1])]
    assert served(events, 15) == [] and served(events, 1000, 15) == []


def test_a_reaffirmation_makes_the_refused_write_current() -> None:
    events = [*CHAIN[:2], write(3, "refused"), act(4, "reaffirm", lifts=[3], retires=[2])]
    assert [served(events, at) for at in (30, 40, 1000)] == [[2], [3], [3]]


def test_a_write_that_lifts_a_refusal_leaves_it_refused() -> None:
    lifting = replace(write(4, "superseded", retires=[2]), acts={"retires": [c(2)], "lifts": [c(3)]})
    events = [*CHAIN[:2], write(3, "refused"), lifting]
    assert served(events, 1000) == [4]
    assert timeline.fold(events)[c(3)].status == "refused"


CONFLICT = [write(1), write(2, "conflict", conflicts=[1], client="tablet")]


def test_clients_in_conflict_are_both_served() -> None:
    answer = asked(CONFLICT, 1000)
    assert (served(CONFLICT, 1000), answer.conflict) == ([1, 2], True)
    assert not asked(CONFLICT, 15).conflict


@pytest.mark.parametrize(("kept", "before", "after"), [(1, [1], [1]), (2, [1], [2])])
def test_a_resolved_conflict_has_one_answer(kept: int, before: list[int], after: list[int]) -> None:
    events = [*CONFLICT, act(3, "resolve", keeps=[kept], retires=[3 - kept])]
    assert served(events, 15) == before
    assert served(events, 25) == after
    assert served(events, 1000) == after
    assert asked(events, 1000, 25).conflict
    assert not asked(events, 1000).conflict


def test_a_conflict_about_the_future_leaves_the_present_alone() -> None:
    events = [write(1), write(2, "conflict", conflicts=[1], client="tablet", valid_from=500)]
    assert served(events, 499) == [1] and not asked(events, 499).conflict
    assert served(events, 500) == [1, 2] and asked(events, 500).conflict


def test_a_fact_written_ahead_takes_over_at_its_time_and_gives_nothing_back_at_its_end() -> None:
    events = [write(1), write(2, valid_from=50, valid_until=60)]
    assert [served(events, at) for at in (49, 50, 59, 60)] == [[1], [2], [2], []]


def test_what_is_stated_to_have_begun_ended_what_it_replaces_when_it_began() -> None:
    events = [write(1), write(2, valid_from=50), act(6, "begin", begins=[2], retires=[1])]
    state = timeline.fold(events)[c(1)]
    assert (state.status, state.ends_at, state.followed_by) == ("superseded", 50, c(2))
    gone = [events[0], erased(events[1]), events[2], act(7, "erase", erases=[2])]
    assert asked(gone, 70).content_erased and served(gone, 70) == []


def test_a_key_of_many_values_serves_them_all() -> None:
    events = [write(n, many=True) for n in (1, 2, 3)]
    assert served([*events, act(4, "retract", retracts=[2])], 1000) == [1, 3]
    assert not asked(events, 1000).conflict


def test_an_erased_value_does_not_bring_the_older_one_back() -> None:
    events = [CHAIN[0], erased(CHAIN[1]), act(4, "erase", erases=[2])]
    for at in (15, 25, 1000):
        assert asked(events, at) == Answer((), content_erased=True)
    assert asked(events, 9) == Answer()


def test_a_later_value_answers_again_after_an_erased_one() -> None:
    events = [CHAIN[0], erased(CHAIN[1]), CHAIN[2], act(4, "erase", erases=[2])]
    assert asked(events, 25) == Answer((), content_erased=True)
    assert served(events, 30) == [3] and not asked(events, 1000).content_erased


def test_what_is_known_of_an_erased_fact_ends_its_shadow() -> None:
    events = [CHAIN[0], erased(CHAIN[1]), act(3, "retract", retracts=[2]), act(4, "erase", erases=[2])]
    assert asked(events, 29).content_erased
    assert not asked(events, 30).content_erased


def test_two_erased_facts_in_a_row_are_bridged() -> None:
    fourth = write(4, "superseded", retires=[3])
    events = [CHAIN[0], erased(CHAIN[1]), erased(CHAIN[2]), fourth]
    assert [asked(events, at).content_erased for at in (25, 39, 40)] == [True, True, False]
    assert served(events, 40) == [4]


def test_what_was_kept_instead_of_an_erased_fact_may_have_begun_before_it() -> None:
    """A conflict was settled for the older side: that does not tell when the erased side took over from others."""
    events = [
        write(1, valid_from=0),
        write(2, client="tablet", many=True),
        write(3, "conflict", retires=[1], conflicts=[2]),
        act(4, "resolve", keeps=[2], retires=[3]),
        write(5, valid_from=-10),
    ]
    assert served(events, 25) == [1, 2]
    left = [*events[:2], erased(events[2]), *events[3:]]
    for at in (5, 25, 39):
        assert asked(left, at).content_erased and 5 not in served(left, at)
    assert served(left, 40) == [2, 5]


def test_an_erasure_hides_in_every_past_belief_too() -> None:
    events = [CHAIN[0], erased(CHAIN[1]), act(9, "erase", erases=[2])]
    assert asked(events, 25, 25) == Answer((), content_erased=True)
    # Its own time is erased as well, so it may have been recorded as early as the statement before it.
    assert asked(events, 15, 15) == Answer((), content_erased=True)


def test_an_erased_fact_is_gone_though_its_content_is_passed_in() -> None:
    assert served([*CHAIN, act(4, "erase", erases=[3])], 1000) == []


def test_a_statement_without_its_time_counts_after_the_one_before_it() -> None:
    events = [*CHAIN[:2], erased(act(3, "retract", retracts=[2])), write(4, client="tablet")]
    assert served(events, 19, 19) == [1]
    assert served(events, 1000, 20) == []
    assert timeline.fold(events)[c(2)].replaced_at == 20


def test_the_allow_list_names_what_may_be_served() -> None:
    now = {status for status in ALL_STATUSES if timeline.may_serve(status, 100, 100)}
    then = {status for status in ALL_STATUSES if timeline.may_serve(status, 99, 100)}
    assert now == {"active", "conflict"}
    assert then == now | {"superseded", "history", "retracted"}


# The slow model: every question is answered from the statements alone, by what the words mean.


def slow_answer(
    events: Sequence[TimelineEvent], as_of: int, as_recorded: int
) -> tuple[list[int], bool, bool]:
    """What is served, whether clients disagree, and whether only something erased could answer."""
    seen = slow_seen(events, as_recorded)
    gone = {target for event in seen for target in event.acts.get("erases", ())}
    facts = [event for event in seen if is_fact(event) and event.commitment not in gone]
    holding = []
    for fact in facts:
        status, start, end, hidden = slow_state(fact, facts, seen)
        allowed = {"active", "conflict"} | (
            {"superseded", "history", "retracted"} if as_of < as_recorded else set()
        )
        if start <= as_of and (end is None or as_of < end) and (hidden or status in allowed):
            holding.append((start, fact.seq, fact, status, hidden))
    many = [fact.seq for *_, fact, _, hidden in holding if fact.many and not hidden]
    single = sorted(
        ((start, seq, f, s, h) for start, seq, f, s, h in holding if h or not f.many), key=lambda x: x[:2]
    )
    if not single:
        return many, False, False
    _, seq, last, status, hidden = single[-1]
    if hidden:
        return many, False, True
    others = {}
    if status == "conflict":
        for _, other, fact, its, hidden in single:
            if its == "conflict" and fact.client != last.client and not hidden:
                others[fact.client] = other
    return sorted([*many, seq, *others.values()]), bool(others), False


def slow_seen(events: Sequence[TimelineEvent], as_recorded: int) -> list[TimelineEvent]:
    seen: list[TimelineEvent] = []
    for event in events:
        if event.recorded_at is not None and event.recorded_at > as_recorded:
            break
        seen.append(event)
    return seen


def is_fact(event: TimelineEvent) -> bool:
    return event.kind == "write" and event.recorded_at is not None and event.outcome != "agreed"


def slow_state(
    fact: TimelineEvent, facts: Sequence[TimelineEvent], seen: Sequence[TimelineEvent]
) -> tuple[str, int, int | None, bool]:
    first = {"stored": "active", "superseded": "active"}.get(fact.outcome or "", fact.outcome or "")
    status, start = first, fact.valid_from
    assert start is not None
    for event in seen:
        for name in ("conflicts", "confirms", "keeps", "lifts", "discards", "retires", "retracts"):
            if fact.commitment not in event.acts.get(name, ()) or (name == "lifts" and event.kind == "write"):
                continue
            status = {
                "conflicts": "conflict",
                "discards": "discarded",
                "retires": "superseded",
                "retracts": "retracted",
            }.get(name, "active")
            if name in ("confirms", "lifts") and not fact.valid_from_declared:
                start = max(start, slow_time(event, seen))
    end, hidden = fact.valid_until, False
    if status in ("superseded", "retracted"):
        bound, hidden = slow_end(fact.commitment, facts, seen)
        end = min((each for each in (end, bound) if each is not None), default=None)
    if status in ("active", "conflict") and not fact.many:
        others = [(slow_state(one, [], seen), one) for one in facts if one is not fact and not one.many]
        ends = [
            state[1]
            for state, one in others
            if one.client == fact.client
            and state[0] in ("active", "conflict")
            and state[1] > max(start, one.recorded_at or 0)
        ]
        end = min((each for each in (*ends, end) if each is not None), default=None)
    return status, start, end, hidden


def slow_end(
    commitment: bytes, facts: Sequence[TimelineEvent], seen: Sequence[TimelineEvent]
) -> tuple[int | None, bool]:
    """When a replaced fact ended, and whether that is only an upper bound because what replaced it is erased."""
    last = [e for e in seen if any(commitment in e.acts.get(name, ()) for name in ("retires", "retracts"))]
    if not last:
        return None, False
    event = last[-1]
    if commitment in event.acts.get("retracts", ()):
        return slow_time(event, seen), False
    if event.kind == "write":
        by = event.commitment
    else:
        by = next(t for name in ("confirms", "keeps", "begins", "lifts") for t in event.acts.get(name, ()))
    for fact in facts:
        if fact.commitment == by:
            return slow_state(fact, [], seen)[1], False
    return slow_over(by, facts, seen), True


def slow_over(commitment: bytes, facts: Sequence[TimelineEvent], seen: Sequence[TimelineEvent]) -> int | None:
    """From when on an erased fact surely held no more: it had been ended by then, and what followed had begun."""
    last = [e for e in seen if any(commitment in e.acts.get(name, ()) for name in ("retires", "retracts"))]
    bound, hidden = slow_end(commitment, facts, seen)
    if not last or hidden or bound is None:
        return bound
    return max(bound, slow_time(last[-1], seen))


def slow_time(event: TimelineEvent, seen: Sequence[TimelineEvent]) -> int:
    before = seen[: list(seen).index(event) + 1]
    return max((each.recorded_at for each in before if each.recorded_at is not None), default=0)


@st.composite
def histories(draw: st.DrawFn) -> list[TimelineEvent]:
    """Statements of one key that could have been written: an act is on what its kind of act can be on."""
    events: list[TimelineEvent] = []
    status: dict[int, str] = {}
    clients: dict[int, str] = {}
    clock = 0
    for seq in range(1, draw(st.integers(1, 12)) + 1):
        clock += draw(st.integers(1, 5))
        standing = [n for n, s in status.items() if s in ("active", "conflict")]
        held = [n for n, s in status.items() if s == "held"]
        refused = [n for n, s in status.items() if s == "refused"]
        kinds = ["write", "write", "write"]
        kinds += ["retract"] if standing else []
        kinds += ["confirm", "discard"] if held else []
        kinds += ["reaffirm"] if refused else []
        kinds += ["resolve"] if [n for n in standing if status[n] == "conflict"] else []
        kind = draw(st.sampled_from(kinds))
        acts: dict[str, list[int]] = {}
        content: Mapping[str, Any] = {"recorded_at": clock}
        outcome = None
        if kind == "write":
            outcome = draw(
                st.sampled_from(
                    ["stored", "superseded", "superseded", "conflict", "history", "held", "refused"]
                )
            )
            client = clients[seq] = draw(st.sampled_from(["desk", "tablet"]))
            own = [n for n in standing if clients[n] == client]
            if outcome in ("superseded", "conflict"):
                acts["retires"] = own
            if outcome == "conflict":
                acts["conflicts"] = [n for n in standing if clients[n] != client]
            declared = draw(st.booleans())
            start = draw(st.integers(0, clock + 8)) if declared else clock
            until = draw(st.none() | st.integers(start + 1, start + 20))
            content = {
                "recorded_at": clock,
                "client": client,
                "valid_from": start,
                "valid_until": until,
                "valid_from_declared": declared,
                "many": draw(st.integers(0, 9)) == 0,
            }
            status[seq] = {"stored": "active", "superseded": "active"}.get(outcome, outcome)
        elif kind == "retract":
            acts["retracts"] = [draw(st.sampled_from(standing))]
        elif kind == "discard":
            acts["discards"] = [draw(st.sampled_from(held))]
        elif kind == "resolve":
            disputed = [n for n in standing if status[n] == "conflict"]
            acts["keeps"] = [draw(st.sampled_from(disputed))]
            acts["retires"] = [n for n in disputed if n not in acts["keeps"]]
        else:
            name, choice = ("confirms", held) if kind == "confirm" else ("lifts", refused)
            acts[name] = [draw(st.sampled_from(choice))]
            acts["retires"] = standing
        changed = {
            "retires": "superseded",
            "conflicts": "conflict",
            "retracts": "retracted",
            "discards": "discarded",
        }
        for name, targets in acts.items():
            for target in targets:
                status[target] = changed.get(name, "active")
        named = {name: [c(n) for n in targets] for name, targets in acts.items()}
        events.append(TimelineEvent(seq, c(seq), kind, outcome, named, **content))
    return events


@st.composite
def erased_histories(draw: st.DrawFn) -> list[TimelineEvent]:
    events = draw(histories())
    gone = draw(st.lists(st.sampled_from(range(len(events))), max_size=3, unique=True))
    left = [erased(event) if place in gone else event for place, event in enumerate(events)]
    clock = max(event.recorded_at or 0 for event in events)
    tombstone = TimelineEvent(
        len(events) + 1,
        c(len(events) + 1),
        "erase",
        None,
        {"erases": [events[place].commitment for place in gone]},
        clock + 1,
    )
    return [*left, tombstone]


@settings(max_examples=400, deadline=None)
@given(histories() | erased_histories(), st.integers(0, 90), st.integers(0, 90))
def test_the_fold_agrees_with_the_slow_model(
    events: list[TimelineEvent], as_of: int, as_recorded: int
) -> None:
    answer = asked(events, as_of, as_recorded)
    found = ([fact.seq for fact in answer.served], answer.conflict, answer.content_erased)
    assert found == slow_answer(events, as_of, as_recorded)


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(0, 60), st.integers(0, 60))
def test_a_past_belief_never_changes(events: list[TimelineEvent], as_of: int, as_recorded: int) -> None:
    until = [event for event in events if event.recorded_at is not None and event.recorded_at <= as_recorded]
    assert asked(until, as_of, as_recorded) == asked(events, as_of, as_recorded)


@settings(max_examples=200, deadline=None)
@given(histories() | erased_histories(), st.integers(0, 90))
def test_nothing_withheld_or_erased_is_served(events: list[TimelineEvent], as_of: int) -> None:
    gone = {target for event in events for target in event.acts.get("erases", ())}
    for now in (as_of, 1000):
        for fact in timeline.answer(timeline.fold(events).values(), as_of, now).served:
            assert fact.status in (timeline.SERVED_NOW if as_of >= now else timeline.SERVED_THEN)
            assert fact.commitment not in gone and not fact.end_erased


@settings(max_examples=200, deadline=None)
@given(histories(), st.data())
def test_an_erasure_only_ever_takes_answers_away(events: list[TimelineEvent], data: st.DataObject) -> None:
    """What a time answered is answered still, or it is gone; only another client's side may show alone.

    What was written ahead and is erased before anything says that it has begun never was.
    """
    place = data.draw(st.sampled_from(range(len(events))))
    states = timeline.fold(events)
    state = states.get(events[place].commitment)
    ahead = state is not None and state.valid_from > state.recorded_at
    left = [erased(event) if number == place else event for number, event in enumerate(events)]
    for as_of in range(0, 60, 7):
        before, after = set(served(events, as_of)), asked(left, as_of)
        remaining = {fact.seq for fact in after.served}
        assert place + 1 not in remaining
        if place + 1 not in before and not after.content_erased and is_fact(events[place]) and not ahead:
            assert remaining <= before


@settings(max_examples=100, deadline=None)
@given(histories())
def test_a_fact_once_written_stays_among_the_facts(events: list[TimelineEvent]) -> None:
    for place in range(len(events) + 1):
        assert set(timeline.fold(events[:place])) <= set(timeline.fold(events))
