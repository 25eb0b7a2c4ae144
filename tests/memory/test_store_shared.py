"""Writes of one transaction do what they do one after the other, though what they look up and note is kept for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ticking import Clock

from memory.model import Principal
from memory.remember import prepare
from memory.scope import make_scope
from memory.search import scope_token
from memory.service import Memory
from memory.store import Store
from memory.store_write import Txn
from memory.wiring import Home
from tlog.errors import MalformedError
from tlog.statement import parse_statement

KEY = "svc/region"
DESK = Principal("acme", "ops", "desk")


@pytest.fixture
def store(home: Home) -> Store:
    home.memory(DESK).remember("the first of this home", key="first")
    return home.parts().store


@pytest.fixture
def together(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Txn]]:
    """As long as a test runs, every write is one of the same transaction, which this gives."""
    with store._shared() as next_write:
        monkeypatch.setattr(store, "write_together", lambda work: work(next_write()))
        yield next_write
        monkeypatch.undo()


def say(memory: Memory, value: str, **more: Any) -> str:
    answer = memory.remember(f"svc is in {value}", key=KEY, value=value, **more)
    return str(answer["reason"] or answer["outcome"])


def noted(store: Store) -> tuple[int, list[tuple[int, int]]]:
    """The last time, and of each tenant how many statements are noted and how many there are."""
    with store.read() as view:
        tenants = view.rows(
            "SELECT last_seq, (SELECT max(tenant_seq) FROM events WHERE tenant = t.id) FROM tenants t ORDER BY id"
        )
        return view.last_recorded_at(), [(row[0], row[1]) for row in tenants]


def test_what_the_next_transaction_goes_on_from_is_noted(home: Home, clock: Clock, store: Store) -> None:
    stopped = clock.now
    with store._shared() as next_write:
        for tenant in ("acme", "acme-evil", "acme", "acme-evil", "acme"):
            clock.now = stopped
            txn = next_write()
            row = txn.make_tenant(tenant, home.parts().vault.index_tag("tenant", tenant))
            now = txn.stamp(clock())
            txn.add_event(row, "write", {"recorded_at": now, "text": "x"}, sign=home.parts().sign_entry)
    with store.read() as view:
        contents = [row.content for row in (view.event_by_seq(seq) for seq in range(1, 7)) if row is not None]
    assert len(set(contents)) == 6  # their times alone tell five of them apart
    last, tenants = noted(store)
    assert tenants == [(4, 4), (2, 2)]
    clock.now = stopped
    home.memory(DESK).remember("later", key="later")
    assert noted(store)[0] == last + 1


def test_one_that_is_undone_leaves_no_gap(home: Home, store: Store) -> None:
    before = noted(store)
    with pytest.raises(KeyError), store._shared() as next_write:
        tenant = next_write().make_tenant("acme", home.parts().vault.index_tag("tenant", "acme"))
        txn = next_write()
        txn.add_event(tenant, "write", {"recorded_at": txn.stamp(home.clock())}, sign=home.parts().sign_entry)
        raise KeyError
    assert noted(store) == before
    home.memory(DESK).remember("after it", key="after")
    assert noted(store)[1] == [(2, 2)]


@pytest.mark.usefixtures("together")
def test_what_one_write_said_another_knows(home: Home) -> None:
    desk = home.memory(DESK)
    assert [say(desk, value) for value in ("oslo", "rome", "rome", "oslo")] == [
        "stored",
        "superseded",
        "agreed",
        "echo",
    ]


def test_what_one_write_said_ahead_begins_in_another(
    home: Home, clock: Clock, together: Callable[[], Txn]
) -> None:
    desk = home.memory(DESK)
    say(desk, "oslo")
    assert say(desk, "rome", valid_from=clock.second(60)) == "stored"
    clock.pass_seconds(120)
    desk.remember("something else", key="other")
    assert [row[0] for row in together().view.rows("SELECT act FROM acts ORDER BY id")] == [
        "begins",
        "retires",
    ]


@pytest.mark.usefixtures("together")
def test_what_one_write_retires_for_a_time_another_retires_for_good(home: Home, clock: Clock) -> None:
    desk = home.memory(DESK)
    say(desk, "oslo")
    assert say(desk, "rome", valid_until=clock.second(60)) == "superseded"
    assert say(desk, "kyiv") == "superseded"
    clock.pass_seconds(120)
    assert say(desk, "oslo") == "echo"


def test_a_key_of_which_the_ledger_alone_tells_is_known(home: Home, store: Store) -> None:
    desk = home.memory(DESK)
    say(desk, "oslo")
    say(desk, "rome")
    with store.write() as txn:
        txn.connection.execute("DELETE FROM facts WHERE seq > 1")
    assert say(desk, "oslo") == "echo"


def test_statements_wait_to_be_signed_and_inserted_until_something_is_asked(
    home: Home, together: Callable[[], Txn]
) -> None:
    desk, signed = home.memory(DESK), []
    for number in range(3):
        desk.remember(f"fact {number}", key=f"key/{number}", value=str(number))
    txn: Any = together()
    below = txn.connection.connection
    assert below.execute("SELECT count(*) FROM events").fetchall() == [(1,)]
    assert say(desk, "oslo") == "stored"
    assert below.execute("SELECT count(*) FROM events").fetchall() == [(1,)]
    assert desk.remember("fact 2", key="key/2", value="another")["outcome"] == "superseded"
    for commitment, entry in txn.view.rows("SELECT commitment, entry FROM events ORDER BY seq"):
        assert parse_statement(entry).payload_hash == commitment
        signed.append(commitment)
    assert len(set(signed)) == 6
    counts = "SELECT (SELECT count(*) FROM contents), (SELECT count(*) FROM facts)"
    assert below.execute(counts).fetchall() == [(6, 6)]
    assert len(txn.view.matching(f'"{scope_token(agent_of(home))}fact"')) == 3 + 1


def agent_of(home: Home) -> bytes:
    with home.parts().store.read() as view:
        tenant = view.tenant(home.parts().vault.index_tag("tenant", DESK.tenant))
        assert tenant is not None
        return make_scope(home.parts().vault, tenant, DESK.agent).agent_tag


def test_one_that_is_refused_after_it_has_looked_leaves_what_waited(home: Home, store: Store) -> None:
    parts, begun = home.parts(), []

    def look(txn: Txn) -> None:
        begun.append(len(txn.view.rows("SELECT 1 FROM facts")))
        raise MalformedError("expected something else")

    works: list[Any] = [prepare(parts, DESK, {"text": "one", "key": "k/1"}), look]
    works.append(prepare(parts, DESK, {"text": "two", "key": "k/2"}))
    results = store.write_all_together(works)
    assert isinstance(results[1], MalformedError) and begun == [2]
    with store.read() as view:
        assert view.rows("SELECT seq FROM facts ORDER BY seq") == [(1,), (2,), (3,)]
