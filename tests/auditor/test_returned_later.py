"""A value that was replaced for a time may come back after it, and at no other time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_checks import NOW, SECOND, World

from auditor import checks_guard
from tlog.keys import make_cose_key

KEYED = {"key": "region"}


def at(seq: int) -> int:
    return NOW - (1000 - seq) * SECOND


def say(world: World, value: str, retires: bytes | None = None, **more: Any) -> bytes:
    outcome = "superseded" if retires else "stored"
    acts = {"retires": [retires]} if retires else {}
    return world.add(acts=acts, details={"outcome": outcome}, content={**KEYED, "value": value, **more})


def returned(world: World) -> list[str]:
    return [finding.where for finding in checks_guard.check_returned(world.statements()).findings]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(make_cose_key(tmp_path / "issuer.key"))


def test_after_the_end_of_what_replaced_it(world: World) -> None:
    say(world, "Berlin", valid_until=None)
    say(world, "Bonn", world.events[0].commitment, valid_until=at(3))
    say(world, "Berlin")
    assert returned(world) == []


def test_not_before_that_end(world: World) -> None:
    say(world, "Berlin")
    say(world, "Bonn", world.events[0].commitment, valid_until=at(4))
    say(world, "Berlin")
    assert returned(world) == ["store.db events seq 3"]


def test_not_once_another_was_said_for_good(world: World) -> None:
    say(world, "Berlin")
    second = say(world, "Bonn", world.events[0].commitment, valid_until=at(4))
    say(world, "Ulm", second)
    say(world, "Trier")
    say(world, "Berlin")
    assert returned(world) == ["store.db events seq 5"]


def test_not_once_a_person_has_decided(world: World) -> None:
    say(world, "Berlin")
    say(world, "Bonn", world.events[0].commitment, valid_until=at(4))
    held = world.add(details={"outcome": "held"}, content={**KEYED, "value": "Ulm"})
    world.add("confirm", {"confirms": [held]})
    say(world, "Berlin")
    assert returned(world) == ["store.db events seq 5"]


def test_a_second_that_ends_later_counts(world: World) -> None:
    say(world, "Berlin")
    second = say(world, "Bonn", world.events[0].commitment, valid_until=at(4))
    say(world, "Ulm", second, valid_until=at(6))
    say(world, "Berlin", valid_until=at(5))
    assert returned(world) == ["store.db events seq 4"]
    say(world, "Rome")
    assert returned(world) == ["store.db events seq 4"]
