"""Ways around the guard that were found once: by prose, by forgetting, by dates, and by what a token lifts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ticking import SECOND, Clock

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import ledger, review_list
from memory.model import AGENT_SCOPES, SCOPES, Principal
from memory.service import Memory
from memory.wiring import Home
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.trust import parse_trust

KEY = "svc/region"
ME = Principal("acme", "ops", "desk", SCOPES)
IDE = replace(ME, client="ide")
AGENT = replace(ME, scopes=AGENT_SCOPES)
OLD, NEW = "svc runs in oslo", "svc runs in rome"


@pytest.fixture
def me(home: Home) -> Memory:
    return home.memory(ME)


@pytest.fixture
def ide(home: Home) -> Memory:
    return home.memory(IDE)


def say(memory: Memory, value: str, **more: Any) -> dict[str, Any]:
    return memory.remember(f"svc runs in {value}", key=KEY, value=value, **more)


def came(answer: dict[str, Any]) -> str:
    return str(answer["reason"] or answer["outcome"])


def forget(memory: Memory, reference: str, **more: Any) -> None:
    memory.forget(id=reference, confirm=memory.forget_preview(id=reference, **more)["confirm"], **more)


def current(memory: Memory) -> Any:
    return memory.get(KEY)["current"]


# Prose with a key and without a value


def retract_it(me: Memory, reference: str, clock: Clock) -> None:
    me.retract(reference)


def forget_it(me: Memory, reference: str, clock: Clock) -> None:
    forget(me, reference, guard="keep")


def hold_it(me: Memory, reference: str, clock: Clock) -> None:
    me.hold(id=reference, authority="court", review_by="2035-01-01T00:00:00Z")


def let_it_end(me: Memory, reference: str, clock: Clock) -> None:
    say(me, "bern", valid_until=clock.second(60))
    clock.now += 61 * SECOND


@pytest.mark.parametrize("end", [retract_it, forget_it, hold_it, let_it_end])
def test_prose_for_a_key_of_which_nothing_stands_is_held(
    me: Memory, clock: Clock, end: Callable[[Memory, str, Clock], None]
) -> None:
    say(me, "oslo")
    end(me, say(me, "rome")["id"], clock)
    assert came(me.remember(OLD, key=KEY)) == "possible_echo"
    assert me.get(KEY)["active"] == []
    assert came(me.remember("svc is wherever it is", key=KEY)) == "stored"


def test_prose_for_a_key_whose_last_of_many_is_retracted_is_held(me: Memory) -> None:
    me.retract(me.remember("likes tea", key="likes", value="tea", many=True)["id"])
    assert came(me.remember("she likes tea", key="likes", many=True)) == "possible_echo"
    assert came(me.remember("she likes coffee", key="likes", many=True)) == "stored"


def test_prose_that_says_no_more_of_the_past_than_what_stands_is_not_held(me: Memory) -> None:
    say(me, "oslo")
    me.retract(say(me, "rome")["id"])
    moved = me.remember("svc moved from oslo to bern", key=KEY)
    assert came(moved) == "possible_echo"
    me.confirm(moved["id"])
    assert came(me.remember("svc has moved from oslo to bern in May", key=KEY)) == "superseded"


# Forgetting


@pytest.mark.parametrize("guard", ["erase", "expire=2035-01-01T00:00:00Z"])
def test_an_agent_does_not_lift_the_guard_by_forgetting(home: Home, me: Memory, guard: str) -> None:
    old = say(me, "oslo")["id"]
    say(me, "rome")
    agent = home.memory(AGENT)
    with pytest.raises(RefusedError):
        agent.forget_preview(id=old, guard=guard)
    token = agent.forget_preview(id=old)["confirm"]
    with pytest.raises(RefusedError):
        agent.forget(id=old, confirm=token, guard=guard)
    agent.forget(id=old, confirm=token)
    assert came(say(agent, "oslo")) == "echo"


def test_an_agent_that_forgets_a_subject_keeps_the_guard(home: Home, me: Memory) -> None:
    say(me, "oslo", subject="svc")
    say(me, "rome")
    agent, owners = home.memory(AGENT), me.forget_preview(subject="svc")
    assert owners["preview"]["guard"] == "erase"
    preview = agent.forget_preview(subject="svc")
    assert preview["preview"]["guard"] == "keep"
    # Not even by the preview of somebody who may.
    with pytest.raises(RefusedError):
        agent.forget(subject="svc", confirm=owners["confirm"])
    agent.forget(subject="svc", confirm=agent.forget_preview(subject="svc")["confirm"])
    assert came(say(agent, "oslo")) == "echo"


# What is written ahead


@pytest.fixture
def begun(me: Memory, clock: Clock) -> tuple[str, str]:
    """Oslo, and Rome from a minute later on, which is over."""
    old = say(me, "oslo")["id"]
    new = say(me, "rome", valid_from=clock.second(60))["id"]
    assert current(me) == "oslo"
    clock.now += 61 * SECOND
    return old, new


def statuses(memory: Memory) -> list[tuple[str, str]]:
    return [(fact["value"], fact["status"]) for fact in memory.history(KEY)["facts"]]


@pytest.mark.usefixtures("begun")
def test_what_has_begun_is_told_before_anybody_writes(me: Memory) -> None:
    assert statuses(me) == [("oslo", "superseded"), ("rome", "active")]
    assert me.history(KEY)["facts"][0]["followed_by"] == me.get(KEY)["active"][0]["id"]


@pytest.mark.usefixtures("begun")
def test_what_has_begun_retires_as_any_replacement_does(me: Memory, ide: Memory) -> None:
    assert came(me.remember(f"Note: {OLD}.")) == "possible_echo"
    assert came(say(ide, "oslo")) == came(say(me, "oslo")) == "echo"


def test_the_old_value_does_not_come_back_with_a_retraction(me: Memory, begun: tuple[str, str]) -> None:
    me.retract(begun[1])
    assert me.get(KEY)["active"] == []
    assert statuses(me) == [("oslo", "superseded"), ("rome", "retracted")]


@pytest.mark.parametrize("guard", ["keep", "erase"])
def test_the_old_value_does_not_come_back_when_the_new_one_is_erased(
    me: Memory, begun: tuple[str, str], guard: str
) -> None:
    forget(me, begun[1], guard=guard)
    told = me.get(KEY)
    assert (told["active"], told["content_erased"]) == ([], True)


def test_an_old_value_that_is_erased_stays_refused(me: Memory, begun: tuple[str, str]) -> None:
    forget(me, begun[0], guard="keep")
    assert came(say(me, "oslo")) == "echo"


def test_what_is_taken_back_before_it_begins_retires_nothing(me: Memory, clock: Clock) -> None:
    say(me, "oslo")
    me.retract(say(me, "rome", valid_from=clock.second(60))["id"])
    clock.now += 61 * SECOND
    assert (current(me), came(say(me, "oslo"))) == ("oslo", "agreed")


def test_what_has_begun_and_ended_does_not_bring_the_old_value_back(
    me: Memory, ide: Memory, clock: Clock
) -> None:
    say(me, "oslo")
    say(me, "rome", valid_from=clock.second(60), valid_until=clock.second(120))
    clock.now += 61 * SECOND
    assert (current(me), came(say(ide, "oslo"))) == ("rome", "echo")
    clock.now += 61 * SECOND
    assert current(me) is None
    assert came(say(me, "oslo")) == "stored"


def test_several_begin_in_their_order(me: Memory, clock: Clock) -> None:
    say(me, "oslo")
    say(me, "bern", valid_from=clock.second(120))
    say(me, "rome", valid_from=clock.second(60))
    before = clock.second(30)
    clock.now += 200 * SECOND
    assert [came(say(me, value)) for value in ("oslo", "rome", "bern")] == ["echo", "echo", "agreed"]
    told = [(fact["value"], fact["valid_until"]) for fact in me.history(KEY)["facts"]][:3]
    assert [end is None for _, end in told] == [False, True, False]
    assert [me.get(KEY, as_of=before + later)["current"] for later in (0, 60, 120)] == [
        "oslo",
        "rome",
        "bern",
    ]


@pytest.mark.usefixtures("begun")
def test_an_audit_of_what_has_begun_finds_nothing(me: Memory, tmp_path: Path) -> None:
    say(me, "oslo")
    audited = audit(
        Places(tmp_path / "home"),
        Asked(parse_trust((tmp_path / "home" / "trust.toml").read_text()), 1_900_000_200 * SECOND),
        tenant=None,
        needles=None,
    )
    assert audited.outcome.findings == ()


# What a token lifts


def lift(memory: Memory, value: str, **more: Any) -> dict[str, Any]:
    token = say(memory, value)["reaffirm"]
    return say(memory, value, reaffirm=token, reason="it is so", **more)


def test_what_is_reaffirmed_for_later_is_refused_until_then(me: Memory, ide: Memory, clock: Clock) -> None:
    say(me, "oslo")
    say(me, "rome")
    lift(me, "oslo", valid_from=clock.second(60))
    assert came(say(me, "oslo")) == came(say(ide, "oslo")) == "echo"
    assert came(me.remember(f"Note: {OLD}.")) == "possible_echo"
    clock.now += 61 * SECOND
    assert current(me) == "oslo"
    assert came(say(ide, "oslo")) == "agreed"
    assert came(say(ide, "rome")) == "echo"


def test_what_is_reaffirmed_for_a_time_is_refused_after_it(me: Memory, ide: Memory, clock: Clock) -> None:
    say(me, "oslo")
    say(me, "rome")
    lift(me, "oslo", valid_until=clock.second(60))
    assert came(say(ide, "oslo")) == "agreed"
    assert came(ide.remember(f"Note: {OLD}.")) == "stored"
    clock.now += 61 * SECOND
    assert came(say(me, "oslo")) == came(say(ide, "oslo")) == "echo"
    assert came(ide.remember(f"Look: {OLD}.")) == "possible_echo"


def test_what_a_person_reaffirms_for_a_time_is_refused_after_it(me: Memory, clock: Clock) -> None:
    say(me, "oslo")
    say(me, "rome")
    me.reaffirm(say(me, "oslo", valid_until=clock.second(60))["id"], "until noon")
    assert current(me) == "oslo"
    clock.now += 61 * SECOND
    assert came(say(me, "oslo")) == "echo"


def test_what_is_reaffirmed_for_good_may_be_said_again(me: Memory, ide: Memory) -> None:
    say(me, "oslo")
    say(me, "rome")
    lift(me, "oslo")
    assert came(say(ide, "oslo")) == "agreed"
    assert came(ide.remember(f"Note: {OLD}.")) == "stored"


# What agrees, and what says another thing


def test_a_text_that_is_over_or_yet_to_come_does_not_swallow_one_that_is_now(
    me: Memory, clock: Clock
) -> None:
    me.remember("the lift is broken", valid_until=clock.second(60))
    me.remember("the gate is open", valid_from=clock.second(600))
    clock.now += 61 * SECOND
    assert came(me.remember("the lift is broken")) == came(me.remember("the gate is open")) == "stored"
    assert came(me.remember("The gate is open")) == "agreed"


def test_the_same_value_without_the_end_is_stored(me: Memory, clock: Clock) -> None:
    say(me, "oslo", valid_until=clock.second(60))
    assert came(say(me, "oslo")) == "superseded"
    clock.now += 61 * SECOND
    assert (current(me), came(say(me, "oslo"))) == ("oslo", "agreed")


def test_the_same_value_with_an_end_is_stored(me: Memory, clock: Clock) -> None:
    say(me, "oslo")
    assert came(say(me, "oslo", valid_until=clock.second(60))) == "superseded"
    clock.now += 61 * SECOND
    assert current(me) is None


def test_a_past_with_another_end_is_stored(me: Memory) -> None:
    say(me, "rome")
    early = {"valid_from": "2001-01-01T00:00:00Z", "valid_until": "2002-01-01T00:00:00Z"}
    assert came(say(me, "oslo", **early)) == "history"
    assert came(say(me, "oslo", **early)) == "agreed"
    assert came(say(me, "oslo", **{**early, "valid_until": "2003-01-01T00:00:00Z"})) == "history"
    assert me.get(KEY, as_of="2002-06-01T00:00:00Z")["current"] == "oslo"


def test_a_key_of_many_values_keeps_what_comes_without_the_flag(me: Memory) -> None:
    for value, many in (("tea", True), ("coffee", True), ("mate", False), ("juice", False)):
        assert came(me.remember(f"likes {value}", key="likes", value=value, many=many)) == "stored"
    told = sorted(fact["value"] for fact in me.get("likes")["active"])
    assert told == ["coffee", "juice", "mate", "tea"]
    assert came(me.remember("likes mate", key="likes", value="mate")) == "agreed"


def test_one_value_stays_beside_many(me: Memory) -> None:
    say(me, "dublin")
    say(me, "berlin", many=True)
    say(me, "cork")
    assert sorted(fact["value"] for fact in me.get(KEY)["active"]) == ["berlin", "cork", "dublin"]


def test_who_comes_round_to_the_other_side_settles_the_conflict(me: Memory, ide: Memory) -> None:
    old = say(me, "oslo")["id"]
    assert came(say(ide, "rome")) == "conflict"
    answer = say(me, "rome")
    assert (answer["outcome"], answer["retired"], answer["current"]["value"]) == ("superseded", [old], "rome")
    assert (current(me), me.conflicts()["conflicts"], me.get(KEY)["conflict"]) == ("rome", [], False)
    assert came(say(ide, "oslo")) == "echo"


def test_a_third_side_stays_in_conflict(home: Home, me: Memory, ide: Memory) -> None:
    say(me, "oslo")
    say(ide, "rome")
    say(home.memory(replace(ME, client="cli")), "bern")
    assert came(say(me, "rome")) == "conflict"
    assert len(me.conflicts()["conflicts"]) == 1
    assert {fact["value"] for fact in me.get(KEY)["active"]} == {"rome", "bern"}


# What is nothing, or somebody else


@pytest.mark.parametrize(
    "nothing", ["\u3164", "\u2800", "\ufe0f", "\u034f", "\u115f", "\u17b4", "\U000e0100", "\u200b\ufe0f"]
)
def test_what_nobody_can_see_is_blank(me: Memory, nothing: str) -> None:
    for arguments in (
        {"text": nothing},
        {"text": "t", "key": nothing},
        {"text": "t", "key": KEY, "value": nothing},
    ):
        with pytest.raises(MalformedError):
            me.remember(**arguments)


def test_a_client_that_names_itself_is_not_one_that_the_host_named(home: Home, me: Memory) -> None:
    posing = home.memory(replace(ME, reported=True))
    say(me, "oslo")
    assert came(say(posing, "rome")) == "conflict"
    assert came(say(posing, "bern")) == "conflict"
    assert {fact["value"] for fact in me.get(KEY)["active"]} == {"oslo", "bern"}


# What was erased and stays refused


@pytest.fixture
def kept_out(me: Memory) -> None:
    old = say(me, "oslo")["id"]
    say(me, "rome")
    forget(me, old, guard="keep")


def traces(home: Home) -> int:
    with home.parts().store.read_whole() as view:
        return sum(b"oslo" in bytes(row[0]) for row in view.rows("SELECT content FROM contents"))


@pytest.mark.usefixtures("kept_out")
def test_nothing_of_what_was_erased_is_kept_again(home: Home, me: Memory) -> None:
    past = say(me, "oslo", valid_from="2001-01-01T00:00:00Z")
    assert (past["outcome"], past["reason"]) == ("refused", "echo")
    ended = say(me, "oslo", valid_from="2001-01-01T00:00:00Z", valid_until="2002-01-01T00:00:00Z")
    assert ended["reason"] == "echo"
    prose, keyed = me.remember("Note: svc region is oslo"), me.remember(OLD, key=KEY)
    assert (came(prose), came(keyed)) == ("possible_echo", "valueless")
    assert traces(home) == 0
    with pytest.raises(RefusedError) as refused:
        me.confirm(prose["id"])
    assert refused.value.code == "erased"


@pytest.mark.usefixtures("kept_out")
def test_each_such_answer_counts(me: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_BLIND_REFUSALS", 3)
    me.remember("Note: svc region is oslo")
    say(me, "oslo", valid_from="2001-01-01T00:00:00Z")
    say(me, "oslo")
    with pytest.raises(UnavailableError):
        me.remember("Look: svc region is oslo")


# Texts without a key


def test_a_text_that_was_taken_back_is_held_when_it_is_said_again(me: Memory) -> None:
    me.retract(me.remember("the lift is broken")["id"])
    assert came(me.remember("The lift is broken")) == "possible_echo"


def test_a_text_whose_value_was_retired_since_does_not_agree(me: Memory) -> None:
    me.remember(f"Note: {OLD}.")
    say(me, "oslo")
    assert came(me.remember(f"Note: {OLD}.")) == "agreed"
    say(me, "rome")
    assert came(me.remember(f"Note: {OLD}.")) == "possible_echo"


def test_a_review_tells_the_newest_and_how_many_it_left_out(
    me: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_list, "MAX_REVIEW", 2)
    made = [me.remember(f"note {number}", provisional=True)["id"] for number in range(2)]
    assert me.review()["omitted"] == 0
    made += [me.remember(f"more {number}", provisional=True)["id"] for number in range(3)]
    told = me.review()
    assert ([fact["id"] for fact in told["facts"]], told["omitted"]) == (made[-2:], 3)


def test_a_provisional_write_is_not_served_for_its_token(me: Memory) -> None:
    say(me, "oslo")
    say(me, "rome")
    with pytest.raises(RefusedError) as refused:
        lift(me, "oslo", provisional=True)
    assert (refused.value.code, current(me)) == ("token_invalid", "rome")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CheckoutApi/Region", "checkout-api/region"),
        ("User.DarkMode", "user/dark-mode"),
        ("GitHub/Token", "github/token"),
        ("プラン・名前", "プラン/名前"),
        ("svc—region", "svc/region"),
        ("svc=region", "svc/region"),
        ("svc·region", "svc/region"),
    ],
)
def test_two_spellings_are_one_key(me: Memory, one: str, other: str) -> None:
    me.remember("on", key=one, value="on")
    assert me.get(other)["current"] == "on"
