"""A value ledger that was wiped, thinned, or made to forget: found from what the statements imply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from copies import Copy

from memory.model import SCOPES, Principal
from memory.wiring import Home, init_home, open_home
from tlog.trust import parse_trust

ME = Principal("acme", "bot", "one", SCOPES)
CODE = "RETIREMENT_FORGOTTEN"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[Callable[[Home], object]], Copy]]:
    def making(write: Callable[[Home], object]) -> Copy:
        with init_home(tmp_path / "home") as home:
            write(home)
            home.publish()
        return Copy(tmp_path / "home", parse_trust((tmp_path / "home" / "trust.toml").read_text()))

    yield making


def corrections(home: Home) -> None:
    memory = home.memory(ME)
    for value in ("Berlin", "Hamburg", "Bremen"):
        memory.remember(f"the office is in {value}", key="city", value=value)
    gone = memory.remember("the fax is 555", key="fax", value="555")
    memory.retract(gone["id"])


def forget(home: Home, **selector: Any) -> None:
    memory = home.memory(ME)
    memory.forget(confirm=memory.forget_preview(**selector)["confirm"], **selector)


def test_a_whole_ledger_is_clean(make: Any) -> None:
    copy = make(corrections)
    audited = copy.audit()
    assert audited.outcome.findings == ()
    assert [note.count for note in audited.outcome.checked if note.check == "ledger"] == [3]


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("DELETE FROM ledger", {1, 2, 4}),
        ("DELETE FROM ledger WHERE source = 2", {2}),
        ("DELETE FROM ledger WHERE source = 4", {4}),
        ("UPDATE ledger SET source = 1 WHERE source = 2", {2}),
    ],
)
def test_a_thinned_ledger_is_found(make: Any, statement: str, missing: set[int]) -> None:
    copy = make(corrections)
    copy.sql(statement)
    found = [one for one in copy.audit().outcome.findings if one.code == CODE]
    assert {one.evidence["fact"] for one in found} == missing


def test_a_value_that_came_back_needs_no_row(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        memory = home.memory(ME)
        refused = memory.remember("Berlin again", key="city", value="Berlin")
        memory.remember(
            "Berlin again", key="city", value="Berlin", reaffirm=refused["reaffirm"], reason="back"
        )

    assert make(write).codes() == set()


def test_what_an_erasure_kept_must_stay(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        forget(home, key="city", guard="keep")

    copy = make(write)
    assert copy.codes() == set()
    copy.sql("DELETE FROM ledger WHERE id = (SELECT min(id) FROM ledger WHERE source IS NULL)")
    (found,) = copy.audit().outcome.findings
    assert (found.code, found.evidence["kept"], found.evidence["found"]) == (CODE, 2, 1)


def test_what_an_erasure_let_expire_counts_until_then(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        forget(home, key="city", guard="expire=2099-01-01T00:00:00Z")

    copy = make(write)
    assert copy.codes() == set()
    copy.sql("UPDATE ledger SET expires_at = expires_at - 3600000000 WHERE expires_at IS NOT NULL")
    assert copy.codes() == {CODE}


def test_what_nobody_let_expire_has_no_end(make: Any) -> None:
    copy = make(corrections)
    copy.sql("UPDATE ledger SET expires_at = 1 WHERE source = 1")
    assert copy.codes() == {CODE}


def test_what_no_erasure_took_does_not_end_with_what_one_let_expire(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        forget(home, key="city", guard="expire=2099-01-01T00:00:00Z")

    copy = make(write)
    copy.sql(
        "UPDATE ledger SET expires_at = (SELECT max(expires_at) FROM ledger) WHERE source IS NOT NULL",
    )
    assert copy.codes() == {CODE}


def test_a_row_that_hides_its_fact_is_found(make: Any) -> None:
    copy = make(corrections)
    copy.sql("UPDATE ledger SET source = NULL WHERE source = 1")
    assert copy.codes() == {CODE, "FACT_ALTERED"}


def test_a_row_for_a_value_that_stands_is_found(make: Any) -> None:
    copy = make(corrections)
    copy.sql("UPDATE ledger SET source = 3 WHERE source = 2")
    assert copy.codes() == {CODE, "FACT_ALTERED"}


def test_after_an_erasure_that_gave_the_guard_up_nothing_is_missed(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        forget(home, key="city", guard="erase")

    assert make(write).codes() == set()


@pytest.mark.parametrize(
    "change",
    [
        "until = 3600000000 WHERE source = 1",
        "until = 9000000000000000 WHERE source = 4",
        "canon_version = 99 WHERE source = 2",
    ],
)
def test_a_row_that_counts_for_less_than_was_said_is_found(make: Any, change: str) -> None:
    copy = make(corrections)
    copy.sql(f"UPDATE ledger SET {change}")
    assert CODE in copy.codes()


def test_a_row_counts_until_what_a_record_said(make: Any) -> None:
    def write(home: Home) -> None:
        memory = home.memory(ME)
        memory.remember("the office is in Berlin", key="city", value="Berlin")
        memory.remember("in Bonn for now", key="city", value="Bonn", valid_until="2099-01-01T00:00:00Z")

    copy = make(write)
    assert copy.ask("SELECT count(*) FROM ledger WHERE until IS NOT NULL") == [(1,)]
    assert copy.codes() == set()
    copy.sql("UPDATE ledger SET until = until - 3600000000")
    assert copy.codes() == {CODE}


def test_what_an_erasure_kept_is_missed_also_beside_others(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        forget(home, key="city", guard="keep")
        forget(home, key="fax", guard="erase")

    copy = make(write)
    assert copy.codes() == set()
    # Of two, the other erasure may have taken one at most.
    copy.sql("DELETE FROM ledger WHERE source IS NULL")
    assert copy.codes() == {CODE, "RESIDUE_ROW"}, "and then nothing is left that the tenant's name is for"


def test_an_erasure_of_another_key_does_not_forgive_a_return(make: Any) -> None:
    def write(home: Home) -> None:
        corrections(home)
        forget(home, key="fax", guard="erase")

    copy = make(write)
    copy.sql("DELETE FROM ledger WHERE source = 1")
    with open_home(copy.home) as home:
        home.memory(ME).remember("the office is in Berlin", key="city", value="Berlin")
        home.publish()
    assert "RETIRED_RETURNED" in copy.codes()


def test_what_an_erasure_took_may_be_learnt_again(make: Any) -> None:
    def write(home: Home) -> None:
        memory = home.memory(ME)
        ids = [
            memory.remember(f"the office is in {city}", key="city", value=city)["id"]
            for city in ("Berlin", "Hamburg", "Bremen")
        ]
        forget(home, id=ids[0], guard="erase")
        memory.remember("the office is in Berlin", key="city", value="Berlin")

    copy = make(write)
    audited = copy.audit()
    assert audited.outcome.findings == ()
    assert any(note.check == "returned values" for note in audited.outcome.not_checked)
