"""Writes that share a commit: none is answered before it is durable, and a failing one harms no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory import store as store_module
from memory import together
from memory.model import Principal
from memory.remember import prepare
from memory.remember_many import Kept, remember_many
from memory.store import Store
from memory.store_write import Txn
from memory.vfs import MAX_PAGES
from memory.wiring import Home, open_home
from tlog.errors import MalformedError, RefusedError, UnavailableError

ADA = Principal("acme", "ada", "c")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home") as opened:
        opened.memory(ADA).remember("the first")
        yield opened


def at_once(store: Store, works: list[Any]) -> list[Any]:
    """What each write gave or raised, all of them waiting for the same turn."""
    results: list[Any] = [None] * len(works)

    def run(at: int) -> None:
        try:
            results[at] = store.write_together(works[at])
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- it is looked at
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]
    shared = store._together
    shared._led = True  # as if somebody were writing
    for thread in threads:
        thread.start()
    while len(shared._waiting) < len(works):
        pass
    leader = together._Job(refuse)
    leader.leads = True
    shared._leave(leader, [])
    for thread in threads:
        thread.join()
    return results


def note(name: str, value: int) -> Any:
    def work(txn: Txn) -> int:
        txn.set_meta(name, value)
        return value

    return work


def refuse(_: Txn) -> None:
    raise MalformedError("expected something else")


def write_and_fail(txn: Txn) -> None:
    txn.set_meta("left", 1)
    raise KeyError("broken")


def kept(store: Store, name: str) -> Any:
    with store.read() as view:
        return view.meta(name)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each transaction that was begun."""
    begun: list[int] = []
    real = Store._shared

    @contextmanager
    def counted(self: Store) -> Any:
        begun.append(1)
        with real(self) as new_txn:
            yield new_txn

    monkeypatch.setattr(Store, "_shared", counted)
    return begun


def test_writes_that_wait_share_a_commit(home: Home, commits: list[int]) -> None:
    store = open_store_of(home)
    assert at_once(store, [note(f"n{at}", at) for at in range(20)]) == list(range(20))
    assert len(commits) == 1
    assert [kept(store, f"n{at}") for at in range(20)] == list(range(20))


def open_store_of(home: Home) -> Store:
    """A store whose shared transactions are those that the test may have changed."""
    store = home.parts().store
    store._together = together.Together(lambda: store._shared())
    return store


def test_those_that_came_together_are_waited_for(
    home: Home, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOMENT", 60.0)
    store = open_store_of(home)
    assert store.write_all_together([note(f"n{at}", at) for at in range(3)]) == [0, 1, 2]
    shared, begun = store._together, len(commits)
    threads = [threading.Thread(target=store.write_together, args=(note(f"m{at}", at),)) for at in range(3)]
    for thread in threads[:2]:
        thread.start()
    while len(shared._waiting) < 2 and len(commits) == begun:
        pass
    assert len(commits) == begun
    threads[2].start()
    for thread in threads:
        thread.join()
    assert len(commits) == begun + 1
    assert [kept(store, f"m{at}") for at in range(3)] == [0, 1, 2]


def test_whoever_does_not_come_back_is_waited_for_once(
    home: Home, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOMENT", 0.001)
    store = open_store_of(home)
    store.write_all_together([note("a", 1), note("b", 2)])
    assert store.write_together(note("c", 3)) == 3
    assert store._together._company == 1
    assert len(commits) == 2


def test_what_is_larger_than_the_disk_harms_no_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a write wait for those of the others, and it is at their end that the disk is full."""
    parts = home.parts()
    with parts.store.read() as view:
        most = view.rows("PRAGMA page_count")[0][0] + 30
    pragmas = [pragma for pragma in store_module._PRAGMAS if pragma[0] != "max_page_count"]
    monkeypatch.setattr(store_module, "_PRAGMAS", [*pragmas, ("max_page_count", str(most), most)])
    parts.store.close()
    texts = ("before it", " ".join(f"word{number}" for number in range(25_000)), "after it")
    results = parts.store.write_all_together(
        [prepare(parts, ADA, {"text": text, "key": f"k/{at}"}) for at, text in enumerate(texts)]
    )
    assert [getattr(one, "code", None) for one in results] == [None, "disk_full", None]
    with parts.store.read() as view:
        assert list(view.rows("SELECT seq, tenant_seq FROM events")) == [(at, at) for at in range(1, 4)]


def test_more_than_one_transaction_holds(
    home: Home, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST", 4)
    assert at_once(open_store_of(home), [note(f"n{at}", at) for at in range(10)]) == list(range(10))
    assert len(commits) == 3


def test_one_that_fails_before_it_writes_leaves_the_others(home: Home, commits: list[int]) -> None:
    store = open_store_of(home)
    results = at_once(store, [note("a", 1), refuse, note("b", 2)])
    assert (results[0], results[2], len(commits)) == (1, 2, 1)
    assert isinstance(results[1], MalformedError)
    assert (kept(store, "a"), kept(store, "b")) == (1, 2)


def test_one_that_fails_after_it_wrote_is_undone_alone(home: Home) -> None:
    store = open_store_of(home)
    results = at_once(store, [note("a", 1), write_and_fail, note("b", 2), refuse])
    assert (results[0], results[2]) == (1, 2)
    assert isinstance(results[1], KeyError) and isinstance(results[3], MalformedError)
    assert (kept(store, "a"), kept(store, "b"), kept(store, "left")) == (1, 2, None)


def test_a_disk_that_is_full_amid_a_commit_costs_that_write_alone(home: Home) -> None:
    """SQLite takes the whole transaction back by itself then, and would run what follows outside of any."""

    def filled(txn: Txn) -> None:
        pages = txn.connection.execute("PRAGMA page_count").fetchall()[0][0]
        txn.connection.execute(f"PRAGMA max_page_count = {pages}")
        try:
            txn.set_meta("left", "x" * 30_000)
        finally:
            txn.connection.execute(f"PRAGMA max_page_count = {MAX_PAGES}")

    parts = home.parts()
    facts = [prepare(parts, ADA, {"text": text}) for text in ("before it", "after it", "and later")]
    results = parts.store.write_all_together([facts[0], filled, *facts[1:]])
    assert [getattr(one, "code", None) for one in results] == [None, "disk_full", None, None]
    with parts.store.read() as view:
        assert list(view.rows("SELECT seq, tenant_seq FROM events")) == [(at, at) for at in range(1, 5)]
        assert view.meta("left") is None


def test_a_commit_that_fails_is_told_to_all(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store_of(home)

    @contextmanager
    def full(self: Store) -> Any:
        with self.write() as txn:
            yield lambda: txn
            raise UnavailableError("the disk is full; nothing was stored", code="disk_full")

    real = Store._shared
    monkeypatch.setattr(store, "_shared", lambda: full(store))
    monkeypatch.setattr(Store, "write", _plain_write(real))
    results = at_once(store, [note("a", 1), note("b", 2)])
    assert [getattr(one, "code", None) for one in results] == ["disk_full", "disk_full"]
    assert (kept(store, "a"), kept(store, "b")) == (None, None)


def _plain_write(shared: Any) -> Any:
    @contextmanager
    def write(self: Store) -> Any:
        with shared(self) as new_txn:
            yield new_txn()

    return write


def test_the_next_write_goes_on_after_a_failure(home: Home) -> None:
    store = open_store_of(home)
    with pytest.raises(KeyError):
        store.write_together(write_and_fail)
    with pytest.raises(MalformedError):
        store.write_together(refuse)
    assert store.write_together(note("a", 1)) == 1


def test_facts_of_many_threads_are_all_there_and_in_one_order(home: Home) -> None:
    memory = home.memory(ADA)
    ids: list[str] = []

    def run(at: int) -> None:
        for number in range(10):
            ids.append(
                memory.remember(f"fact {at} {number}", key=f"k/{at % 4}", value=f"{at} {number}")["id"]
            )

    threads = [threading.Thread(target=run, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 80
    for key in range(4):
        facts = memory.history(f"k/{key}")["facts"]
        assert len(facts) == 20
        assert [fact["status"] for fact in facts].count("active") == 1
        recorded = [fact["recorded_at"] for fact in facts]
        assert recorded == sorted(recorded) and len(set(recorded)) == len(recorded)


def test_a_write_that_is_cut_short_while_it_waits_lets_the_others_on(home: Home) -> None:
    shared = open_store_of(home)._together
    for leads in (False, True):
        cut = together._Job(note("cut", 1))
        shared._led = True
        shared._waiting.append(cut)
        cut.leads = leads
        shared._leave(cut, [])
        assert shared._waiting == []
        shared._led = shared._led and leads
    assert open_store_of(home).write_together(note("a", 1)) == 1
    assert shared.write(note("b", 2)) == 2


def test_nobody_waits_for_a_leader_that_is_gone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store_of(home)

    def interrupt(_: Txn) -> None:
        raise KeyboardInterrupt

    results = at_once(store, [interrupt, note("a", 1), note("b", 2)])
    assert isinstance(results[0], KeyboardInterrupt)
    assert [getattr(one, "code", None) for one in results[1:]] == ["busy", "busy"]
    assert not store._together._led
    assert store.write_together(note("c", 3)) == 3


def test_a_write_that_is_woken_without_having_been_run_says_so(home: Home) -> None:
    """As when whoever took it was interrupted before its first."""
    shared = open_store_of(home)._together
    shared._led = True
    found: list[BaseException] = []

    def run() -> None:
        try:
            shared.write(note("a", 1))
        except UnavailableError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not shared._waiting:
        pass
    shared._waiting.pop().woken.release()
    thread.join()
    assert [getattr(error, "code", None) for error in found] == ["busy"]


def test_writes_that_come_together_keep_their_order_and_share_commits(
    home: Home, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST", 4)
    store, ran = open_store_of(home), []

    def work_of(at: int) -> Any:
        def work(txn: Txn) -> int:
            txn.set_meta("last", at)
            ran.append(at)
            return at

        return work

    assert store.write_all_together([work_of(at) for at in range(10)]) == list(range(10))
    assert (ran, len(commits), kept(store, "last")) == (list(range(10)), 3, 9)
    assert store.write_all_together([]) == []
    assert store.write_together(note("a", 1)) == 1


def test_of_writes_that_come_together_one_that_fails_harms_no_other(home: Home) -> None:
    store = open_store_of(home)
    results = store.write_all_together([note("a", 1), refuse, write_and_fail, note("b", 2)])
    assert (results[0], results[3]) == (1, 2)
    assert isinstance(results[1], MalformedError) and isinstance(results[2], KeyError)
    assert (kept(store, "a"), kept(store, "b"), kept(store, "left")) == (1, 2, None)


def test_many_at_once_from_many_threads_are_all_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MOST", 3)
    store = open_store_of(home)
    told: list[Any] = []

    def run(at: int) -> None:
        works = [note(f"n{at}-{number}", number) for number in range(7)]
        told.append([*store.write_all_together(works), store.write_together(works[0])])

    threads = [threading.Thread(target=run, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [[*range(7), 0]] * 8
    assert not store._together._waiting and not store._together._led


def test_many_that_are_cut_short_let_the_others_on(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MOST", 2)
    store = open_store_of(home)

    def interrupt(_: Txn) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write_all_together([note("a", 1), note("b", 2), interrupt, note("c", 3), note("d", 4)])
    assert (kept(store, "b"), kept(store, "c"), kept(store, "d")) == (2, None, None)
    assert not store._together._waiting and not store._together._led
    assert store.write_together(note("e", 5)) == 5


def test_many_facts_are_remembered_as_each_alone(home: Home) -> None:
    def fact(value: str, **more: Any) -> tuple[Principal, dict[str, Any]]:
        arguments = {"text": f"svc is in {value}", "key": "svc/region", "value": value, **more}
        return more.pop("by", ADA), {name: said for name, said in arguments.items() if name != "by"}

    first = fact("oslo", idempotency_key="one")
    found = remember_many(
        home.parts(),
        [
            first,
            first,
            fact("rome"),
            fact("oslo"),
            fact("", by=ADA),
            fact("kyiv", by=Principal("acme", "ada", "other")),
            fact("rome", idempotency_key="one"),
            fact("kyiv", by=Principal("acme", "ada", "c", frozenset())),
        ],
    )
    told = [
        (one.answer["outcome"], one.known) if isinstance(one, Kept) else getattr(one, "code", None)
        for one in found
    ]
    assert told[:4] == [("stored", False), ("stored", True), ("superseded", False), ("refused", False)]
    assert isinstance(found[4], MalformedError)
    assert told[5:7] == [("conflict", False), "idempotency_conflict"]
    assert isinstance(found[7], RefusedError)
    answers = [one.answer for one in found if isinstance(one, Kept)]
    assert {answer["receipt"]["state"] for answer in answers} == {"pending"}
    assert len(home.memory(ADA).history("svc/region")["facts"]) == 3


def test_what_fails_without_reason_is_raised(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("broken")

    monkeypatch.setattr("memory.remember._write", broken)
    with pytest.raises(KeyError):
        remember_many(home.parts(), [(ADA, {"text": "a"})])
