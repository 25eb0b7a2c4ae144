"""Publishing is resumable between any two steps, loses nothing, doubles nothing, and signs nothing false."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import publish as publishing
from memory import wiring
from memory.principal import owner_from_environment
from memory.remember import remember
from memory.store_write import Txn
from tlog.client import LogClient
from tlog.errors import UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.keys import KeyCosigner, make_cosigner_key
from tlog.log import Log
from tlog.note import parse_note
from tlog.policy import Policy, verify_checkpoint

ME = owner_from_environment({})


class Killed(BaseException):
    """What a kill -9 looks like from inside: nothing but the process's own end catches it."""


class Witness:
    """A witness that is as good as its word: it cosigns what it is asked to while it is up."""

    def __init__(self, folder: Path) -> None:
        self.cosigner: KeyCosigner = make_cosigner_key(folder / "w.key", "witness.example/one")
        self.up = True

    @property
    def policy_text(self) -> str:
        return f"witness one {self.cosigner.verifier_key.vkey} http://127.0.0.1:9\nquorum one\n"

    def of(self, _: Policy) -> Any:
        def cosign(note: bytes, prove: Any, previous_size: int, deadline_seconds: float) -> Any:
            return (self.cosigner.cosign(parse_note(note).text, 1_790_000_000),) if self.up else ()

        return cosign


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def write(home: wiring.Home, count: int, start: int = 0) -> list[str]:
    answers = [
        remember(home.parts(), ME, {"text": f"Fact number {number} is here."})
        for number in range(start, start + count)
    ]
    return [answer["id"] for answer in answers]


def assert_store_and_log_agree(home: wiring.Home) -> None:
    """Every statement stands in the log, once, at the index that the store says."""
    log = home.log()
    with home.parts().store.read_whole() as view:
        assert view.unlogged(1) == ()
        count = view.counts()["statements"]
        rows = [view.event_by_seq(seq) for seq in range(1, count + 1)]
    assert log.head().size == count
    for row in rows:
        assert row is not None and row.entry_index is not None
        assert log.read_entry(row.entry_index) == row.entry
    assert sorted(row.entry_index for row in rows if row is not None) == list(range(count))  # type: ignore[type-var]


def test_every_statement_is_logged_in_order_and_public(home: wiring.Home) -> None:
    write(home, 5)
    answer = home.publish()
    assert (answer["size"], answer["state"]) == (5, "logged")
    assert_store_and_log_agree(home)
    client = LogClient.from_folder(home.path / "log", home.policy())
    assert client.checkpoint().checkpoint.size == 5


def test_publishing_again_adds_nothing(home: wiring.Home) -> None:
    write(home, 3)
    first = home.publish()
    assert home.publish() == first
    assert home.publish_if_needed() is None
    write(home, 1, start=3)
    assert home.publish_if_needed()["size"] == 4  # type: ignore[index]
    assert_store_and_log_agree(home)


def test_more_than_one_batch_is_published(home: wiring.Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "BATCH", 3)
    write(home, 8)
    assert home.publish()["size"] == 8
    assert_store_and_log_agree(home)


def before(owner: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def arm(monkeypatch: pytest.MonkeyPatch) -> None:
        def kill(*_: Any, **__: Any) -> Any:
            raise Killed

        monkeypatch.setattr(owner, name, kill)

    return arm


def after(owner: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def arm(monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def kill(*args: Any, **kwargs: Any) -> Any:
            original(*args, **kwargs)
            raise Killed

        monkeypatch.setattr(owner, name, kill)

    return arm


@pytest.mark.parametrize(
    "arm",
    [
        before(Log, "append"),
        after(Log, "append"),
        before(Txn, "set_entry_indexes"),
        after(Txn, "set_entry_indexes"),
        before(Log, "publish"),
        after(Log, "publish"),
    ],
)
def test_a_kill_between_any_two_steps_is_resumed_and_never_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: Callable[[pytest.MonkeyPatch], None]
) -> None:
    home = wiring.open_home(tmp_path / "home")
    write(home, 4)
    with monkeypatch.context() as patch:
        arm(patch)
        with pytest.raises(Killed):
            home.publish()
    home.close()
    with wiring.open_home(tmp_path / "home") as again:
        write(again, 2, start=4)
        assert again.publish()["size"] == 6
        assert_store_and_log_agree(again)
        fsck(again.log().public, again.log().private)


@pytest.mark.parametrize("step", ["staged", "committed", "tiles", "integrated", "signed", "cosigned"])
def test_a_kill_inside_the_log_is_resumed_and_never_doubled(tmp_path: Path, step: str) -> None:
    from dataclasses import replace

    home = wiring.open_home(tmp_path / "home")
    write(home, 4)

    def failpoint(name: str) -> None:
        if name == step:
            raise Killed

    home.log().settings = replace(home.log().settings, failpoint=failpoint)
    with pytest.raises(Killed):
        home.publish()
    home.close()
    with wiring.open_home(tmp_path / "home") as again:
        write(again, 1, start=4)
        assert again.publish()["size"] == 5
        assert_store_and_log_agree(again)


def test_the_quorum_comes_before_the_public_checkpoint(
    home: wiring.Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "_witnessed_heads", lambda policy, origin: [])
    witness = Witness(tmp_path / "witness")
    home.cosign_of = witness.of
    home.set_policy(witness.policy_text)
    write(home, 2)
    assert home.publish()["state"] == "witnessed"
    write(home, 2, start=2)
    witness.up = False
    with pytest.raises(UnavailableError) as caught:
        home.publish()
    assert caught.value.code == "witness_quorum_not_met"
    public = home.public_storage().read("checkpoint")
    assert public is not None
    assert verify_checkpoint(home.policy(), public).checkpoint.size == 2
    # What was acknowledged is in the log all the same, and becomes public with the next quorum.
    assert_store_and_log_agree(home)
    witness.up = True
    assert home.publish()["size"] == 4


def test_a_log_older_than_the_store_is_not_added_to(tmp_path: Path) -> None:
    home = wiring.open_home(tmp_path / "home")
    write(home, 2)
    home.publish()
    home.close()
    for name in ("log", "log-state"):
        shutil.copytree(tmp_path / "home" / name, tmp_path / "old" / name)
    with wiring.open_home(tmp_path / "home") as newer:
        write(newer, 2, start=2)
        newer.publish()
    for name in ("log", "log-state"):
        shutil.rmtree(tmp_path / "home" / name)
        shutil.copytree(tmp_path / "old" / name, tmp_path / "home" / name)
    with wiring.open_home(tmp_path / "home") as rolled_back:
        write(rolled_back, 1, start=4)
        with pytest.raises(VerificationError) as caught:
            rolled_back.publish()
        assert caught.value.code == "rolled_back"


def _write_and_publish(path: str, start: int, count: int) -> None:
    with wiring.open_home(path) as home:
        for number in range(start, start + count, 5):
            write(home, 5, start=number)
            home.publish(deadline_seconds=60)


def test_two_processes_that_write_and_publish_lose_and_double_nothing(tmp_path: Path) -> None:
    wiring.open_home(tmp_path / "home").close()
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_write_and_publish, args=(str(tmp_path / "home"), start, 30))
        for start in (0, 1000)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    with wiring.open_home(tmp_path / "home") as home:
        assert home.publish()["size"] == 60
        assert_store_and_log_agree(home)


def test_a_statement_in_the_log_keeps_its_index(home: wiring.Home) -> None:
    write(home, 2)
    home.publish()
    with pytest.raises(VerificationError), home.parts().store.write() as txn:
        txn.set_entry_indexes([(1, 5)])
