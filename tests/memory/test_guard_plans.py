"""What several clients write ahead, what persons decide of it before it begins, and keys of many values beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ticking import Clock

from memory import guard
from memory.model import SCOPES, Principal
from memory.service import Memory
from memory.wiring import Home
from tlog.errors import RefusedError

KEY = "svc/region"
ME = Principal("acme", "ops", "desk", SCOPES)


@pytest.fixture
def desk(home: Home) -> Memory:
    return home.memory(ME)


@pytest.fixture
def ide(home: Home) -> Memory:
    return home.memory(replace(ME, client="ide"))


@pytest.fixture
def cli(home: Home) -> Memory:
    return home.memory(replace(ME, client="cli"))


def say(memory: Memory, value: str, **more: Any) -> dict[str, Any]:
    return memory.remember(f"svc runs in {value}", key=KEY, value=value, **more)


def active(memory: Memory, **asked: Any) -> list[str]:
    return sorted(fact["value"] for fact in memory.get(KEY, **asked)["active"])


def test_the_present_stands_until_what_is_kept_instead_begins(
    desk: Memory, ide: Memory, clock: Clock
) -> None:
    say(desk, "oslo")
    ahead = say(ide, "rome", valid_from=clock.second(100))
    (conflict,) = desk.conflicts()["conflicts"]
    with pytest.raises(RefusedError, match="begins later"):
        desk.resolve(conflict["id"], ahead["id"])
    assert desk.get(KEY)["current"] == "oslo"
    clock.pass_seconds(200)
    assert desk.resolve(conflict["id"], ahead["id"])["status"] == "active"
    assert desk.get(KEY)["current"] == "rome"


def test_of_two_that_begin_later_either_may_be_kept(desk: Memory, ide: Memory, clock: Clock) -> None:
    say(desk, "oslo", valid_from=clock.second(50))
    ahead = say(ide, "rome", valid_from=clock.second(100))
    (conflict,) = desk.conflicts()["conflicts"]
    desk.resolve(conflict["id"], ahead["id"])
    clock.pass_seconds(200)
    assert desk.get(KEY)["current"] == "rome"


def guess(ide: Memory, clock: Clock) -> str:
    return str(say(ide, "rome", valid_from=clock.second(100), provisional=True)["id"])


def echo(ide: Memory, clock: Clock) -> str:
    return str(say(ide, "kyiv", valid_from=clock.second(100))["id"])


@pytest.mark.parametrize(("waiting", "let_through"), [(guess, Memory.confirm), (echo, Memory.reaffirm)])
def test_nobody_s_record_is_passed_over_by_what_begins_later(
    desk: Memory,
    ide: Memory,
    clock: Clock,
    waiting: Callable[[Memory, Clock], str],
    let_through: Callable[..., Any],
) -> None:
    say(desk, "kyiv")
    say(desk, "oslo")
    reference = waiting(ide, clock)
    more = ("they move back",) if let_through is Memory.reaffirm else ()
    with pytest.raises(RefusedError, match="begins later"):
        let_through(desk, reference, *more)
    assert active(desk) == ["oslo"]
    clock.pass_seconds(200)
    assert let_through(desk, reference, *more)["status"] == "active"
    assert len(active(desk)) == 1
    assert say(desk, "oslo")["outcome"] == "refused"


def test_two_who_agree_are_not_in_doubt_for_what_a_third_says_of_later(
    desk: Memory, ide: Memory, cli: Memory, clock: Clock
) -> None:
    say(desk, "oslo")
    say(ide, "rome")
    say(cli, "kyiv", valid_from=clock.second(100))
    answer = say(desk, "rome")
    assert (answer["outcome"], answer["message"]) == ("conflict", guard.CONFLICT_COMING)
    got = desk.get(KEY)
    assert (got["current"], got["conflict"], active(desk)) == ("rome", False, ["rome"])
    clock.pass_seconds(200)
    assert desk.get(KEY)["conflict"]
    assert active(desk) == ["kyiv", "rome", "rome"]


@pytest.mark.parametrize("gone", ["retracted", "erased"])
def test_nothing_is_in_doubt_once_all_that_remains_says_the_same(
    desk: Memory, ide: Memory, cli: Memory, clock: Clock, gone: str
) -> None:
    say(desk, "oslo")
    say(ide, "rome")
    third = say(cli, "kyiv", valid_from=clock.second(100))["id"]
    say(desk, "rome")
    assert len(desk.conflicts()["conflicts"]) == desk.status()["conflicts"] == 1
    if gone == "retracted":
        desk.retract(third)
    else:
        desk.forget(id=third, confirm=desk.forget_preview(id=third)["confirm"])
    assert desk.conflicts()["conflicts"] == []
    assert desk.status()["conflicts"] == 0
    assert (desk.get(KEY)["current"], active(desk)) == ("rome", ["rome"])
    assert say(cli, "kyiv")["outcome"] in ("refused", "conflict")


def test_one_value_and_many_that_begin_later_do_not_disagree(desk: Memory, ide: Memory, clock: Clock) -> None:
    say(ide, "rome", valid_from=clock.second(100), many=True)
    assert say(desk, "oslo")["outcome"] == "stored"
    assert say(ide, "kyiv", valid_from=clock.second(100))["outcome"] == "conflict"
    clock.pass_seconds(200)
    assert active(desk) == ["kyiv", "oslo", "rome"]


def test_of_many_values_one_that_is_dated_earlier_stands_once(desk: Memory) -> None:
    for value in ("oslo", "rome"):
        say(desk, value, many=True)
    for _ in range(2):
        say(desk, "oslo", many=True, valid_from="2001-01-01T00:00:00Z")
    assert active(desk) == ["oslo", "rome"]
    assert active(desk, as_of="2010-01-01T00:00:00Z") == ["oslo"]
    assert len(desk.history(KEY)["facts"]) == 3


def test_a_refusal_that_is_discarded_is_not_lifted_by_its_token(desk: Memory) -> None:
    say(desk, "oslo")
    say(desk, "rome")
    refused = say(desk, "oslo")
    desk.discard(refused["id"])
    with pytest.raises(RefusedError, match="does not hold"):
        say(desk, "oslo", reaffirm=refused["reaffirm"], reason="it is")
    assert active(desk) == ["rome"]
    again = say(desk, "oslo")
    assert say(desk, "oslo", reaffirm=again["reaffirm"], reason="it is")["outcome"] == "superseded"


@pytest.mark.parametrize("hidden", ["\U0001bca0", "\U000e0002", "\U000e01f0"])
def test_no_character_that_nobody_sees_makes_another_value(desk: Memory, hidden: str) -> None:
    say(desk, "oslo")
    say(desk, "rome")
    assert say(desk, f"os{hidden}lo")["reason"] == "echo"
    assert say(desk, "oslo\u2800")["reason"] == "echo"
