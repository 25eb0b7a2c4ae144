"""A reader of a bucket takes no more than a path may have, and knows what it may not see from what is not there."""

from __future__ import annotations

from typing import Any

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError
from obstore.store import MemoryStore

from tlog import bucket_reader
from tlog.bucket_reader import BucketReader, is_bucket
from tlog.client import limit_of
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.note import MAX_NOTE_BYTES


class Denying:
    """A store that denies what it does not have, as S3 does to whoever may not list."""

    def __init__(self, objects: dict[str, bytes], status: str = "403") -> None:
        self.store = MemoryStore()
        self.objects = objects
        self.status = status
        for name, data in objects.items():
            self.store.put(name, data)

    def get(self, name: str) -> Any:
        if name not in self.objects:
            raise PermissionDeniedError("of somebody's account")
        return self.store.get(name)

    def list(self, **_: object) -> Any:
        raise GenericError(f"non-2xx status code: {self.status} Somewhat, of somebody's account")


def reader(store: Any) -> BucketReader:
    return BucketReader("s3://bucket", limit_of, store=store)


def test_files_are_read_up_to_what_a_log_may_have_there() -> None:
    store = MemoryStore()
    store.put("checkpoint", b"x" * MAX_NOTE_BYTES)
    assert reader(store)("checkpoint") == b"x" * MAX_NOTE_BYTES
    assert reader(store)("tile/0/000") is None
    store.put("checkpoint", b"x" * (MAX_NOTE_BYTES + 1))
    with pytest.raises(VerificationError) as caught:
        reader(store)("checkpoint")
    assert caught.value.code == "too_large"
    with pytest.raises(MalformedError):
        reader(store)("../checkpoint")


def test_names_are_listed_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for name in ("tile/0/001", "checkpoint", "tile/0/000"):
        store.put(name, b"")
    assert reader(store).names() == ("checkpoint", "tile/0/000", "tile/0/001")
    monkeypatch.setattr(bucket_reader, "MAX_NAMES", 2)
    with pytest.raises(MalformedError) as caught:
        reader(store).names()
    assert caught.value.code == "too_large"


def test_what_is_denied_is_not_there_once_something_was_read() -> None:
    read = reader(Denying({"checkpoint": b"note"}))
    assert read.names() is None
    with pytest.raises(UnavailableError) as caught:
        read("tile/0/000")
    assert "credentials" in caught.value.message and "account" not in caught.value.message
    assert (read("checkpoint"), read("tile/0/000")) == (b"note", None)


@pytest.mark.parametrize(("status", "code"), [("404", "no_bucket"), ("500", "storage_failed")])
def test_a_list_that_fails_says_why_and_repeats_nothing(status: str, code: str) -> None:
    with pytest.raises(Error) as caught:
        reader(Denying({}, status)).names()
    assert caught.value.code == code and "account" not in caught.value.message


def test_what_is_a_place_in_a_bucket() -> None:
    assert is_bucket("s3://a/b") and not is_bucket("https://a/b") and not is_bucket("s3/b")
