"""A log brought back from a copy: every file of the copy's tree and no other, whatever a crash cut short."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.log import Log, LogSettings
from tlog.note import SignatureType
from tlog.policy import LogEntry, make_policy
from tlog.restore import LEFT, Source, open_source, restore_log
from tlog.storage import DirectoryStorage, MemoryStorage
from tlog.tile import tiles_at

ORIGIN = "example.org/log"
DEEP = 256 * 256 + 300
LEFT_HERE = [b"only here %d" % number for number in range(300)]


def entries(start: int, end: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(start, end)]


@pytest.fixture(scope="module")
def settings(seed_signer: Callable[[str, int, int], Any]) -> LogSettings:
    signer = seed_signer(ORIGIN, SignatureType.ED25519, 1)
    policy = make_policy([LogEntry(signer.verifier_key)], [], [], None)
    return LogSettings(ORIGIN, (signer,), policy=policy, identify=lambda entry: sha256(entry).digest())


def copied(storage: MemoryStorage, made: MemoryStorage | None = None) -> MemoryStorage:
    made = made or MemoryStorage()
    for name in storage.names(""):
        MemoryStorage.replace(made, name, storage.read(name) or b"")
    return made


def grow(log: Log, *sizes: int) -> None:
    for size in sizes:
        log.append(entries(log.head().size, size))
        log.publish(5)


def pair(settings: LogSettings, size: int, *more: int) -> tuple[Log, Log]:
    """A log, and the one that it was when it had this size."""
    log = Log(MemoryStorage(), MemoryStorage(), settings)
    grow(log, size)
    old = Log(copied(log.public), copied(log.private), settings)  # type: ignore[arg-type]
    grow(log, *more)
    return log, old


def source(log: Log, *documents: tuple[str, bytes]) -> Source:
    return Source(log.public.read, documents)


def restore(log: Log, old: Log, *documents: tuple[str, bytes]) -> Any:
    return restore_log(source(log, *documents), old.public, old.private, log.settings)


def tiles(log: Log) -> dict[str, bytes]:
    return {name: log.public.read(name) or b"" for name in log.public.names("tile/")}


def test_every_tile_of_a_deep_tree_comes_back(settings: LogSettings) -> None:
    log, old = pair(settings, 300, 1000, DEEP)
    done = restore(log, old)
    assert (done.head, done.same_to, done.appended) == (log.head(), 300, 0)
    assert tiles(old).keys() >= {tile.path for tile in tiles_at(DEEP)}
    assert all(data == log.public.read(name) for name, data in tiles(old).items() if ".p/" not in name)
    assert fsck(old.public, old.private).published_size == DEEP
    old.append(entries(DEEP, DEEP + 10))
    assert old.publish(5).size == DEEP + 10


@pytest.mark.parametrize("written", ["staged", "in tiles"])
def test_what_only_the_old_log_had_follows_the_copy(settings: LogSettings, written: str) -> None:
    log, old = pair(settings, 250, 600)
    old.append([*entries(250, 260), *LEFT_HERE])
    if written == "in tiles":
        old.recover()  # nobody to ask: the other past stands in full tiles too
        assert old.public.read("tile/0/001") != log.public.read("tile/0/001")
    done = restore(log, old)
    assert (done.same_to, done.appended, done.head.size) == (260, 300, 900)
    assert list(old.read_entries(0, 900)) == entries(0, 600) + LEFT_HERE
    assert old.publish(5).size == 900
    assert fsck(old.public, old.private, settings.identify).doubled == 0
    assert old.private.read(LEFT) is None


def test_a_log_without_any_files_comes_back(settings: LogSettings) -> None:
    log, _ = pair(settings, 700)
    empty = Log(MemoryStorage(), MemoryStorage(), settings)
    restore(log, empty)
    assert tiles(empty) == tiles(log)
    assert empty.checkpoint() == log.checkpoint()


def test_damaged_files_are_mended(settings: LogSettings) -> None:
    log, old = pair(settings, 700)
    for name in ("tile/0/001", "tile/entries/002.p/188"):
        old.public.replace(name, b"\0" * len(old.public.read(name) or b""))
    restore(log, old)
    assert tiles(old) == tiles(log)


def changed(storage: MemoryStorage, path: str) -> None:
    data = bytearray(storage.read(path) or b"")
    data[5] ^= 1
    storage.replace(path, bytes(data))


def test_a_copy_that_is_older_other_or_damaged_changes_nothing(settings: LogSettings) -> None:
    log, old = pair(settings, 300, 600)
    fork = Log(copied(old.public), copied(old.private), settings)  # type: ignore[arg-type]
    fork.append(LEFT_HERE[:5])
    fork.publish(5)
    bad = Log(copied(log.public), copied(log.private), settings)  # type: ignore[arg-type]
    changed(bad.public, "tile/entries/000")  # type: ignore[arg-type]
    stranger = replace(settings, origin="example.org/other")
    before = {name: fork.public.read(name) for name in fork.public.names("")}
    for error, code, place, given in (
        (RefusedError, "not_newer", old, settings),
        (VerificationError, "fork", log, settings),
        (VerificationError, None, log, stranger),
        (MalformedError, "no_checkpoint", Log(MemoryStorage(), MemoryStorage(), settings), settings),
    ):
        with pytest.raises(error) as caught:
            restore_log(source(place), fork.public, fork.private, given)
        assert code in (None, caught.value.code)
    assert {name: fork.public.read(name) for name in fork.public.names("")} == before
    with pytest.raises(VerificationError):
        restore(bad, Log(MemoryStorage(), MemoryStorage(), settings))


def test_documents_come_along_and_none_is_another(settings: LogSettings) -> None:
    log, old = pair(settings, 3, 5)
    old.public.create("erasures/1.cose", b"one")
    with pytest.raises(VerificationError) as caught:
        restore(log, old, ("erasures/1.cose", b"another"))
    assert (caught.value.code, old.head().size) == ("fork", 3)
    restore(log, old, ("erasures/1.cose", b"one"), ("erasures/2.cose", b"two"))
    assert old.public.read("erasures/2.cose") == b"two"


def test_a_frozen_log_is_left_alone(settings: LogSettings) -> None:
    log, old = pair(settings, 3, 5)
    old.freeze()
    with pytest.raises(RefusedError) as caught:
        restore(log, old)
    assert caught.value.code == "frozen"


class Dying(MemoryStorage):
    """A store that is gone after so many writes."""

    left = 10**9

    def replace(self, path: str, data: bytes) -> None:
        Dying.left -= 1
        if Dying.left < 0:
            raise UnavailableError("storage: gone", code="storage_failed")
        super().replace(path, data)


@pytest.mark.parametrize("writes", range(16))
def test_whatever_a_crash_left_the_same_call_completes(settings: LogSettings, writes: int) -> None:
    log, old = pair(settings, 250, 600)
    old.append(LEFT_HERE)
    old.recover()
    dying = Log(copied(old.public, Dying()), copied(old.private, Dying()), settings)  # type: ignore[arg-type]
    Dying.left = writes
    try:
        restore(log, dying)
        assert writes >= 12, "it writes more often than that"
    except UnavailableError:
        pass
    finally:
        Dying.left = 10**9
    done = restore(log, dying)
    assert (done.head.size, list(dying.read_entries(600, 900))) == (900, LEFT_HERE)
    assert dying.publish(5).size == 900
    assert fsck(dying.public, dying.private, settings.identify).doubled == 0


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return None


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_from_a_folder_and_from_a_url(settings: LogSettings, tmp_path: Path, served: str) -> None:
    log, old = pair(settings, 250, 600)
    folder = DirectoryStorage(tmp_path / "log", file_mode=0o644)
    for name in log.public.names(""):
        folder.replace(name, log.public.read(name) or b"")
    folder.create("mirror", b"of a mirror")
    for number in (1, 2):
        folder.create(f"erasures/{number}.cose", b"%d" % number)
    for place in (str(tmp_path / "log"), f"{served}/log"):
        copy = Log(copied(old.public), copied(old.private), settings)  # type: ignore[arg-type]
        with open_source(place) as opened:
            restore_log(opened, copy.public, copy.private, settings)
        assert (copy.head(), copy.public.read("erasures/2.cose")) == (log.head(), b"2")
        assert copy.public.read("mirror") is None
