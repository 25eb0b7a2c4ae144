from __future__ import annotations

import resource
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.note import format_note
from witness import store as stores
from witness.decide import KnownHead, Suspect
from witness.records import Cosigned
from witness.store import Store, create_store, open_store
from witness.wire import origin_digest


@pytest.fixture
def cosigned(log: Any, sim: Any) -> Any:
    """What is stored after cosigning a log at a size."""

    def make(size: int, time: int = 100, source: Any = log) -> Cosigned:
        lines = (sim.make_cosigner().cosign(source.note(size).text, time),)
        return Cosigned(
            KnownHead(size, source.checkpoint(size).root), time, format_note(source.note(size)), lines
        )

    return make


def test_a_known_log_has_its_keys_and_no_head_yet(store: Store, log: Any) -> None:
    record = store.log(log.origin)
    assert record is not None
    assert (record.keys, record.cosigned) == ((log.signer.verifier_key,), None)
    assert store.log("log.example/other") is None
    assert store.logs() == (record,)


def test_what_was_stored_is_read_back_by_another_process(
    store: Store, state: Path, log: Any, cosigned: Any
) -> None:
    assert store.advance(log.origin, None, cosigned(5))
    other = open_store(state)
    record = other.log(log.origin)
    assert record is not None
    assert record.cosigned == cosigned(5)
    assert other.log_by_digest(origin_digest(log.origin)) == record
    assert other.log_by_digest(b"\0" * 32) is None
    other.close()


def test_advances_only_from_the_last_head(store: Store, log: Any, cosigned: Any) -> None:
    fork = log.fork_at(3)
    assert not store.advance(log.origin, cosigned(5), cosigned(6))  # there is none yet
    assert store.advance(log.origin, None, cosigned(5))
    assert not store.advance(log.origin, None, cosigned(5, source=fork))
    assert not store.advance(log.origin, cosigned(4), cosigned(6))
    assert not store.advance(log.origin, cosigned(5, source=fork), cosigned(6))  # same size, other root
    assert store.advance(log.origin, cosigned(5), cosigned(6))
    assert not store.advance(log.origin, cosigned(5), cosigned(7))
    record = store.log(log.origin)
    assert record is not None
    assert record.cosigned == cosigned(6)


def test_never_goes_back_in_time(store: Store, log: Any, cosigned: Any) -> None:
    assert store.advance(log.origin, None, cosigned(5, 100))
    assert not store.advance(log.origin, cosigned(5, 100), cosigned(5, 99))
    assert store.advance(log.origin, cosigned(5, 100), cosigned(5, 100))
    # Another process has cosigned the same head since, and later: its time must stay.
    assert store.advance(log.origin, cosigned(5, 100), cosigned(5, 200))
    assert not store.advance(log.origin, cosigned(5, 100), cosigned(6, 150))


def test_an_unknown_log_is_never_advanced(store: Store, cosigned: Any) -> None:
    assert not store.advance("log.example/other", None, cosigned(5))


@pytest.mark.parametrize("size", [2**63 - 1, 0])
def test_holds_the_extreme_sizes(store: Store, log: Any, cosigned: Any, size: int) -> None:
    extreme = replace(cosigned(5), head=KnownHead(size, b"\1" * 32), time=2**63 - 1)
    assert store.advance(log.origin, None, extreme)
    record = store.log(log.origin)
    assert record is not None
    assert record.cosigned == extreme


def test_of_two_stores_and_many_threads_one_advances(state: Path, log: Any, cosigned: Any) -> None:
    opened = [open_store(state), open_store(state)]
    won: list[bool] = []
    for size in range(1, 11):
        last = cosigned(size - 1) if size > 1 else None
        won.clear()
        barrier = threading.Barrier(6)

        def attempt(
            store: Store, new: Cosigned, last: Cosigned | None = last, barrier: Any = barrier
        ) -> None:
            barrier.wait()
            won.append(store.advance(log.origin, last, new))

        news = [replace(cosigned(size), time=100 + i) for i in range(6)]
        threads = [threading.Thread(target=attempt, args=(opened[i % 2], news[i])) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False] * 5 + [True]
        record = opened[0].log(log.origin)
        assert record is not None
        assert record.cosigned is not None
        assert record.cosigned.head == cosigned(size).head
    for one in opened:
        one.close()


def test_a_busy_database_is_unavailable_not_unsafe(
    store: Store, state: Path, log: Any, cosigned: Any
) -> None:
    blocker = open_store(state)
    store._connection.set_busy_timeout(10)
    blocker._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError):
        store.advance(log.origin, None, cosigned(5))
    blocker._connection.execute("ROLLBACK")
    blocker.close()
    record = store.log(log.origin)
    assert record is not None
    assert record.cosigned is None


def test_a_full_disk_is_noticed_by_whoever_asks_whether_it_can_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PROBE_SECONDS", 0.0)
    store.check_writable()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (0, hard)
    )  # no file may grow, nor be written: as on a full disk
    try:
        with pytest.raises(UnavailableError):
            store.check_writable()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.check_writable()


def test_whoever_asks_often_whether_it_can_store_wears_no_disk(
    store: Store, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PROBE_SECONDS", 1000.0)
    log = state / "witness.db-wal"
    before = log.stat().st_size
    store.check_writable()
    once = log.stat().st_size
    for _ in range(100):
        store.check_writable()
    assert log.stat().st_size == once > before


def test_a_state_of_an_earlier_version_gets_the_table_that_readiness_writes(state: Path) -> None:
    store = open_store(state)
    store._connection.execute("DROP TABLE probe")
    store.close()
    store = open_store(state)
    store.check_writable()
    store.close()


def test_every_commit_is_flushed(store: Store) -> None:
    assert store._connection.pragma("journal_mode") == "wal"
    assert store._connection.pragma("synchronous") == 2
    assert store._connection.pragma("foreign_keys") == 1


def test_adding_a_log_twice_changes_nothing(store: Store, log: Any, sim: Any) -> None:
    assert not store.add_log(log.origin, log.signer.verifier_key)
    second = sim.make_log_signer(seed=9).verifier_key
    assert store.add_log(log.origin, second)
    record = store.log(log.origin)
    assert record is not None
    assert set(record.keys) == {log.signer.verifier_key, second}


def test_adding_a_key_leaves_the_head(store: Store, log: Any, sim: Any, cosigned: Any) -> None:
    assert store.advance(log.origin, None, cosigned(5))
    assert store.add_log(log.origin, sim.make_log_signer(seed=9).verifier_key)
    record = store.log(log.origin)
    assert record is not None
    assert record.cosigned == cosigned(5)


def test_an_origin_need_not_be_the_name_of_the_key(store: Store, log: Any) -> None:
    assert store.add_log("rekor.example - 2605736670972794746", log.signer.verifier_key)


@pytest.mark.parametrize("origin", ["", "two\nlines", "tab\there", "x" * 256])
def test_refuses_an_origin_that_no_checkpoint_can_have(store: Store, log: Any, origin: str) -> None:
    with pytest.raises(MalformedError):
        store.add_log(origin, log.signer.verifier_key)
    assert len(store.logs()) == 1


def test_refuses_the_key_of_a_witness_as_that_of_a_log(store: Store, sim: Any) -> None:
    with pytest.raises(MalformedError):
        store.add_log("log.example/x", sim.make_cosigner().verifier_key)


def suspect(source: Any, size: int, kind: Any = "fork") -> Suspect:
    return Suspect(kind, KnownHead(size, source.checkpoint(size).root), source.note(size))


def test_keeps_both_notes_of_a_fork_once(store: Store, log: Any, cosigned: Any) -> None:
    fork = log.fork_at(3)
    store.advance(log.origin, None, cosigned(5))
    for time in (1000, 2000):
        store.record_evidence(log.origin, cosigned(5), suspect(fork, 5), time)
    (one,) = store.evidence()
    assert (one.kind, one.origin, one.recorded_at) == ("fork", log.origin, 1000)
    assert one.note == format_note(fork.note(5))
    assert one.known_note == format_note(log.note(5))
    assert (one.head.size, one.known.size) == (5, 5)
    assert one.head.root != one.known.root


def test_unproven_heads_can_neither_fill_the_disk_nor_drive_out_a_fork(
    store: Store, log: Any, cosigned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_UNPROVEN_PER_LOG", 5)
    store.record_evidence(log.origin, cosigned(5), suspect(log.fork_at(3), 5), 1)
    for size in range(6, 30):
        store.record_evidence(log.origin, cosigned(5), suspect(log, size, "unproven"), size)
    assert [(one.kind, one.head.size) for one in store.evidence()] == [
        ("fork", 5),
        *(("unproven", size) for size in range(25, 30)),
    ]


def test_forks_are_kept_up_to_a_limit(
    store: Store, log: Any, cosigned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_FORKS_PER_LOG", 3)
    for number in range(5):
        fork = log.fork_at(3, b"fork %d" % number)
        store.record_evidence(log.origin, cosigned(5), suspect(fork, 5), number)
    assert [one.recorded_at for one in store.evidence()] == [0, 1, 2]


# A state that lost something


def test_refuses_a_folder_without_a_witness(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="muniment witness init") as caught:
        open_store(tmp_path)
    assert caught.value.code == "not_initialised"
    assert list(tmp_path.iterdir()) == []


def test_refuses_to_start_when_the_database_is_lost_and_says_what_to_do(state: Path) -> None:
    for file in state.glob("witness.db*"):
        file.unlink()
    with pytest.raises(RefusedError, match="Put the database back") as caught:
        open_store(state)
    assert caught.value.code == "state_lost"
    assert not (state / "witness.db").exists()


def test_refuses_an_emptied_database(state: Path) -> None:
    (state / "witness.db").write_bytes(b"")
    with pytest.raises(RefusedError) as caught:
        open_store(state)
    assert caught.value.code == "state_lost"


def test_refuses_a_damaged_database(state: Path) -> None:
    (state / "witness.db").write_bytes(b"not a database, and longer than a header of one is" * 100)
    with pytest.raises(RefusedError) as caught:
        open_store(state)
    assert caught.value.code == "state_lost"


def test_refuses_the_database_of_another_witness(state: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    create_store(other, "witness.example/other", [])
    (other / "witness.db").replace(state / "witness.db")
    with pytest.raises(RefusedError) as caught:
        open_store(state)
    assert caught.value.code == "state_lost"


def test_refuses_a_database_whose_marker_is_gone(state: Path) -> None:
    (state / "witness.json").unlink()
    with pytest.raises(RefusedError) as caught:
        open_store(state)
    assert caught.value.code == "state_lost"


@pytest.mark.parametrize("marker", [b"", b"[]", b"{}", b"\xff", b'{"version": 2}'])
def test_refuses_a_damaged_marker(state: Path, marker: bytes) -> None:
    (state / "witness.json").write_bytes(marker)
    with pytest.raises(MalformedError):
        open_store(state)


@pytest.mark.parametrize("lost", ["witness.json", "witness.db"])
def test_never_makes_a_store_over_the_rest_of_one(state: Path, lost: str) -> None:
    (state / lost).unlink()
    with pytest.raises(RefusedError) as caught:
        create_store(state, "witness.example/w", [])
    assert caught.value.code == "exists"


def test_files_are_for_their_owner_only(state: Path) -> None:
    for name in ("witness.db", "witness.json"):
        assert (state / name).stat().st_mode & 0o077 == 0


def test_another_user_s_state_is_left_alone(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root would write files there that the service can't read."""
    owner = state.stat().st_uid
    monkeypatch.setattr("witness.store.os.geteuid", lambda: owner + 1)
    with pytest.raises(RefusedError) as caught:
        open_store(state)
    assert caught.value.code == "not_owner"
