"""An audit finds what an operator does against a hold, or with a false declaration of loss, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import vfs, wiring
from memory.principal import owner_from_environment

ME = owner_from_environment({})
DANA = "Dana Scully"
DAY = 86_400_000_000


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        memory = opened.memory(ME)
        memory.remember("Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        memory.remember("Fox has the basement.", key="fox/office", value="basement", subject="Fox")
        yield opened


def hold(home: wiring.Home) -> Any:
    return home.memory(ME).hold(authority="Court", review_by=int(time.time()) + 30 * 86_400, subject=DANA)


def codes(home: wiring.Home, ahead: int = 60_000_000) -> set[str]:
    """What an audit finds, so many microseconds from now."""
    home.publish()
    home.close()
    asked = Asked(home.trust(), home.clock() + ahead)
    made = audit(Places(home.path), asked, tenant=None, needles=None)
    return {one.code for one in made.outcome.findings}


def change(home: wiring.Home, *statements: str) -> None:
    """The operator's own hand in the store, through the file layer, so that no byte gives it away."""
    home.close()
    connection = apsw.Connection(str(home.path / "store.db"), vfs=vfs.register())
    for statement in ("PRAGMA secure_delete = ON", *statements, "PRAGMA wal_checkpoint(TRUNCATE)"):
        connection.execute(statement).fetchall()
    connection.close()


def test_a_hold_and_its_release_are_nothing_to_find(home: wiring.Home) -> None:
    made = hold(home)
    assert codes(home) == set()
    home.memory(ME).release(made["id"], "Court")
    assert codes(home) == set()


def test_a_record_on_hold_that_the_store_serves_is_found(home: wiring.Home) -> None:
    hold(home)
    change(home, "UPDATE facts SET on_hold = 0")
    assert codes(home) == {"HELD_AND_SERVED"}


def test_a_record_that_the_store_holds_back_by_itself_is_found(home: wiring.Home) -> None:
    change(home, "UPDATE facts SET on_hold = 1 WHERE seq = 2")
    assert codes(home) == {"FACT_ALTERED"}


def test_a_record_that_was_erased_under_a_hold_is_found(home: wiring.Home) -> None:
    hold(home)
    change(home, "UPDATE facts SET on_hold = 0")
    memory = home.memory(ME)
    memory.forget(confirm=memory.forget_preview(subject=DANA)["confirm"], subject=DANA)
    assert "HOLD_BROKEN" in codes(home)


def test_a_hold_that_nobody_reviewed_is_found(home: wiring.Home) -> None:
    hold(home)
    assert "HOLD_OVERDUE" not in codes(home, ahead=29 * DAY)
    assert "HOLD_OVERDUE" in codes(home, ahead=31 * DAY)


def test_a_loss_that_is_none_is_found(home: wiring.Home) -> None:
    """Nobody gets rid of a statement by calling it lost, least of all one that is there."""
    with home.parts().store.read() as view:
        there = view.event_by_seq(1)
    assert there is not None
    for named in (there.commitment, b"\1" * 32):
        with home.parts().store.write() as txn:
            txn.add_event(
                txn.view.tenant_by_id(1),
                "lost",
                {"recorded_at": txn.stamp(home.clock())},
                sign=home.parts().sign_entry,
                details={"count": 1, "statements": [named]},
            )
        assert codes(home) == {"WRITE_LOST", "FACT_ALTERED"}


def test_a_statement_that_is_gone_is_missing_until_it_is_declared(home: wiring.Home) -> None:
    home.publish()
    change(home, "DELETE FROM contents WHERE seq = 2", "DELETE FROM facts WHERE seq = 2")
    assert "WRITE_MISSING" in codes(home)
