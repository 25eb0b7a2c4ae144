"""`verify` and keys that have ended: witnesses say when something was logged, never its signer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog.certificates import KeyList, TrustedKey, sign_key_list
from tlog.checkpoint import Checkpoint
from tlog.claims import Caller
from tlog.cose import make_signer
from tlog.log import Log, LogSettings
from tlog.note import SignatureLine, SignatureType, parse_note
from tlog.policy import LogEntry, Policy, WitnessEntry, make_policy, parse_policy, seen_at, verify_checkpoint
from tlog.proof import TlogProof, format_proof
from tlog.receipt import Inclusion, make_transparent, sign_receipt
from tlog.statement import sign_statement
from tlog.storage import MemoryStorage
from tlog.trust import Trust, TrustedRoot, checked
from tlog.verify import Verdict, recognize, verify_files

ORIGIN, STORE, SUBJECT = "example.org/log", "https://store.example", "store"
BEFORE, ROTATED, LATER, NOW = 1_000, 2_000, 3_000, 9_000


def cose_signer(seed: int) -> Any:
    return make_signer(Ed25519PrivateKey.from_private_bytes(bytes((seed,)) * 32))


ROOT, OLD, NEW, OLD_RECEIPT, NEW_RECEIPT = (cose_signer(seed) for seed in range(11, 16))


class World:
    """A log whose issuer and receipt keys changed after three entries, at ROTATED. Old keys are in a thief's hands."""

    def __init__(self, seed_signer: Callable[[str, int, int], Any]) -> None:
        signer = seed_signer(ORIGIN, SignatureType.ED25519, 1)
        kind = SignatureType.COSIGNATURE_ED25519
        self.witnesses = [seed_signer(f"w{n}.example", kind, n) for n in (2, 3, 4)]
        entries = [WitnessEntry(f"w{n}", one.verifier_key) for n, one in enumerate(self.witnesses, 1)]
        logs = [LogEntry(signer.verifier_key)]
        text = make_policy(logs, entries, [], "w1").text.replace(
            "quorum w1", "group two 2 w1 w2 w3\nquorum two"
        )
        self.policy: Policy = parse_policy(text)
        self.times = [0, 0, 0]
        self.log = Log(
            MemoryStorage(), MemoryStorage(), LogSettings(ORIGIN, (signer,), self._cosign, self.policy)
        )
        self.notes: dict[int, bytes] = {}
        self.entries: list[bytes] = []
        self.add(OLD, OLD, OLD, at=BEFORE)
        self.add(NEW, at=LATER)
        first = KeyList(
            STORE,
            1,
            500,
            (
                TrustedKey("issuer", OLD.key, 500, 8_000, STORE),
                TrustedKey("receipt", OLD_RECEIPT.key, 500, 8_000),
            ),
        )
        second = first.with_key(TrustedKey("issuer", NEW.key, ROTATED, 20_000, STORE), ROTATED)
        second = second.with_key(TrustedKey("receipt", NEW_RECEIPT.key, ROTATED, 20_000), ROTATED)
        for key in first.keys:
            second = second.ending(key, ROTATED, {ORIGIN: 3}, ROTATED)
        self.lists = {"first": sign_key_list(ROOT, first), "second": sign_key_list(ROOT, second)}
        self.trust = checked(Trust(self.policy, roots=(TrustedRoot(ROOT.key, STORE),)))

    def _cosign(self, note: bytes, *_: object) -> tuple[SignatureLine, ...]:
        text = parse_note(note).text
        return tuple(one.cosign(text, at) for one, at in zip(self.witnesses, self.times, strict=True))

    def add(self, *signers: Any, at: int | list[int]) -> None:
        """One entry more of each signer, published and seen by the witnesses at that time."""
        self.times = [at] * 3 if isinstance(at, int) else at
        for signer in signers:
            self.entries.append(sign_statement(signer, STORE, SUBJECT, bytes((len(self.entries),)) * 32))
        self.log.append(self.entries)
        self.notes[len(self.entries)] = self.log.publish(5).note

    def transparent(self, index: int, size: int, receipt_key: Any, note: bytes | None = None) -> bytes:
        """The statement with a receipt from the tree of a size."""
        inclusion = Inclusion(index, size, self.log.root_at(size), self.log.prove_inclusion(index, size))
        note = self.notes[size] if note is None else note
        receipt = sign_receipt(receipt_key, ORIGIN, SUBJECT, inclusion, note)
        return make_transparent(self.entries[index], [receipt])

    def proof(self, index: int, size: int) -> bytes:
        """The same as a tlog-proof."""
        path = self.log.prove_inclusion(index, size)
        return format_proof(TlogProof(index, path, self.notes[size], self.entries[index]))

    def judge(self, data: bytes, key_list: str = "second", **changes: Any) -> Verdict:
        """The verdict on a file, with the key list beside it."""
        trust = changes.pop("trust", self.trust)
        files = [recognize("file", data), recognize("keys.cose", self.lists[key_list])]
        return verify_files(files, Caller(trust, changes.pop("now", NOW)))[0]


@pytest.fixture(scope="module")
def world(seed_signer: Callable[[str, int, int], Any]) -> World:
    return World(seed_signer)


def failed(verdict: Verdict) -> set[str]:
    return {claim.code for claim in verdict.failed}


def test_what_an_old_key_signed_in_its_time_still_holds(world: World) -> None:
    """With the receipt of then, and with proofs made long after, from trees that have grown since."""
    for data in (
        world.transparent(0, 3, OLD_RECEIPT),
        world.transparent(2, 4, NEW_RECEIPT),
        world.proof(0, 3),
        world.proof(2, 4),
    ):
        verdict = world.judge(data)
        assert verdict.holds, verdict
        assert "issuer_signature" in {claim.code for claim in verdict.proved}


def test_a_stolen_old_key_signs_nothing_that_is_logged_after_its_end(
    seed_signer: Callable[[str, int, int], Any],
) -> None:
    world = World(seed_signer)
    world.add(OLD, at=LATER + 1)
    for data in (world.transparent(4, 5, NEW_RECEIPT), world.proof(4, 5)):
        verdict = world.judge(data)
        assert not verdict.holds
        assert failed(verdict) == {"key_not_valid"}
    # A verifier who was shown the first list alone cannot know: that is what the newer one is for.
    assert world.judge(world.proof(4, 5), "first", now=LATER + 2).holds


def test_no_receipt_dates_the_thief_back(seed_signer: Callable[[str, int, int], Any]) -> None:
    """The thief has the old receipt key as well, and every checkpoint there ever was."""
    world = World(seed_signer)
    world.add(OLD, at=LATER + 1)
    with_old_checkpoint = world.transparent(4, 5, OLD_RECEIPT, note=world.notes[3])
    assert failed(world.judge(with_old_checkpoint)) == {"checkpoint"}
    assert failed(world.judge(world.transparent(4, 5, OLD_RECEIPT))) == {"key_not_valid"}
    # A receipt of the old key for an old tree is still one: it says what was true then.
    assert world.judge(world.transparent(0, 3, OLD_RECEIPT)).holds
    # But not for a tree that is younger than the key's end.
    assert failed(world.judge(world.transparent(0, 4, OLD_RECEIPT))) == {"key_not_valid"}


def test_what_nobody_dates_counts_as_signed_now(world: World) -> None:
    """A bare statement, or a receipt without its checkpoint, could be the thief's of this morning."""
    assert failed(world.judge(world.entries[0])) == {"key_not_valid"}
    assert world.judge(world.entries[3]).holds
    inclusion = Inclusion(0, 3, world.log.root_at(3), world.log.prove_inclusion(0, 3))
    bare = make_transparent(world.entries[0], [sign_receipt(OLD_RECEIPT, ORIGIN, SUBJECT, inclusion, None)])
    assert failed(world.judge(bare)) == {"key_not_valid"}


def test_one_witness_cannot_date_a_checkpoint_back(seed_signer: Callable[[str, int, int], Any]) -> None:
    """The quorum is two: one that is the thief's friend says that it saw the entry long ago."""
    world = World(seed_signer)
    world.add(OLD, at=[BEFORE + 1, LATER + 1, LATER + 2])
    verified = verify_checkpoint(world.policy, world.notes[5])
    assert seen_at(world.policy, verified) == LATER + 1
    assert failed(world.judge(world.proof(4, 5))) == {"key_not_valid"}


def test_an_end_that_has_passed_needs_no_newer_list(world: World) -> None:
    data = world.proof(3, 4)
    assert world.judge(data, now=10**6).holds  # the witnesses saw it while the key was valid
    assert failed(world.judge(world.entries[3], now=20_001)) == {"key_not_valid"}


def test_a_list_that_no_root_certified_helps_nobody(world: World) -> None:
    stranger = replace(world.trust, roots=(TrustedRoot(cose_signer(99).key, STORE),))
    verdicts = verify_files(
        [recognize("p", world.proof(0, 3)), recognize("k", world.lists["second"])], Caller(stranger, NOW)
    )
    assert failed(verdicts[1]) == {"key_unknown"}
    assert "issuer_key_unknown" in {claim.code for claim in verdicts[0].not_proved}
    (alone,) = verify_files([recognize("k", world.lists["second"])], Caller(None, NOW))
    assert not alone.holds and {claim.code for claim in alone.not_proved} == {"root_unknown"}


def test_an_older_list_among_the_files_does_not_hold(world: World) -> None:
    files = [recognize(name, world.lists[name]) for name in ("second", "first")]
    newer, older = verify_files(files, Caller(world.trust, NOW))
    assert newer.kind == "key_list" and newer.holds
    assert failed(older) == {"rolled_back"}
    known = world.trust.with_key_list(world.lists["second"])
    assert failed(verify_files(files[1:], Caller(known, NOW))[0]) == {"rolled_back"}


def test_a_checkpoint_beyond_the_end_of_its_log_fails(world: World) -> None:
    ended = checked(replace(world.trust, frozen=(Checkpoint(ORIGIN, 3, world.log.root_at(3)),)))
    assert world.judge(world.proof(0, 3), trust=ended).holds
    assert failed(world.judge(world.proof(0, 4), trust=ended)) == {"frozen"}
    (verdict,) = verify_files([recognize("c", world.notes[4])], Caller(ended, NOW))
    assert failed(verdict) == {"frozen"}
