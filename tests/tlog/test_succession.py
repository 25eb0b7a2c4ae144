"""A log ends, and another begins with its last head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tlog import cbor
from tlog.checkpoint import Checkpoint
from tlog.cose import make_signer
from tlog.errors import MalformedError, RefusedError, VerificationError
from tlog.fsck import fsck
from tlog.log import Log, LogSettings
from tlog.note import SignatureType, parse_note
from tlog.policy import LogEntry, WitnessEntry, make_policy
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage, MemoryStorage
from tlog.succession import parse_succession, sign_succession, succession_commitment, verify_succession

OLD, NEW = "example.org/old", "example.org/new"
ISSUER = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x03" * 32))
END = Checkpoint(OLD, 7, b"r" * 32)

Signers = Callable[[str, int, int], Any]


@pytest.fixture
def successor(seed_signer: Signers) -> Any:
    return seed_signer(NEW, SignatureType.ED25519, 2).verifier_key


def test_known_answer(successor: Any) -> None:
    stated = ["muniment/succession/v1", OLD, 7, b"r" * 32, successor.vkey]
    assert succession_commitment(END, successor) == hashlib.sha256(cbor.encode(stated)).digest()


def test_the_first_entry_names_the_end_of_the_old_log(successor: Any) -> None:
    entry = sign_succession(ISSUER, "store", "subject", END, successor)
    statement = verify_succession(entry, END, successor, ISSUER.key)
    assert (statement.issuer, statement.subject) == ("store", "subject")


def test_no_other_end_no_other_log_and_no_other_issuer(successor: Any, seed_signer: Signers) -> None:
    entry = sign_succession(ISSUER, "store", "subject", END, successor)
    thief = seed_signer(NEW, SignatureType.ED25519, 9).verifier_key
    for end, key in (
        (replace(END, size=6), successor),
        (replace(END, size=8), successor),
        (replace(END, root=b"s" * 32), successor),
        (replace(END, origin="another log"), successor),
        (END, thief),
    ):
        with pytest.raises(VerificationError) as caught:
            parse_succession(entry, end, key)
        assert caught.value.code == "succession"
    for other in (b"", b"junk", sign_statement(ISSUER, "store", "subject", b"c" * 32)):
        with pytest.raises(VerificationError) as caught:
            parse_succession(other, END, successor)
        assert caught.value.code == "succession"
    stranger = make_signer(Ed25519PrivateKey.from_private_bytes(b"\x09" * 32))
    with pytest.raises(VerificationError):
        verify_succession(entry, END, successor, stranger.key)


def test_a_log_does_not_succeed_itself(seed_signer: Signers) -> None:
    same = seed_signer(OLD, SignatureType.ED25519, 2).verifier_key
    with pytest.raises(MalformedError):
        succession_commitment(END, same)


# Freezing


def open_in(folder: Path, signer: Any, **changes: Any) -> Log:
    settings = LogSettings(OLD, (signer,), identify=lambda entry: hashlib.sha256(entry).digest(), **changes)
    log = Log(DirectoryStorage(folder / "log"), DirectoryStorage(folder / "state"), settings)
    log.recover()
    return log


@pytest.fixture
def signer(seed_signer: Signers) -> Any:
    return seed_signer(OLD, SignatureType.ED25519, 1)


def test_a_frozen_log_takes_nothing_and_signs_nothing(tmp_path: Path, signer: Any) -> None:
    log, other_process = open_in(tmp_path, signer), open_in(tmp_path, signer)
    log.append([b"one", b"two"])
    note = log.publish(5).note
    assert log.frozen() is None
    head = log.freeze()
    assert head == log.frozen() == log.head()
    for one in (log, other_process, open_in(tmp_path, signer)):
        for refused in (lambda one=one: one.append([b"three"]), lambda one=one: one.publish(5)):
            with pytest.raises(RefusedError) as caught:
                refused()
            assert caught.value.code == "frozen"
        assert one.freeze() == head
        assert one.read_entry(1) == b"two"
        assert len(one.prove_inclusion(0, 2)) == 1
        assert one.checkpoint() == note
    assert fsck(log.public, log.private).size == 2


def test_what_is_not_published_is_not_frozen(tmp_path: Path, signer: Any) -> None:
    log = open_in(tmp_path, signer)
    log.append([b"one"])
    log.publish(5)
    log.append([b"two"])
    with pytest.raises(RefusedError) as caught:
        log.freeze()
    assert caught.value.code == "unpublished"
    assert log.frozen() is None
    log.publish(5)
    assert log.freeze().size == 2


def test_the_end_is_one_that_the_quorum_has_cosigned(signer: Any, seed_signer: Signers) -> None:
    witness = seed_signer("w.example", SignatureType.COSIGNATURE_ED25519, 5)
    policy = make_policy([LogEntry(signer.verifier_key)], [WitnessEntry("w", witness.verifier_key)], [], "w")
    silent = LogSettings(OLD, (signer,), cosign=lambda *_: (), policy=policy, identify=lambda entry: entry)
    log = Log(MemoryStorage(), MemoryStorage(), silent)
    log.append([b"one"])
    with pytest.raises(Exception, match="witnesses"):
        log.publish(1)
    with pytest.raises(RefusedError):
        log.freeze()
    asked = replace(
        silent, cosign=lambda note, *_: (witness.cosign(parse_note(note).text, 5),), clock=lambda: 5
    )
    log = Log(log.public, log.private, asked)
    log.publish(1)
    assert log.freeze().size == 1
