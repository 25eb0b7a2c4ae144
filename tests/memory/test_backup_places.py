"""The keys of backups in a folder and in a bucket: the same ring, and no node brings back what another destroyed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.backup_keys import KeyRing, new_subject
from memory.backup_places import BUCKET_FOLDER, BucketPlace, require_no_versions
from tlog.errors import RefusedError, UnavailableError, VerificationError

HOME_KEY = b"k" * 32
Rings = Callable[[], KeyRing]


@pytest.fixture(params=["folder", "bucket"])
def ring(request: pytest.FixtureRequest, tmp_path: Path, make_bucket: Callable[[], Any]) -> Rings:
    """Opens the ring of one home anew, as another process does."""
    if request.param == "folder":
        return lambda: KeyRing(tmp_path)
    bucket = make_bucket()
    return lambda: KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY))


def test_a_ring_is_the_same_wherever_it_lies(ring: Rings) -> None:
    made, dana, fox = ring(), new_subject(), new_subject()
    assert not made.exists()
    keys = [made.make("record", number, subject) for number, subject in ((1, dana), (2, dana), (1025, fox))]
    other = made.make("ledger", 7)
    made.list_backup(b"n" * 16, 1, 2, 3)
    made.flush()
    again = ring()
    assert again.exists() and [again.key("record", number) for number in (1, 2, 1025)] == keys
    assert list(again.places("record")) == [1, 2, 1025] and again.subject("record", 2) == dana
    assert list(again.listed_backups()) == [(b"n" * 16, 1, 2, 3)]
    assert again.destroy("record", [1, 1025]) == 2
    left = ring()
    assert (left.key("record", 1), left.key("record", 2), left.key("record", 1025)) == (None, keys[1], None)
    assert left.key("ledger", 7) == other and list(left.places("record")) == [2]
    # The key of a subject goes with its last place.
    assert left.destroy("record", [2]) == 1
    last = ring()
    assert last.key("record", 2) is None and last.subject("record", 2) is None
    assert last.destroy("record", [2]) == 0


def test_a_bucket_has_no_key_in_the_clear(make_bucket: Callable[[], Any], tmp_path: Path) -> None:
    bucket = make_bucket()
    ring = KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY))
    key = ring.make("record", 1)
    ring.flush()
    (name,) = bucket.names(BUCKET_FOLDER)
    stood = bucket.get(name).data
    assert key not in stood and bytes(64) not in stood
    ring.make("record", 2, new_subject())
    ring.flush()
    assert len(bucket.names(BUCKET_FOLDER)) == 2 and ring.destroy("record", [2]) == 1
    # Nothing is left of the key of a subject that has no record.
    assert bucket.names(BUCKET_FOLDER) == (name,)
    stood = bucket.get(name).data
    # Under another key it does not open, nor where it was moved to another name.
    with pytest.raises(VerificationError):
        KeyRing(tmp_path, BucketPlace(bucket, b"x" * 32)).key("record", 1)
    bucket.put(f"{BUCKET_FOLDER}/ledger-0.keys", stood)
    with pytest.raises(VerificationError):
        KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY)).key("ledger", 1)


def test_a_node_that_stood_still_brings_no_key_back(make_bucket: Callable[[], Any], tmp_path: Path) -> None:
    bucket = make_bucket()
    first = KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY))
    first.make("record", 1)
    first.make("record", 2)
    first.flush()
    stale = KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY))
    stale.make("record", 3)
    assert KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY)).destroy("record", [1]) == 1
    with pytest.raises(UnavailableError) as caught:
        stale.flush()
    assert caught.value.code == "busy"
    assert list(KeyRing(tmp_path, BucketPlace(bucket, HOME_KEY)).places("record")) == [2]


class Versioned:
    """A bucket that says that it keeps versions."""

    def keeps_versions(self) -> bool:
        return True


def test_a_bucket_with_versions_gets_no_keys(make_bucket: Callable[[], Any]) -> None:
    bucket = make_bucket()
    require_no_versions(bucket)
    assert bucket.names("") == ()
    with pytest.raises(RefusedError) as caught:
        require_no_versions(Versioned())  # type: ignore[arg-type]  # all that is asked of it
    assert caught.value.code == "bucket_versioned"
