"""A value that another record of its key still says was not retired, whoever moved on from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_checks import World
from test_returned_later import KEYED, at, returned

from tlog.keys import make_cose_key


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(make_cose_key(tmp_path / "issuer.key"))


def disputed(world: World, **first: int) -> dict[str, bytes]:
    """Two clients agree, one of them moves on, and comes back to what the other has said all along."""

    def say(value: str, outcome: str, acts: dict[str, list[bytes]], **more: int) -> bytes:
        return world.add(acts=acts, details={"outcome": outcome}, content={**KEYED, "value": value, **more})

    kept = say("Berlin", "stored", {}, **first)
    other = say("Bonn", "conflict", {"conflicts": [kept]})
    same = say("Berlin", "superseded", {"keeps": [kept], "retires": [other]})
    moved = say("Ulm", "conflict", {"conflicts": [kept], "retires": [same]})
    back = say("Berlin", "superseded", {"keeps": [kept], "retires": [moved]})
    return {"kept": kept, "back": back}


def test_coming_back_to_what_another_record_says_is_no_return(world: World) -> None:
    disputed(world)
    assert returned(world) == []


def test_once_no_record_says_it_any_more_it_is_one(world: World) -> None:
    said = disputed(world)
    world.add(
        acts={"retires": [said["kept"], said["back"]]},
        details={"outcome": "superseded"},
        content={**KEYED, "value": "Trier"},
    )
    world.add(details={"outcome": "stored"}, content={**KEYED, "value": "Berlin"})
    assert returned(world) == ["store.db events seq 7"]


def test_a_record_that_has_ended_by_itself_says_nothing(world: World) -> None:
    disputed(world, valid_until=at(3))
    assert returned(world) == ["store.db events seq 5"]
