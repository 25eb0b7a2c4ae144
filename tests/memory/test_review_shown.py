"""Who lets a refused value through has seen what it takes the place of; and that it was let through stays marked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ticking import Clock

from memory import wiring
from memory.model import SCOPES, Principal
from memory.service import Memory
from tlog.errors import RefusedError

ME = Principal("acme", "ops", "desk", SCOPES)
REVIEWER = Principal("acme", "ops", "desk", frozenset({"memory:read", "memory:review"}))
KEY = "svc/place"


@pytest.fixture
def me(home: wiring.Home) -> Memory:
    return home.memory(ME)


def say(memory: Memory, value: str, **more: Any) -> dict[str, Any]:
    return memory.remember(f"svc is in {value}", key=KEY, value=value, **more)


def refused(me: Memory) -> str:
    for value in ("oslo", "rome"):
        say(me, value)
    return str(say(me, "oslo")["id"])


def correct_it(me: Memory, clock: Clock) -> None:
    say(me, "bern")


def disagree(me: Memory, clock: Clock) -> None:
    Memory(me._parts, Principal("acme", "ops", "tablet", SCOPES)).remember("no", key=KEY, value="kyiv")


def retract_it(me: Memory, clock: Clock) -> None:
    me.retract(me.get(KEY)["active"][0]["id"])


def let_a_plan_begin(me: Memory, clock: Clock) -> None:
    say(me, "bern", valid_from=clock.second(60))
    clock.pass_seconds(3600)


@pytest.mark.parametrize("change", [correct_it, disagree, retract_it, let_a_plan_begin])
def test_a_refusal_is_not_lifted_over_a_record_that_nobody_was_shown(
    me: Memory, clock: Clock, change: Callable[[Memory, Clock], None]
) -> None:
    refusal = refused(me)
    (seen,) = me.review()["facts"]
    assert seen["current"]["value"] == "rome"
    change(me, clock)
    for shown in (None, seen["shown"], "", "0" * 20):
        with pytest.raises(RefusedError) as caught:
            me.reaffirm(refusal, "it is back", shown)
        assert caught.value.code == "token_invalid"
    (again,) = me.review()["facts"]
    if change is let_a_plan_begin:
        # Reading states nothing: the plan is stated to have begun by the first who acts.
        say(me, "bern")
        (again,) = me.review()["facts"]
    assert me.reaffirm(refusal, "it is back", again["shown"])["status"] == "active"
    assert me.get(KEY)["current"] == "oslo"


def test_without_a_change_the_refusal_is_what_was_shown(me: Memory) -> None:
    refusal = refused(me)
    me.remember("something else", key="other", value="1")
    say(me, "rome")
    assert me.reaffirm(refusal, "it is back")["status"] == "active"


def test_the_code_is_for_one_refusal_and_for_who_may_use_it(home: wiring.Home, me: Memory) -> None:
    first, second = refused(me), str(say(me, "OSLO")["id"])
    codes = {one["id"]: one["shown"] for one in me.review()["facts"]}
    with pytest.raises(RefusedError):
        me.reaffirm(first, "it is back", codes[second])
    assert [one["shown"] for one in home.memory(REVIEWER).review()["facts"]] == [None, None]
    me.reaffirm(first, "it is back", codes[first])


def test_what_was_reaffirmed_is_marked_wherever_it_is_read(me: Memory, clock: Clock) -> None:
    refusal = refused(me)
    before = clock.second(30)
    clock.pass_seconds(60)
    me.reaffirm(refusal, "it is back")
    (active,) = me.get(KEY)["active"]
    told = [active, *me.recall("oslo")["facts"], *me.history(KEY)["facts"]]
    marked = {one["id"] for one in told if "reaffirmed" in one["flags"]}
    assert marked == {refusal} and active["id"] == refusal
    then = me.history(KEY, as_recorded=before)["facts"]
    assert {one["id"]: one["status"] for one in then}[refusal] == "refused"
    assert not any("reaffirmed" in one["flags"] for one in then)


def test_a_token_marks_the_write_and_not_the_refusal(me: Memory) -> None:
    for value in ("oslo", "rome"):
        say(me, value)
    refusal = say(me, "oslo")
    landed = say(me, "oslo", reaffirm=refusal["reaffirm"], reason="it is back")
    flags = {one["id"]: one["flags"] for one in me.history(KEY)["facts"]}
    assert "reaffirmed" in flags[landed["id"]] and "reaffirmed" not in flags[refusal["id"]]


def test_the_command_shows_the_code_and_takes_it(
    home: wiring.Home, me: Memory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory.cli import main

    owner = home.memory(Principal("default", "default", "cli", SCOPES))
    refusal = refused(owner)
    correct_it(owner, Clock())
    assert main(["review", "--home", str(home.path)]) == 0
    code = capsys.readouterr().out.split("--shown ")[1].split(")")[0]
    asked = ["review", "--home", str(home.path), "--reaffirm", refusal, "--reason", "back"]
    assert main(asked) == 1
    assert main([*asked, "--shown", code]) == 0
    assert owner.get(KEY)["current"] == "oslo"


def test_status_counts_what_a_plan_has_replaced_as_replaced(me: Memory, clock: Clock) -> None:
    say(me, "oslo")
    say(me, "rome", valid_from=clock.second(60))
    assert me.status()["facts"] == {"active": 2}
    clock.pass_seconds(3600)
    assert me.status()["facts"] == {"active": 1, "superseded": 1}
    me.remember("an act", key="other", value="1")
    assert me.status()["facts"] == {"active": 2, "superseded": 1}


def test_history_until_another_time_is_another_statement(me: Memory) -> None:
    times = {"valid_from": "2001-01-01T00:00:00Z"}
    say(me, "rome")
    first = say(me, "oslo", **times, valid_until="2005-01-01T00:00:00Z")
    without = say(me, "oslo", **times)
    assert (first["outcome"], without["outcome"]) == ("history", "history")
    assert say(me, "oslo", **times)["id"] == without["id"]
    assert say(me, "oslo", **times, valid_until="2005-01-01T00:00:00Z")["id"] == first["id"]
    assert len(me.history(KEY)["facts"]) == 3
