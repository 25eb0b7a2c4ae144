"""What is past its time is served to nobody from that moment on, and goes with the next sweep, batch after batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory import cli, retention, wiring
from memory.config import format_config, parse_config
from memory.principal import make_principal
from memory.retention_rules import parse_rules
from tlog.errors import MalformedError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, found_in, manifest_of, write

DAY = 86_400_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


def keep(home: wiring.Home, *lines: str, withheld: str = "30d") -> None:
    home.write_config(replace(home.config, retention=lines, withheld_retention=withheld))


def reading(home: wiring.Home, degrees: str, key: str = "Sensor-7/Degrees") -> Any:
    return write(home, f"The sensor says {degrees}.", key=key, value=degrees)


def test_what_is_past_its_time_is_served_by_no_read_before_any_sweep(home: wiring.Home, clock: Clock) -> None:
    keep(home, "sensor/* 1d")
    first = reading(home, "minus nineteen")
    other = write(home, "The office is in Elm Street.", key="office/address", value="Elm Street")
    memory = home.memory(ME)
    clock.now += DAY - 1000
    assert memory.get("sensor/7/degrees")["current"] == "minus nineteen"
    before = clock.now // 1_000_000
    clock.now += 2000
    assert memory.get("sensor/7/degrees")["active"] == []
    then = memory.get("sensor/7/degrees", as_recorded=before)
    assert (then["active"], then["withheld"]) == ([], True)
    assert memory.recall("sensor nineteen")["facts"] == []
    assert memory.history("sensor/7/degrees")["facts"] == []
    for call in (memory.provenance, memory.opening, memory.retract):
        with pytest.raises(MalformedError):
            call(first["id"])
    assert memory.get("office/address")["active"][0]["id"] == other["id"]
    # It is known to nobody, so it is agreed with by nobody.
    assert reading(home, "minus nineteen")["outcome"] == "stored"


AGENT = make_principal("acme", "bot", "one")
NEIGHBOUR = make_principal("default", "helper", "one")


def test_a_sweep_of_the_owner_is_of_every_tenant_and_agent(home: wiring.Home, clock: Clock) -> None:
    """The rules are those of the home, and so is what they end."""
    for caller, degrees in ((ME, "minus nineteen"), (AGENT, "minus twelve"), (NEIGHBOUR, "minus seven")):
        write(home, f"The sensor says {degrees}.", caller, key="sensor/7", value=degrees)
        write(home, f"The office of {degrees}.", caller, key="office", value=degrees)
    keep(home, "sensor/* 1d")
    clock.now += DAY + 1000
    assert home.memory(ME).retention() == {"matched": 3, "removed": 0, "receipt": None, "covers": "home"}
    answer = home.memory(ME).retention(apply=True)
    assert (answer["matched"], answer["removed"], answer["covers"]) == (3, 3, "home")
    assert answer["state"] == "closed_complete" and len(answer["manifests"]) == 3
    assert found_in(home, "The sensor says", "The office of") == {"The office of"}
    assert home.memory(ME).retention(apply=True)["matched"] == 0


def test_a_sweep_of_an_agent_is_of_its_own_memory_and_says_so(home: wiring.Home, clock: Clock) -> None:
    for caller, degrees in ((ME, "minus nineteen"), (AGENT, "minus twelve"), (NEIGHBOUR, "minus seven")):
        write(home, f"The sensor says {degrees}.", caller, key="sensor/7", value=degrees)
    keep(home, "sensor/* 1d")
    clock.now += DAY + 1000
    answer = home.memory(NEIGHBOUR).retention(apply=True)
    assert (answer["removed"], answer["covers"]) == (1, "agent")
    assert found_in(home, "says minus nineteen", "says minus twelve", "says minus seven") == {
        "says minus nineteen",
        "says minus twelve",
    }


def test_a_term_that_is_given_is_for_the_memory_of_who_gives_it(home: wiring.Home, clock: Clock) -> None:
    for caller in (ME, AGENT):
        for degrees in ("minus nineteen", "minus twelve"):
            write(home, f"The sensor says {degrees}.", caller, key="sensor/7", value=degrees)
    clock.now += DAY
    assert home.memory(ME).retention("0s", apply=True)["removed"] == 1
    assert [one["value"] for one in home.memory(AGENT).history("sensor/7")["facts"]] == [
        "minus nineteen",
        "minus twelve",
    ]


def test_an_older_value_does_not_come_back_for_one_that_ended(home: wiring.Home, clock: Clock) -> None:
    keep(home, "sensor/* 2d")
    reading(home, "minus nineteen")
    clock.now += DAY
    reading(home, "minus twelve")
    clock.now += DAY + 1000
    assert [fact["value"] for fact in home.memory(ME).history("sensor/7/degrees")["facts"]] == [
        "minus twelve"
    ]
    clock.now += DAY
    answer = home.memory(ME).get("sensor/7/degrees", as_of=clock.now // 1_000_000 - 2 * 86_400)
    assert answer["active"] == []


def test_a_sweep_erases_it_as_any_erasure_does(home: wiring.Home, clock: Clock) -> None:
    keep(home, "sensor/* 1d")
    reading(home, "minus nineteen")
    write(home, "The office is in Elm Street.", key="office/address", value="Elm Street")
    clock.now += 2 * DAY
    memory = home.memory(ME)
    assert memory.retention() == {"matched": 1, "removed": 0, "receipt": None, "covers": "home"}
    assert found_in(home, "minus nineteen") == {"minus nineteen"}
    answer = memory.retention(apply=True)
    assert (answer["matched"], answer["removed"], answer["state"]) == (1, 1, "closed_complete")
    document = manifest_of(home, answer).document
    assert (document["scope"]["kind"], document["basis"]) == ("retention", "retention")
    assert "claim" not in document
    assert found_in(home, "minus nineteen", "Elm Street") == {"Elm Street"}
    assert memory.retention(apply=True)["matched"] == 0


def test_what_was_refused_held_or_discarded_goes_after_thirty_days_by_default(
    home: wiring.Home, clock: Clock
) -> None:
    write(home, "Dana is in Elm Street.", key="dana/address", value="Elm Street")
    write(home, "Dana is in Oak Lane.", key="dana/address", value="Oak Lane")
    refused = write(home, "She is in Elm Street, says Fox.", key="dana/address", value="Elm Street")
    held = write(home, "She may move to Ash Road.", key="dana/plan", value="Ash Road", provisional=True)
    dropped = write(home, "She may move to Fir Way.", key="dana/plan", value="Fir Way", provisional=True)
    memory = home.memory(ME)
    memory.discard(dropped["id"])
    assert {fact["id"] for fact in memory.review()["facts"]} == {refused["id"], held["id"]}
    clock.now += 31 * DAY
    assert memory.review()["facts"] == []
    assert memory.retention(apply=True)["removed"] == 3
    assert found_in(home, "says Fox", "Ash Road", "Fir Way", "Oak Lane") == {"Oak Lane"}
    # The refusal outlives the copy.
    assert write(home, "Elm Street!", key="dana/address", value="Elm Street")["reason"] == "echo"


def test_what_is_on_hold_outlives_its_time(home: wiring.Home, clock: Clock) -> None:
    keep(home, "* 1d")
    made = reading(home, "minus nineteen")
    memory = home.memory(ME)
    held = memory.hold(authority="Court", review_by="2100-01-01T00:00:00Z", id=made["id"])
    clock.now += 2 * DAY
    assert memory.retention(apply=True)["matched"] == 0
    assert found_in(home, "minus nineteen") == {"minus nineteen"}
    memory.release(held["id"], "Court")
    assert memory.get("sensor/7/degrees")["active"] == []
    assert memory.retention(apply=True)["removed"] == 1


def test_what_is_withheld_may_be_kept_until_it_is_erased(home: wiring.Home, clock: Clock) -> None:
    keep(home, withheld="never")
    held = write(home, "She may move to Ash Road.", key="dana/plan", value="Ash Road", provisional=True)
    clock.now += 1000 * DAY
    assert [fact["id"] for fact in home.memory(ME).review()["facts"]] == [held["id"]]
    assert home.memory(ME).retention()["matched"] == 0


def test_batches_go_one_after_the_other_and_tell_how_far_they_are(
    home: wiring.Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    keep(home, "* 1d")
    for number in range(5):
        reading(home, f"minus {number}{number}{number}", key=f"sensor/{number}")
    clock.now += 2 * DAY
    told: list[tuple[int, int]] = []
    answer = home.memory(ME).retention(apply=True, progress=lambda done, total: told.append((done, total)))
    assert (answer["removed"], len(answer["manifests"])) == (5, 3)
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_the_first_rule_that_matches_holds() -> None:
    rules = parse_rules(("sensor/*/raw 1h", "sensor/* 2d", "*/note 3d"), "never")
    for key, term in {
        "Sensor/9/RAW": 3600,
        "sensor-9": 2 * 86_400,
        "dana note": 3 * 86_400,
        "dana/address": None,
        "mysensor/9": None,
        None: None,
    }.items():
        content = {"key": key, "recorded_at": 0}
        for seconds in (3599, 3600, 2 * 86_400, 3 * 86_400):
            ended = rules.has_ended("active", content, seconds * 1_000_000)
            assert ended == (term is not None and seconds >= term), (key, seconds)


@pytest.mark.parametrize(
    "line", ["sensor/*", "30d", " 30d", "sensor/* soon", "sensor/* -1d", "sensor/* 1.5d"]
)
def test_a_line_that_is_no_rule_is_an_error(line: str) -> None:
    with pytest.raises(MalformedError):
        parse_rules((line,), "30d")


@pytest.mark.parametrize("term", ["", "30", "sensor/* 30d", "for ever", "-1d"])
def test_a_term_that_is_none_is_an_error(term: str) -> None:
    with pytest.raises(MalformedError):
        parse_rules((), term)


def test_the_settings_are_read_back(home: wiring.Home) -> None:
    keep(home, "sensor/* 30d", "* 5w", withheld="7d")
    assert parse_config(format_config(home.config)) == home.config
    assert b"retention" not in format_config(replace(home.config, retention=(), withheld_retention="30d"))


def test_the_command_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--home", str(tmp_path / "home"), "--json"]
    assert cli.main(["remember", "It is hot.", "--key", "sensor/1", "--value", "hot", *where]) == 0
    with wiring.open_home(tmp_path / "home") as home:
        keep(home, "sensor/* 0s")
    capsys.readouterr()
    assert cli.main(["retention", *where]) == 0
    assert json.loads(capsys.readouterr().out)["matched"] == 1
    assert cli.main(["retention", "--apply", *where]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 1
