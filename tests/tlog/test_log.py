"""One log: what it appends, integrates, signs and publishes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog import merkle
from tlog.checkpoint import open_checkpoint, parse_checkpoint
from tlog.cose_keys import make_signer
from tlog.dedup import FILE, FileIndex
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.fsck import fsck
from tlog.keys import Ed25519NoteSigner, KeyCosigner
from tlog.log import STAGED_ENTRIES, STAGED_SEGMENTS, Log, LogSettings, open_log
from tlog.note import SignatureLine, SignatureType, make_verifier_key, parse_note
from tlog.policy import GroupEntry, LogEntry, Policy, WitnessEntry, make_policy, verify_checkpoint
from tlog.staging import Head
from tlog.statement import identity, sign_statement
from tlog.storage import DirectoryStorage, MemoryStorage, Storage
from tlog.tile import Tile, decode_tile, tiles_at

ORIGIN = "example.org/log"
LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
SIGNER = Ed25519NoteSigner(
    make_verifier_key(ORIGIN, SignatureType.ED25519, LOG_KEY.public_key().public_bytes_raw()), LOG_KEY.sign
)
SETTINGS = LogSettings(
    ORIGIN, (SIGNER,), identify=lambda entry: sha256(entry).digest(), clock=lambda: 1_700_000_000
)

Storages = tuple[Storage, Storage]


def witness(number: int) -> KeyCosigner:
    key = Ed25519PrivateKey.from_private_bytes(bytes((100 + number,)) * 32)
    public = key.public_key().public_bytes_raw()
    kind = SignatureType.COSIGNATURE_ED25519
    return KeyCosigner(make_verifier_key(f"witness-{number}.example", kind, public), key.sign)


WITNESSES = (witness(1), witness(2))
POLICY = make_policy(
    [LogEntry(SIGNER.verifier_key)],
    [WitnessEntry(f"w{number}", one.verifier_key) for number, one in enumerate(WITNESSES, 1)],
    [GroupEntry("both", 2, ("w1", "w2"))],
    "both",
)


class Cosigning:
    """Witnesses in this process, which check as real ones do; `silent` ones do not answer."""

    def __init__(self, witnesses: Sequence[KeyCosigner] = WITNESSES) -> None:
        self.witnesses = list(witnesses)
        self.time = 1_700_000_000
        self.head = Head(0, merkle.EMPTY_ROOT)
        self.previous: list[int] = []

    def __call__(
        self, note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous: int, deadline: float
    ) -> tuple[SignatureLine, ...]:
        opened = open_checkpoint(note, [SIGNER.verifier_key], ORIGIN)
        checkpoint = opened.checkpoint
        if self.head.size:
            merkle.verify_consistency(
                self.head.size, checkpoint.size, self.head.root, checkpoint.root, prove(self.head.size)
            )
        self.head = Head(checkpoint.size, checkpoint.root)
        self.previous.append(previous)
        self.time += 1
        return tuple(one.cosign(opened.note.text, self.time) for one in self.witnesses)


@pytest.fixture(params=["memory", "directory"])
def storages(request: pytest.FixtureRequest, tmp_path: Path) -> Storages:
    if request.param == "memory":
        return MemoryStorage(), MemoryStorage()
    return DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")


def open_raw(storages: Storages, settings: LogSettings = SETTINGS) -> Log:
    """A log of entries of any bytes, known by their hash."""
    log = Log(*storages, settings)
    log.recover()
    return log


def entry(number: int) -> bytes:
    return b"entry-%d" % number


def entries(start: int, end: int) -> list[bytes]:
    return [entry(number) for number in range(start, end)]


def expected_root(size: int) -> bytes:
    return merkle.Frontier().extend(merkle.leaf_hash(entry(number)) for number in range(size)).root()


def require_whole(log: Log, size: int) -> None:
    """Fails unless the log is that of `size` numbered entries, and provable at every entry tried."""
    assert log.head() == Head(size, expected_root(size))
    tried = sorted({0, 1, size // 2, 255, 256, size - 2, size - 1} & set(range(size)))
    for index in tried:
        assert log.read_entry(index) == entry(index)
        leaf = merkle.leaf_hash(entry(index))
        merkle.verify_inclusion(index, size, leaf, log.prove_inclusion(index, size), log.head().root)
    assert list(log.read_entries(0, size)) == entries(0, size)


# Appending


def test_a_new_log_is_empty(storages: Storages) -> None:
    log = open_raw(storages)
    assert log.head() == Head(0, merkle.EMPTY_ROOT)
    assert log.append([]) == ()
    assert log.checkpoint() is None
    with pytest.raises(MalformedError):
        log.read_entry(0)


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 300, 513])
def test_appended_entries_are_read_and_proved(storages: Storages, size: int) -> None:
    log = open_raw(storages)
    assert log.append(entries(0, size)) == tuple(range(size))
    require_whole(log, size)
    require_whole(open_raw(storages), size)
    log.publish(5)
    require_whole(log, size)


@pytest.mark.parametrize("step", [1, 7, 100, 255, 256, 257])
def test_the_tree_is_the_same_however_it_is_cut(storages: Storages, step: int) -> None:
    log = open_raw(storages)
    for start in range(0, 520, step):
        end = min(start + step, 520)
        assert log.append(entries(start, end)) == tuple(range(start, end))
        if start // step % 20 == 1:
            log.publish(5)
    require_whole(log, 520)
    log.publish(5)
    fsck(*storages)


def test_old_sizes_stay_provable(storages: Storages) -> None:
    log = open_raw(storages)
    for size in (1, 255, 256, 257, 300):
        log.append(entries(log.head().size, size))
        if size != 257:
            log.publish(5)
    for old in range(1, 301, 13):
        assert log.root_at(old) == expected_root(old)
        for new in (old, 256, 257, 300):
            if new >= old:
                proof = log.prove_consistency(old, new)
                merkle.verify_consistency(old, new, expected_root(old), expected_root(new), proof)
        merkle.verify_inclusion(
            old - 1,
            old,
            merkle.leaf_hash(entry(old - 1)),
            log.prove_inclusion(old - 1, old),
            expected_root(old),
        )


def test_appending_again_returns_the_same_indexes(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 10))
    assert log.append([entry(3), entry(11), entry(3), entry(11), entry(12)]) == (3, 10, 3, 10, 11)
    assert log.head().size == 12
    again = open_raw(storages)
    assert again.append([entry(12), entry(13), entry(0)]) == (11, 12, 0)
    assert log.append([entry(13)]) == (12,)


def test_a_statement_is_known_by_issuer_and_commitment_not_by_signature(storages: Storages) -> None:
    log = open_log(*storages, ORIGIN, [SIGNER])
    first = sign_statement(make_signer(Ed25519PrivateKey.generate()), "issuer", "sub", b"\x05" * 32)
    signed_anew = sign_statement(make_signer(Ed25519PrivateKey.generate()), "issuer", "sub", b"\x05" * 32)
    other = sign_statement(make_signer(Ed25519PrivateKey.generate()), "issuer-2", "sub", b"\x05" * 32)
    assert first != signed_anew
    assert log.append([first]) == (0,)
    assert log.append([signed_anew, other]) == (0, 1)
    assert log.read_entry(0) == first
    assert log._index.find([identity("issuer", b"\x05" * 32)]) == {identity("issuer", b"\x05" * 32): 0}


def test_a_log_of_statements_takes_nothing_else(storages: Storages) -> None:
    log = open_log(*storages, ORIGIN, [SIGNER])
    with pytest.raises(MalformedError):
        log.append([b"not a statement"])
    assert log.head().size == 0


def test_entry_sizes_end_at_65535(storages: Storages) -> None:
    log = open_raw(storages)
    longest = b"x" * 65535
    with pytest.raises(MalformedError) as caught:
        log.append([b"before", longest + b"x"])
    assert caught.value.fields["size_bytes"] == 65536
    assert log.head().size == 0
    assert log.append([b"", longest]) == (0, 1)
    log.publish(5)
    assert [log.read_entry(0), log.read_entry(1)] == [b"", longest]
    fsck(*storages)


@pytest.mark.parametrize("index", [-1, 3, 4, 2**63])
def test_refuses_indexes_and_sizes_outside(storages: Storages, index: int) -> None:
    log = open_raw(storages)
    log.append(entries(0, 3))
    with pytest.raises(MalformedError):
        log.read_entry(index)
    with pytest.raises(MalformedError):
        log.prove_inclusion(index, 3)
    with pytest.raises(MalformedError):
        log.prove_consistency(1, 4)
    with pytest.raises(MalformedError):
        log.read_entries(2, 1)


def test_two_logs_on_one_storage_see_each_other(storages: Storages) -> None:
    one, two = open_raw(storages), open_raw(storages)
    for start in range(0, 600, 20):
        log = (one, two)[start // 20 % 2]
        assert log.append(entries(start, start + 20)) == tuple(range(start, start + 20))
        if start % 100 == 0:
            log.publish(5)
    require_whole(one, 600)
    require_whole(two, 600)
    one.publish(5)
    fsck(*storages)


def test_threads_append_each_entry_once(storages: Storages) -> None:
    log = open_raw(storages)
    indexes: dict[bytes, set[int]] = {}

    def work(offset: int) -> None:
        for start in range(offset, 120, 10):
            batch = entries(start, start + 20)
            for one, index in zip(batch, log.append(batch), strict=True):
                indexes.setdefault(one, set()).add(index)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in (0, 5, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(one) == 1 for one in indexes.values())
    assert sorted(index for one in indexes.values() for index in one) == list(range(log.head().size))
    assert all(log.read_entry(index) == one for one, (index,) in indexes.items())


# Cost


def count_flushes(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    count = 0
    real = os.fsync

    def counting(descriptor: int) -> None:
        nonlocal count
        count += 1
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counting)
        work()
    return count


@pytest.mark.parametrize("batch", [1, 64, 1024])
def test_a_batch_costs_few_flushes_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    log = open_raw((DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")))
    log.append([b"warm"])
    assert count_flushes(monkeypatch, lambda: log.append(entries(0, batch))) == 4


def test_reading_and_proving_touch_few_tiles(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 3000))
    log.publish(5)
    reads: list[str] = []
    real = log.public.read

    def counting(path: str) -> bytes | None:
        reads.append(path)
        return real(path)

    assert log._state is not None
    log._state = replace(log._state, read_public=counting)
    log.prove_inclusion(1234, 3000)
    assert len(reads) <= 3
    reads.clear()
    log.read_entry(1234)
    assert reads == ["tile/entries/004"]


def test_much_that_waits_is_integrated_by_appending(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, STAGED_ENTRIES + 300))
    assert log._state is not None
    assert log._state.integrated == STAGED_ENTRIES
    assert log.public.read("tile/0/015") is not None
    assert not [name for name in log.public.names("tile/0/") if ".p/" in name]
    require_whole(log, STAGED_ENTRIES + 300)
    require_whole(open_raw(storages), STAGED_ENTRIES + 300)


def test_many_small_appends_are_integrated_too() -> None:
    storages = MemoryStorage(), MemoryStorage()
    log = open_raw(storages)
    for number in range(STAGED_SEGMENTS + 50):
        log.append([entry(number)])
    assert len(log.private.names("staging/")) == 50
    require_whole(log, STAGED_SEGMENTS + 50)
    assert open_raw(storages).append([entry(7)]) == (7,)


# Tiles


def test_a_published_size_has_all_its_tiles_though_the_log_went_on(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 600))
    log.publish(5)
    log.append(entries(600, 700))
    log.recover()
    assert log.public.read("tile/0/002.p/88") is not None
    assert log.public.read("tile/entries/002.p/88") is not None
    assert parse_checkpoint(parse_note(log.checkpoint() or b"").text).size == 600
    log.publish(5)
    assert {tile.path for tile in tiles_at(700)} <= set(log.public.names("tile/"))


@pytest.mark.parametrize("sizes", [(255, 256, 257), (256, 512), (65000, 65535, 65536, 65537, 66000)])
def test_no_full_path_holds_anything_but_a_full_tile(sizes: Sequence[int], tmp_path: Path) -> None:
    log = open_raw((MemoryStorage(), MemoryStorage()))
    for size in sizes:
        log.append(entries(log.head().size, size))
        log.publish(5)
        for tile in tiles_at(size):
            assert log.public.read(tile.path) is not None
    for name in log.public.names("tile/"):
        assert not name.endswith(".p/0")
        if not name.startswith("tile/entries/") and ".p/" not in name:
            assert len(log.public.read(name) or b"") == 8192
    assert log.head().root == expected_root(sizes[-1])
    fsck(log.public, log.private)


def test_partial_tiles_go_once_their_full_tile_is_published_and_not_before(storages: Storages) -> None:
    log = open_raw(storages)
    for size in (100, 200):
        log.append(entries(log.head().size, size))
        log.publish(5)
    assert log.public.names("tile/0/000.p/") == ("tile/0/000.p/100", "tile/0/000.p/200")
    log.append(entries(200, 300))
    log.recover()  # the full tile stands, the public checkpoint is still that of 200
    assert log.public.read("tile/0/000") is not None
    assert "tile/0/000.p/200" in log.public.names("tile/0/000.p/")
    log.publish(5)
    assert log.public.names("tile/0/000.p/") == ()
    assert log.public.names("tile/entries/000.p/") == ()
    assert log.public.names("tile/0/001.p/") == ("tile/0/001.p/44",)
    assert log.root_at(200) == expected_root(200)


def test_a_tile_with_other_bytes_is_never_rewritten(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 300))
    log.public.create("tile/0/000", b"\0" * 8192)  # somebody's delayed write
    with pytest.raises(VerificationError) as caught:
        log.publish(5)
    assert caught.value.code == "file_altered"
    assert log.checkpoint() is None
    assert log.public.read("tile/0/000") == b"\0" * 8192


def test_an_altered_edge_is_noticed_on_opening(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 300))
    log.publish(5)
    tile = log.public.read("tile/0/001.p/44") or b""
    log.public.replace("tile/0/001.p/44", tile[:-1] + bytes((tile[-1] ^ 1,)))
    with pytest.raises(VerificationError) as caught:
        open_raw(storages)
    assert caught.value.code == "log_state"


# Publishing


def test_publishes_a_signed_checkpoint_of_the_committed_head(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 5))
    published = log.publish(5)
    assert (published.size, published.root, published.state) == (5, expected_root(5), "logged")
    assert published.published_at == 1_700_000_000
    assert log.checkpoint() == published.note
    opened = open_checkpoint(published.note, [SIGNER.verifier_key], ORIGIN)
    assert (opened.checkpoint.size, opened.checkpoint.root) == (5, expected_root(5))


def test_publishes_an_empty_log(storages: Storages) -> None:
    published = open_raw(storages, replace(SETTINGS, cosign=Cosigning(), policy=POLICY)).publish(5)
    assert verify_checkpoint(POLICY, published.note, ORIGIN).checkpoint.root == merkle.EMPTY_ROOT
    again = open_raw(storages)
    assert again.publish(5).size == 0
    assert again.append(entries(0, 3)) == (0, 1, 2)
    assert again.publish(5).size == 3
    fsck(*storages)


def test_witnesses_cosign_before_the_checkpoint_is_public(storages: Storages) -> None:
    cosign = Cosigning()
    log = open_raw(storages, replace(SETTINGS, cosign=cosign, policy=POLICY))
    seen: list[bytes | None] = []

    def watching(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous: int, deadline: float
    ) -> tuple[SignatureLine, ...]:
        seen.append(log.checkpoint())
        return cosign(note, prove, previous, deadline)

    log.settings = replace(log.settings, cosign=watching)
    log.append(entries(0, 5))
    first = log.publish(5)
    log.append(entries(5, 9))
    second = log.publish(5)
    assert (first.state, second.state) == ("witnessed", "witnessed")
    assert seen == [None, first.note]
    assert cosign.previous == [0, 5]
    assert verify_checkpoint(POLICY, second.note, ORIGIN).witnesses == ("w1", "w2")


@pytest.mark.parametrize("answering", [(), WITNESSES[:1], (WITNESSES[0], witness(3))])
def test_without_quorum_the_public_checkpoint_stays(
    storages: Storages, answering: Sequence[KeyCosigner]
) -> None:
    cosign = Cosigning()
    log = open_raw(storages, replace(SETTINGS, cosign=cosign, policy=POLICY))
    log.append(entries(0, 5))
    before = log.publish(5).note
    cosign.witnesses = list(answering)
    log.append(entries(5, 6))
    with pytest.raises(UnavailableError) as caught:
        log.publish(5)
    assert caught.value.code == "witness_quorum_not_met"
    assert log.checkpoint() == before
    cosign.witnesses = list(WITNESSES)
    assert log.publish(5).size == 6


def test_a_policy_with_quorum_and_no_witness_to_ask_publishes_nothing(storages: Storages) -> None:
    log = open_raw(storages, replace(SETTINGS, policy=POLICY))
    log.append(entries(0, 5))
    with pytest.raises(UnavailableError) as caught:
        log.publish(5)
    assert caught.value.code == "witness_quorum_not_met"
    assert log.checkpoint() is None


def test_a_policy_that_does_not_list_the_log_publishes_nothing(storages: Storages) -> None:
    other = make_verifier_key(
        "other.example/log", SignatureType.ED25519, LOG_KEY.public_key().public_bytes_raw()
    )
    policy = make_policy([LogEntry(other)], [], [], None)
    log = open_raw(storages, replace(SETTINGS, policy=policy))
    with pytest.raises(VerificationError):
        log.publish(5)
    assert log.checkpoint() is None


def test_a_quorum_of_none_is_logged_and_keeps_what_witnesses_gave(storages: Storages) -> None:
    policy = make_policy(POLICY.logs, POLICY.witnesses, [], None)
    log = open_raw(storages, replace(SETTINGS, policy=policy, cosign=Cosigning(WITNESSES[:1])))
    log.append(entries(0, 5))
    published = log.publish(5)
    assert published.state == "logged"
    assert verify_checkpoint(policy, published.note, ORIGIN).witnesses == ("w1",)


def test_lines_that_do_not_hold_are_left_out(storages: Storages) -> None:
    cosign = Cosigning()

    def with_rubbish(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous: int, deadline: float
    ) -> tuple[SignatureLine, ...]:
        good = cosign(note, prove, previous, deadline)
        broken = replace(good[0], signature=good[0].signature[:-1] + b"\0")
        zero = WITNESSES[1].cosign(parse_note(note).text, 0)
        return (broken, witness(3).cosign(parse_note(note).text, 5), *good, good[0], broken, zero)

    log = open_raw(storages, replace(SETTINGS, cosign=with_rubbish, policy=POLICY))
    log.append(entries(0, 5))
    note = parse_note(log.publish(5).note)
    assert [line.name for line in note.signatures] == [ORIGIN, "witness-1.example", "witness-2.example"]


def test_publishing_a_size_again_refreshes_the_cosignatures(storages: Storages) -> None:
    log = open_raw(storages, replace(SETTINGS, cosign=Cosigning(), policy=POLICY))
    log.append(entries(0, 5))
    first, second = log.publish(5), log.publish(5)
    assert (first.size, first.root) == (second.size, second.root)
    times = [
        [cosignature.timestamp for cosignature in verify_checkpoint(POLICY, one.note).cosignatures]
        for one in (first, second)
    ]
    assert times == [[1_700_000_001] * 2, [1_700_000_002] * 2]
    assert log.checkpoint() == second.note


def test_a_witness_error_leaves_the_log_usable(storages: Storages) -> None:
    def failing(*_: object) -> tuple[SignatureLine, ...]:
        raise UnavailableError("no network")

    log = open_raw(storages, replace(SETTINGS, cosign=failing, policy=POLICY))
    log.append(entries(0, 5))
    with pytest.raises(UnavailableError):
        log.publish(5)
    assert log.append(entries(5, 6)) == (5,)
    assert log.checkpoint() is None


def test_appending_goes_on_while_witnesses_are_asked(storages: Storages) -> None:
    cosign = Cosigning()

    def slow(
        note: bytes, prove: Callable[[int], tuple[bytes, ...]], previous: int, deadline: float
    ) -> tuple[SignatureLine, ...]:
        assert log.append(entries(5, 300)) == tuple(range(5, 300))
        assert log.read_entry(299) == entry(299)
        log.recover()
        return cosign(note, prove, previous, deadline)

    log = open_raw(storages, replace(SETTINGS, cosign=slow, policy=POLICY))
    log.append(entries(0, 5))
    assert log.publish(5).size == 5
    assert {tile.path for tile in tiles_at(5)} <= set(log.public.names("tile/"))
    log.settings = replace(log.settings, cosign=cosign)
    assert log.publish(5).size == 300


def test_of_two_publications_at_once_one_waits(storages: Storages) -> None:
    def second(*_: object) -> tuple[SignatureLine, ...]:
        with pytest.raises(UnavailableError) as caught:
            open_raw(storages).publish(0.01)
        assert caught.value.code == "busy"
        return ()

    policy = make_policy(POLICY.logs, POLICY.witnesses, [], None)
    log = open_raw(storages, replace(SETTINGS, cosign=second, policy=policy))
    log.publish(5)


def test_a_public_checkpoint_that_is_damaged_is_not_published_over(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 5))
    log.publish(5)
    log.public.replace("checkpoint", b"hello\n")
    with pytest.raises(VerificationError) as caught:
        log.publish(5)
    assert caught.value.code == "log_state"


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])
def test_a_failed_flush_ends_the_writer_and_not_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    def fresh() -> Log:
        return open_raw((DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")))

    log = fresh()
    log.append(entries(0, 5))
    calls = 0
    real = os.fsync

    def failing(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise OSError(errno.EIO, "injected")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        for _ in range(2):
            with pytest.raises(UnavailableError) as caught:
                log.append(entries(5, 8))
            assert caught.value.code == "storage_failed"
            assert calls == fail_at  # not one flush more
    other = fresh()
    assert other.append(entries(5, 8)) == (5, 6, 7)
    require_whole(other, 8)
    other.publish(5)
    fsck(other.public, other.private)


def test_cosigning_without_policy_is_refused(storages: Storages) -> None:
    with pytest.raises(MalformedError):
        Log(*storages, replace(SETTINGS, cosign=Cosigning()))


# Rollback


def copied(storage: Storage) -> MemoryStorage:
    copy = MemoryStorage()
    for name in storage.names(""):
        copy.replace(name, storage.read(name) or b"")
    return copy


def test_a_head_older_than_the_signed_one_is_never_signed() -> None:
    log = open_raw((MemoryStorage(), MemoryStorage()))
    log.append(entries(0, 5))
    log.publish(5)
    public, private = copied(log.public), copied(log.private)
    log.append(entries(5, 7))
    log.publish(5)
    # The state comes back from a backup, the signature record and the public folder do not.
    private.replace("signed", log.private.read("signed") or b"")
    for storages in ((public, private), (log.public, copied(private))):
        restored = open_raw(storages)
        restored.append([b"another history"])
        with pytest.raises(VerificationError) as caught:
            restored.publish(5)
        assert caught.value.code == "rolled_back"


@pytest.mark.parametrize("known", [Head(9, b"\x07" * 32), Head(3, b"\x07" * 32), Head(5, b"\x07" * 32)])
def test_signs_nothing_while_others_know_a_head_it_does_not_extend(storages: Storages, known: Head) -> None:
    heads = [known]
    log = open_raw(storages, replace(SETTINGS, known_heads=lambda: heads))
    log.append(entries(0, 5))
    for _ in range(2):
        with pytest.raises(VerificationError) as caught:
            log.publish(5)
        assert caught.value.code == "rolled_back"
    assert log.private.read("signed") is None
    heads[:] = [Head(3, expected_root(3)), Head(5, expected_root(5))]
    log.publish(5)


def test_known_heads_are_asked_once_an_opening(storages: Storages) -> None:
    asked: list[int] = []

    def ask() -> Sequence[Head]:
        asked.append(1)
        return ()

    log = open_raw(storages, replace(SETTINGS, known_heads=ask))
    log.publish(5)
    log.publish(5)
    assert len(asked) == 1


@pytest.mark.parametrize("lost", ["head", "integrated", ""])
def test_a_state_that_lost_files_is_not_taken_for_a_new_log(storages: Storages, lost: str) -> None:
    log = open_raw(storages)
    log.append(entries(0, 5))
    log.publish(5)
    log.private.remove(log.private.names(lost))
    with pytest.raises(VerificationError):
        open_raw(storages)


def test_the_state_of_another_log_is_refused(storages: Storages) -> None:
    open_raw(storages).append(entries(0, 5))
    with pytest.raises(RefusedError) as caught:
        open_raw(storages, replace(SETTINGS, origin="other.example"))
    assert caught.value.code == "origin"


def test_a_damaged_staged_file_is_noticed(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 5))
    (name,) = log.private.names("staging/")
    data = log.private.read(name) or b""
    for damaged in (b"", data[:-1], data[:-1] + b"\0"):
        log.private.replace(name, damaged)
        with pytest.raises(VerificationError) as caught:
            open_raw(storages)
        assert caught.value.code == "log_state"


def test_a_segment_that_was_never_committed_is_dropped(storages: Storages) -> None:
    def stop(step: str) -> None:
        if step == "staged":
            raise KeyboardInterrupt

    log = open_raw(storages)
    log.append(entries(0, 5))
    log.settings = replace(SETTINGS, failpoint=stop)
    with pytest.raises(KeyboardInterrupt):
        log.append([b"never acknowledged"])
    other = open_raw(storages)
    assert other.append(entries(5, 6)) == (5,)
    assert len(other.private.names("staging/")) == 1
    require_whole(other, 6)
    log.settings = SETTINGS
    assert log.append(entries(6, 7)) == (6,)


def test_a_file_that_is_no_segment_is_left_alone(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 5))
    (name,) = log.private.names("staging/")
    odd = {"staging/note", f"{name}x", f"staging/0{name.removeprefix('staging/')}"}
    log.private.create_all(dict.fromkeys(odd, b""))
    require_whole(open_raw(storages), 5)
    assert set(log.private.names("staging/")) == odd


def test_a_head_that_moved_under_the_lock_is_not_overwritten(storages: Storages) -> None:
    def intrude(step: str) -> None:
        if step == "staged":
            storages[1].replace("head", b"moved")

    log = open_raw(storages)
    log.append(entries(0, 5))
    log.settings = replace(SETTINGS, failpoint=intrude)
    with pytest.raises(UnavailableError):
        log.append(entries(5, 6))
    assert storages[1].read("head") == b"moved"


# The identity index


def test_a_lost_or_foreign_index_is_made_again(tmp_path: Path) -> None:
    def fresh() -> Log:
        return open_raw((DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")))

    log = fresh()
    log.append(entries(0, 300))
    log.close()
    path = tmp_path / "state" / FILE
    whole = path.read_bytes()
    for damage in (None, b"", b"not a database" * 400, whole[: len(whole) // 2]):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(FILE + suffix).unlink(missing_ok=True)
        if damage is not None:
            path.write_bytes(damage)
        log = fresh()
        assert log.append([entry(299), entry(0)]) == (299, 0)
        log.close()
    other = open_raw((DirectoryStorage(tmp_path / "log2"), DirectoryStorage(tmp_path / "state2")))
    other.append([b"other-%d" % number for number in range(300)])
    other.close()
    path.write_bytes((tmp_path / "state2" / FILE).read_bytes())
    log = fresh()
    assert log.append([entry(8)]) == (8,)
    assert log.append([b"other-7"]) == (300,)
    log.close()


def test_an_index_ahead_of_the_log_is_made_again(tmp_path: Path) -> None:
    index = FileIndex(tmp_path / "state" / FILE)
    index.add([sha256(entry(number)).digest() for number in range(9)], Head(9, expected_root(9)))
    index.close()
    log = open_raw((DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")))
    assert log.append([entry(8), entry(7)]) == (0, 1)
    log.close()


def test_an_index_that_names_the_wrong_entry_is_not_believed(tmp_path: Path) -> None:
    log = open_raw((DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")))
    log.append(entries(0, 9))
    log._index.clear()
    log._index.add([sha256(entry(number)).digest() for number in reversed(range(9))], log.head())
    assert log.append([entry(2), entry(7)]) == (2, 7)
    log.close()


def test_tiles_hold_what_the_format_says(storages: Storages) -> None:
    log = open_raw(storages)
    log.append(entries(0, 257))
    log.publish(5)
    data = log.public.read("tile/1/000.p/1") or b""
    assert decode_tile(Tile(1, 0, 1), data) == (expected_root(256),)
    assert log.public.read("tile/entries/001.p/1") == b"\x00\x09entry-256"
    assert log.public.read("tile/0/001.p/1") == merkle.leaf_hash(entry(256))


def test_a_policy_is_a_policy() -> None:
    assert isinstance(POLICY, Policy)
