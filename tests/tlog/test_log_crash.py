"""A log whose processes are killed at every step: nothing acknowledged is lost, nothing stands twice, no fork."""

from __future__ import annotations

import itertools
import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tlog import merkle
from tlog.checkpoint import open_checkpoint, parse_checkpoint
from tlog.fsck import fsck
from tlog.log import Log, LogSettings
from tlog.note import NoteSigner, SignatureLine, SignatureType, VerifierKey
from tlog.storage import DirectoryStorage

ORIGIN = "example.org/log"
FAILPOINTS = ("staged", "committed", "tiles", "integrated", "dropped", "signed", "cosigned", "published")
ROUNDS = int(os.environ.get("MUNIMENT_CRASH_ROUNDS", "20"))
# Each of these begins or ends a step that a crash may cut: all that changes a file system goes through them.
SYSTEM_CALLS = ("fsync", "link", "rename", "unlink", "write", "mkdir")


@dataclass(frozen=True)
class Heard:
    """What a child said before it died."""

    acknowledged: tuple[tuple[bytes, int], ...]
    signed: tuple[tuple[int, bytes], ...]
    published: tuple[int, ...]


@dataclass(frozen=True)
class Recording:
    """A signer that tells its parent what it signs, before anybody has the signature."""

    signer: NoteSigner
    tell: Callable[[str], None]

    @property
    def verifier_key(self) -> VerifierKey:
        return self.signer.verifier_key

    def sign(self, text: str) -> SignatureLine:
        checkpoint = parse_checkpoint(text)
        self.tell(f"signed {checkpoint.size} {checkpoint.root.hex()}")
        return self.signer.sign(text)


@pytest.fixture
def signer(seed_signer: Callable[[str, int, int], Any]) -> NoteSigner:
    made: NoteSigner = seed_signer(ORIGIN, SignatureType.ED25519, 1)
    return made


def settings(signer: NoteSigner) -> LogSettings:
    return LogSettings(ORIGIN, (signer,), identify=lambda entry: sha256(entry).digest())


def open_at(folder: Path, settings: LogSettings) -> Log:
    log = Log(DirectoryStorage(folder / "log"), DirectoryStorage(folder / "state"), settings)
    log.recover()
    return log


def entry(number: int) -> bytes:
    return b"entry-%d" % number


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def start(work: Callable[[Callable[[str], None]], None]) -> tuple[int, int]:
    """A child process at `work`, and the pipe on which it tells what it did."""
    reading, writing = os.pipe()
    real_write = os.write
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            work(lambda line: (real_write(writing, line.encode() + b"\n"), None)[1])
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def hear(child: int, reading: int) -> tuple[Heard, bool]:
    """All that the child said, once it is dead, and whether it was killed."""
    with os.fdopen(reading, "rb") as pipe:
        lines = [line.split() for line in pipe.read().decode().splitlines()]
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return heard_in(lines), os.WIFSIGNALED(status)


def heard_in(lines: Sequence[Sequence[str]]) -> Heard:
    said: dict[str, list[list[str]]] = {"ack": [], "signed": [], "published": []}
    for word, *rest in lines:
        said[word].append(rest)
    return Heard(
        tuple((entry(int(number)), int(index)) for number, index in said["ack"]),
        tuple((int(size), bytes.fromhex(root)) for size, root in said["signed"]),
        tuple(int(size) for (size,) in said["published"]),
    )


def run_batches(log: Log, batches: Sequence[Sequence[int]], tell: Callable[[str], None]) -> None:
    for batch in batches:
        for number, index in zip(batch, log.append([entry(number) for number in batch]), strict=True):
            tell(f"ack {number} {index}")
        tell(f"published {log.publish(30).size}")


def require_sound(folder: Path, settings: LogSettings, heard: Sequence[Heard]) -> Log:
    """Fails unless all that was ever heard of the log is true of what stands there now."""
    log = open_at(folder, settings)
    size = log.head().size
    stands = list(log.read_entries(0, size))
    assert [one for one, times in Counter(stands).items() if times > 1] == []
    for one in heard:
        for acknowledged, index in one.acknowledged:
            assert stands[index] == acknowledged
        for signed_size, root in one.signed:
            assert log.root_at(signed_size) == root
        public = log.checkpoint()
        if one.published:
            assert public is not None
            keys = [signer.verifier_key for signer in settings.note_signers]
            assert open_checkpoint(public, keys, ORIGIN).checkpoint.size >= max(one.published)
    fsck(log.public)
    fsck(log.public, log.private)
    assert not log.private.names("staging/")
    return log


BATCHES = [range(3), range(2, 258), range(258, 260)]
EVERYTHING = [entry(number) for number in range(260)]


def crash_at_call(count: int) -> None:
    """Makes this process die in front of its `count`th change of the file system, or in the midst of a write."""
    calls = itertools.count()

    def counted(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> object:
            if next(calls) == count:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                die()
            return real(*arguments, **options)

        return call

    for name in SYSTEM_CALLS:
        setattr(os, name, counted(name))


@pytest.mark.parametrize("remainder", range(4))
def test_killed_before_every_system_call_that_writes(
    tmp_path: Path, signer: NoteSigner, remainder: int
) -> None:
    count = remainder
    killed = True
    while killed:
        folder = tmp_path / str(count)

        def work(tell: Callable[[str], None], folder: Path = folder, count: int = count) -> None:
            crash_at_call(count)
            log = open_at(folder, settings(Recording(signer, tell)))
            run_batches(log, BATCHES, tell)

        heard, killed = hear(*start(work))
        log = require_sound(folder, settings(signer), [heard])
        # The one who was killed comes back and does it all again.
        assert log.append(EVERYTHING) == tuple(map(list(log.read_entries(0, 260)).index, EVERYTHING))
        assert log.head().size == 260
        log.close()
        count += 4
    assert count > 100


@pytest.mark.parametrize("step", FAILPOINTS)
@pytest.mark.parametrize("round_", [1, 2])
def test_killed_after_every_step(tmp_path: Path, signer: NoteSigner, step: str, round_: int) -> None:
    def work(tell: Callable[[str], None]) -> None:
        seen = 0

        def failpoint(name: str) -> None:
            nonlocal seen
            seen += name == step
            if seen == round_ and name == step:
                die()

        made = replace(settings(Recording(signer, tell)), failpoint=failpoint)
        run_batches(open_at(tmp_path, made), BATCHES, tell)

    heard, killed = hear(*start(work))
    assert killed
    log = require_sound(tmp_path, settings(signer), [heard])
    # What was committed is there though nobody was told; what was only staged is gone.
    assert log.head().size == {1: 0 if step == "staged" else 3, 2: 3 if step == "staged" else 258}[round_]
    again, killed = hear(*start(lambda tell: run_batches(open_at(tmp_path, settings(signer)), BATCHES, tell)))
    assert not killed
    assert require_sound(tmp_path, settings(signer), [heard, again]).head().size == 260


def test_staged_files_that_a_crash_brings_back_do_no_harm(tmp_path: Path, signer: NoteSigner) -> None:
    """Their removal is not flushed, so any of them may come back."""
    log = open_at(tmp_path, settings(signer))
    staged: dict[str, bytes] = {}
    for batch in BATCHES:
        log.append([entry(number) for number in batch])
        staged |= {name: log.private.read(name) or b"" for name in log.private.names("staging/")}
    log.publish(30)
    before = log.head()
    for count in range(len(staged) + 1):
        for names in itertools.combinations(staged, count):
            for name in names:
                log.private.create(name, staged[name])
            assert require_sound(tmp_path, settings(signer), []).head() == before


def test_killed_at_random_with_two_processes_at_work(tmp_path: Path, signer: NoteSigner) -> None:
    chance = random.Random(20)
    heard: list[Heard] = []
    numbers = iter(range(0, 1 << 40, 1 << 20))

    def work(first: int, rival: int, tell: Callable[[str], None]) -> None:
        made = open_at(tmp_path, settings(Recording(signer, tell)))
        for start_at in itertools.count(0, 40):
            # A third of each batch is what the other process appends at the same time.
            batch = [*range(first + start_at, first + start_at + 40), *range(rival, rival + 20)]
            run_batches(made, [batch], tell)

    def enough() -> bool:
        """Whether the rounds have seen what they are for: on a busy machine a child may die before it says a thing."""
        said = sum(len(one.acknowledged) for one in heard), sum(len(one.published) for one in heard)
        return said[0] > 10 * ROUNDS and said[1] > 5

    began = time.monotonic()
    run_batches(open_at(tmp_path, settings(signer)), [range(-60, 0)], lambda line: None)
    step = time.monotonic() - began  # what a batch takes here today
    for round_ in itertools.count():
        if round_ >= ROUNDS and enough():
            break
        assert round_ < 20 * ROUNDS, "the processes never came to acknowledge and publish"
        first, second = next(numbers), next(numbers)
        children = [
            start(partial(work, first, second)),
            start(partial(work, second, first)),
        ]
        select.select([reading for _, reading in children], [], [], 20)
        time.sleep(chance.uniform(0, 4) * step)
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        heard += [hear(child, reading)[0] for child, reading in children]
        if round_ % 5 == 4:
            require_sound(tmp_path, settings(signer), heard)
    log = require_sound(tmp_path, settings(signer), heard)
    assert len({index for one in heard for _, index in one.acknowledged}) <= log.head().size


def test_two_processes_sign_one_history(tmp_path: Path, signer: NoteSigner) -> None:
    def work(offset: int, tell: Callable[[str], None]) -> None:
        made = open_at(tmp_path, settings(Recording(signer, tell)))
        run_batches(made, [range(at, at + 7) for at in range(offset, offset + 200, 3)], tell)

    children = [start(partial(work, offset)) for offset in (0, 100)]
    heard = [hear(*child)[0] for child in children]
    log = require_sound(tmp_path, settings(signer), heard)
    assert log.head().size == 305
    assert merkle.tree_root(305, log.hash_reader(305)) == log.head().root


class Disk:
    """What of a folder is sure to outlive a loss of power: files and folder entries, each as last flushed.

    In front of every change it keeps two images of what might be found afterwards: one with what was flushed
    alone, one in which each folder may also stand as it is, files never flushed being empty.
    """

    def __init__(self, root: Path, images: Path, note: Callable[[], Any], chance: random.Random) -> None:
        self.root = str(root)
        self.images: list[tuple[Path, Any]] = []
        self._folder = images
        self._note = note
        self._chance = chance
        self._files: dict[int, bytes] = {}
        self._folders: dict[str, dict[str, bytes | None]] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("fsync", "link", "rename", "unlink"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: Any, **options: Any) -> object:
            self._keep(self._folders.get)
            self._keep(
                lambda path: self._folders.get(path) if self._chance.random() < 0.5 else self._seen(path)
            )
            result = real(*arguments, **options)
            if name == "fsync":
                self._flushed(arguments[0])
            return result

        return call

    def _flushed(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            self._folders[path] = self._seen(path)
        else:
            self._files[os.fstat(descriptor).st_ino] = Path(path).read_bytes()

    def _seen(self, path: str) -> dict[str, bytes | None]:
        return {
            entry.name: None if entry.is_dir() else self._files.get(entry.inode(), b"")
            for entry in os.scandir(path)
        }

    def _keep(self, entries: Callable[[str], dict[str, bytes | None] | None]) -> None:
        image = self._folder / str(len(self.images))
        self._write(image, self.root, entries)
        self.images.append((image, self._note()))

    def _write(
        self, image: Path, path: str, entries: Callable[[str], dict[str, bytes | None] | None]
    ) -> None:
        image.mkdir()
        for name, data in (entries(path) or {}).items():
            if data is None:
                self._write(image / name, f"{path}/{name}", entries)
            else:
                (image / name).write_bytes(data)


def test_power_is_lost_before_every_system_call(
    tmp_path: Path, signer: NoteSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "images").mkdir()
    said: list[str] = []
    disk = Disk(tmp_path / "home", tmp_path / "images", lambda: len(said), random.Random(7))
    with monkeypatch.context() as patch:
        disk.install(patch)
        log = open_at(tmp_path / "home", settings(Recording(signer, said.append)))
        run_batches(log, BATCHES, said.append)
        log.close()
    assert len(disk.images) > 150
    for image, count in disk.images:
        heard = heard_in([line.split() for line in said[:count]])
        require_sound(image, settings(signer), [heard]).close()
