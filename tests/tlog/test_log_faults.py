"""Faults of storage, of files and of witnesses, through the log: what was acknowledged stays, nothing forks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog import merkle
from tlog.errors import UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.keys import Ed25519NoteSigner
from tlog.log import STAGED_ENTRIES, Log, LogSettings
from tlog.note import SignatureType, make_verifier_key
from tlog.staging import Head
from tlog.storage import DirectoryStorage, MemoryStorage

ORIGIN = "example.org/log"
KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
SIGNER = Ed25519NoteSigner(
    make_verifier_key(ORIGIN, SignatureType.ED25519, KEY.public_key().public_bytes_raw()), KEY.sign
)
SETTINGS = LogSettings(ORIGIN, (SIGNER,), identify=lambda entry: sha256(entry).digest())


def entries(start: int, end: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(start, end)]


def root(size: int) -> bytes:
    return merkle.Frontier().extend(map(merkle.leaf_hash, entries(0, size))).root()


def make_log(size: int = 0, **settings: Any) -> Log:
    log = Log(MemoryStorage(), MemoryStorage(), SETTINGS)
    log.append(entries(0, size))
    log.publish(5)
    return Log(log.public, log.private, replace(SETTINGS, **settings))


def files(storage: MemoryStorage) -> dict[str, bytes]:
    return {name: storage.read(name) or b"" for name in storage.names("")}


def flip(storage: MemoryStorage, path: str, at: int) -> None:
    data = bytearray(storage.read(path) or b"")
    data[at] ^= 1
    storage.replace(path, bytes(data))


# Damaged files that grow


@pytest.mark.parametrize("opened", ["anew", "all along"])
@pytest.mark.parametrize("path", ["tile/entries/000.p/221", "tile/0/000.p/221"])
def test_a_damaged_partial_file_is_not_copied_into_a_full_one(path: str, opened: str) -> None:
    log = make_log(221)
    if opened == "all along":
        log.recover()
    flip(log.public, path, 5)  # type: ignore[arg-type]
    before = files(log.public), log.private.read("signed")  # type: ignore[arg-type]
    with pytest.raises(VerificationError) as caught:
        log.append(entries(221, 300))
        log.publish(5)
    assert caught.value.code == "log_state"
    assert (files(log.public), log.private.read("signed")) == before  # type: ignore[arg-type]


def test_entries_that_are_not_what_was_committed_are_not_read() -> None:
    log = make_log(300)
    flip(log.public, "tile/entries/000", 40)  # type: ignore[arg-type]
    with pytest.raises(VerificationError) as caught:
        log.read_entry(1)
    assert caught.value.fields["path"] == "tile/entries/000"
    # An index that is made again from it would not know the entry, and let it in a second time.
    with pytest.raises(VerificationError):
        log.append(entries(0, 3))
    assert log.head().size == 300


# Heads that others know


def unheard(heads: list[Head]) -> Iterator[Head]:
    yield from heads
    raise UnavailableError("too few", code="witness_quorum_not_met")


def test_nothing_is_signed_before_enough_witnesses_answer_and_they_are_asked_again() -> None:
    asked: list[Iterable[Head]] = [unheard([]), unheard([]), [Head(3, root(3))], unheard([])]
    log = make_log(3, known_heads=lambda: asked.pop(0))
    log.append(entries(3, 5))
    for _ in range(2):
        with pytest.raises(UnavailableError) as caught:
            log.publish(5)
        assert caught.value.code == "witness_quorum_not_met"
        assert b"\n5\n" not in (log.private.read("signed") or b"")
        assert log.public.read("tile/0/000.p/5") is None
    assert log.publish(5).size == log.publish(5).size == 5
    assert len(asked) == 1


def test_one_witness_that_knows_more_is_believed_whoever_else_is_silent() -> None:
    log = make_log(3, known_heads=lambda: unheard([Head(9, root(9))]))
    with pytest.raises(VerificationError) as caught:
        log.publish(5)
    assert caught.value.code == "rolled_back"


@pytest.mark.parametrize("head", [Head(9, root(9)), Head(4, root(9))])
def test_a_log_that_was_rolled_back_writes_no_tile(head: Head) -> None:
    log = make_log(3, known_heads=lambda: [head])
    before = files(log.public)  # type: ignore[arg-type]
    log.append([b"another past", b"and more"])
    for one in (log, Log(log.public, log.private, log.settings)):
        one.recover()
        with pytest.raises(VerificationError):
            one.require_not_rolled_back()
        with pytest.raises(VerificationError):
            one.publish(5)
    assert files(log.public) == before  # type: ignore[arg-type]


def test_what_may_be_a_fork_does_not_grow_without_end() -> None:
    log = make_log(3, known_heads=lambda: unheard([]))
    log.append(entries(3, 3 + STAGED_ENTRIES))
    with pytest.raises(UnavailableError):
        log.append(entries(9000, 9001))
    assert log.head().size == 3 + STAGED_ENTRIES
    assert log.append(entries(5, 6)) == (5,)  # what it has is told all the same


# Partial tiles that a crash left


def test_partial_tiles_that_a_crash_left_go_later() -> None:
    log = make_log(200)
    log.append(entries(200, 300))

    class Killed(BaseException):
        pass

    def kill(step: str) -> None:
        if step == "published":
            raise Killed

    with pytest.raises(Killed):
        Log(log.public, log.private, replace(SETTINGS, failpoint=kill)).publish(5)
    assert "tile/0/000.p/200" in log.public.names("tile/")
    log.append(entries(300, 600))
    log.publish(5)
    left = [name for name in log.public.names("tile/") if ".p/" in name]
    assert left == ["tile/0/002.p/88", "tile/1/000.p/1", "tile/1/000.p/2", "tile/entries/002.p/88"]
    assert fsck(log.public, log.private, SETTINGS.identify).size == 600


# Faults of the operating system


def failing(name: str, number: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Makes one call of the operating system fail, each time."""

    def fail(*arguments: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return lambda patch: patch.setattr(os, name, fail)


FAULTS = [("write", errno.ENOSPC), ("rename", errno.EIO), ("link", errno.EIO), ("open", errno.EROFS)]


@pytest.mark.parametrize(("name", "number"), FAULTS)
@pytest.mark.parametrize("step", ["append", "publish"])
def test_a_fault_of_the_disk_costs_nothing_that_was_acknowledged(
    name: str, number: int, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state"), SETTINGS)
    log.append(entries(0, 250))
    first = log.publish(5)
    if step == "publish":
        log.append(entries(250, 300))
    with monkeypatch.context() as patch:
        failing(name, number)(patch)
        with pytest.raises(UnavailableError):
            if step == "append":
                log.append(entries(250, 300))
            else:
                log.publish(5)
    assert log.public.read("checkpoint") == first.note
    again = Log(DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state"), SETTINGS)
    for one in (log, again):
        assert one.append(entries(250, 300)) == tuple(range(250, 300))
        assert (one.publish(5).size, one.head().root) == (300, root(300))
    assert fsck(again.public, again.private, SETTINGS.identify).doubled == 0
    log.close()
    again.close()


class LateStorage(MemoryStorage):
    """A store whose writes can time out and land later: the caller is told of an error, and retries."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = ""
        self.late: list[Callable[[], None]] = []

    def create_all(self, files: Mapping[str, bytes]) -> None:
        self._hold("create", lambda: MemoryStorage.create_all(self, files))

    def replace(self, path: str, data: bytes) -> None:
        self._hold("replace", lambda: MemoryStorage.replace(self, path, data))

    def _hold(self, name: str, write: Callable[[], None]) -> None:
        if self.slow != name:
            write()
            return
        self.slow = ""
        self.late.append(write)
        raise UnavailableError("storage: timed out", code="storage_failed", errno=errno.ETIMEDOUT)

    def land(self) -> None:
        while self.late:
            self.late.pop()()


def test_tiles_that_land_late_change_nothing() -> None:
    public = LateStorage()
    log = Log(public, MemoryStorage(), SETTINGS)
    log.append(entries(0, 100))
    public.slow = "create"
    with pytest.raises(UnavailableError):
        log.publish(5)
    log.append(entries(100, 300))
    published = log.publish(5)
    before = files(public)
    public.land()
    after = files(public)
    assert {name: after[name] for name in before} == before
    # The tiles of the size that was never published are the beginning of those of the one that was.
    assert set(after) - set(before) == {"tile/0/000.p/100", "tile/entries/000.p/100"}
    log.append(entries(300, 310))
    assert log.publish(5).size == 310
    assert (published.size, fsck(public, log.private, SETTINGS.identify).size) == (300, 310)


def test_a_staged_file_that_lands_late_is_no_part_of_the_log() -> None:
    private = LateStorage()
    log = Log(MemoryStorage(), private, SETTINGS)
    log.append(entries(0, 10))
    private.slow = "create"
    with pytest.raises(UnavailableError):
        log.append([b"lost", b"and found"])
    log.append(entries(10, 20))
    private.land()
    for one in (log, Log(log.public, private, SETTINGS)):
        assert one.append([b"lost"]) == (20,)
        assert one.publish(5).size == 21
    assert fsck(log.public, private, SETTINGS.identify).size == 21


def test_a_checkpoint_that_lands_late_is_one_that_was_published_or_signed() -> None:
    public = LateStorage()
    log = Log(public, MemoryStorage(), SETTINGS)
    log.append(entries(0, 10))
    log.publish(5)
    log.append(entries(10, 20))
    public.slow = "replace"
    with pytest.raises(UnavailableError):
        log.publish(5)
    log.append(entries(20, 30))
    log.publish(5)
    public.land()
    # The public sees an older head for a while, never another history; the next publication mends it.
    checked = fsck(public, log.private, SETTINGS.identify)
    assert (checked.size, checked.published_size) == (30, 20)
    assert log.publish(5).size == 30
