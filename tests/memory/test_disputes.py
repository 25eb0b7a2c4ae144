"""What is left of a conflict once one side of it is erased: nobody disagrees now, and then is not told as if so."""

from __future__ import annotations

from dataclasses import replace

from ticking import Clock

from memory import guard, wiring
from memory.model import SCOPES, Principal
from memory.service import Memory

ME = Principal("acme", "ops", "desk", SCOPES)
TABLET = replace(ME, client="tablet")


def forget(memory: Memory, reference: str) -> None:
    memory.forget(id=reference, confirm=memory.forget_preview(id=reference)["confirm"])


def test_a_side_that_is_left_alone_is_active_and_in_no_conflict(home: wiring.Home, clock: Clock) -> None:
    me = home.memory(ME)
    me.remember("it is a", key="k", value="a")
    other = home.memory(TABLET).remember("it is b", key="k", value="b")
    assert (me.get("k")["conflict"], len(me.conflicts()["conflicts"]), me.status()["conflicts"]) == (
        True,
        1,
        1,
    )
    clock.pass_seconds(60)
    then = clock.second(-30)
    forget(me, other["id"])
    answer = me.get("k")
    assert (answer["current"], answer["conflict"], answer["active"][0]["status"]) == ("a", False, "active")
    assert me.history("k")["facts"][0]["status"] == "active"
    assert (me.conflicts()["conflicts"], me.status()["conflicts"]) == ([], 0)
    assert home.memory(TABLET).remember("it is a", key="k", value="a")["message"] == guard.AGREED
    # What was disputed then by something nobody can read any more was not simply current.
    past = me.get("k", as_recorded=then)
    assert (past["current"], past["conflict"], past["content_erased"]) == (None, True, True)


def test_a_conflict_of_three_stays_one_of_two(home: wiring.Home, clock: Clock) -> None:
    me = home.memory(ME)
    me.remember("it is a", key="k", value="a")
    other = home.memory(TABLET).remember("it is b", key="k", value="b")
    home.memory(replace(ME, client="phone")).remember("it is c", key="k", value="c")
    forget(me, other["id"])
    assert me.get("k")["current"] is None
    assert [fact["value"] for fact in me.conflicts()["conflicts"][0]["facts"]] == ["a", "c"]


def test_a_side_on_hold_keeps_a_conflict_open(home: wiring.Home) -> None:
    me = home.memory(ME)
    me.remember("it is a", key="k", value="a")
    other = home.memory(TABLET).remember("it is b", key="k", value="b")
    me.hold(id=other["id"], authority="court", review_by="2035-01-01T00:00:00Z")
    assert len(me.conflicts()["conflicts"]) == me.status()["conflicts"] == 1
