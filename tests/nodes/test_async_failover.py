"""A standby that lacks acknowledged writes is promoted: every node finds out, and nothing is forked or replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import postgres_cluster
import pytest
from home_nodes import make_homes
from storm import ROLES, dsn

from memory import doctor_log, wiring
from memory.home_names import COSE_KEYS
from memory.operator import Operator
from memory.principal import owner_from_environment
from memory.wiring import Home
from tlog.bucket import open_bucket
from tlog.errors import Error, UnavailableError
from tlog.keys import load_cose_key

WHO = owner_from_environment({})


@dataclass
class Pair:
    """Two nodes over a primary and a standby that hears of it late, or no more."""

    homes: list[Home]
    primary: postgres_cluster.Server
    standby: postgres_cluster.Server
    proxy: Any

    def wait_for_standby(self) -> None:
        with self.primary.connect() as connection:
            (position,) = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        for _ in range(600):
            with self.standby.connect() as connection:
                if connection.execute("SELECT pg_last_wal_replay_lsn() >= %s", (position,)).fetchone()[0]:
                    return
            time.sleep(0.05)
        raise AssertionError("the standby does not follow")

    def part(self) -> None:
        """What is committed from now on the standby never hears of."""
        self.proxy.refusing = True
        self.proxy.cut()

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()

    def objects(self) -> dict[str, bytes]:
        """What everybody sees, and what only the home does: all objects."""
        bucket = open_bucket(self.homes[0].config.log_storage or "")
        return {name: stood.data for name in bucket.names("") if (stood := bucket.get(name)) is not None}


@pytest.fixture
def pair(tmp_path: Path, object_store: Any, place: Any) -> Iterator[Pair]:
    with ExitStack() as stack:
        primary, standby, proxy = stack.enter_context(postgres_cluster.with_lagging_standby())
        with primary.connect() as connection:
            for statement in ROLES:
                connection.execute(statement)
        both = dsn([primary.port, standby.port])
        folders = make_homes(tmp_path / "homes", 2, both, place()["bucket"])
        homes = [stack.enter_context(wiring.open_existing_home(folder)) for folder in folders]
        yield Pair(homes, primary, standby, proxy)


def remember(home: Home, number: int) -> None:
    for _ in range(100):
        try:
            home.memory(WHO).remember(f"fact {number}", key=f"key/{number}", value=f"v{number}")
            return
        except UnavailableError:  # of a connection to the server that is gone
            time.sleep(0.1)
    raise AssertionError("nothing can be written")


def code_of_publication(home: Home) -> str:
    for _ in range(100):
        try:
            home.publish()
            return "published"
        except UnavailableError:
            time.sleep(0.1)
        except Error as error:
            return error.code
    raise AssertionError("a publication never got an answer")


def test_every_node_finds_that_acknowledged_writes_are_missing_and_forks_nothing(pair: Pair) -> None:
    first, second = pair.homes
    for number in range(3):
        remember(first, number)
    first.publish()
    pair.wait_for_standby()
    pair.part()
    for number in range(3, 6):
        remember(second, number)
    assert second.publish()["size"] == 6
    before = pair.objects()
    pair.fail_over()
    # The writes are gone from the store, and their indexes are taken in a log that everybody may have seen.
    with first.parts().store.read_whole() as view:
        assert view.last_logged_index() == 2
    for number in range(6, 9):
        remember(pair.homes[number % 2], number)
    with wiring.open_existing_home(first.path) as fresh:
        for home in (*pair.homes, fresh):
            assert code_of_publication(home) == "rolled_back"
            (found,) = doctor_log.checkpoint(home)
            assert (found.result, found.check) == ("fail", "rolled_back") and "promoted" in found.text
    assert pair.objects() == before
    # What was written since waits, and goes nowhere.
    with second.parts().store.read_whole() as view:
        assert len(view.unlogged(10)) == 3


def test_keys_that_the_promoted_standby_never_heard_of_are_told_to_it(pair: Pair) -> None:
    first, second = pair.homes
    remember(first, 0)
    first.publish()
    pair.wait_for_standby()
    pair.part()
    # Nothing is published, so the log itself lacks nothing.
    old = load_cose_key(first.path / "keys" / COSE_KEYS["receipt"]).kid
    made = first.state.make_key("receipt")
    pair.fail_over()
    assert made.key_id != old
    remember(second, 1)
    assert code_of_publication(second) == "published"
    assert Operator(second).rotate("receipt", None, 20)["state"] == "rotated"
    assert code_of_publication(first) == "published"
    assert (
        load_cose_key(first.path / "keys" / COSE_KEYS["receipt"]).kid
        == load_cose_key(second.path / "keys" / COSE_KEYS["receipt"]).kid
        != old
    )


def test_where_the_standby_has_all_of_it_nothing_is_missing(pair: Pair) -> None:
    """The control: the same, but for what was lost."""
    first, second = pair.homes
    for number in range(6):
        remember(first, number)
    first.publish()
    pair.wait_for_standby()
    pair.part()
    pair.fail_over()
    remember(second, 6)
    assert code_of_publication(second) == "published"
    assert first.log().head().size == 7
    (found, *_) = doctor_log.checkpoint(first)
    assert found.result == "ok"
