"""What a person may let through: a held write is judged again on what its key says by then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ticking import Clock

from memory import wiring
from memory.model import AGENT_SCOPES, SCOPES, Principal
from memory.service import Memory
from tlog.errors import MalformedError, RefusedError

ME = Principal("acme", "ops", "desk", SCOPES)
AGENT = Principal("acme", "ops", "desk", AGENT_SCOPES)


@pytest.fixture
def me(home: wiring.Home) -> Memory:
    return home.memory(ME)


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
    assert me.get("svc/region", as_of="2005-01-01T00:00:00Z")["current"] is None
    assert me.confirm(held["id"])["status"] == "history"
    answer = me.get("svc/region")
    assert (answer["current"], len(answer["active"])) == ("us-east-2", 1)
    assert me.get("svc/region", as_of="2005-01-01T00:00:00Z")["current"] == "mars-1"
    assert [fact["status"] for fact in me.history("svc/region")["facts"]] == ["active", "history"]
    assert [fact["value"] for fact in me.recall("mars-1", include_history=True)["facts"]] == ["mars-1"]
    with pytest.raises(RefusedError):
        me.confirm(held["id"])


def test_what_was_confirmed_as_history_does_not_come_back_with_an_erasure(me: Memory, clock: Clock) -> None:
    now = me.remember("it runs in us-east-2", key="k", value="us-east-2")
    past = {"valid_from": "2001-01-01T00:00:00Z", "provisional": True}
    held = me.remember("maybe it was mars-1", key="k", value="mars-1", **past)
    me.confirm(held["id"])
    clock.pass_seconds(3600)
    token = me.forget_preview(id=now["id"])["confirm"]
    me.forget(id=now["id"], confirm=token)
    assert me.get("k")["current"] is None
    assert me.get("k", as_of=clock.second(-60))["current"] is None
    assert me.get("k", as_of="2005-01-01T00:00:00Z")["current"] == "mars-1"


@pytest.mark.parametrize(
    ("arguments", "promoted"),
    [
        ({"text": "perhaps", "key": "k", "value": "v", "provisional": True}, True),
        ({"text": "it is a guess", "provisional": True}, True),
        ({"text": "svc is in oslo"}, False),
    ],
)
def test_what_is_promoted_waits_for_who_said_it_or_how_sure_they_were(
    me: Memory, arguments: dict[str, Any], promoted: bool
) -> None:
    for place in ("oslo", "rome"):
        me.remember(f"svc is in {place}", key="svc/place", value=place)
    held = me.remember(**arguments)
    assert held["outcome"] == "held"
    if promoted:
        assert me.promote(held["id"])["status"] == "active"
        assert me.provenance(held["id"])["history"][-1]["act"] == "confirms"
    else:
        with pytest.raises(RefusedError) as caught:
            me.promote(held["id"])
        assert caught.value.code == "wrong_status"
        assert me.confirm(held["id"])["status"] == "active"


def test_only_who_may_review_promotes_and_only_what_is_held(me: Memory, home: wiring.Home) -> None:
    held = me.remember("perhaps", key="k", value="v", provisional=True)
    for principal in (AGENT, replace(ME, agent="another")):
        with pytest.raises((RefusedError, MalformedError)):
            home.memory(principal).promote(held["id"])
    assert me.get("k")["current"] is None
    me.promote(held["id"])
    with pytest.raises(RefusedError):
        me.promote(held["id"])


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
    assert me.confirm(held["id"])["status"] == "history"
    assert me.recall("noon")["facts"] == []
    assert [fact["id"] for fact in me.recall("noon", include_history=True)["facts"]] == [held["id"]]
    then = me.recall("noon", as_of=clock.second(-3590))["facts"]
    assert [(fact["id"], fact["status"]) for fact in then] == [(held["id"], "history")]


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
