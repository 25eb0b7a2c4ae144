"""A value ledger that was wiped, thinned, or made to forget: found from what the statements imply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from copies import Copy

from memory.model import SCOPES, Principal
from memory.wiring import Home, init_home
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
