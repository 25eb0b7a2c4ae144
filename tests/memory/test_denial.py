"""What a sentence says of a retired value: that it holds, which is held, or that it holds no more, which is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory import canon, denial, naming
from memory.denial import Subject

VECTORS = Path(__file__).resolve().parent.parent / "vectors" / "unkeyed_sentences.jsonl"
SENTENCES: list[dict[str, str]] = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
# Names nothing of its key: no rule sees it, and none saw it before.
UNSEEN = {"Mira never stopped drinking coffee."}
# Of these nothing is certain enough.
MAY_WAIT = 4, 121, 8, 40


def is_held(case: dict[str, str]) -> bool:
    active = [(case["record"].format(case["now"]), case["now"])]
    return naming.states(case["text"], canon.canonical_value(case["was"]), case["key"], active)


def test_no_sentence_that_says_that_a_retired_value_holds_passes() -> None:
    echoes = [case for case in SENTENCES if case["tells"] == "echo" and case["text"] not in UNSEEN]
    assert len(echoes) > 200
    assert [case["text"] for case in echoes if not is_held(case)] == []


def test_true_sentences_wait_rarely() -> None:
    told: dict[str, list[bool]] = {"develop": [], "measure": []}
    for case in SENTENCES:
        if case["tells"] == "true":
            told[case["half"]].append(is_held(case))
    counts = [count for held in told.values() for count in (sum(held), len(held))]
    assert counts[0] <= MAY_WAIT[0] and counts[2] <= MAY_WAIT[2]
    assert counts[1::2] == list(MAY_WAIT[1::2])


ABOUT = Subject(frozenset({"svc"}), frozenset({"run"}), frozenset({canon.canonical_value("rome")}))


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("svc no longer runs in oslo", True),
        ("svc no longer runs in oslo, but oslo is where it runs", False),
        ("svc is not in oslo. It is in rome.", True),
        ("svc has left oslo. That was undone.", False),
        ("svc moved from oslo to rome", True),
        ("svc moved from rome to oslo", False),
        ("svc will move from oslo to rome", False),
        ("did svc move from oslo to rome?", False),
        ("svc never moved from oslo", False),
        ("svc runs in rome rather than oslo", True),
        ("svc runs in oslo rather than rome", False),
        ("svc was in oslo", True),
        ("nobody holds svc not in oslo", False),
        ("I was told svc was in oslo", False),
        ("svc is slow, and not in oslo alone", False),
        ("svc n'est plus à oslo", False),
        ("oslo", False),
        ("no oslo in it: " + "svc left oslo " * (denial.MAX_PLACES + 1), False),
    ],
)
def test_what_is_denied(text: str, denied: bool) -> None:
    assert denial.denies(text, canon.canonical_value("oslo"), ABOUT) == denied


def test_a_value_inside_the_current_one_is_not_judged() -> None:
    about = Subject(frozenset({"ann"}), frozenset(), frozenset({canon.canonical_value("Porto Alegre")}))
    assert not denial.denies("Ann left Porto Alegre", canon.canonical_value("Porto"), about)


def test_a_long_text_is_judged_by_what_is_near() -> None:
    text = f"{'svc was restored. ' * 400}{'word ' * 200}svc no longer runs in oslo"
    assert denial.denies(text, canon.canonical_value("oslo"), ABOUT)


@pytest.mark.parametrize("word", ["not ", "from ", "moved to ", "was in the ", "old number ", "oslo "])
def test_a_long_text_of_one_word_takes_no_longer_than_its_length(word: str) -> None:
    # No clock: a pattern that ran back over its input would not end within the test's patience.
    denial.denies(f"svc {word * 20000} oslo", canon.canonical_value("oslo"), ABOUT)


def _named(text: str, key: str, active: str) -> bool:
    return naming.states(text, canon.canonical_value("oslo"), key, [(active, "rome")])


@pytest.mark.parametrize(
    ("text", "key", "about_it"),
    [
        ("The billing-api runs in oslo", "checkout-api/region", False),
        ("The billing-api runs in oslo, as checkout does", "checkout-api/region", True),
        ("The checkout-service runs in oslo", "checkout-api/region", True),
        ("The prod-api runs in oslo", "checkout-api/region", True),
        ("The prod-api runs in oslo", "staging-api/region", False),
        ("Ann Duarte's brother lives in oslo", "ann-duarte/city", False),
        ("A friend of Ann Duarte lives in oslo", "ann-duarte/city", False),
        ("The brother of Ann Duarte lives in oslo", "ann-duarte/city", False),
        ("Ann Duarte's brother lives with her in oslo", "ann-duarte/city", True),
        ("Ann Duarte's home is in oslo", "ann-duarte/city", True),
        ("Ann Kowalski lives in oslo", "ann-duarte/city", False),
        ("Ann Duarte Kowalski lives in oslo", "ann-duarte/city", True),
        ("The audit job runs in oslo", "backup-job/place", False),
        ("The agreed job runs in oslo", "backup-job/place", True),
        ("The job runs in oslo", "backup-job/place", True),
    ],
)
def test_what_is_about_something_else(text: str, key: str, about_it: bool) -> None:
    assert _named(text, key, "it runs in rome") == about_it


def test_what_a_key_of_which_nothing_is_left_has_retired(tmp_path: Path) -> None:
    """The words of the key are hashes then, and a denial is one all the same."""
    from memory.model import SCOPES, Principal
    from memory.wiring import open_home

    with open_home(tmp_path / "home") as home:
        me = home.memory(Principal("acme", "ops", "desk", SCOPES))
        fact: dict[str, Any] = me.remember("svc is in oslo", key="svc/place", value="oslo")
        me.retract(fact["id"])
        token = me.forget_preview(id=fact["id"], guard="keep")["confirm"]
        me.forget(id=fact["id"], confirm=token, guard="keep")
        assert me.remember("svc is in oslo")["outcome"] == "held"
        assert me.remember("svc is not in oslo")["outcome"] == "stored"
