"""A mirror gets everything first, and whoever does not extend what it holds signs nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog.certificates import KeyList, TrustedKey, sign_key_list
from tlog.checkpoint import parse_checkpoint
from tlog.cose import make_signer
from tlog.errors import RefusedError, UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.keys import Ed25519NoteSigner
from tlog.log import Log, LogSettings
from tlog.mirror import KEY_LIST, MARKER, Mirror, other_files
from tlog.note import SignatureType, make_verifier_key, parse_note
from tlog.storage import DirectoryStorage, MemoryStorage, Storage

ORIGIN = "example.org/log"
KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
SIGNER = Ed25519NoteSigner(
    make_verifier_key(ORIGIN, SignatureType.ED25519, KEY.public_key().public_bytes_raw()), KEY.sign
)
SETTINGS = LogSettings(ORIGIN, (SIGNER,), identify=lambda entry: sha256(entry).digest())


class Failing(MemoryStorage):
    """A mirror that fails at the n-th write from now on, before or after it took place."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left = 10**9
        self.after = False

    def _write(self, write: Callable[[], Any]) -> Any:
        self.writes_left -= 1
        if self.writes_left < 0 and not self.after:
            raise UnavailableError("storage: no space left", code="storage_failed")
        done = write()
        if self.writes_left < 0:
            raise UnavailableError("storage: the connection broke", code="storage_failed")
        return done

    def create_all(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self._write(lambda path=path, data=data: super(Failing, self).create_all({path: data}))  # type: ignore[misc]

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        done: bool = self._write(lambda: super(Failing, self).swap(path, expected, data))
        return done


def mirror_in(storage: Storage) -> Mirror:
    mirror = Mirror(storage, ORIGIN, (SIGNER.verifier_key,))
    mirror.prepare()
    return mirror


def log_in(folder: Path, mirror: Mirror | None, **changes: Any) -> Log:
    settings = replace(SETTINGS, mirror=mirror, **changes)
    log = Log(DirectoryStorage(folder / "log"), DirectoryStorage(folder / "state"), settings)
    log.recover()
    return log


def grow(log: Log, count: int) -> None:
    start = log.head().size
    log.append([b"entry-%d" % number for number in range(start, start + count)])


def size_of(note: bytes | None) -> int:
    return 0 if note is None else parse_checkpoint(parse_note(note).text).size


@pytest.fixture(params=["memory", "directory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryStorage() if request.param == "memory" else DirectoryStorage(tmp_path / "mirror")


def test_the_mirror_is_a_whole_log_at_every_publication(tmp_path: Path, storage: Storage) -> None:
    log = log_in(tmp_path, mirror_in(storage))
    for count in (1, 254, 1, 1, 600):
        grow(log, count)
        published = log.publish(5)
        assert storage.read("checkpoint") == published.note
        assert fsck(storage).size == published.size
    log.publish(5)  # again, of the same size


def test_the_mirror_has_it_before_the_public(tmp_path: Path, storage: Storage) -> None:
    steps: list[tuple[str, int, int]] = []

    def note(step: str) -> None:
        steps.append((step, size_of(storage.read("checkpoint")), size_of(log.checkpoint())))

    log = log_in(tmp_path, mirror_in(storage), failpoint=note)
    grow(log, 3)
    log.publish(5)
    order = [step for step, _, _ in steps]
    assert order.index("mirrored") < order.index("signed")
    assert ("announced to the mirror", 3, 0) in steps
    assert ("published", 3, 3) in steps


@pytest.mark.parametrize("after", [False, True])
def test_a_mirror_that_fails_stops_the_announcement(tmp_path: Path, after: bool) -> None:
    """At every write of it, before or after it took effect: nothing is public, and trying again completes it."""
    for writes in range(12):
        folder, storage = tmp_path / str(writes), Failing()
        log = log_in(folder, mirror_in(storage))
        grow(log, 2)
        first = log.publish(5)
        grow(log, 300)
        storage.writes_left, storage.after = writes, after
        try:
            log.publish(5)
        except UnavailableError as error:
            assert error.code == "mirror_unavailable"
            assert log.checkpoint() == first.note
        else:
            assert writes > 4
            break
        storage.writes_left = 10**9
        log = log_in(folder, Mirror(storage, ORIGIN, (SIGNER.verifier_key,)))
        assert log.publish(5).note == storage.read("checkpoint") == log.checkpoint()
        assert fsck(storage).size == 302
    else:
        pytest.fail("expected fewer writes in one publication")


def test_a_failing_mirror_keeps_the_log_from_signing(tmp_path: Path) -> None:
    storage = Failing()
    log = log_in(tmp_path, mirror_in(storage))
    grow(log, 2)
    storage.writes_left = 0
    with pytest.raises(UnavailableError):
        log.publish(5)
    assert log.private.read("signed") is None


def test_a_folder_whose_disk_is_not_mounted_is_not_an_empty_mirror(tmp_path: Path) -> None:
    place = tmp_path / "mnt"
    mirror = mirror_in(DirectoryStorage(place))
    log = log_in(tmp_path, mirror)
    grow(log, 2)
    note = log.publish(5).note
    shutil.move(place, tmp_path / "unplugged")
    grow(log, 1)
    for missing in (lambda: None, lambda: place.mkdir()):
        missing()
        with pytest.raises(UnavailableError) as caught:
            log.publish(5)
        assert caught.value.code == "mirror_unavailable"
        assert log.checkpoint() == note
        assert not place.exists() or not any(place.rglob("tile*"))
    place.rmdir()
    shutil.move(tmp_path / "unplugged", place)
    assert log.publish(5).size == 3


def test_a_log_that_was_rolled_back_signs_nothing(tmp_path: Path, storage: Storage) -> None:
    log = log_in(tmp_path / "home", mirror_in(storage))
    grow(log, 2)
    log.publish(5)
    log.close()
    shutil.copytree(tmp_path / "home", tmp_path / "backup")
    log = log_in(tmp_path / "home", Mirror(storage, ORIGIN, (SIGNER.verifier_key,)))
    grow(log, 3)
    log.publish(5)
    old = log_in(tmp_path / "backup", Mirror(storage, ORIGIN, (SIGNER.verifier_key,)))
    before = old.private.read("signed")
    for grown in (False, True):
        if grown:
            old.append([b"another past %d" % number for number in range(9)])
        with pytest.raises(VerificationError) as caught:
            old.publish(5)
        assert caught.value.code == "rolled_back"
        assert "mirror" in caught.value.message
        assert old.private.read("signed") == before
    # Without the mirror it would have signed: the check is what stops it.
    assert log_in(tmp_path / "backup", None).publish(5).size == 11


def test_of_two_copies_of_a_home_one_goes_on(tmp_path: Path, storage: Storage) -> None:
    """Also where both were open already, and had asked the mirror when they began."""
    log = log_in(tmp_path / "one", mirror_in(storage))
    grow(log, 2)
    log.publish(5)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    clone = log_in(tmp_path / "two", Mirror(storage, ORIGIN, (SIGNER.verifier_key,)))
    clone.publish(5)
    log.append([b"here"])
    clone.append([b"there"])
    note = log.publish(5).note
    with pytest.raises(VerificationError) as caught:
        clone.publish(5)
    assert caught.value.code == "rolled_back"
    assert storage.read("checkpoint") == note


def test_of_two_copies_that_publish_at_once_one_goes_on(tmp_path: Path, storage: Storage) -> None:
    log = log_in(tmp_path / "one", mirror_in(storage))
    grow(log, 2)
    log.publish(5)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    log.append([b"here"])

    def overtaken(step: str) -> None:
        if step == "cosigned":
            log.publish(5)

    clone = log_in(tmp_path / "two", Mirror(storage, ORIGIN, (SIGNER.verifier_key,)), failpoint=overtaken)
    clone.append([b"there", b"and there"])
    with pytest.raises(UnavailableError) as caught:
        clone.publish(5)
    assert caught.value.code == "mirror_unavailable"
    assert size_of(clone.checkpoint()) == 2
    assert storage.read("checkpoint") == log.checkpoint()


def test_a_publisher_that_stopped_after_the_mirror_goes_on(tmp_path: Path, storage: Storage) -> None:
    class Stop(Exception):
        pass

    def stop(step: str) -> None:
        if step == "announced to the mirror":
            raise Stop

    log = log_in(tmp_path, mirror_in(storage), failpoint=stop)
    grow(log, 2)
    with pytest.raises(Stop):
        log.publish(5)
    assert (size_of(storage.read("checkpoint")), log.checkpoint()) == (2, None)
    log = log_in(tmp_path, Mirror(storage, ORIGIN, (SIGNER.verifier_key,)))
    grow(log, 1)
    assert log.publish(5).size == 3
    assert fsck(storage).size == 3


def test_a_checkpoint_that_the_log_never_signed_is_refused(tmp_path: Path, storage: Storage) -> None:
    mirror = mirror_in(storage)
    log = log_in(tmp_path, mirror)
    grow(log, 1)
    note = log.publish(5).note
    storage.replace("checkpoint", note.replace(b"\n1\n", b"\n9\n"))
    with pytest.raises(VerificationError) as caught:
        log.publish(5)
    assert caught.value.code == "log_signature"


def test_the_mirror_of_another_log_is_refused(tmp_path: Path, storage: Storage) -> None:
    mirror = mirror_in(storage)
    other = replace(mirror, origin="another log")
    for refused in (other.prepare, other.seen, lambda: other.create("erasures/1.cose", b"x")):
        with pytest.raises(RefusedError) as caught:
            refused()
        assert caught.value.code == "mirror_of_another"
    full = MemoryStorage()
    full.create("holiday.jpg", b"x")
    with pytest.raises(RefusedError):
        mirror_in(full)
    assert full.read(MARKER) is None


# Catching up, and other files


def test_catches_up_with_all_that_is_public(tmp_path: Path, storage: Storage) -> None:
    log = log_in(tmp_path, None)
    grow(log, 300)
    log.publish(5)
    log.public.create("erasures/1.cose", b"manifest")
    grow(log, 5)  # not published: not public
    mirror = mirror_in(storage)
    assert mirror.seen().catch_up(log.public, other_files(log.public)).size == 300
    assert fsck(storage).size == 300
    assert storage.read("erasures/1.cose") == b"manifest"
    assert mirror.seen().catch_up(log.public, other_files(log.public)).size == 300


def test_does_not_catch_up_with_a_log_that_is_behind_or_beside(tmp_path: Path, storage: Storage) -> None:
    mirror = mirror_in(storage)
    log = log_in(tmp_path / "one", mirror)
    grow(log, 5)
    log.publish(5)
    for name, entries in (("behind", [b"entry-0"]), ("beside", [b"x%d" % n for n in range(7)]), ("new", [])):
        other = log_in(tmp_path / name, None)
        if entries:
            other.append(entries)
            other.publish(5)
        with pytest.raises(VerificationError) as caught:
            mirror.seen().catch_up(other.public, ())
        assert caught.value.code == "rolled_back"
    assert size_of(storage.read("checkpoint")) == 5


def test_other_files_never_change(storage: Storage) -> None:
    mirror = mirror_in(storage)
    mirror.create("erasures/1.cose", b"one")
    mirror.create("erasures/1.cose", b"one")
    with pytest.raises(VerificationError) as caught:
        mirror.create("erasures/1.cose", b"another")
    assert caught.value.code == "rolled_back"


def test_a_key_list_is_replaced_by_a_newer_one_only(storage: Storage) -> None:
    root, key = (make_signer(Ed25519PrivateKey.from_private_bytes(bytes((seed,)) * 32)) for seed in (1, 2))
    first = KeyList("store", 1, 0, (TrustedKey("issuer", key.key, 0, 99, "store"),))
    second = first.ending(first.keys[0], 5, {ORIGIN: 1}, 5)
    mirror = mirror_in(storage)
    for key_list in (first, second, second):
        mirror.replace_key_list(sign_key_list(root, key_list))
    with pytest.raises(VerificationError) as caught:
        mirror.replace_key_list(sign_key_list(root, first))
    assert caught.value.code == "rolled_back"
    assert storage.read(KEY_LIST) == sign_key_list(root, second)
