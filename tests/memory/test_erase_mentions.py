"""Who else names somebody: every agent of the tenant, numbers however they are written, names in either order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import wiring
from memory.erase_mentions import mentions_of_subjects, mentions_of_values
from memory.principal import make_principal, with_all_scopes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, forget, found_in, manifest_of, write

OTILIA = "Otilia Brandmeyer"
OTHER = with_all_scopes(make_principal("default", "another", "cli"))
SECOND = with_all_scopes(make_principal("default", "default", "second"))
STRANGER = with_all_scopes(make_principal("elsewhere", "default", "cli"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        write(opened, "Otilia is in Bremen.", key="otilia/city", value="Bremen", subject=OTILIA)
        yield opened


def codes(answer: Any) -> list[str]:
    return [why["code"] for why in answer["why"]]


@pytest.mark.parametrize("more", [{"subject": OTILIA}, {"text": "Ask Otilia Brandmeyer about it."}])
def test_what_another_agent_says_of_somebody_is_counted_and_not_shown(
    home: wiring.Home, more: dict[str, Any]
) -> None:
    write(home, **({"text": "Likes tea."} | more), caller=OTHER)
    write(home, f"{OTILIA} is of another tenant.", STRANGER, subject=OTILIA)
    selector = {"subject": OTILIA}
    preview = home.memory(ME).forget_preview(**selector)["preview"]
    assert (preview["count"], preview["mentions"], preview["mentions_not_shown"]) == (1, [], 1)
    answer = forget(home, **selector)
    assert (answer["state"], codes(answer)) == ("closed_partial", ["mentions_elsewhere"])
    assert (answer["mentions"], answer["mentions_not_shown"]) == ([], 1)
    document = manifest_of(home, answer).document
    assert document["scope"]["mentions"] == 1 and "mentions_elsewhere" in document["limits"]
    # Once that agent has erased its own, another request of this one is complete.
    assert forget(home, OTHER, all=True)["state"] == "closed_complete"
    write(home, "Otilia is back.", subject=OTILIA)
    assert forget(home, subject=OTILIA)["state"] == "closed_complete"


def test_a_value_that_stands_elsewhere_keeps_its_request_partial(home: wiring.Home) -> None:
    note = write(home, "The parcel goes to Bremen on Monday.")
    write(home, "We were in Bremen.", OTHER)
    preview = home.memory(ME).forget_preview(value="Bremen")["preview"]
    assert (len(preview["mentions"]), preview["mentions_not_shown"]) == (1, 1)
    answer = forget(home, value="Bremen")
    assert (answer["state"], codes(answer)) == ("closed_partial", ["mentions_elsewhere"])
    assert manifest_of(home, answer).document["scope"]["mentions"] == 2
    assert [one["id"] for one in answer["mentions"]] == [note["id"]]


def test_what_was_said_about_another_record_is_a_mention_in_that_record(home: wiring.Home) -> None:
    """Where somebody else has it from, and by whose order it is kept, stand in statements of their own."""
    office = write(home, "The office is in Rome.", key="office/city", value="Rome", source="the wiki")
    write(
        home, "The office is in Rome.", SECOND, key="office/city", value="Rome", source=f"a mail of {OTILIA}"
    )
    lease = write(home, "The lease ends in May.", key="lease/end", value="May")
    hold = home.memory(ME).hold(
        authority=f"claim of {OTILIA}", review_by="2099-01-01T00:00:00Z", id=lease["id"]
    )
    write(home, "Another agent has it, too.", OTHER, key="x", value="y")
    home.memory(OTHER).hold(authority=OTILIA, review_by="2099-01-01T00:00:00Z", key="x")
    preview = home.memory(ME).forget_preview(subject=OTILIA)["preview"]
    assert [one["id"] for one in preview["mentions"]] == [office["id"], lease["id"]]
    assert preview["mentions_not_shown"] == 1
    assert forget(home, subject=OTILIA)["state"] == "closed_partial"
    assert found_in(home, OTILIA) == {OTILIA}
    # The release of a hold is about what the hold was about.
    home.memory(ME).release(hold["id"], f"word of {OTILIA}")
    assert forget(home, id=office["id"])["state"] == "closed_complete"
    write(home, "Otilia is back.", subject=OTILIA)
    assert [one["id"] for one in forget(home, subject=OTILIA)["mentions"]] == [lease["id"]]
    forget(home, id=lease["id"])
    home.memory(OTHER).release(home.memory(OTHER).holds()["holds"][0]["id"], "the court")
    forget(home, OTHER, all=True)
    assert found_in(home, OTILIA) == set()


def test_a_grant_that_names_nobody_and_another_tenants_hold_are_no_mention(home: wiring.Home) -> None:
    home.memory(ME).grant("helper")
    write(home, "Theirs.", STRANGER, key="x", value="y")
    home.memory(STRANGER).hold(authority=OTILIA, review_by="2099-01-01T00:00:00Z", key="x")
    assert forget(home, subject=OTILIA)["state"] == "closed_complete"


def test_a_short_value_that_was_asked_for_is_looked_for_too(home: wiring.Home) -> None:
    write(home, "It is 7 here.", key="a", value="7")
    write(home, "The 7 of them came.")
    assert forget(home, value="7")["state"] == "closed_partial"


@pytest.mark.parametrize(
    "written", ["040 123 45 67", "+49 40 1234567", "0049-40-123-4567", "+49 (0)40/1234567", "0401234567"]
)
@pytest.mark.parametrize("asked", ["0401234567", "+49 40 123 45 67"])
def test_a_number_is_found_however_it_is_written(home: wiring.Home, written: str, asked: str) -> None:
    note = write(home, f"In room 12 one calls {written}, at 9.")
    preview = home.memory(ME).forget_preview(subject=OTILIA, identifiers=[asked])["preview"]
    assert [one["id"] for one in preview["mentions"]] == [note["id"]]
    assert forget(home, subject=OTILIA, identifiers=[asked])["state"] == "closed_partial"


@pytest.mark.parametrize("name", ["0401234567", "+49401234567"])
@pytest.mark.parametrize(
    "text",
    [
        "0401234568",
        "50 123 45 67",
        "994912340401234567",
        "401234567890",
        "12345678, 0401 and 234",
        "4.01234567e9",
    ],
)
def test_another_number_is_not(name: str, text: str) -> None:
    assert not mentions_of_subjects([name])({"text": f"call {text} now"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DE89370400440532013000", "DE89 3704 0044 0532 0130 00"),
        ("DE89 3704 0044 0532 0130 00", "de89370400440532013000"),
        ("K-1234-5678", "k12345678"),
    ],
)
def test_a_number_with_letters_is_found_however_it_is_grouped(name: str, text: str) -> None:
    for mentions in (mentions_of_subjects([name]), mentions_of_values([name])):
        assert mentions({"text": f"account {text}."})
        assert not mentions({"text": f"account {text}9."})


@pytest.mark.parametrize("written", ["Brandmeyer, Otilia", "BRANDMEYER Otilia", "brandmeyer/otilia"])
def test_the_parts_of_a_name_stand_in_either_order(home: wiring.Home, written: str) -> None:
    note = write(home, f"The list has {written} on it.")
    preview = home.memory(ME).forget_preview(subject=OTILIA)["preview"]
    assert [one["id"] for one in preview["mentions"]] == [note["id"]]
    assert forget(home, subject=OTILIA)["state"] == "closed_partial"


@pytest.mark.parametrize(
    ("name", "text", "is_named"),
    [
        ("Anna Maria Berg", "Berg, Anna Maria", True),
        ("Anna Maria Berg", "Anna Berg", False),
        ("Jan van der Berg", "van der Berg, Jan", True),
        ("Jan van der Berg", "Berg, Jan van der", True),
        ("user-1", "1-user", False),
        ("Otilia Brandmeyer", "Brandmeyers, Otilia", False),
    ],
)
def test_which_orders_are_a_name(name: str, text: str, is_named: bool) -> None:
    assert mentions_of_subjects([name])({"text": f"Was it {text}?"}) is is_named
