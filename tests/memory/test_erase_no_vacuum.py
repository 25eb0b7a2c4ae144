"""An erasure never writes the whole store anew: no VACUUM is asked for, by any connection, whatever is erased."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import store, wiring

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import forget, write


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The first word of every statement that a connection of a store is given."""
    words: list[str] = []
    connect = store._connect

    def watched(path: Path, *more: Any) -> apsw.Connection:
        connection = connect(path, *more)
        connection.trace_v2(
            apsw.SQLITE_TRACE_STMT, lambda event: words.append(event["sql"].split()[0].upper())
        )
        return connection

    monkeypatch.setattr(store, "_connect", watched)
    yield words


def test_no_erasure_asks_for_a_vacuum(tmp_path: Path, asked: list[str]) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        for number in range(6):
            write(
                home,
                f"Note {number}.",
                key=f"a/{number}",
                value=f"value {number}",
                subject=f"person {number}",
            )
        asked.clear()
        assert forget(home, key="a/1")["state"] == "closed_complete"
        assert forget(home, subject="person 2")["state"] == "closed_complete"
        assert forget(home, all=True)["state"] == "closed_complete"
        assert "DELETE" in asked and "VACUUM" not in asked


def test_one_that_is_asked_for_is_noticed(tmp_path: Path, asked: list[str]) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        home.parts()
    connection = store._connect(tmp_path / "home" / "store.db")
    connection.execute("VACUUM")
    connection.close()
    assert "VACUUM" in asked
