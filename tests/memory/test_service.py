"""The facade on a real home: what each write comes to, what each read may serve, and to whom."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ticking import SECOND, Clock

from memory import timeline, wiring
from memory.key_view import timeline_events
from memory.ledger import is_retired
from memory.model import AGENT_SCOPES, SCOPES, Principal, fact_id
from memory.scope import open_scope
from memory.search import make_matches, scope_token
from memory.service import Memory
from memory.store_read import Snapshot
from memory.wiring import Home
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError

ME = Principal("acme", "ops", "desk", SCOPES)
IDE = Principal("acme", "ops", "ide", SCOPES)
AGENT = Principal("acme", "ops", "desk", AGENT_SCOPES)


@pytest.fixture
def me(home: Home) -> Memory:
    return home.memory(ME)


@pytest.fixture
def ide(home: Home) -> Memory:
    return home.memory(IDE)


def at(clock: Clock) -> int:
    """This second, as a read may ask for it."""
    return clock.now // SECOND


def corrected(memory: Memory, key: str = "svc/region") -> tuple[str, str]:
    """Ids of a value and of the one that took its place."""
    old = memory.remember("it runs in eu-west-1", key=key, value="eu-west-1")
    new = memory.remember("it runs in us-east-2", key=key, value="us-east-2")
    assert (old["outcome"], new["outcome"]) == ("stored", "superseded")
    assert new["retired"] == [old["id"]]
    return old["id"], new["id"]


def refused(memory: Memory, key: str = "svc/region") -> dict[str, Any]:
    answer = memory.remember("it runs in eu-west-1", key=key, value="eu-west-1")
    assert (answer["outcome"], answer["reason"]) == ("refused", "echo")
    return answer


def ids(answer: dict[str, Any], name: str = "facts") -> list[str]:
    return [fact["id"] for fact in answer[name]]


# Writing


def test_a_write_answers_in_its_shape(me: Memory) -> None:
    answer = me.remember("it runs in eu-west-1", key="svc/region", value="eu-west-1")
    assert answer == {
        "outcome": "stored",
        "reason": None,
        "message": answer["message"],
        "id": answer["id"],
        "key": "svc/region",
        "retired": [],
        "conflict_with": [],
        "current": {"id": answer["id"], "value": "eu-west-1"},
        "reaffirm": None,
        "receipt": {"state": "pending", "entry": None},
    }
    json.dumps(answer)


def test_agreement_changes_nothing(me: Memory, home: Home) -> None:
    first = me.remember("it runs in eu-west-1", key="svc/region", value="eu-west-1")
    again = me.remember("Yes: still EU-WEST-1.", key="Svc_Region", value="EU-WEST-1")
    assert (again["outcome"], again["id"]) == ("agreed", first["id"])
    assert again["current"] == {"id": first["id"], "value": "eu-west-1"}
    with home.parts().store.read_whole() as view:
        assert view.counts()["statements"] == 1


def test_feeding_an_answer_back_adds_no_fact(me: Memory) -> None:
    corrected(me)
    for _ in range(10):
        (fact,) = me.recall("where does it run")["facts"]
        assert me.remember(fact["text"])["outcome"] == "agreed"
    assert me.status()["facts"] == {"active": 1, "superseded": 1}


def test_an_echo_is_refused_and_waits_for_review(me: Memory) -> None:
    corrected(me)
    answer = refused(me)
    assert answer["current"]["value"] == "us-east-2"
    assert me.get("svc/region")["current"] == "us-east-2"
    (waiting,) = me.review()["facts"]
    assert (waiting["id"], waiting["status"], waiting["reason"]) == (answer["id"], "refused", "echo")


def test_a_text_that_states_a_retired_value_is_held(me: Memory) -> None:
    corrected(me)
    held = me.remember("By the way, svc runs in eu-west-1")
    assert (held["outcome"], held["reason"]) == ("held", "possible_echo")
    assert ids(me.recall("eu-west-1")) == []
    me.confirm(held["id"])
    assert ids(me.recall("eu-west-1")) == [held["id"]]


def test_a_text_is_still_held_when_nothing_but_hashes_is_left_of_the_key(me: Memory) -> None:
    corrected(me)
    me.retract(me.get("svc/region")["active"][0]["id"])
    me.retention("0s", apply=True)
    assert me.remember("svc is in eu-west-1")["outcome"] == "held"
    assert me.remember("the museum is in eu-west-1")["outcome"] == "stored"


def test_clients_that_disagree_are_both_kept(me: Memory, ide: Memory) -> None:
    mine = me.remember("deploys on Monday", key="deploy/day", value="Monday")
    other = ide.remember("deploys on Friday", key="deploy/day", value="Friday")
    assert (other["outcome"], other["conflict_with"], other["current"]) == ("conflict", [mine["id"]], None)
    answer = me.get("deploy/day")
    assert (answer["current"], answer["conflict"]) == (None, True)
    assert sorted(ids(answer, "active")) == sorted([mine["id"], other["id"]])
    (conflict,) = me.conflicts()["conflicts"]
    assert conflict["key"] == "deploy/day"
    assert sorted(ids(conflict)) == sorted([mine["id"], other["id"]])
    settled = me.resolve(conflict["id"], mine["id"])
    assert (settled["id"], settled["status"]) == (mine["id"], "active")
    assert me.get("deploy/day")["current"] == "Monday"
    assert me.conflicts()["conflicts"] == []
    assert ide.remember("deploys on Friday", key="deploy/day", value="Friday")["reason"] == "echo"
    with pytest.raises(RefusedError, match="settled"):
        me.resolve(conflict["id"], mine["id"])


def test_retracting_one_side_settles_a_conflict(me: Memory, ide: Memory) -> None:
    mine = me.remember("deploys on Monday", key="deploy/day", value="Monday")
    other = ide.remember("deploys on Friday", key="deploy/day", value="Friday")
    assert ide.retract(other["id"])["status"] == "retracted"
    answer = me.get("deploy/day")
    assert (answer["current"], answer["conflict"]) == ("Monday", False)
    assert answer["active"][0]["id"] == mine["id"]
    assert me.conflicts()["conflicts"] == []
    third = ide.remember("deploys on Sunday", key="deploy/day", value="Sunday")
    assert third["outcome"] == "conflict"
    assert len(me.conflicts()["conflicts"]) == 1


def test_a_retracted_value_stays_retired(me: Memory) -> None:
    made = me.remember("it runs in eu-west-1", key="svc/region", value="eu-west-1")
    answer = me.retract(made["id"])
    assert (answer["id"], answer["status"]) == (made["id"], "retracted")
    assert me.get("svc/region")["current"] is None
    refused(me)


def test_retracting_what_was_true_earlier_leaves_what_is_true_now(me: Memory) -> None:
    """The earlier span of a value is retracted; the same value holds now, and is neither retracted nor refused."""
    me.remember(
        "it runs in eu-west-1", key="svc/region", value="eu-west-1", valid_from="2024-01-01T00:00:00Z"
    )
    earlier = me.remember(
        "it ran in eu-west-1", key="svc/region", value="eu-west-1",
        valid_from="2020-01-01T00:00:00Z", valid_until="2021-01-01T00:00:00Z",
    )  # fmt: skip
    assert earlier["outcome"] == "history"
    assert me.retract(earlier["id"])["status"] == "retracted"
    assert me.get("svc/region")["current"] == "eu-west-1"
    assert me.remember("still eu-west-1", key="svc/region", value="eu-west-1")["outcome"] == "agreed"


def test_many_values_stand_side_by_side(me: Memory) -> None:
    for drink in ("tea", "coffee"):
        assert me.remember(f"likes {drink}", key="likes", value=drink, many=True)["outcome"] == "stored"
    answer = me.get("likes")
    assert (answer["current"], len(answer["active"])) == (None, 2)
    me.retract(answer["active"][0]["id"])
    assert [fact["value"] for fact in me.get("likes")["active"]] == ["coffee"]


def test_provisional_is_held_until_confirmed(me: Memory) -> None:
    corrected(me)
    held = me.remember("maybe ap-south-1", key="svc/region", value="ap-south-1", provisional=True)
    assert held["outcome"] == "held"
    assert me.get("svc/region")["current"] == "us-east-2"
    assert me.confirm(held["id"])["status"] == "active"
    assert me.get("svc/region")["current"] == "ap-south-1"
    assert me.remember("us-east-2 again", key="svc/region", value="us-east-2")["reason"] == "echo"
    with pytest.raises(RefusedError):
        me.confirm(held["id"])


def test_a_confirmation_does_not_bring_a_retired_value_back(me: Memory) -> None:
    held = me.remember("maybe ap-south-1", key="svc/region", value="ap-south-1", provisional=True)
    me.remember("it is ap-south-1", key="svc/region", value="ap-south-1")
    me.remember("it is us-east-2", key="svc/region", value="us-east-2")
    with pytest.raises(RefusedError) as caught:
        me.confirm(held["id"])
    assert caught.value.code == "echo"
    assert me.get("svc/region")["current"] == "us-east-2"


def test_discarded_is_dropped(me: Memory) -> None:
    held = me.remember("maybe", key="k", value="v", provisional=True)
    assert me.discard(held["id"])["status"] == "discarded"
    assert me.review()["facts"] == []
    assert me.get("k")["active"] == []


@pytest.mark.parametrize("act", ["retract", "resolve"])
def test_what_was_written_ahead_does_not_bring_an_ended_value_back(
    me: Memory, ide: Memory, clock: Clock, act: str
) -> None:
    mine = me.remember("deploys on Monday", key="deploy/day", value="Monday")
    later = at(clock) + 3600
    ahead = me.remember("on Friday from then on", key="deploy/day", value="Friday", valid_from=later)
    assert ahead["outcome"] == "stored"
    friday = ide.remember("deploys on Friday", key="deploy/day", value="Friday")
    assert friday["outcome"] == "conflict"
    if act == "retract":
        ide.retract(friday["id"])
    else:
        me.resolve(me.conflicts()["conflicts"][0]["id"], mine["id"])
    clock.pass_seconds(7200)
    assert me.get("deploy/day")["current"] == "Monday"
    assert ide.remember("deploys on Friday", key="deploy/day", value="Friday")["reason"] == "echo"


# Reaffirming


def test_a_token_lifts_its_refusal_once(me: Memory) -> None:
    corrected(me)
    token = refused(me)["reaffirm"]
    again = {"key": "svc/region", "value": "EU-West-1", "reaffirm": token, "reason": "moved back"}
    lifted = me.remember("it moved back", **again)
    assert lifted["outcome"] == "superseded"
    assert me.get("svc/region")["current"] == "EU-West-1"
    assert "reaffirmed" in me.get("svc/region")["active"][0]["flags"]
    assert me.review()["facts"] == []
    with pytest.raises(RefusedError) as caught:
        me.remember("it moved back", **again)
    assert caught.value.code == "token_invalid"
    assert me.remember("us", key="svc/region", value="us-east-2")["reason"] == "echo"


@pytest.mark.parametrize(
    "change",
    [
        {"value": "us-west-9"},
        {"key": "svc/other"},
        {"reaffirm": "x" * 43},
    ],
)
def test_a_token_holds_for_its_key_and_value_alone(me: Memory, change: dict[str, str]) -> None:
    corrected(me)
    given = {"key": "svc/region", "value": "eu-west-1", "reaffirm": refused(me)["reaffirm"], "reason": "r"}
    with pytest.raises(RefusedError) as caught:
        me.remember("text", **(given | change))
    assert caught.value.code == "token_invalid"
    assert me.remember("text", **given)["outcome"] == "superseded"


def test_a_token_holds_for_its_caller_its_record_and_its_time(
    me: Memory, ide: Memory, home: Home, clock: Clock
) -> None:
    corrected(me)
    given = {"key": "svc/region", "value": "eu-west-1", "reason": "r"}
    token = refused(me)["reaffirm"]
    other_agent = home.memory(Principal("acme", "sales", "desk", SCOPES))
    for handle in (ide, other_agent):
        with pytest.raises(RefusedError):
            handle.remember("text", reaffirm=token, **given)
    me.remember("it runs in ap-south-1", key="svc/region", value="ap-south-1")
    with pytest.raises(RefusedError):
        me.remember("text", reaffirm=token, **given)
    late = refused(me)["reaffirm"]
    clock.pass_seconds(3600)
    with pytest.raises(RefusedError):
        me.remember("text", reaffirm=late, **given)


def test_a_token_is_not_spent_on_a_write_that_is_not_current(me: Memory) -> None:
    corrected(me)
    given = {"key": "svc/region", "value": "eu-west-1", "reaffirm": refused(me)["reaffirm"], "reason": "r"}
    with pytest.raises(RefusedError) as caught:
        me.remember("text", valid_from="2001-01-01T00:00:00Z", valid_until="2002-01-01T00:00:00Z", **given)
    assert caught.value.code == "token_invalid"
    refused(me)
    assert me.remember("text", **given)["outcome"] == "superseded"


def test_an_agent_gets_no_token_and_a_person_reaffirms(me: Memory, home: Home) -> None:
    agent = home.memory(AGENT)
    old, _ = corrected(agent)
    answer = refused(agent)
    assert answer["reaffirm"] is None
    for act in (
        lambda: agent.remember("t", key="svc/region", value="eu-west-1", reaffirm="x", reason="r"),
        lambda: agent.reaffirm(answer["id"], "r"),
        lambda: agent.confirm(answer["id"]),
        lambda: agent.discard(answer["id"]),
        agent.review,
    ):
        with pytest.raises(RefusedError) as caught:
            act()
        assert caught.value.code == "forbidden"
    with pytest.raises(MalformedError):
        me.reaffirm(answer["id"], " ")
    assert me.reaffirm(answer["id"], "moved back")["status"] == "active"
    current = me.get("svc/region")
    assert (current["current"], ids(current, "active")) == ("eu-west-1", [answer["id"]])
    assert ids(me.recall("eu-west-1")) == [answer["id"]]
    assert old not in ids(me.recall("eu-west-1"))
    with pytest.raises(RefusedError):
        me.reaffirm(answer["id"], "again")


def test_reaffirming_is_for_echoes(me: Memory) -> None:
    corrected(me)
    valueless = me.remember("it is as before", key="svc/region")
    assert valueless["reason"] == "valueless"
    assert valueless["reaffirm"] is None
    with pytest.raises(RefusedError):
        me.reaffirm(valueless["id"], "r")


# Idempotency


def test_the_same_request_makes_one_fact(me: Memory) -> None:
    write = {"key": "k", "value": "v", "idempotency_key": "req-1", "valid_from": "now"}
    first = me.remember("text", **write)
    again = me.remember("text", **write)
    assert again == first
    with pytest.raises(RefusedError) as caught:
        me.remember("other text", **write)
    assert caught.value.code == "idempotency_conflict"
    assert me.status()["facts"] == {"active": 1}


def test_the_beginning_of_1970_is_part_of_a_request(me: Memory) -> None:
    me.remember("since ever", key="k", value="v", valid_from=0, idempotency_key="req-1")
    again = me.remember("since ever", key="k", value="v", valid_from=0, idempotency_key="req-1")
    assert again["outcome"] == "stored"
    with pytest.raises(RefusedError) as caught:
        me.remember("since ever", key="k", value="v", idempotency_key="req-1")
    assert caught.value.code == "idempotency_conflict"


def test_idempotency_keys_are_a_clients_own(me: Memory, ide: Memory) -> None:
    first = me.remember("text of mine", idempotency_key="1")
    second = ide.remember("text of theirs", idempotency_key="1")
    assert first["id"] != second["id"]


def test_a_retry_of_something_erased_says_so(home: Home, me: Memory) -> None:
    made = me.remember("secret text", key="k", value="v", idempotency_key="req-1")
    preview = me.forget_preview(id=made["id"])
    me.forget(id=made["id"], confirm=preview["confirm"])
    with pytest.raises(RefusedError) as caught:
        me.remember("secret text", key="k", value="v", idempotency_key="req-1")
    assert caught.value.code == "erased"
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT length(body_tag), answer FROM idempotency") == [(0, "")]


# Time


def test_two_clocks(me: Memory, clock: Clock) -> None:
    me.remember("it ran in a", key="k", value="a", valid_from="2020-01-01T00:00:00Z")
    recorded_a = at(clock)
    clock.pass_seconds(3600)
    me.remember("it ran in b", key="k", value="b", valid_from="2024-01-01T00:00:00Z")
    assert me.get("k")["current"] == "b"
    assert me.get("k", as_of="2022-01-01T00:00:00Z")["current"] == "a"
    assert me.get("k", as_of="2025-01-01T00:00:00Z")["current"] == "b"
    assert me.get("k", as_of="2019-01-01T00:00:00Z")["current"] is None
    assert me.get("k", as_recorded=recorded_a + 60)["current"] == "a"
    assert me.get("k", as_of="2025-01-01T00:00:00Z", as_recorded=recorded_a + 60)["current"] == "a"
    assert me.get("k", as_recorded=recorded_a - 60)["active"] == []


def test_recall_takes_both_clocks(me: Memory, clock: Clock) -> None:
    old, new = corrected(me)
    told = at(clock) + 1
    clock.pass_seconds(3600)
    third = me.remember("it runs in mars-1", key="svc/region", value="mars-1")["id"]
    assert ids(me.recall("runs")) == [third]
    assert ids(me.recall("runs", as_recorded=told)) == [new]
    assert ids(me.recall("runs", as_of=told)) == [new]
    assert sorted(ids(me.recall("runs", include_history=True))) == sorted([old, new, third])
    assert ids(me.recall("runs", as_of=told - 60)) == []


def test_a_back_dated_fact_is_history(me: Memory) -> None:
    corrected(me)
    answer = me.remember(
        "it ran in mars-1", key="svc/region", value="mars-1", valid_from="2001-01-01T00:00:00Z"
    )
    assert answer["outcome"] == "history"
    assert answer["current"]["value"] == "us-east-2"
    assert me.get("svc/region", as_of="2002-01-01T00:00:00Z")["current"] == "mars-1"


def test_the_future_waits_for_its_time(me: Memory, clock: Clock) -> None:
    me.remember("it runs in a", key="k", value="a")
    ahead = me.remember("it will run in b", key="k", value="b", valid_from=at(clock) + 3600)
    assert ahead["outcome"] == "stored"
    assert ahead["current"]["value"] == "a"
    assert me.get("k")["current"] == "a"
    assert [fact["value"] for fact in me.recall("run")["facts"]] == ["a"]
    clock.pass_seconds(7200)
    assert me.get("k")["current"] == "b"
    assert [fact["value"] for fact in me.recall("run")["facts"]] == ["b"]


def test_what_ends_by_itself_is_served_no_more(me: Memory, clock: Clock) -> None:
    me.remember("the code is 4711", key="door/code", value="4711", valid_until=at(clock) + 3600)
    assert me.get("door/code")["current"] == "4711"
    clock.pass_seconds(3601)
    assert me.get("door/code")["active"] == []
    assert me.recall("code")["facts"] == []
    assert me.recall("code", as_of=at(clock) - 60)["facts"][0]["value"] == "4711"


def test_reads_hold_when_the_clock_goes_back(me: Memory, clock: Clock) -> None:
    me.remember("it runs in a", key="k", value="a")
    clock.pass_seconds(-86_400)
    assert me.get("k")["current"] == "a"
    assert me.remember("it runs in b", key="k", value="b", valid_from="now")["outcome"] == "superseded"
    assert me.get("k")["current"] == "b"


def test_what_only_an_erased_fact_could_answer_is_content_erased(me: Memory, clock: Clock) -> None:
    old, new = corrected(me)
    preview = me.forget_preview(id=new)
    me.forget(id=new, confirm=preview["confirm"])
    answer = me.get("svc/region")
    assert (answer["current"], answer["active"], answer["content_erased"]) == (None, [], True)
    assert me.recall("runs", include_history=True)["facts"] == []
    history = me.history("svc/region")
    assert (history["facts"], history["content_erased"]) == ([], True)
    refused(me)
    fresh = me.remember("it runs in mars-1", key="svc/region", value="mars-1")
    assert me.get("svc/region")["current"] == "mars-1"
    assert old not in ids(me.history("svc/region"))
    assert fresh["id"] in ids(me.history("svc/region"))


# What is withheld


def withheld(home: Home) -> dict[str, tuple[str, str]]:
    """A mark and an id for each way in which a record may be withheld from the agent that reads."""
    me, ide = home.memory(ME), home.memory(IDE)
    other_agent = home.memory(Principal("acme", "sales", "desk", SCOPES))
    other_tenant = home.memory(Principal("umbrella", "ops", "desk", SCOPES))
    made: dict[str, tuple[str, str]] = {}

    def note(kind: str, mark: str, answer: dict[str, Any], outcome: str) -> None:
        assert answer["outcome"] == outcome, kind
        made[kind] = (mark, answer["id"])

    def write(memory: Memory, mark: str, key: str, **options: Any) -> dict[str, Any]:
        return memory.remember(f"common words {mark}", key=key, value=f"v-{mark}", **options)

    write(me, "oldvalue", "k-refused")
    write(me, "newvalue", "k-refused")
    echo = me.remember("common words refusedmark", key="k-refused", value="v-oldvalue")
    note("refused", "refusedmark", echo, "refused")
    note("held", "heldmark", write(me, "heldmark", "k-held", provisional=True), "held")
    note("discarded", "discardedmark", write(me, "discardedmark", "k-disc", provisional=True), "held")
    me.discard(made["discarded"][1])
    note("superseded", "supersededmark", write(me, "supersededmark", "k-super"), "stored")
    write(me, "othervalue", "k-super")
    note("retracted", "retractedmark", write(me, "retractedmark", "k-retr"), "stored")
    me.retract(made["retracted"][1])
    note("other agent", "salesmark", write(other_agent, "salesmark", "k-sales"), "stored")
    note("other tenant", "tenantmark", write(other_tenant, "tenantmark", "k-tenant"), "stored")
    note("erased", "erasedmark", write(me, "erasedmark", "k-erased"), "stored")
    erased = made["erased"][1]
    me.forget(id=erased, confirm=me.forget_preview(id=erased)["confirm"])
    past = "2001-01-01T00:00:00Z"
    ended = write(ide, "expiredmark", "k-expired", valid_from=past, valid_until="2002-01-01T00:00:00Z")
    note("expired", "expiredmark", ended, "history")
    return made


PAST_SHOWS = {"superseded", "retracted", "expired"}


def test_no_read_serves_what_is_withheld(home: Home) -> None:
    marks = withheld(home)
    agent = home.memory(AGENT)
    keys = [
        "k-refused",
        "k-held",
        "k-disc",
        "k-super",
        "k-retr",
        "k-sales",
        "k-tenant",
        "k-erased",
        "k-expired",
    ]
    present = [
        json.dumps(agent.recall("common words", limit=1000)),
        *(json.dumps(agent.recall(mark, limit=1000)) for mark, _ in marks.values()),
        *(json.dumps(agent.get(key)) for key in keys),
        *(json.dumps(agent.get(key, as_of="now", as_recorded="now")) for key in keys),
        json.dumps(agent.conflicts()),
        json.dumps(agent.status()),
    ]
    past = [
        json.dumps(agent.recall("common words", limit=1000, include_history=True)),
        *(
            json.dumps(agent.recall("common words", as_of=t, limit=1000))
            for t in ("2001-06-01T00:00:00Z", "now")
        ),
        *(json.dumps(agent.history(key)) for key in keys),
        *(json.dumps(agent.get(key, as_of="2001-06-01T00:00:00Z")) for key in keys),
    ]
    for kind, (mark, _) in marks.items():
        assert not any(mark in text for text in present), kind
        if kind not in PAST_SHOWS:
            assert not any(mark in text for text in past), kind
    # The control: the same reads do show what is active, what is past, and to a reviewer what waits.
    assert any("newvalue" in text for text in present)
    assert all(any(marks[kind][0] in text for text in past) for kind in PAST_SHOWS)
    owner = home.memory(ME)
    assert "refusedmark" in json.dumps(owner.history("k-refused"))
    # What was never let through is not even in the index of words.
    with home.parts().store.read_whole() as view:
        scope = open_scope(view, home.parts().vault, ME)
        assert scope is not None
        token = scope_token(scope.agent_tag)
        for kind in ("refused", "held", "discarded", "erased"):
            (match,) = make_matches(token, marks[kind][0])
            assert view.matching(match) == [], kind
        assert view.matching(make_matches(token, "newvalue")[0]) != []
    assert "heldmark" in json.dumps(owner.review())


def test_a_principal_without_the_scope_reads_and_writes_nothing(home: Home, me: Memory) -> None:
    made = me.remember("text", key="k", value="v")
    bare = home.memory(Principal("acme", "ops", "desk", frozenset()))
    for act in (
        lambda: bare.remember("x"),
        lambda: bare.recall("text"),
        lambda: bare.get("k"),
        lambda: bare.history("k"),
        lambda: bare.provenance(made["id"]),
        lambda: bare.opening(made["id"]),
        lambda: bare.receipt(made["id"]),
        lambda: bare.retract(made["id"]),
        bare.conflicts,
        bare.review,
        bare.status,
        lambda: bare.resolve(made["id"], made["id"]),
        lambda: bare.confirm(made["id"]),
        lambda: bare.discard(made["id"]),
        lambda: bare.reaffirm(made["id"], "r"),
        lambda: bare.forget_preview(id=made["id"]),
        lambda: bare.forget(id=made["id"], confirm="x"),
        lambda: bare.retention("0s"),
    ):
        with pytest.raises(RefusedError) as caught:
            act()
        assert caught.value.code == "forbidden"
    writer = home.memory(Principal("acme", "ops", "desk", frozenset({"memory:write"})))
    assert writer.remember("text", key="k", value="v")["current"] is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("acme", "ops"), ("acme-evil", "ops")),
        (("a", "b:c"), ("a:b", "c")),
        (("a/b", "c"), ("a", "b/c")),
        (("%", "_"), ("_", "%")),
        (("ACME", "ops"), ("acme", "ops")),
        (("caf\u00e9", "x"), ("cafe\u0301", "x")),
        (("a.b", "x y"), ("a.b", "x  y")),
        (("f5c3d1e2-0000-4000-8000-000000000000", "x"), ("f5c3d1e2", "x")),
    ],
)
def test_scopes_do_not_meet(home: Home, one: tuple[str, str], other: tuple[str, str]) -> None:
    first = home.memory(Principal(*one, "c", SCOPES))
    second = home.memory(Principal(*other, "c", SCOPES))
    made = first.remember("plain query words", key="k", value="v")
    assert second.recall("plain query words")["facts"] == []
    assert second.get("k")["active"] == []
    for act in (second.retract, second.provenance, second.opening):
        with pytest.raises(MalformedError) as caught:
            act(made["id"])
        assert caught.value.code == "unknown_id"
    assert second.remember("other words", key="k", value="w")["outcome"] == "stored"
    assert ids(first.recall("plain query")) == [made["id"]]


def test_an_empty_scope_says_which_it_searched(home: Home) -> None:
    nobody = home.memory(Principal("new", "agent", "c"))
    for answer in (nobody.recall("x"), nobody.get("k"), nobody.history("k"), nobody.conflicts()):
        assert answer["scope"] == {"tenant": "new", "agent": "agent"}
    with home.parts().store.read_whole() as view:
        assert view.counts()["tenants"] == 0


# Bad input

BAD_WRITES: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text"),
    ({"text": " \n\t\u200b\u2060"}, "text"),
    ({"text": "x" * 1_000_001}, "text to have at most"),
    ({"text": "lone \ud800 surrogate"}, "text to be valid Unicode"),
    ({"text": "a\0b"}, "text to have no NUL"),
    ({"text": 5}, "text to be a text"),
    ({"text": None}, "text to be a text"),
    ({"text": "t", "key": "k", "value": ""}, "value"),
    ({"text": "t", "key": "k", "value": "  "}, "value"),
    ({"text": "t", "key": "k", "value": "\ud83d"}, "value"),
    ({"text": "t", "key": "k", "value": "v" * 17_000}, "value to have at most"),
    ({"text": "t", "value": "v"}, "expected a key"),
    ({"text": "t", "key": ""}, "key"),
    ({"text": "t", "key": "k\0"}, "key"),
    ({"text": "t", "key": "k" * 5000}, "key to have at most"),
    ({"text": "t", "subject": " "}, "subject"),
    ({"text": "t", "valid_from": "yesterday"}, "valid_from"),
    ({"text": "t", "valid_from": "2026-05-04"}, "valid_from"),
    ({"text": "t", "valid_from": 1.5}, "valid_from"),
    ({"text": "t", "valid_until": "soon"}, "valid_until"),
    ({"text": "t", "valid_from": 100, "valid_until": 100}, "valid_until to lie after"),
    ({"text": "t", "provisional": "yes"}, "provisional"),
    ({"text": "t", "many": 1}, "many"),
    ({"text": "t", "restatement": None}, "restatement"),
    ({"text": "t", "wait": "forever"}, "wait"),
    ({"text": "t", "idempotency_key": ""}, "idempotency_key"),
    ({"text": "t", "idempotency_key": "i" * 300}, "idempotency_key"),
    ({"text": "t", "reason": "because"}, "reason only with reaffirm"),
    ({"text": "t", "key": "k", "value": "v", "reaffirm": "token"}, "reason with reaffirm"),
    ({"text": "t", "reaffirm": "token", "reason": "r"}, "key and the value"),
    ({"text": "t", "key": "k", "value": "v", "reaffirm": 7, "reason": "r"}, "reaffirm to be the token"),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD_WRITES)
def test_bad_writes_are_named_and_store_nothing(
    home: Home, me: Memory, arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(MalformedError) as caught:
        me.remember(**arguments)
    assert expected in caught.value.message
    assert caught.value.code == "bad_input"
    with home.parts().store.read_whole() as view:
        assert view.counts()["statements"] == 0


def test_bad_reads_are_named(me: Memory) -> None:
    for act in (
        lambda: me.recall(7),  # type: ignore[arg-type]
        lambda: me.recall("\ud800"),
        lambda: me.recall("x" * 1_000_001),
        lambda: me.recall("x", limit=0),
        lambda: me.recall("x", limit=10**6),
        lambda: me.recall("x", limit=True),
        lambda: me.recall("x", include_history="yes"),  # type: ignore[arg-type]
        lambda: me.recall("x", as_of="when"),
        lambda: me.get(""),
        lambda: me.get("k", as_recorded="when"),
        lambda: me.retract("nonsense"),
        lambda: me.retract(7),  # type: ignore[arg-type]
        lambda: me.retention("long"),
        lambda: me.retention("0s", apply="yes"),  # type: ignore[arg-type]
    ):
        with pytest.raises(MalformedError) as caught:
            act()
        assert caught.value.message.startswith("expected")


def test_an_unknown_id_is_an_error_on_every_path(me: Memory) -> None:
    me.remember("something")
    nothing = fact_id(bytes(32))
    for act in (
        me.retract,
        me.confirm,
        me.discard,
        me.provenance,
        me.opening,
        me.receipt,
        lambda id: me.reaffirm(id, "r"),
        lambda id: me.resolve(id, id),
        lambda id: me.forget_preview(id=id),
    ):
        with pytest.raises(MalformedError) as caught:
            act(nothing)
        assert caught.value.code == "unknown_id"


def test_errors_never_repeat_content(home: Home, me: Memory) -> None:
    secret = "xq-secret-marker"
    for arguments in (
        {"text": secret, "key": "k", "value": secret, "valid_from": secret},
        {"text": f"{secret}\0"},
        {"text": secret, "value": secret},
        {"text": secret, "wait": secret},
        {"text": secret, "key": "k", "value": secret, "reaffirm": secret, "reason": secret},
    ):
        with pytest.raises(Error) as caught:
            me.remember(**arguments)
        assert secret not in caught.value.message
        assert secret not in str(caught.value.fields)
    me.remember(secret, key=secret, value=secret)
    for act in (
        lambda: me.remember(secret, key=secret),
        lambda: me.remember(f"{secret} too", key=secret, value="other"),
    ):
        answer = act()
        assert secret not in answer["message"]


# Recall


def test_recall_says_how_many_it_left_out(me: Memory) -> None:
    for number in range(25):
        me.remember(f"the office has room {number} for meetings")
    answer = me.recall("office meetings", limit=10)
    assert (len(answer["facts"]), answer["omitted"]) == (10, 15)
    assert answer["facts"][0]["score"] == 1.0
    assert len(me.recall("office meetings", limit=1000)["facts"]) == 25


def test_recall_finds_the_one_current_version_among_many(me: Memory) -> None:
    for number in range(60):
        me.remember(f"the build number is {number} now", key="build", value=f"b{number}")
    answer = me.recall("build number", limit=1)
    assert [fact["value"] for fact in answer["facts"]] == ["b59"]
    assert answer["omitted"] == 0


def test_another_time_for_the_same_answer_after_a_restart(home: Home, me: Memory, clock: Clock) -> None:
    corrected(me)
    before = (me.get("svc/region")["active"], me.recall("runs")["facts"], me.history("svc/region")["facts"])
    home.close()
    with wiring.open_home(home.path, clock=clock) as again:
        mine = again.memory(ME)
        after = (
            mine.get("svc/region")["active"],
            mine.recall("runs")["facts"],
            mine.history("svc/region")["facts"],
        )
    assert after == before


def test_two_handles_see_each_other_at_once(home: Home, tmp_path: Path, clock: Clock) -> None:
    with wiring.open_home(home.path, clock=clock) as second:
        home.memory(ME).remember("hello from one", key="k", value="v")
        assert second.memory(IDE).get("k")["current"] == "v"
        assert second.memory(IDE).recall("hello")["facts"][0]["client"] == "desk"


# Guard off


def test_without_the_guard_an_echo_lands_and_is_marked(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home", guard="off") as home:
        memory = home.memory(ME)
        corrected(memory)
        answer = memory.remember("it runs in eu-west-1", key="svc/region", value="eu-west-1")
        assert answer["outcome"] == "superseded"
        (fact,) = memory.get("svc/region")["active"]
        assert (fact["value"], fact["flags"]) == ("eu-west-1", ["unguarded"])


# Erasing and the ledger


def test_what_is_kept_out_after_an_erasure_is_not_stored_again(home: Home, me: Memory) -> None:
    old, _ = corrected(me)
    me.forget(id=old, guard="keep", confirm=me.forget_preview(id=old, guard="keep")["confirm"])
    answer = me.remember("it runs in eu-west-1", key="svc/region", value="eu-west-1")
    assert (answer["outcome"], answer["reason"]) == ("refused", "echo")
    with home.parts().store.read_whole() as view:
        contents = view.rows("SELECT content FROM contents")
    assert not any(b"eu-west-1" in content for (content,) in contents)
    with pytest.raises(RefusedError) as caught:
        me.reaffirm(answer["id"], "r")
    assert caught.value.code == "erased"


def test_retention_removes_old_versions_and_keeps_them_refused(me: Memory, clock: Clock) -> None:
    corrected(me)
    assert me.retention("1h")["matched"] == 0
    clock.pass_seconds(7200)
    assert me.retention("1h") == {"matched": 1, "removed": 0, "receipt": None, "covers": "home"}
    done = me.retention("1h", apply=True)
    assert (done["matched"], done["removed"]) == (1, 1)
    assert me.status()["facts"] == {"active": 1}
    refused(me)


# The fold

ACTS = (
    "write",
    "write",
    "write",
    "provisional",
    "dated",
    "retract",
    "confirm",
    "discard",
    "resolve",
    "reaffirm",
    "erase",
)


def play(home: Home, clock: Clock, choices: random.Random, steps: int) -> None:
    """Random work of two clients on three keys."""
    handles = (home.memory(ME), home.memory(IDE))
    seen: list[str] = []
    for _ in range(steps):
        clock.pass_seconds(choices.choice((0, 1, 3600)))
        memory, act = choices.choice(handles), choices.choice(ACTS)
        key, value = choices.choice(("a", "b", "c")), choices.choice(("1", "2", "3", "4"))
        some = choices.choice(seen) if seen else fact_id(bytes(32))
        try:
            if act in ("write", "provisional", "dated"):
                start = at(clock) + choices.choice((-7200, -60, 60)) if act == "dated" else None
                answer = memory.remember(
                    f"{key} is {value}",
                    key=key,
                    value=f"v{value}",
                    provisional=act == "provisional",
                    valid_from=start,
                    many=choices.random() < 0.1,
                )
                seen.append(answer["id"])
            elif act == "erase":
                memory.forget(id=some, confirm=memory.forget_preview(id=some)["confirm"])
            elif act == "resolve":
                for conflict in memory.conflicts()["conflicts"]:
                    memory.resolve(conflict["id"], conflict["facts"][0]["id"])
            elif act == "reaffirm":
                memory.reaffirm(some, "it holds again")
            else:
                getattr(memory, act)(some)
        except (MalformedError, RefusedError):
            continue


def check_current(home: Home, view: Snapshot) -> None:
    """No value is current that its key has moved on from, and no client has two of a key that takes one."""
    scope = open_scope(view, home.parts().vault, ME)
    assert scope is not None
    for key in ("a", "b", "c"):
        answer = home.memory(ME).get(key)
        for fact in answer["active"]:
            assert fact["status"] in ("active", "conflict")
            assert not is_retired(view, scope, scope.key_tag(key), fact["value"], home.clock()), fact
        clients = [fact["client"] for fact in answer["active"] if "many" not in fact["flags"]]
        assert len(clients) == len(set(clients))
        assert answer["conflict"] == (len(clients) > 1)


# An example has some erasures, and each vacuums a database.
_FOLDED = 2 if os.environ.get("MUNIMENT_TEST_ENGINE") == "postgres" else 6


@settings(max_examples=_FOLDED, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_the_facts_table_is_the_fold_of_the_statements(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    clock = Clock()
    with wiring.open_home(tmp_path_factory.mktemp("fold") / "home", clock=clock) as home:
        play(home, clock, random.Random(seed), 40)
        with home.parts().store.read_whole() as view:
            scope = open_scope(view, home.parts().vault, ME)
            if scope is None:
                return
            tenant_id = scope.tenant_id
            states = timeline.fold(timeline_events(view.events(tenant_id, 0, 10_000)))
            rows = view.rows(
                """SELECT e.commitment, f.status, f.valid_from, f.valid_until, f.recorded_at, f.replaced_at,
                          f.replaced_by, f.end_erased
                   FROM facts f JOIN events e ON e.seq = f.seq"""
            )
            assert {row[0] for row in rows} == set(states)
            for commitment, *cached in rows:
                state = states[commitment]
                status, valid_from, valid_until, recorded_at, replaced_at, replaced_by, end_erased = cached
                assert (status, valid_from, valid_until) == (
                    state.status,
                    state.valid_from,
                    state.valid_until,
                )
                assert (recorded_at, replaced_by, bool(end_erased)) == (
                    state.recorded_at,
                    state.replaced_by,
                    state.end_erased,
                )
                # Of a statement that is erased the fold can tell only between which others it was recorded.
                assert replaced_at == state.replaced_at or end_erased
            check_current(home, view)
            # An open conflict always has its facts.
            for (key_tag,) in view.rows("SELECT key_tag FROM conflicts WHERE closed_by IS NULL"):
                assert view.facts_of_key(tenant_id, key_tag, ("conflict",))


def test_waiting_for_the_log_publishes(me: Memory) -> None:
    answer = me.remember("text", wait="logged")
    assert answer["receipt"] == {"state": "logged", "entry": 0}
    assert answer["waited"] == "published"
    later = me.remember("other text")
    assert later["receipt"]["state"] == "pending"
    assert me.publish()["size"] == 2


def test_a_write_stands_when_the_log_cannot_publish(
    me: Memory, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: float) -> dict[str, Any]:
        raise UnavailableError("no witness answered", code="witness_quorum_not_met")

    monkeypatch.setattr(home, "publish", fail)
    answer = me.remember("text", wait="logged")
    assert (answer["outcome"], answer["waited"]) == ("stored", "witness_quorum_not_met")
    assert answer["receipt"]["state"] == "pending"
