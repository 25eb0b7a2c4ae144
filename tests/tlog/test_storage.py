"""One contract for every storage, and what a directory promises beyond it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlog.bucket import Bucket
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.object_storage import ObjectStorage
from tlog.storage import OPEN_FILES, DirectoryStorage, MemoryStorage, Storage

KINDS = ("directory", "memory", "objects", *(("shared",) if os.environ.get("MUNIMENT_TEST_SERVERS") else ()))


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path, make_bucket: Callable[[], Bucket]) -> Storage:
    if request.param == "shared":
        shared: Storage = request.getfixturevalue("make_shared")()
        return shared
    if request.param == "objects":
        return ObjectStorage(make_bucket())
    return DirectoryStorage(tmp_path / "s") if request.param == "directory" else MemoryStorage()


class Flushes:
    """Counts fsync calls; from call number `fail_at` on each one fails."""

    def __init__(self, fail_at: int = 1 << 62) -> None:
        self.count = 0
        self.fail_at = fail_at
        self._real = os.fsync

    def __call__(self, descriptor: int) -> None:
        self.count += 1
        if self.count >= self.fail_at:
            raise OSError(errno.EIO, "injected")
        self._real(descriptor)


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flushes]:
    counter = Flushes()
    monkeypatch.setattr(os, "fsync", counter)
    yield counter


def test_a_file_that_is_not_there_reads_as_none(storage: Storage) -> None:
    assert storage.read("tile/0/000") is None
    assert storage.names("") == ()


def test_create_then_read(storage: Storage) -> None:
    storage.create("tile/0/x001/000.p/1", b"abc")
    assert storage.read("tile/0/x001/000.p/1") == b"abc"
    assert storage.read("tile/0") is None
    assert storage.read("tile/0/x001/000.p/1/2") is None


def test_create_takes_the_same_bytes_again_and_no_others(storage: Storage) -> None:
    storage.create("tile/0/000", b"abc")
    storage.create("tile/0/000", b"abc")
    for other in (b"", b"ab", b"abcd", b"abd"):
        with pytest.raises(VerificationError) as caught:
            storage.create("tile/0/000", other)
        assert caught.value.code == "file_altered"
    assert storage.read("tile/0/000") == b"abc"


def test_create_all_creates_each_and_meets_no_other_bytes(storage: Storage) -> None:
    storage.create_all({"a/1": b"1", "a/2": b"2", "b": b""})
    storage.create_all({"a/2": b"2", "a/3": b"3"})
    assert storage.names("") == ("a/1", "a/2", "a/3", "b")
    with pytest.raises(VerificationError):
        storage.create_all({"a/1": b"other"})
    storage.create_all({})


def test_replace_overwrites(storage: Storage) -> None:
    storage.replace("checkpoint", b"one")
    storage.replace("checkpoint", b"two")
    assert storage.read("checkpoint") == b"two"


def test_swap_writes_only_over_what_was_expected(storage: Storage) -> None:
    assert storage.swap("head", b"nothing", b"one") is False
    assert storage.read("head") is None
    assert storage.swap("head", None, b"one") is True
    assert storage.swap("head", None, b"two") is False
    assert storage.swap("head", b"other", b"two") is False
    assert storage.swap("head", b"one", b"two") is True
    assert storage.read("head") == b"two"


def test_of_racing_swaps_one_wins(storage: Storage) -> None:
    won: list[int] = []

    def race(number: int) -> None:
        if storage.swap("head", None, b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert storage.read("head") == b"%d" % won[0]


def test_remove_is_idempotent(storage: Storage) -> None:
    storage.create("staging/1", b"x")
    storage.remove(["staging/1", "staging/2"])
    storage.remove(["staging/1"])
    assert storage.read("staging/1") is None
    assert storage.names("staging/") == ()


def test_names_are_sorted_and_begin_with_the_prefix(storage: Storage) -> None:
    for path in ("tile/1/000", "tile/0/001", "tile/0/000.p/3", "tiles", "checkpoint"):
        storage.replace(path, b"x")
    assert storage.names("tile/") == ("tile/0/000.p/3", "tile/0/001", "tile/1/000")
    assert storage.names("tile/0/000.p/") == ("tile/0/000.p/3",)
    assert storage.names("t") == ("tile/0/000.p/3", "tile/0/001", "tile/1/000", "tiles")
    assert storage.names("nothing/") == ()


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", ".tmp/a", "a/.b", "a\\b", "a\nb", "ä"]
)
def test_refuses_paths_that_are_not_plain(storage: Storage, path: str) -> None:
    with pytest.raises(MalformedError):
        storage.read(path)
    with pytest.raises(MalformedError):
        storage.create(path, b"")
    with pytest.raises(MalformedError):
        storage.replace(path, b"")
    with pytest.raises(MalformedError):
        storage.remove([path])


def test_a_lock_is_held_by_one_and_times_out(storage: Storage) -> None:
    with storage.lock("append"):
        with storage.lock("publish", timeout_seconds=0.01):
            pass
        with pytest.raises(UnavailableError) as caught, storage.lock("append", timeout_seconds=0.02):
            pass
        assert caught.value.code == "busy"
    with storage.lock("append", timeout_seconds=0.01):
        pass


def test_a_lock_keeps_threads_apart(storage: Storage) -> None:
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        for _ in range(5):
            with storage.lock("append"):
                inside.append(1)
                most = max(most, len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from tlog.storage import DirectoryStorage\n"
        "with DirectoryStorage(sys.argv[1]).lock('append'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        storage = DirectoryStorage(tmp_path)
        with pytest.raises(UnavailableError), storage.lock("append", timeout_seconds=0.05):
            pass
        child.kill()
        child.wait()
        with storage.lock("append", timeout_seconds=5):
            pass


def test_no_temporary_file_stays_and_none_is_listed(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.create("a", b"1")
    storage.replace("b", b"2")
    with pytest.raises(VerificationError):
        storage.create("a", b"other")
    assert os.listdir(tmp_path / ".tmp") == []
    (tmp_path / ".tmp" / "left").write_bytes(b"")
    assert storage.names("") == ("a", "b")


def test_stale_temporary_files_go_and_young_ones_stay(tmp_path: Path) -> None:
    folder = tmp_path / ".tmp"
    folder.mkdir()
    (folder / "old").write_bytes(b"")
    (folder / "young").write_bytes(b"")
    os.utime(folder / "old", (0, 0))
    DirectoryStorage(tmp_path).replace("a", b"1")
    assert os.listdir(folder) == ["young"]


def test_modes_follow_the_file_mode(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for mode, folder_mode in ((0o600, 0o700), (0o644, 0o755)):
            storage = DirectoryStorage(tmp_path / f"{mode}", mode)
            storage.create("tile/a", b"")
            assert (tmp_path / f"{mode}" / "tile" / "a").stat().st_mode & 0o777 == mode
            assert (tmp_path / f"{mode}" / "tile").stat().st_mode & 0o777 == folder_mode
    finally:
        os.umask(before)


def test_each_file_and_each_folder_is_flushed(tmp_path: Path, flushes: Flushes) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.create_all({"t/0/1": b"", "t/0/2": b"", "t/1": b""})
    # Three files, the folders t/0 and t that hold them; for t/0, t and our own folder their parents.
    assert flushes.count == 3 + 2 + 3
    flushes.count = 0
    storage.create_all({"t/0/3": b"", "t/0/4": b""})
    assert flushes.count == 3
    flushes.count = 0
    storage.replace("t/5", b"")
    assert flushes.count == 2
    flushes.count = 0
    storage.create("t/1", b"")
    assert flushes.count == 1


def test_each_step_is_durable_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.replace("head", b"")  # the folders stand
    calls: list[str] = []

    def recorded(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)  # type: ignore[arg-type]
            calls.append("fsync folder" if folder else name)
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "fsync", "rename", "link", "unlink"):
        recorded(name)
    storage.replace("head", b"data")
    assert calls == ["write", "fsync", "rename", "fsync folder"]
    calls.clear()
    storage.create("immutable", b"data")
    assert calls == ["write", "fsync", "link", "unlink", "fsync folder"]


def test_of_many_files_none_is_in_place_before_all_its_bytes_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = DirectoryStorage(tmp_path)
    flushed: set[int] = set()
    linked: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        flushed.add(os.fstat(descriptor).st_ino)

    def link(source: Path, target: Path) -> None:
        assert os.stat(source).st_ino in flushed
        linked.append(str(target))
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    files = {f"t/{number % 3}/{number:03d}": b"%d" % number for number in range(2 * OPEN_FILES + 7)}
    storage.create("t/1/004", b"4")
    storage.create_all(files)
    assert {name: storage.read(name) for name in storage.names("")} == files
    assert len(linked) == len(files)
    assert {os.stat(tmp_path / "t" / str(number)).st_ino for number in range(3)} <= flushed
    assert os.listdir(tmp_path / ".tmp") == []


def test_of_many_files_one_that_fails_leaves_no_temporary_and_no_open_file(
    tmp_path: Path, flushes: Flushes
) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.create("t/0", b"")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    flushes.fail_at = flushes.count + 5
    with pytest.raises(UnavailableError):
        storage.create_all({f"t/{number}": b"x" for number in range(1, 20)})
    assert storage.names("") == ("t/0",)
    assert os.listdir(tmp_path / ".tmp") == []
    assert not before or len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_failed_flush_is_never_retried(tmp_path: Path, flushes: Flushes, fail_at: int) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.replace("head", b"old")
    flushes.fail_at = flushes.count + fail_at
    with pytest.raises(UnavailableError) as caught:
        storage.replace("head", b"new")
    assert caught.value.code == "storage_failed"
    flushes.fail_at = 1 << 62
    flushes.count = 0
    with pytest.raises(UnavailableError):
        storage.replace("head", b"new")
    with pytest.raises(UnavailableError):
        storage.create("a", b"")
    assert flushes.count == 0
    assert os.listdir(tmp_path / ".tmp") == []
    DirectoryStorage(tmp_path).replace("head", b"new")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = DirectoryStorage(tmp_path)
    storage.replace("head", b"old")

    def full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(UnavailableError) as caught:
            storage.replace("head", b"new")
        assert caught.value.fields["errno"] == errno.ENOSPC
        with pytest.raises(UnavailableError):
            storage.create("a", b"data")
    assert storage.read("head") == b"old"
    assert storage.read("a") is None
    assert os.listdir(tmp_path / ".tmp") == []
    storage.create("a", b"data")


def test_a_write_that_arrives_late_changes_nothing(tmp_path: Path) -> None:
    """Two writers of one path: whoever comes second meets the other's bytes and is told."""
    early, late = DirectoryStorage(tmp_path), DirectoryStorage(tmp_path)
    barrier = threading.Barrier(2)
    outcomes: list[str] = []

    def write(storage: DirectoryStorage, data: bytes) -> None:
        barrier.wait()
        try:
            storage.create("tile/0/000", data)
            outcomes.append("stands")
        except VerificationError:
            outcomes.append("told")

    threads = [
        threading.Thread(target=write, args=pair) for pair in ((early, b"1" * 8192), (late, b"2" * 8192))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["stands", "told"]
