"""Rows of the ledger under older rules: they are found under theirs, and made anew under the newest."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import canon, canon_versions, wiring
from memory.canon_versions import Rules
from memory.model import SCOPES, Principal
from memory.wiring import Home
from tlog.errors import UnavailableError

KEY = "svc/region"
ME = Principal("acme", "ops", "desk", SCOPES)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def without_hyphens(value: str) -> tuple[canon.Canonical, ...]:
    """Forms of a second version, for which eu-west-1 and eu west 1 are one, and every form is its own kind."""
    return (canon.Canonical("second", canon.canonical_text(value).replace("-", " ")),)


def spans(reading: canon.Reading, counts: Collection[int]) -> Iterator[canon.Canonical]:
    words = [word[0] for word in reading.run]
    for count in counts:
        for start in range(len(words) - count + 1):
            yield from without_hyphens(" ".join(words[start : start + count]))


def words_beside(
    text: str | canon.Reading, value: canon.Canonical, rather: Collection[canon.Canonical] = ()
) -> frozenset[str] | None:
    base = text.base if isinstance(text, canon.Reading) else text
    plain = canon.canonical_text(base).replace("-", " ")
    return canon.text_words(plain.replace(value.form, "")) if value.form in plain else None


SECOND = Rules(2, without_hyphens, lambda form: 1, spans, words_beside)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs the second version when called."""
    return lambda: monkeypatch.setitem(canon_versions.KNOWN, 2, SECOND)


def outcome(answer: dict[str, Any]) -> tuple[str, str | None]:
    return answer["outcome"], answer["reason"]


def say(home: Home, value: str) -> tuple[str, str | None]:
    return outcome(home.memory(ME).remember(f"svc is in {value}", key=KEY, value=value))


def versions(home: Home) -> list[tuple[int, int]]:
    with home.parts().store.read_whole() as view:
        return view.rows("SELECT canon_version, count(*) FROM ledger GROUP BY canon_version ORDER BY 1")


def forget(home: Home, reference: str) -> None:
    me = home.memory(ME)
    me.forget(id=reference, guard="keep", confirm=me.forget_preview(id=reference, guard="keep")["confirm"])


def test_older_rows_are_found_under_their_own_version(home: Home, second: Any) -> None:
    say(home, "eu-west-1")
    say(home, "us-east-2")
    second()
    assert say(home, "(EU-WEST-1)") == ("refused", "echo")
    assert say(home, "eu west 1") == ("superseded", None), "the older rules keep these two apart"


def test_new_rows_are_of_the_newest_version(home: Home, second: Any) -> None:
    second()
    say(home, "eu-west-1")
    say(home, "us-east-2")
    assert versions(home) == [(2, 1)]
    assert say(home, "eu west 1") == ("refused", "echo")
    with home.parts().store.read_whole() as view:
        assert all(b"\x65canon\x02" in row[0] for row in view.rows("SELECT content FROM contents"))


def test_a_key_that_moves_on_takes_its_older_rows_along(home: Home, second: Any) -> None:
    say(home, "eu-west-1")
    say(home, "us-east-2")
    second()
    assert say(home, "mars-1") == ("superseded", None)
    assert versions(home) == [(2, 2)]
    assert say(home, "eu west 1") == say(home, "us east 2") == ("refused", "echo")


def test_rows_whose_fact_is_erased_stay_under_their_version_and_are_found(home: Home, second: Any) -> None:
    me = home.memory(ME)
    old = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1")["id"]
    say(home, "us-east-2")
    forget(home, old)
    second()
    say(home, "mars-1")
    assert versions(home) == [(1, 1), (2, 1)]
    assert say(home, "eu-west-1") == ("refused", "echo")
    assert say(home, "us east 2") == ("refused", "echo")


def test_the_rows_left_by_retention_are_found(home: Home, second: Any) -> None:
    say(home, "eu-west-1")
    say(home, "us-east-2")
    home.memory(ME).retention("0s", apply=True)
    second()
    assert say(home, "eu-west-1") == ("refused", "echo")
    assert outcome(home.memory(ME).remember("I hear svc is in eu-west-1")) == ("held", "possible_echo")


def test_texts_are_read_under_every_version(home: Home, second: Any) -> None:
    say(home, "eu-west-1")
    say(home, "us-east-2")
    second()
    me = home.memory(ME)
    me.remember("db is in ap-south-1", key="db/region", value="ap-south-1")
    me.remember("db is in mars-1", key="db/region", value="mars-1")
    assert versions(home) == [(1, 1), (2, 1)]
    assert outcome(me.remember("I hear svc is in eu-west-1")) == ("held", "possible_echo")
    assert outcome(me.remember("I hear db is in ap-south-1")) == ("held", "possible_echo")
    assert outcome(me.remember("I hear the zoo is in ap-south-1")) == ("stored", None)


def test_a_reaffirmation_takes_a_value_out_under_every_version(home: Home, second: Any) -> None:
    me = home.memory(ME)
    old = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1")["id"]
    say(home, "us-east-2")
    forget(home, old)
    second()
    refused = me.remember("svc is in eu-west-1", key=KEY, value="eu-west-1")
    again = me.remember("back", key=KEY, value="eu-west-1", reaffirm=refused["reaffirm"], reason="moved")
    assert outcome(again) == ("superseded", None)
    assert say(home, "mars-1") == ("superseded", None)
    assert say(home, "eu-west-1") == ("refused", "echo")


def test_rows_of_an_unknown_version_are_not_passed_over(
    home: Home, second: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    second()
    say(home, "eu-west-1")
    say(home, "us-east-2")
    monkeypatch.delitem(canon_versions.KNOWN, 2)
    with pytest.raises(UnavailableError) as refused:
        say(home, "mars-1")
    assert refused.value.code == "newer_store"
