"""What a person may let through: a held write is judged again on what its key says by then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ticking import Clock

from memory import wiring
from memory.model import SCOPES, Principal
from memory.service import Memory
from tlog.errors import RefusedError

ME = Principal("acme", "ops", "desk", SCOPES)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def me(tmp_path: Path, clock: Clock) -> Iterator[Memory]:
    with wiring.open_home(tmp_path / "home", clock=clock) as home:
        yield home.memory(ME)


def test_a_held_write_about_the_past_does_not_become_current(me: Memory) -> None:
    me.remember("it runs in us-east-2", key="svc/region", value="us-east-2")
    held = me.remember(
        "maybe it was mars-1",
        key="svc/region",
        value="mars-1",
        valid_from="2001-01-01T00:00:00Z",
        provisional=True,
    )
    assert held["outcome"] == "held"
    with pytest.raises(RefusedError) as caught:
        me.confirm(held["id"])
    assert caught.value.code == "history"
    answer = me.get("svc/region")
    assert (answer["current"], len(answer["active"])) == ("us-east-2", 1)
    assert me.discard(held["id"])["status"] == "discarded"


def test_a_held_write_that_the_present_has_overtaken_is_about_the_past(me: Memory, clock: Clock) -> None:
    held = me.remember(
        "since yesterday b", key="k", value="b", valid_from=clock.second(-86_400), provisional=True
    )
    clock.pass_seconds(3600)
    me.remember("it is a", key="k", value="a", valid_from=clock.second(-60))
    with pytest.raises(RefusedError) as caught:
        me.confirm(held["id"])
    assert caught.value.code == "history"
    assert me.get("k")["current"] == "a"


@pytest.mark.parametrize("key", ["k", None])
def test_a_held_write_that_has_ended_meanwhile_is_about_the_past(
    me: Memory, clock: Clock, key: str | None
) -> None:
    held = me.remember("until noon b", key=key, valid_until=clock.second(60), provisional=True)
    clock.pass_seconds(3600)
    with pytest.raises(RefusedError) as caught:
        me.confirm(held["id"])
    assert caught.value.code == "history"
    assert me.recall("noon")["facts"] == []


def test_an_ended_refusal_is_not_reaffirmed(me: Memory, clock: Clock) -> None:
    for value in ("a", "b"):
        me.remember(f"it is {value}", key="k", value=value)
    refused = me.remember("it is a", key="k", value="a", valid_until=clock.second(60))
    assert refused["reason"] == "echo"
    clock.pass_seconds(3600)
    with pytest.raises(RefusedError) as caught:
        me.reaffirm(refused["id"], "true again")
    assert caught.value.code == "history"
    assert me.get("k")["current"] == "b"
    assert me.remember("it is a", key="k", value="a")["reason"] == "echo"


def test_a_dated_one_that_is_newer_is_confirmed(me: Memory, clock: Clock) -> None:
    me.remember("it is a", key="k", value="a", valid_from=clock.second(-3600))
    held = me.remember("since a minute b", key="k", value="b", valid_from=clock.second(-60), provisional=True)
    assert me.confirm(held["id"])["status"] == "active"
    assert me.get("k")["current"] == "b"
    assert me.get("k", as_of=clock.second(-120))["current"] == "a"
