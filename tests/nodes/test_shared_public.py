"""The checkpoint of a shared log: who stood still while another announced finds that there is nothing to announce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from node import ORIGIN

from memory.shared_public import SharedPublic
from tlog.bucket import Bucket
from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.errors import UnavailableError
from tlog.known_heads import CHECKPOINT
from tlog.note import SignatureLine, SignatureType, format_note, make_verifier_key, sign_note
from tlog.object_storage import ObjectStorage
from tlog.staging import Head


class Signer:
    def __init__(self, seed: int) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32))
        public = self._key.public_key().public_bytes_raw()
        self.verifier_key = make_verifier_key(ORIGIN, SignatureType.ED25519, public)

    def sign(self, text: str) -> SignatureLine:
        return SignatureLine(self.verifier_key.name, self.verifier_key.key_id, self._key.sign(text.encode()))


def note(size: int, seed: int) -> bytes:
    return format_note(
        sign_note(format_checkpoint(Checkpoint(ORIGIN, size, bytes([size]) * 32)), [Signer(seed)])
    )


def run_out(storage: Any) -> None:
    """All locks of the log run out now."""
    statement = "UPDATE muniment_log.log_lease SET until = '-infinity' WHERE log = %s"
    storage._link.run(lambda connection: connection.execute(statement, (storage._log,)))


@pytest.mark.parametrize("step", ["announced", "compared"])
def test_of_two_checkpoints_of_one_size_the_later_announced_stays(
    make_shared: Callable[[], Any], make_bucket: Callable[[], Bucket], step: str
) -> None:
    bucket = make_bucket()
    first, second = make_shared(), make_shared()
    bucket.put(CHECKPOINT, note(4, 1))

    def meanwhile(name: str) -> None:
        if name == step:
            run_out(first)
            with second.lock("publish", 5):
                SharedPublic(ObjectStorage(bucket), second).replace(CHECKPOINT, note(5, 2))

    with pytest.raises(UnavailableError), first.lock("publish", 5):
        SharedPublic(ObjectStorage(bucket), first, meanwhile).replace(CHECKPOINT, note(5, 1))
    stood = bucket.get(CHECKPOINT)
    assert stood is not None and stood.data == note(5, 2)


def test_what_the_bucket_has_of_a_larger_tree_stays(
    make_shared: Callable[[], Any], make_bucket: Callable[[], Bucket]
) -> None:
    """A database that lost its last commits knows nothing of it."""
    bucket, shared = make_bucket(), make_shared()
    bucket.put(CHECKPOINT, note(9, 1))
    public = SharedPublic(ObjectStorage(bucket), shared)
    with pytest.raises(UnavailableError), shared.lock("publish", 5):
        public.replace(CHECKPOINT, note(5, 1))
    assert public.read(CHECKPOINT) == note(9, 1)
    with shared.lock("publish", 5):
        public.replace(CHECKPOINT, note(9, 2))
        public.replace(CHECKPOINT, note(10, 1))
        public.replace(CHECKPOINT, note(10, 1))
    assert public.read(CHECKPOINT) == note(10, 1)


def test_a_lock_that_another_took_writes_nothing(make_shared: Callable[[], Any]) -> None:
    first, second = make_shared(), make_shared()
    with first.lock("append", 5):
        first.replace("head", b"ours")
        run_out(first)
        with second.lock("append", 5):
            for write in (
                lambda: first.replace("head", b"late"),
                lambda: first.swap("head", b"ours", b"late"),
                lambda: first.swap("other", None, b"late"),
                lambda: first.create("new", b"late"),
                lambda: first.remove(["head"]),
            ):
                with pytest.raises(UnavailableError) as caught:
                    write()
                assert caught.value.code == "busy"
            second.replace("head", b"theirs")
    assert (first.read("head"), first.names("")) == (b"theirs", ("head",))


def test_of_several_locks_each_has_to_be_ours_still(make_shared: Callable[[], Any]) -> None:
    first, second = make_shared(), make_shared()
    with first.lock("outbox", 5), first.lock("append", 5):
        statement = "UPDATE muniment_log.log_lease SET until = '-infinity' WHERE log = %s AND name = 'outbox'"
        first._link.run(lambda connection: connection.execute(statement, (first._log,)))
        with second.lock("outbox", 5), pytest.raises(UnavailableError):
            first.replace("head", b"late")
    assert first.read("head") is None


def test_a_token_given_twice_is_still_of_one(make_shared: Callable[[], Any]) -> None:
    """A failover to a server that lacked the last commits gives the same number to the next."""
    first, second = make_shared(), make_shared()
    with first.lock("append", 5):
        run_out(first)
        statement = "UPDATE muniment_log.log_lease SET token = token - 1 WHERE log = %s"
        first._link.run(lambda connection: connection.execute(statement, (first._log,)))
        with second.lock("append", 5), pytest.raises(UnavailableError):
            first.replace("head", b"late")


def test_a_lock_is_let_go_by_whoever_has_it_alone(make_shared: Callable[[], Any]) -> None:
    first, second, third = make_shared(), make_shared(), make_shared()
    with second.lock("gc", 5):
        pass
    with first.lock("append", 5):
        run_out(first)
        holding = second.lock("append", 5)
        holding.__enter__()
    with pytest.raises(UnavailableError), third.lock("append", 0.3):
        pass
    holding.__exit__(None, None, None)
    with third.lock("append", 0.0):
        pass


def test_an_index_that_another_node_brought_further_does_not_go_back(make_shared: Callable[[], Any]) -> None:
    index = make_shared().identity_index()
    first, second = Head(2, b"1" * 32), Head(3, b"2" * 32)
    index.add([b"a" * 32, b"b" * 32], first)
    index.add([b"c" * 32], second)
    index.add([b"b" * 32], first)
    assert index.head() == second
    index.add([b"b" * 32, b"c" * 32, b"a" * 32], Head(4, b"3" * 32))
    assert index.find([b"a" * 32, b"b" * 32, b"c" * 32, b"d" * 32]) == {
        b"a" * 32: 0,
        b"b" * 32: 1,
        b"c" * 32: 2,
    }
    index.clear()
    assert (index.head().size, index.find([b"a" * 32])) == (0, {})
    with pytest.raises(UnavailableError):
        index.add([b"c" * 32], second)
