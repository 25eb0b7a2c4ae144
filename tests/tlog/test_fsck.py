"""fsck: every file of a log agrees with every other, or the file at fault is named."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from tlog.errors import VerificationError
from tlog.fsck import Checked, fsck
from tlog.log import Log, LogSettings
from tlog.merkle import EMPTY_ROOT
from tlog.note import SignatureType
from tlog.storage import MemoryStorage

ORIGIN = "example.org/log"
SIZE = 256 * 256 + 300  # three levels, full and partial tiles
SMALL = 2 * 256 + 44  # two levels, in a log that is read a hundred times as fast


def entries(start: int, end: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(start, end)]


@pytest.fixture(scope="module")
def settings(seed_signer: Callable[[str, int, int], Any]) -> LogSettings:
    signer = seed_signer(ORIGIN, SignatureType.ED25519, 1)
    return LogSettings(ORIGIN, (signer,), identify=lambda entry: sha256(entry).digest())


def make_log(settings: LogSettings, *sizes: int) -> Log:
    log = Log(MemoryStorage(), MemoryStorage(), settings)
    for size in sizes:
        log.append(entries(log.head().size, size))
        log.publish(5)
    return log


@pytest.fixture(scope="module")
def whole(settings: LogSettings) -> Log:
    return make_log(settings, 100, 700, SIZE)


def copy_of(whole: Log) -> Log:
    copies = []
    for storage in (whole.public, whole.private):
        copy = MemoryStorage()
        for name in storage.names(""):
            copy.replace(name, storage.read(name) or b"")
        copies.append(copy)
    return Log(copies[0], copies[1], whole.settings)


@pytest.fixture
def log(whole: Log) -> Log:
    return copy_of(whole)


@pytest.fixture(scope="module")
def small(settings: LogSettings) -> Log:
    return make_log(settings, 100, 300, SMALL)


def test_an_empty_log_is_whole() -> None:
    assert fsck(MemoryStorage()) == Checked(0, EMPTY_ROOT, 0, 0)
    assert fsck(MemoryStorage(), MemoryStorage()) == Checked(0, EMPTY_ROOT, 0, 0)


def test_a_whole_log_is_whole(log: Log) -> None:
    files = len(log.public.names("tile/"))
    assert fsck(log.public) == Checked(SIZE, log.head().root, SIZE, files)
    assert fsck(log.public, log.private) == Checked(SIZE, log.head().root, SIZE, files)


def test_what_is_committed_and_not_published_is_checked_too(small: Log) -> None:
    log = copy_of(small)
    log.append(entries(SMALL, SMALL + 5))
    assert fsck(log.public).size == SMALL
    checked = fsck(log.public, log.private)
    assert (checked.size, checked.published_size) == (SMALL + 5, SMALL)
    log.recover()
    assert fsck(log.public).size == SMALL
    assert fsck(log.public, log.private).size == SMALL + 5


EVERY_KIND = [
    "tile/0/000",
    "tile/0/001",
    "tile/0/002.p/44",
    "tile/1/000.p/2",
    "tile/entries/000",
    "tile/entries/002.p/44",
]
ABOVE = ["tile/1/000", "tile/1/001.p/1", "tile/2/000.p/1"]  # what only a large log has


def alter(log: Log, path: str, at: int) -> None:
    data = bytearray(log.public.read(path) or b"")
    data[at] ^= 1
    log.public.replace(path, bytes(data))


def damage_file(log: Log, path: str, damage: str) -> None:
    data = log.public.read(path) or b""
    log.public.remove([path])
    if damage != "gone":
        log.public.create(path, {"empty": b"", "cut": data[:-32], "longer": data + b"\0" * 32}[damage])


@pytest.mark.parametrize("path", EVERY_KIND)
@pytest.mark.parametrize("at", [0, 7, -1])
def test_one_altered_bit_of_any_file_is_found(small: Log, path: str, at: int) -> None:
    log = copy_of(small)
    alter(log, path, at)
    for private in (None, log.private):
        with pytest.raises(VerificationError):
            fsck(log.public, private)


@pytest.mark.parametrize("path", ABOVE)
def test_one_altered_bit_of_a_tile_of_a_higher_level_is_found(log: Log, path: str) -> None:
    for private, at in ((None, 0), (log.private, -1)):
        alter(log, path, at)
        with pytest.raises(VerificationError):
            fsck(log.public, private)
        alter(log, path, at)


@pytest.mark.parametrize("path", EVERY_KIND)
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "longer"])
def test_a_file_that_is_gone_or_of_another_length_is_found(small: Log, path: str, damage: str) -> None:
    log = copy_of(small)
    damage_file(log, path, damage)
    with pytest.raises(VerificationError):
        fsck(log.public)


@pytest.mark.parametrize(("path", "damage"), [*zip(ABOVE, ("cut", "gone", "longer"), strict=True)])
def test_a_tile_of_a_higher_level_that_is_gone_or_of_another_length_is_found(
    log: Log, path: str, damage: str
) -> None:
    damage_file(log, path, damage)
    with pytest.raises(VerificationError):
        fsck(log.public)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("tile/0/002.p/0", b""),
        ("tile/0/002.p/43", b"\0" * 43 * 32),
        ("tile/0/002.p/45", b"\0" * 45 * 32),
        ("tile/0/000.p/1", b"\0" * 32),
        ("tile/entries/002.p/1", b"\0\1x"),
        ("tile/entries/000.p/1", b"\0\1x"),
        ("tile/0/x000/003", b"\0" * 8192),
        ("tile/note.txt", b"hello"),
    ],
)
def test_a_stray_file_that_disagrees_is_found(small: Log, path: str, data: bytes) -> None:
    log = copy_of(small)
    log.public.create(path, data)
    with pytest.raises(VerificationError) as caught:
        fsck(log.public)
    assert caught.value.fields["path"] == path


@pytest.mark.parametrize("path", ["tile/0/002.p/188", "tile/entries/002.p/188"])
def test_the_tiles_of_the_public_size_are_checked_though_the_log_went_on(
    settings: LogSettings, path: str
) -> None:
    log = Log(MemoryStorage(), MemoryStorage(), settings)
    log.append(entries(0, 700))
    log.publish(5)
    log.append(entries(700, 710))
    log.recover()
    assert fsck(log.public, log.private).size == 710
    log.public.remove([path])
    with pytest.raises(VerificationError) as caught:
        fsck(log.public, log.private)
    assert caught.value.fields["path"] == path


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("tile/0/003", b"\1" * 8192),
        ("tile/0/002.p/45", None),
        ("tile/entries/003", b"\0\1x" * 256),
        ("tile/2/000", b"\1" * 8192),
        ("tile/1/000.p/3", None),
    ],
)
def test_a_file_in_the_way_of_growth_is_found(small: Log, path: str, data: bytes | None) -> None:
    log = copy_of(small)
    if data is None:  # more hashes than there are, the first ones as they should be
        narrower = path.replace("p/45", "p/44").replace("p/3", "p/2")
        data = (log.public.read(narrower) or b"") + b"\1" * 32
    log.public.create(path, data)
    with pytest.raises(VerificationError) as caught:
        fsck(log.public, log.private)
    assert caught.value.fields["path"] == path


def test_tiles_that_a_crash_left_before_they_were_counted_are_none_in_the_way(log: Log) -> None:
    log.append(entries(SIZE, SIZE + 300))
    integrated = log.private.read("integrated") or b""
    staged = {name: log.private.read(name) or b"" for name in log.private.names("staging/")}
    log.recover()
    log.private.replace("integrated", integrated)
    for name, data in staged.items():
        log.private.create(name, data)
    assert fsck(log.public, log.private).size == SIZE + 300


def test_partial_tiles_of_earlier_sizes_may_stay(small: Log) -> None:
    log = copy_of(small)
    whole = log.public.read("tile/0/002.p/44") or b""
    log.public.create("tile/0/002.p/43", whole[: 43 * 32])
    fsck(log.public, log.private)


def test_a_checkpoint_that_was_never_signed_is_found(small: Log) -> None:
    log = copy_of(small)
    log.append(entries(SMALL, SMALL + 5))
    signed = log.private.read("signed") or b""
    log.publish(5)
    log.private.replace("signed", signed)
    with pytest.raises(VerificationError) as caught:
        fsck(log.public, log.private)
    assert caught.value.fields["path"] == "checkpoint"


def test_a_checkpoint_of_another_history_is_found(small: Log, settings: LogSettings) -> None:
    log = copy_of(small)
    other = Log(MemoryStorage(), MemoryStorage(), settings)
    other.append(entries(1, 9))
    log.public.replace("checkpoint", other.publish(5).note)
    for private in (None, log.private):
        with pytest.raises(VerificationError):
            fsck(log.public, private)
    log.public.replace("checkpoint", b"no checkpoint")
    with pytest.raises(VerificationError):
        fsck(log.public)
