"""A log's files in a bucket: what is written on a condition, answers that are lost, stores that do not keep to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tlog.bucket import Bucket, Object, ObstoreBucket, open_bucket, require_conditional
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.log import Log, LogSettings
from tlog.note import SignatureType
from tlog.object_storage import TRIES, ObjectStorage
from tlog.storage import DirectoryStorage, MemoryStorage, Storage


class Faulty:
    """A bucket whose calls are counted, and of which some are not done, or done and not answered."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.calls: list[tuple[str, str]] = []
        self.lost_before = 0
        self.lost_after = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def _call(self, what: str, name: str, work: Callable[[], Any]) -> Any:
        self.calls.append((what, name))
        if self.lost_before:
            self.lost_before -= 1
            raise UnavailableError("injected", code="storage_failed")
        if what.startswith("put"):
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        answer = work()
        if self.lost_after:
            self.lost_after -= 1
            raise UnavailableError("injected", code="storage_failed")
        return answer

    def get(self, name: str) -> Object | None:
        return self._call("get", name, lambda: self.bucket.get(name))

    def put(self, name: str, data: bytes) -> None:
        self._call("put", name, lambda: self.bucket.put(name, data))

    def put_new(self, name: str, data: bytes) -> bool:
        return self._call("put_new", name, lambda: self.bucket.put_new(name, data))

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        return self._call("put_over", name, lambda: self.bucket.put_over(name, etag, data))

    def delete(self, names: Iterable[str]) -> None:
        together = tuple(names)
        self._call("delete", " ".join(together), lambda: self.bucket.delete(together))

    def names(self, folder: str) -> tuple[str, ...]:
        return self._call("names", folder, lambda: self.bucket.names(folder))


@pytest.fixture
def faulty(make_bucket: Callable[[], Bucket]) -> Faulty:
    return Faulty(make_bucket())


def test_a_real_bucket_keeps_to_conditions(make_bucket: Callable[[], Bucket]) -> None:
    bucket = make_bucket()
    bucket.put("other", b"")
    require_conditional(bucket)
    assert bucket.names("") == ("other",)


class Overwriting(Faulty):
    """Takes the header If-None-Match and ignores it."""

    def put_new(self, name: str, data: bytes) -> bool:
        self.bucket.put(name, data)
        return True


class Uncompared(Faulty):
    """Takes the header If-Match and ignores it."""

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        self.bucket.put(name, data)
        return True


class Untagged(Faulty):
    """Answers without an ETag."""

    def get(self, name: str) -> Object | None:
        stood = self.bucket.get(name)
        return stood and Object(stood.data, "")


class Boasting(Faulty):
    """Says that it has done what it has refused."""

    def put_new(self, name: str, data: bytes) -> bool:
        self.bucket.put_new(name, data)
        return True


class Bragging(Faulty):
    """Likewise where something is replaced."""

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        self.bucket.put_over(name, etag, data)
        return True


class Forgetful(Faulty):
    """Has no error, and does nothing."""

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        return False


@pytest.mark.parametrize("kind", [Overwriting, Uncompared, Untagged, Boasting, Bragging, Forgetful])
def test_a_store_that_ignores_conditions_is_refused(
    kind: type[Faulty], make_bucket: Callable[[], Bucket]
) -> None:
    bucket = kind(make_bucket())
    with pytest.raises(RefusedError) as caught:
        require_conditional(bucket)
    assert caught.value.code == "store_unconditional"


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_bytes(faulty: Faulty) -> None:
    storage = ObjectStorage(faulty)
    faulty.lost_after = 1
    storage.create("tile/0/000", b"abc")
    assert storage.read("tile/0/000") == b"abc"
    faulty.lost_before = TRIES - 1
    storage.create("tile/0/001", b"abd")
    assert storage.read("tile/0/001") == b"abd"
    faulty.lost_before = TRIES
    with pytest.raises(UnavailableError):
        storage.create("tile/0/002", b"abe")


def test_other_bytes_are_told_also_after_an_answer_that_was_lost(faulty: Faulty) -> None:
    storage = ObjectStorage(faulty)
    storage.create("tile/0/000", b"abc")
    faulty.lost_after = 1
    with pytest.raises(VerificationError) as caught:
        storage.create_all({"tile/0/000": b"xyz"})
    assert caught.value.code == "file_altered"
    with pytest.raises(VerificationError):
        storage.create_all({f"tile/0/{at:03d}": b"xyz" for at in range(40)})
    assert storage.read("tile/0/000") == b"abc"


def test_of_a_swap_during_which_somebody_else_writes_the_other_wins(faulty: Faulty) -> None:
    storage = ObjectStorage(faulty)
    faulty.meanwhile = lambda: faulty.bucket.put("checkpoint", b"theirs")
    assert storage.swap("checkpoint", None, b"ours") is False
    faulty.meanwhile = lambda: faulty.bucket.put("checkpoint", b"newer")
    assert storage.swap("checkpoint", b"theirs", b"ours") is False
    assert storage.read("checkpoint") == b"newer"


def test_a_swap_that_the_client_did_twice_says_that_it_is_done(faulty: Faulty) -> None:
    """The first answer was lost on the way, the client asked again, and met its own bytes."""
    storage = ObjectStorage(faulty)
    storage.replace("checkpoint", b"old")
    faulty.meanwhile = lambda: faulty.bucket.put("checkpoint", b"ours")
    assert storage.swap("checkpoint", b"old", b"ours") is True


def test_errors_name_neither_the_host_nor_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-account")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr("tlog.bucket.RETRIES", 0)
    storage = ObjectStorage(open_bucket("s3://a-bucket/a-prefix"))
    for call in (lambda: storage.read("a"), lambda: storage.create("a", b""), lambda: storage.names("")):
        with pytest.raises(UnavailableError) as caught:
            call()
        assert caught.value.code == "storage_failed"
        said = f"{caught.value.message} {caught.value.fields} {caught.value.__cause__}"
        assert not [one for one in ("127.0.0.1", "an-account", "a-secret", "a-bucket") if one in said]


@pytest.mark.parametrize(
    "url", ["", "s3://", "http://bucket", "s3://UPPER", "s3://bucket/../x", "s3://bucket//x", "s3://b u"]
)
def test_refuses_what_is_not_a_bucket(url: str) -> None:
    with pytest.raises(MalformedError):
        open_bucket(url)


def grown(public: Storage, seed_signer: Callable[[str, int, int], Any]) -> Log:
    """A log of 600 entries, published three times."""
    signer = seed_signer("example.org/log", SignatureType.ED25519, 1)
    settings = LogSettings("example.org/log", (signer,), identify=lambda entry: sha256(entry).digest())
    log = Log(public, MemoryStorage(), settings)
    log.recover()
    for first, last in ((0, 3), (3, 256), (256, 600)):
        log.append([b"entry-%d" % at for at in range(first, last)])
        log.publish(30)
    return log


def test_the_bucket_holds_what_the_folder_of_a_log_holds(
    tmp_path: Path, make_bucket: Callable[[], Bucket], seed_signer: Callable[[str, int, int], Any]
) -> None:
    on_disk, in_bucket = DirectoryStorage(tmp_path), ObjectStorage(make_bucket())
    grown(on_disk, seed_signer)
    log = grown(in_bucket, seed_signer)
    names = on_disk.names("")
    assert in_bucket.names("") == names
    assert {name: in_bucket.read(name) for name in names} == {name: on_disk.read(name) for name in names}
    assert list(log.read_entries(250, 260)) == [b"entry-%d" % at for at in range(250, 260)]


def test_a_folder_of_tiles_is_listed_once_and_whatever_is_full_goes(
    faulty: Faulty, seed_signer: Callable[[str, int, int], Any]
) -> None:
    signer = seed_signer("example.org/log", SignatureType.ED25519, 1)
    settings = LogSettings("example.org/log", (signer,), identify=lambda entry: sha256(entry).digest())
    log = Log(ObjectStorage(faulty), MemoryStorage(), settings)
    log.recover()
    for size in (100, 1500, 1600):
        log.append([b"entry-%d" % at for at in range(log.head().size, size)])
        faulty.calls.clear()
        log.publish(30)
        # Not one of the writes looks; what is found to be of no more use is looked for, folder by folder.
        assert (
            sorted(name for what, name in faulty.calls if what == "names")
            == {
                100: [],
                1500: ["tile/0", "tile/entries"],
                1600: ["tile/0/005.p", "tile/entries/005.p"],
            }[size]
        )
    assert [name for name in faulty.bucket.names("") if ".p/" in name] == [
        *("tile/0/006.p/64", "tile/1/000.p/5", "tile/1/000.p/6", "tile/entries/006.p/64"),
    ]


def test_of_two_who_write_other_tiles_the_second_is_told_and_publishes_nothing(
    make_bucket: Callable[[], Bucket], seed_signer: Callable[[str, int, int], Any]
) -> None:
    bucket = make_bucket()
    grown(ObjectStorage(bucket), seed_signer)
    before = bucket.get("checkpoint")
    other = Log(
        ObjectStorage(bucket),
        MemoryStorage(),
        LogSettings("example.org/log", (seed_signer("example.org/log", SignatureType.ED25519, 1),)),
    )
    with pytest.raises(VerificationError):
        other.recover()
    assert bucket.get("checkpoint") == before


def test_a_bucket_of_a_client_of_obstore_has_the_tag_of_what_it_read(
    make_bucket: Callable[[], Bucket],
) -> None:
    bucket = make_bucket()
    assert isinstance(bucket, ObstoreBucket)
    assert bucket.put_new("a", b"1") is True
    stood = bucket.get("a")
    assert stood is not None
    assert bucket.put_over("a", stood.etag, b"2") is True
    assert bucket.put_over("a", stood.etag, b"3") is False
    assert bucket.put_over("nothing", stood.etag, b"3") is False
    assert bucket.put_new("a", b"4") is False
