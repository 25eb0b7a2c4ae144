"""Whose memory it is: names compared exactly, tenants that are made or refused, and times that only go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory import cli
from memory.batch import run_batch
from memory.model import AGENT_SCOPES, SCOPES
from memory.principal import make_principal, narrowed, with_all_scopes
from memory.times import parse_time
from memory.wiring import Home, open_home
from tlog.errors import MalformedError, RefusedError

NAMES = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab:/.%_*\\'\"\0 \u200b\u0301é"), st.characters(exclude_categories=("Cs",))
    ),
    min_size=1,
    max_size=6,
).filter(lambda name: name != "*")
SCOPE = st.tuples(NAMES, NAMES)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with open_home(tmp_path_factory.mktemp("scope") / "home") as opened:
        yield opened


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=SCOPE, other=SCOPE)
def test_two_scopes_of_any_names_never_meet(
    shared: Home, one: tuple[str, str], other: tuple[str, str]
) -> None:
    first = shared.memory(with_all_scopes(make_principal(*one, "desk")))
    second = shared.memory(with_all_scopes(make_principal(*other, "desk")))
    word = f"w{abs(hash((one, other)))}"
    id = first.remember(f"{word} here", key=word, value="v")["id"]
    if one == other:
        assert second.get(word)["current"] == "v"
        return
    assert second.get(word)["active"] == [] and second.recall(word)["facts"] == []
    assert second.history(word)["facts"] == []
    with pytest.raises(MalformedError) as raised:
        second.provenance(id)
    assert raised.value.code == "unknown_id"


@pytest.mark.parametrize("name", ["*", "", "x" * 257])
def test_a_name_that_stands_for_all_or_none_is_refused_on_every_surface(
    home: Home, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[str] = []
    parts = [("acme", "bot", "desk")] * 3
    lines = ["/".join((*one[:place], name, *one[place + 1 :])) for place, one in enumerate(parts)]
    owner = with_all_scopes(make_principal("acme", "bot", "desk"))
    run_batch([json.dumps({"op": "status", "as": one}) for one in lines], answers.append, home, True, owner)
    assert [json.loads(one)["error"]["code"] for one in answers] == ["bad_input"] * 3
    for variable in ("MUNIMENT_TENANT", "MUNIMENT_AGENT", "MUNIMENT_CLIENT"):
        monkeypatch.setenv(variable, name)
        assert cli.main(["status", "--home", str(home.path), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "bad_input"
        monkeypatch.delenv(variable)


def test_a_handle_can_only_narrow(home: Home) -> None:
    agent = make_principal("acme", "bot", "desk")
    assert narrowed(agent, SCOPES).scopes == AGENT_SCOPES
    reader = home.memory(narrowed(agent, frozenset({"memory:read", "memory:purge"})))
    assert reader.principal.scopes == {"memory:read"}
    with pytest.raises(RefusedError):
        reader.remember("no")
    # Nothing about a handle can be changed once it is made.
    with pytest.raises(AttributeError):
        reader.principal.tenant = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        reader.principal = agent  # type: ignore[misc]


# Unknown tenants


def test_an_unknown_tenant_is_made_or_refused_as_the_owner_says(home: Home) -> None:
    agent = make_principal("acme", "bot", "desk")
    home.write_config(replace(home.config, unknown_tenants="refuse"))
    for act in (
        lambda: home.memory(agent).remember("a fact"),
        lambda: home.memory(narrowed(with_all_scopes(agent), SCOPES - {"memory:tenant"})).grant("x"),
    ):
        with pytest.raises(MalformedError) as raised:
            act()
        assert raised.value.code == "unknown_tenant"
    with home.parts().store.read_whole() as view:
        assert view.counts()["tenants"] == 0
    assert home.memory(make_principal("default", "bot", "desk")).remember("a fact")["outcome"] == "stored"
    answers: list[str] = []
    line = json.dumps({"op": "remember", "text": "by the owner", "as": "acme/bot/desk"})
    run_batch([line], answers.append, home, True, with_all_scopes(agent))
    assert json.loads(answers[0])["result"]["outcome"] == "stored"
    assert home.memory(agent).remember("now it is known")["outcome"] == "stored"


def test_by_default_the_first_write_makes_the_tenant_and_a_read_makes_none(home: Home) -> None:
    agent = home.memory(make_principal("acme", "bot", "desk"))
    agent.get("k")
    with home.parts().store.read_whole() as view:
        assert view.counts()["tenants"] == 0
    assert agent.remember("a fact")["outcome"] == "stored"


def test_an_audit_of_a_tenant_of_any_name_is_clean(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.memory(with_all_scopes(make_principal("a\0b'%", "\u202e*", "c\n"))).remember("x", key="k", value="v")
    home.publish()
    home.close()
    trust = home.path / "trust.toml"
    assert cli.main(["audit", "--home", str(home.path), "--trust", str(trust), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "clean"


# Times


def test_recorded_times_go_on_while_the_clock_goes_anywhere(tmp_path: Path) -> None:
    ticks = iter([5, 5, 3, 0, -7, 5, 6, 100, 2] * 20)
    base = 1_790_000_000_000_000
    with open_home(tmp_path / "home", clock=lambda: base + next(ticks) * 1_000_000) as home:
        memory = home.memory(with_all_scopes(make_principal("acme", "bot", "desk")))
        for number in range(9):
            memory.remember(f"fact {number}", key="k", value=str(number))
        told = memory.history("k")["facts"]
        recorded = [parse_time(fact["recorded_at"], 0) for fact in told]
        assert all(one < next_one for one, next_one in pairwise(recorded))
        assert memory.get("k")["current"] == "8"
        for place, fact in enumerate(told):
            # Each was current at the time it was recorded, however the clock stood.
            assert memory.get("k", as_recorded=fact["recorded_at"], as_of=fact["recorded_at"])[
                "current"
            ] == str(place)


@pytest.mark.parametrize(
    "time", ["2026-01-01T00:00:00", "2026-01-01", "yesterday", "12:00", "1e9", 1.5, True, "", "NaN"]
)
def test_a_time_without_a_zone_is_refused_on_every_read_and_write(home: Home, time: Any) -> None:
    memory = home.memory(with_all_scopes(make_principal("acme", "bot", "desk")))
    for name in ("as_of", "as_recorded"):
        for act in (memory.get, memory.history, memory.recall):
            with pytest.raises(MalformedError, match=name):
                act("k", **{name: time})
    for name in ("valid_from", "valid_until"):
        with pytest.raises(MalformedError, match=name):
            memory.remember("x", **{name: time})


def test_history_takes_both_clocks(tmp_path: Path) -> None:
    now = [1_790_000_000_000_000]
    with open_home(tmp_path / "home", clock=lambda: now[0]) as home:
        memory = home.memory(with_all_scopes(make_principal("acme", "bot", "desk")))
        memory.remember("one", key="k", value="one", valid_from="2020-01-01T00:00:00Z")
        now[0] += 3_600_000_000
        between = str(now[0] // 1_000_000 - 1800)
        memory.remember("two", key="k", value="two")
        memory.remember("three", key="k", value="three", valid_from="2100-01-01T00:00:00Z")

        def told(**times: Any) -> list[tuple[str, str]]:
            return [(fact["value"], fact["status"]) for fact in memory.history("k", **times)["facts"]]

        assert told() == [("one", "superseded"), ("two", "active"), ("three", "active")]
        assert told(as_recorded=between) == [("one", "active")]
        assert told(as_of="now") == [("one", "superseded"), ("two", "active")]
        assert told(as_of="2019-01-01T00:00:00Z") == []
        assert told(as_of="2101-01-01T00:00:00Z")[-1] == ("three", "active")
        (first, second, third) = memory.history("k")["facts"]
        assert [fact["followed_by"] for fact in (first, second, third)] == [second["id"], third["id"], None]
