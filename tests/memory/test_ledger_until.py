"""What is refused for a time: after a replacement that ends by itself, and while somebody guesses at what is erased."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ticking import SECOND, Clock

from memory import ledger
from memory.model import SCOPES, Principal
from memory.wiring import Home
from tlog.errors import UnavailableError

KEY = "svc/region"
ME = Principal("acme", "ops", "desk", SCOPES)
IDE = Principal("acme", "ops", "ide", SCOPES)
OTHER = Principal("acme", "dev", "desk", SCOPES)


Say = Callable[..., str]


@pytest.fixture
def say(home: Home, clock: Clock) -> Say:
    """Writes a value under KEY, and answers with the outcome, or the reason of a refusal."""

    def told(value: str, principal: Principal = ME, seconds: int | None = None, **more: Any) -> str:
        until = None if seconds is None else clock.second(seconds)
        memory = home.memory(principal)
        answer = memory.remember(f"svc is in {value}", key=KEY, value=value, valid_until=until, **more)
        return str(answer["reason"] or answer["outcome"])

    return told


def current(home: Home) -> Any:
    return home.memory(ME).get(KEY)["current"]


@pytest.mark.parametrize("principal", [ME, IDE])
def test_a_value_comes_back_when_what_replaced_it_has_ended(
    home: Home, clock: Clock, say: Say, principal: Principal
) -> None:
    say("eu-west-1")
    assert say("us-east-2", seconds=60) == "superseded"
    assert say("eu-west-1") == say("EU-WEST-1", IDE) == "echo"
    clock.now += 61 * SECOND
    assert current(home) is None
    assert say("eu-west-1", principal) == "stored"
    assert current(home) == "eu-west-1"


def test_a_value_from_before_stays_refused(clock: Clock, say: Say) -> None:
    say("mars-1")
    say("eu-west-1")
    say("us-east-2", seconds=60)
    clock.now += 61 * SECOND
    assert say("mars-1") == "echo"


def test_what_is_said_in_between_makes_it_final(home: Home, clock: Clock, say: Say) -> None:
    say("eu-west-1")
    say("us-east-2", seconds=60)
    assert say("mars-1") == "superseded"
    clock.now += 61 * SECOND
    assert say("eu-west-1") == "echo"
    assert current(home) == "mars-1"


def test_what_is_said_afterwards_makes_it_final(clock: Clock, say: Say) -> None:
    say("eu-west-1")
    say("us-east-2", seconds=60)
    clock.now += 61 * SECOND
    assert say("mars-1") == "stored"
    assert say("eu-west-1") == "echo"


def test_the_longer_of_two_counts(clock: Clock, say: Say) -> None:
    say("eu-west-1")
    say("us-east-2", seconds=60)
    say("mars-1", seconds=200)
    clock.now += 100 * SECOND
    assert say("eu-west-1") == "echo"
    clock.now += 101 * SECOND
    assert say("eu-west-1") == "stored"


def test_what_came_back_is_retired_like_any_other(clock: Clock, say: Say) -> None:
    say("eu-west-1")
    say("us-east-2", seconds=60)
    clock.now += 61 * SECOND
    say("eu-west-1")
    assert say("mars-1") == "superseded"
    assert say("eu-west-1") == "echo"


def test_a_person_who_confirms_makes_it_final(home: Home, clock: Clock, say: Say) -> None:
    say("eu-west-1")
    say("us-east-2", seconds=60)
    me = home.memory(ME)
    me.confirm(me.remember("svc is in mars-1", key=KEY, value="mars-1", provisional=True)["id"])
    clock.now += 61 * SECOND
    assert say("eu-west-1") == "echo"


def test_a_text_is_held_for_as_long(home: Home, clock: Clock, say: Say) -> None:
    me = home.memory(ME)
    say("eu-west-1")
    say("us-east-2", seconds=60)
    assert me.remember("I hear svc is in eu-west-1")["reason"] == "possible_echo"
    clock.now += 61 * SECOND
    assert me.remember("they say svc is in eu-west-1")["outcome"] == "stored"


def test_it_survives_retention(home: Home, clock: Clock, say: Say) -> None:
    say("eu-west-1")
    say("us-east-2", seconds=60)
    assert home.memory(ME).retention("0s", apply=True)["removed"] == 1
    assert say("eu-west-1") == "echo"
    clock.now += 61 * SECOND
    assert say("eu-west-1") == "stored"


def test_of_an_erased_fact_the_hour_is_left(home: Home, clock: Clock, say: Say) -> None:
    me = home.memory(ME)
    say("eu-west-1")
    until = clock.second(60)
    passing = me.remember("svc is in mars-1", key=KEY, value="mars-1", valid_until=until)["id"]
    erase(home, passing)
    with home.parts().store.read_whole() as view:
        ((left,),) = view.rows("SELECT until FROM ledger WHERE until IS NOT NULL")
    assert left % (3600 * SECOND) == 0 and 0 < left - until * SECOND < 3600 * SECOND
    assert say("eu-west-1") == "echo"
    clock.now += 3600 * SECOND
    assert say("eu-west-1") == "stored"


# What is erased and stays refused


def erase(home: Home, reference: str) -> None:
    me = home.memory(ME)
    me.forget(id=reference, guard="keep", confirm=me.forget_preview(id=reference, guard="keep")["confirm"])


@pytest.fixture
def blind(home: Home, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key whose retired value is erased and stays refused; three such refusals an hour."""
    monkeypatch.setattr(ledger, "MAX_BLIND_REFUSALS", 3)
    me = home.memory(ME)
    old = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1")["id"]
    say("us-east-2")
    erase(home, old)


def contents(home: Home) -> list[Any]:
    with home.parts().store.read_whole() as view:
        return [row[0] for row in view.rows("SELECT content FROM contents")]


@pytest.mark.usefixtures("blind")
def test_such_a_refusal_answers_like_any_other_and_stores_nothing(home: Home, say: Say) -> None:
    say("mars-1")
    me = home.memory(ME)
    blind = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1", subject="Dana", source="a mail")
    plain = me.remember("svc is in us-east-2", key=KEY, value="us-east-2")
    assert blind.keys() == plain.keys()
    alike = ("outcome", "reason", "message", "key", "retired", "current", "conflict_with")
    assert [blind[name] for name in alike] == [plain[name] for name in alike]
    assert bool(blind["reaffirm"]) and bool(plain["reaffirm"])
    assert not any(
        word in content for content in contents(home) for word in (b"eu-west-1", b"Dana", b"a mail")
    )
    assert any(b"us-east-2" in content for content in contents(home))


@pytest.mark.usefixtures("blind")
def test_such_refusals_are_few_an_hour(home: Home, clock: Clock, say: Say) -> None:
    for client in (ME, IDE, ME):
        assert say("eu-west-1", client) == "echo"
    for client in (ME, IDE, Principal("acme", "ops", "another name", SCOPES)):
        with pytest.raises(UnavailableError) as refused:
            say("eu-west-1", client)
        assert refused.value.code == "busy"
    # What is not erased, another agent, and the truth go on as before; an hour later so does this.
    assert say("mars-1") == "superseded"
    assert say("us-east-2") == "echo"
    assert say("eu-west-1", OTHER) == "stored"
    clock.now += ledger.BLIND_SECONDS * SECOND
    assert say("eu-west-1") == "echo"


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("guard", ["keep", "erase"])
def test_forgetting_such_refusals_gives_no_further_guesses(home: Home, say: Say, guard: str) -> None:
    me = home.memory(ME)
    for _ in range(3):
        told = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1")
        token = me.forget_preview(id=told["id"], guard=guard)["confirm"]
        assert me.forget(id=told["id"], guard=guard, confirm=token)["erased"] == 1
    with pytest.raises(UnavailableError) as refused:
        say("eu-west-1")
    assert refused.value.code == "busy"
    # A tenant of which nothing is left has no count either.
    token = me.forget_preview(all=True)["confirm"]
    me.forget(all=True, confirm=token)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT purpose FROM tokens") == []


@pytest.mark.usefixtures("blind")
def test_a_busy_refusal_leaves_nothing(home: Home, say: Say) -> None:
    for _ in range(3):
        say("eu-west-1")
    before = len(contents(home))
    with pytest.raises(UnavailableError):
        say("eu-west-1")
    assert len(contents(home)) == before


@pytest.mark.usefixtures("blind")
def test_such_a_refusal_can_be_lifted_by_its_token(home: Home) -> None:
    me = home.memory(ME)
    refused = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1")
    again = me.remember(
        "moved back to eu-west-1", key=KEY, value="EU-WEST-1", reaffirm=refused["reaffirm"], reason="moved"
    )
    assert again["outcome"] == "superseded"
    assert current(home) == "EU-WEST-1"
