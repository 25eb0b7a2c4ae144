"""State statements: at most one a day, none where nothing happens, no change to what is served, and counted again."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from auditor.states import check_states
from auditor.store_rows import read_rows
from memory import event
from memory.layout import make_home
from memory.model import SCOPES, Principal
from memory.state_statement import PERIOD, add_state
from memory.wiring import Home, open_home
from tlog import cbor
from tlog.errors import MalformedError
from tlog.trust import parse_trust

HOUR = 3_600_000_000
ONE = Principal("acme", "bot", "one", SCOPES)
TWO = Principal("globex", "bot", "one", SCOPES)


class Clock:
    """Stands where it is set; it begins now, for a home takes the time of its making from the system."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[Home]:
    make_home(tmp_path / "home", None, None, "on")
    with open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


def states(home: Home) -> list[event.Link]:
    with home.parts().store.read() as view:
        links = [event.decode_link(row[0]) for row in view.rows("SELECT link FROM events ORDER BY seq")]
    return [link for link in links if link.kind == "state"]


def found(home: Home, clock: Clock) -> set[tuple[str, str]]:
    trust = parse_trust((home.path / "trust.toml").read_text())
    audited = audit(Places(home.path), Asked(trust, clock.now), tenant=None, needles=None)
    return {(one.code, one.what) for one in audited.outcome.findings if "state statement" in one.what}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Three days with writes of two tenants, an erasure, and a day of nothing; and when it ended."""
    folder, clock = tmp_path_factory.mktemp("lived") / "home", Clock()
    make_home(folder, None, None, "on")
    with open_home(folder, clock=clock) as home:
        one, two = home.memory(ONE), home.memory(TWO)
        for number in range(4):
            clock.now += 20 * HOUR
            one.remember(f"note {number}", key="note", value=str(number))
            two.remember(f"other {number}", key="other", value=str(number))
            home.publish()
        preview = one.forget_preview(key="note")
        one.forget(key="note", confirm=preview["confirm"])
        clock.now += 30 * HOUR
        home.publish()
    return folder, clock.now


@pytest.fixture
def week(lived: tuple[Path, int], clock: Clock, tmp_path: Path) -> Iterator[Home]:
    """A copy of that."""
    folder, clock.now = lived
    shutil.copytree(folder, tmp_path / "week")
    with open_home(tmp_path / "week", clock=clock) as opened:
        yield opened


def test_there_is_one_a_day(home: Home, clock: Clock) -> None:
    memory = home.memory(ONE)
    start = clock.now
    sizes = []
    for hour in range(3, 78, 3):
        clock.now = start + hour * HOUR + 1_000_000
        memory.remember(f"note {hour}")
        home.publish()
        sizes.append(len(states(home)))
    assert sizes == [0] * 7 + [1] * 8 + [2] * 8 + [3] * 2


def test_an_idle_home_says_nothing(home: Home, clock: Clock) -> None:
    memory = home.memory(ONE)
    clock.now += 5 * PERIOD
    assert home.publish()["size"] == 0
    memory.remember("one thing")
    assert home.publish()["size"] == 2
    for _ in range(5):
        clock.now += 3 * PERIOD
        assert home.publish()["size"] == 2, "nothing came since the last state statement"
    memory.remember("another")
    assert home.publish()["size"] == 4


def test_a_young_home_says_nothing(home: Home, clock: Clock) -> None:
    home.memory(ONE).remember("one thing")
    clock.now += PERIOD - 2 * HOUR
    assert home.publish()["size"] == 1


def test_two_processes_say_it_once(home: Home, clock: Clock) -> None:
    home.memory(ONE).remember("one thing")
    clock.now += 2 * PERIOD
    with open_home(home.path, clock=clock) as other:
        home.publish()
        other.publish()
    assert len(states(home)) == 1


def test_who_comes_second_adds_nothing(home: Home, clock: Clock) -> None:
    home.memory(ONE).remember("one thing")
    counted = Counter({"write": 1})
    assert add_state(home.parts(), 0, 1, Counter(counted))
    assert not add_state(home.parts(), 0, 1, Counter(counted))
    assert [link.details["counts"] for link in states(home)] == [{"write": 1}]


def test_it_counts_what_there_is(week: Home) -> None:
    said = states(week)
    assert [link.details["number"] for link in said] == [1, 2, 3]
    assert said[0].details["counts"] == {"write": 4}
    assert said[-1].details["counts"] == {"write": 8, "erase": 1, "manifest": 1, "state": 2}
    assert said[-1].details["tombstone"][0] == said[-1].details["manifest"][0] == 1
    assert "tombstone" not in said[0].details


def test_it_changes_nothing_that_is_served(week: Home) -> None:
    memory = week.memory(TWO)
    assert memory.get("other")["current"] == "3"
    assert len(memory.history("other")["facts"]) == 4


def test_an_audit_agrees(week: Home, clock: Clock) -> None:
    trust = parse_trust((week.path / "trust.toml").read_text())
    audited = audit(Places(week.path), Asked(trust, clock.now), tenant=None, needles=None)
    assert audited.outcome.findings == ()
    assert audited.outcome.counts["states"] == 3


def forge(week: Home, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The operator signs the last state statement again, over what `change` makes of it."""
    with week.parts().store.write() as txn:
        seq = txn.view.rows("SELECT max(seq) FROM events")[0][0]
        row = txn.view.event_by_seq(seq)
        assert row is not None and row.content is not None and row.content_salt is not None
        link = event.decode_link(row.link)
        assert link.kind == "state"
        forged = event.Link(
            link.kind, link.seq, link.tenant, link.tenant_seq, link.acts, change(dict(link.details))
        ).encode()
        made = event.commit(forged, row.link_salt, row.content, row.content_salt)
        txn.connection.execute(
            "UPDATE events SET link = ?, commitment = ?, entry = ? WHERE seq = ?",
            (forged, made.commitment, week.parts().sign_entry(made.commitment), seq),
        )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda d: {**d, "counts": {**d["counts"], "write": d["counts"]["write"] - 1}}, "FACT_ALTERED"),
        (lambda d: {**d, "counts": {**d["counts"], "write": d["counts"]["write"] + 1}}, "SEQUENCE_GAP"),
        (lambda d: {**d, "counts": {}}, "FACT_ALTERED"),
        (lambda d: {**d, "sequences": bytes(32)}, "SEQUENCE_GAP"),
        (lambda d: {k: v for k, v in d.items() if k != "tombstone"}, "FACT_ALTERED"),
        (lambda d: {**d, "tombstone": [2, d["tombstone"][1]]}, "FACT_ALTERED"),
        (lambda d: {**d, "manifest": [1, bytes(32)]}, "FACT_ALTERED"),
        (lambda d: {**d, "number": 4}, "SEQUENCE_GAP"),
        (lambda d: {k: v for k, v in d.items() if k != "previous"}, "SEQUENCE_GAP"),
    ],
)
def test_a_false_state_is_found(
    week: Home, clock: Clock, change: Callable[[dict[str, Any]], dict[str, Any]], code: str
) -> None:
    assert found(week, clock) == set()
    forge(week, change)
    assert {one for one, _ in found(week, clock)} == {code}


def test_the_store_goes_on_from_the_last(week: Home, clock: Clock) -> None:
    with week.parts().store.write() as txn:
        txn.set_meta("state.last", cbor.encode([1, 1]))
    assert ("FACT_ALTERED", "The store would go on from another state statement than the last one.") in found(
        week, clock
    )


def test_one_tenant_alone_can_not_be_counted(week: Home) -> None:
    from auditor.snapshot import copy_store, read_only

    week.close()
    with copy_store(week.path) as snapshot, read_only(snapshot.pages()) as connection:
        rows = read_rows(connection, "globex")
    outcome = check_states(rows, ())
    assert outcome.findings == ()
    assert outcome.not_checked[0].check == "state"


@pytest.mark.parametrize("counts", [{"somebody": 1}, {"write": -1}, {"write": "x"}, {"write": True}, [1]])
def test_a_link_counts_kinds_alone(counts: object) -> None:
    with pytest.raises(MalformedError):
        event.Link("state", 1, bytes(16), 1, {}, {"counts": counts}).encode()
