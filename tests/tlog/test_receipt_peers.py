"""Our statements and receipts, read by an independent implementation (scitt-cose)."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tlog import merkle
from tlog.cose import ES256, SIZE_LABEL, PrivateKeySigner, make_signer
from tlog.errors import MalformedError
from tlog.receipt import Inclusion, make_transparent, sign_receipt, split_transparent, verify_receipt
from tlog.statement import TYP, sign_statement

peer: Any = pytest.importorskip("scitt_cose", reason="scitt-cose is not installed")

ISSUER, SUBJECT = "https://log.example", "7b1e"
ED = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
EC = ec.derive_private_key(7, ec.SECP256R1())
SIGNERS = {"EdDSA": make_signer(ED), "ES256": make_signer(EC, ES256)}
every_signer = pytest.mark.parametrize("signer", SIGNERS.values(), ids=SIGNERS.keys())
CHECKPOINT = "log.example\n8\nAAAA\n\n\u2014 log.example AAAA\n".encode()


def public_pem(signer: PrivateKeySigner) -> bytes:
    return signer.key.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def entries(signer: PrivateKeySigner, size: int) -> list[bytes]:
    return [sign_statement(signer, ISSUER, SUBJECT, bytes((number,)) * 32) for number in range(size)]


def inclusion(logged: list[bytes], index: int) -> Inclusion:
    """Root and proof as the peer makes them."""
    from scitt_cose import merkle as peer_merkle

    as_hex = [entry.hex() for entry in logged]
    path = tuple(bytes.fromhex(node) for node in peer_merkle.inclusion_proof(as_hex, index))
    return Inclusion(index, len(logged), bytes.fromhex(peer_merkle.merkle_root(as_hex)), path)


@every_signer
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13])
def test_the_peer_accepts_our_receipts(signer: PrivateKeySigner, size: int) -> None:
    logged = entries(signer, size)
    for index in {0, size // 2, size - 1}:
        proof = inclusion(logged, index)
        receipt = sign_receipt(signer, ISSUER, SUBJECT, proof, CHECKPOINT)
        result = peer.verify_receipt(
            receipt, leaf_entry_hex=logged[index].hex(), log_public_key_pem=public_pem(signer)
        )
        assert result.ok, result.errors
        assert (result.tree_size, result.leaf_index, result.root) == (size, index, proof.root.hex())
        assert (result.issuer, result.subject) == (ISSUER, SUBJECT)
        # The private label for the size is signed, and handed on to whoever asks.
        assert result.protected_header_ext == {4: signer.kid, SIZE_LABEL: size}
        assert verify_receipt(receipt, logged[index], signer.key).size_signed


@every_signer
def test_the_peer_rejects_what_we_reject(signer: PrivateKeySigner) -> None:
    logged = entries(signer, 8)
    receipt = sign_receipt(signer, ISSUER, SUBJECT, inclusion(logged, 5), CHECKPOINT)
    for other in (0, 4, 7):
        result = peer.verify_receipt(
            receipt, leaf_entry_hex=logged[other].hex(), log_public_key_pem=public_pem(signer)
        )
        assert not result.ok
    changed = receipt[:-1] + bytes((receipt[-1] ^ 1,))
    result = peer.verify_receipt(
        changed, leaf_entry_hex=logged[5].hex(), log_public_key_pem=public_pem(signer)
    )
    assert not result.ok


@every_signer
def test_the_peer_reads_our_statements(signer: PrivateKeySigner) -> None:
    from scitt_cose.cose_sign1 import verify_sign1

    (entry,) = entries(signer, 1)
    message = verify_sign1(entry, public_key_pem=public_pem(signer))
    assert message.payload == b"\x00" * 32
    assert message.protected[16] == TYP
    assert message.protected[4] == signer.kid
    assert message.protected[258] == -16


@every_signer
def test_transparent_statements_are_the_same(signer: PrivateKeySigner) -> None:
    from scitt_cose.statement import attach_receipts, extract_receipts

    logged = entries(signer, 3)
    receipts = [sign_receipt(signer, ISSUER, SUBJECT, inclusion(logged, 1), CHECKPOINT)]
    ours = make_transparent(logged[1], receipts)
    assert attach_receipts(logged[1], receipts) == ours
    assert extract_receipts(ours) == receipts
    assert split_transparent(ours) == (logged[1], tuple(receipts))


def test_consistency_proofs_are_the_same() -> None:
    from scitt_cose import merkle as peer_merkle

    logged = entries(SIGNERS["EdDSA"], 13)
    as_hex = [entry.hex() for entry in logged]
    for old_size in (1, 3, 8, 12):
        proof = tuple(bytes.fromhex(node) for node in peer_merkle.consistency_proof(as_hex, old_size, 13))
        old, new = (bytes.fromhex(peer_merkle.merkle_root(as_hex[:size])) for size in (old_size, 13))
        merkle.verify_consistency(old_size, 13, old, new, proof)


def test_headers_of_the_peer_are_not_deterministic() -> None:
    # Its receipts hold, but their protected headers stand in no order: we take deterministic COSE only.
    pem = ED.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    logged = entries(SIGNERS["EdDSA"], 3)
    as_hex = [entry.hex() for entry in logged]
    receipt = peer.build_receipt(
        leaf_entry_hex=as_hex[1],
        leaf_index=1,
        tree_entries_hex=as_hex,
        alg="EdDSA",
        log_private_key_pem=pem,
        iss=ISSUER,
        sub=SUBJECT,
        kid=SIGNERS["EdDSA"].kid,
    )
    with pytest.raises(MalformedError, match="order"):
        verify_receipt(receipt, logged[1], SIGNERS["EdDSA"].key)
