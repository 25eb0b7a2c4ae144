"""What a key has moved on from: which values are noted, in which spellings, and when they leave again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ticking import Clock

from memory import canon, ledger
from memory.model import SCOPES, Principal
from memory.scope import open_scope
from memory.service import Memory
from memory.store import Store
from memory.wiring import Home
from tlog.errors import RefusedError

ME = Principal("acme", "ops", "desk", SCOPES)
IDE = Principal("acme", "ops", "ide", SCOPES)


@pytest.fixture
def me(home: Home) -> Memory:
    return home.memory(ME)


@pytest.fixture
def ide(home: Home) -> Memory:
    return home.memory(IDE)


def retired(home: Home, key: str, said: str) -> bool:
    """Whether the ledger holds what is said for the key."""
    with home.parts().store.read_whole() as view:
        scope = open_scope(view, home.parts().vault, ME)
        assert scope is not None
        return ledger.is_retired(view, scope, scope.key_tag(key), said, home.clock())


def rows(home: Home) -> list[tuple[Any, ...]]:
    with home.parts().store.read_whole() as view:
        return view.rows("SELECT value_tag, word_count FROM ledger ORDER BY id")


def outcome(answer: dict[str, Any]) -> tuple[str, str | None]:
    return answer["outcome"], answer["reason"]


# A key whose facts have no values


def test_what_a_key_without_values_said_does_not_come_back(me: Memory) -> None:
    assert me.remember("loves Ann", key="heart")["outcome"] == "stored"
    assert me.remember("hates Ann", key="heart")["outcome"] == "superseded"
    assert outcome(me.remember("Loves  ANN.", key="heart")) == ("refused", "echo")
    assert me.get("heart")["current"] == "hates Ann"


def test_a_retracted_text_stays_retired(me: Memory) -> None:
    me.retract(me.remember("loves Ann", key="heart")["id"])
    assert outcome(me.remember("loves Ann", key="heart")) == ("refused", "echo")


def test_a_text_is_reaffirmed_by_its_token_and_in_review(me: Memory, home: Home) -> None:
    me.remember("loves Ann", key="heart")
    me.remember("hates Ann", key="heart")
    token = me.remember("loves Ann", key="heart")["reaffirm"]
    with pytest.raises(RefusedError):
        me.remember("loves Bob", key="heart", reaffirm=token, reason="made up")
    again = me.remember("Loves Ann", key="heart", reaffirm=token, reason="made up")
    assert again["outcome"] == "superseded"
    assert not retired(home, "heart", "loves Ann")
    refusal = me.remember("hates Ann", key="heart")
    assert me.reaffirm(refusal["id"], "fell out")["status"] == "active"
    assert me.get("heart")["current"] == "hates Ann"
    assert not retired(home, "heart", "hates Ann")
    assert retired(home, "heart", "loves Ann")


def test_a_text_that_was_erased_and_kept_out_is_not_stored_again(me: Memory, home: Home) -> None:
    old = me.remember("loves Ann", key="heart")["id"]
    me.remember("hates Ann", key="heart")
    me.forget(id=old, guard="keep", confirm=me.forget_preview(id=old, guard="keep")["confirm"])
    assert outcome(me.remember("loves Ann", key="heart")) == ("refused", "echo")
    with home.parts().store.read_whole() as view:
        assert not any(b"loves" in content for (content,) in view.rows("SELECT content FROM contents"))


def test_what_a_text_says_ahead_does_not_bring_it_back(me: Memory, ide: Memory, clock: Clock) -> None:
    me.remember("loves Ann", key="heart")
    ahead = ide.remember("loves Bob", key="heart", valid_from=clock.second(3600))
    assert ahead["outcome"] == "conflict"
    said = ide.remember("loves Bob", key="heart")
    ide.retract(said["id"])
    clock.pass_seconds(7200)
    assert me.get("heart")["current"] == "loves Ann"
    assert outcome(ide.remember("loves Bob", key="heart")) == ("refused", "echo")


# Every form of a value


def test_each_form_of_an_ambiguous_value_is_noted_and_found(me: Memory, home: Home) -> None:
    me.remember("the limit is 5m", key="limit", value="5m")
    me.remember("the limit is 7 hours", key="limit", value="7 hours")
    forms = canon.value_forms("5m")
    assert len(forms) == 3
    assert [count for _, count in rows(home)] == [canon.word_count(form) for form in forms]
    for spelling in ("5m", "5 min", "five minutes", "5 metres"):
        assert outcome(me.remember(f"{spelling} it is", key="limit", value=spelling)) == ("refused", "echo")
    held = me.remember("I read that the limit is 5 minutes")
    assert outcome(held) == ("held", "possible_echo")


def test_a_value_is_found_by_any_of_its_forms(me: Memory) -> None:
    me.remember("the limit is 5 metres", key="limit", value="5 metres")
    me.remember("the limit is 7 metres", key="limit", value="7 metres")
    assert outcome(me.remember("5m", key="limit", value="5m")) == ("refused", "echo")
    assert me.remember("5 minutes", key="limit", value="5 minutes")["outcome"] == "superseded"


def test_a_reaffirmation_takes_every_form_out(me: Memory, home: Home) -> None:
    me.remember("the limit is 5m", key="limit", value="5m")
    me.remember("the limit is 7m", key="limit", value="7m")
    token = me.remember("the limit is 5m", key="limit", value="5m")["reaffirm"]
    me.remember("the limit is 5m", key="limit", value="5m", reaffirm=token, reason="lowered")
    assert not any(retired(home, "limit", said) for said in ("5m", "5 minutes", "5 metres"))
    assert all(retired(home, "limit", said) for said in ("7m", "7 minutes", "7 metres"))


# Only what nobody says any more


def test_a_value_that_another_client_stands_by_is_not_retired(
    me: Memory, ide: Memory, home: Home, clock: Clock
) -> None:
    ahead = ide.remember("from then on Friday", key="deploy", value="Friday", valid_from=clock.second(3600))
    assert ahead["outcome"] == "stored"
    assert me.remember("it is Friday", key="deploy", value="friday")["outcome"] == "stored"
    assert me.remember("it is Monday", key="deploy", value="Monday")["outcome"] == "conflict"
    assert not retired(home, "deploy", "Friday")
    clock.pass_seconds(7200)
    assert me.remember("By the way, we deploy on Friday")["outcome"] == "stored"
    kept = next(fact["id"] for fact in me.get("deploy")["active"] if fact["value"] == "Monday")
    me.resolve(me.conflicts()["conflicts"][0]["id"], kept)
    assert retired(home, "deploy", "Friday")
    assert outcome(me.remember("it is Friday", key="deploy", value="Friday")) == ("refused", "echo")


def test_one_that_has_ended_by_itself_stands_by_nothing(me: Memory, home: Home, clock: Clock) -> None:
    me.remember("the code is 4711", key="door", value="4711", valid_until=clock.second(60))
    clock.pass_seconds(120)
    assert me.remember("the code is 4711", key="door", value="4711")["outcome"] == "stored"
    assert me.remember("the code is 1234", key="door", value="1234")["outcome"] == "superseded"
    assert outcome(me.remember("the code is 4711", key="door", value="4711")) == ("refused", "echo")


def test_a_refused_or_held_copy_stands_by_nothing(me: Memory, home: Home) -> None:
    me.remember("it is a", key="k", value="a")
    assert me.remember("perhaps b", key="k", value="b", provisional=True)["outcome"] == "held"
    me.remember("it is b", key="k", value="b")
    assert outcome(me.remember("it is a", key="k", value="a")) == ("refused", "echo")
    me.remember("it is c", key="k", value="c")
    assert retired(home, "k", "b")


# A reaffirmation that does not make the value current


def test_a_token_that_ends_in_a_conflict_lifts_nothing(
    me: Memory, ide: Memory, home: Home, clock: Clock
) -> None:
    me.remember("it is Monday", key="deploy", value="Monday")
    me.remember("it is Tuesday", key="deploy", value="Tuesday")
    later = clock.second(3600)
    ahead = ide.remember("then Sunday", key="deploy", value="Sunday", valid_from=later)
    assert ahead["outcome"] == "conflict"
    refusal = me.remember("it is Monday", key="deploy", value="Monday")
    again = me.remember(
        "Monday after all",
        key="deploy",
        value="Monday",
        valid_from=clock.second(7200),
        reaffirm=refusal["reaffirm"],
        reason="said so",
    )
    assert again["outcome"] == "conflict"
    assert retired(home, "deploy", "Monday")
    assert refusal["id"] in [fact["id"] for fact in me.review()["facts"]]
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT 1 FROM acts WHERE act = 'lifts'") == []


def test_settling_a_conflict_for_a_retired_value_makes_it_current(
    me: Memory, ide: Memory, home: Home, clock: Clock
) -> None:
    test_a_token_that_ends_in_a_conflict_lifts_nothing(me, ide, home, clock)
    (conflict,) = me.conflicts()["conflicts"]
    kept = next(fact["id"] for fact in conflict["facts"] if fact["value"] == "Monday")
    with pytest.raises(RefusedError, match="begins later"):
        me.resolve(conflict["id"], kept)
    clock.pass_seconds(10_000)
    me.resolve(conflict["id"], kept)
    assert me.get("deploy")["current"] == "Monday"
    assert ide.remember("again Monday", key="deploy", value="Monday")["outcome"] == "agreed"


# What a text states


def test_a_text_is_read_once_and_before_the_lock(me: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        for value in ("eu-west-1", "us-east-2", f"mars-{number}"):
            me.remember(f"svc{number} is in {value}", key=f"svc{number}/region", value=value)
    locked: list[bool] = []
    readings: list[bool] = []
    write, init = Store.write, canon.Reading.__init__

    @contextmanager
    def noted(store: Store) -> Iterator[Any]:
        with write(store) as txn:
            locked.append(True)
            yield txn
            locked.clear()

    def counted(reading: canon.Reading, text: str) -> None:
        readings.append(bool(locked))
        init(reading, text)

    monkeypatch.setattr(Store, "write", noted)
    monkeypatch.setattr(canon.Reading, "__init__", counted)
    held = me.remember("As far as I know svc1, svc2 and svc3 are all in eu-west-1, or in us-east-2")
    assert outcome(held) == ("held", "possible_echo")
    assert readings == [False]


def test_what_was_retired_meanwhile_counts(me: Memory, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading the text and taking the lock another write retires a longer value."""
    me.remember("svc is in eu-west-1", key="svc/region", value="eu-west-1")
    me.remember("svc is in mars-1", key="svc/region", value="mars-1")
    read_text = ledger.read_text

    def then_retire(*arguments: Any) -> Any:
        found = read_text(*arguments)
        monkeypatch.setattr(ledger, "read_text", read_text)
        me.remember("svc is in the old hall", key="svc/region", value="the old hall")
        me.remember("svc is in us-east-2", key="svc/region", value="us-east-2")
        return found

    monkeypatch.setattr(ledger, "read_text", then_retire)
    readings: list[str] = []
    init = canon.Reading.__init__

    def counted(reading: canon.Reading, text: str) -> None:
        readings.append(text)
        init(reading, text)

    monkeypatch.setattr(canon.Reading, "__init__", counted)
    assert outcome(me.remember("I think svc is in the old hall")) == ("held", "possible_echo")
    assert len(readings) == 1
