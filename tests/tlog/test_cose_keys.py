"""tlog.cose_keys: keys that cannot be wrong, thumbprints, and the algorithms bound to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tlog import cbor
from tlog.cose_keys import (
    ED25519,
    EDDSA,
    ES256,
    ESP256,
    ML_DSA_44,
    CoseKey,
    PrivateKeySigner,
    decode_key,
    decode_key_set,
    encode_key_set,
    from_public_key,
    key_from_members,
    make_signer,
    require_algorithm,
    verify_signature,
)
from tlog.errors import MalformedError, VerificationError

ED = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
EC = ec.derive_private_key(7, ec.SECP256R1())
ML = mldsa.MLDSA44PrivateKey.from_seed_bytes(b"\x02" * 32)
SIGNERS = {
    EDDSA: make_signer(ED, EDDSA),
    ED25519: make_signer(ED, ED25519),
    ES256: make_signer(EC, ES256),
    ESP256: make_signer(EC, ESP256),
    ML_DSA_44: make_signer(ML, ML_DSA_44),
}
every_signer = pytest.mark.parametrize("signer", SIGNERS.values(), ids=map(str, SIGNERS))


def test_thumbprint_of_rfc_9679() -> None:
    # RFC 9679, 6.
    x = bytes.fromhex("65eda5a12577c2bae829437fe338701a10aaa375e1bb5b5de108de439c08551d")
    y = bytes.fromhex("1e52ed75701163f7f9e40ddf9f341b3dc9ba860af7e0ca7ca7e9eecd0084d19c")
    expected = "496bd8afadf307e5b08c64b0421bf9dc01528a344a43bda88fadd1669da253ec"
    assert CoseKey(2, x, y).thumbprint().hex() == expected
    assert CoseKey(2, x, y, ES256).thumbprint().hex() == expected
    assert CoseKey(2, x, y, kid=b"other").thumbprint().hex() == expected


def test_default_algorithms() -> None:
    assert [make_signer(key).algorithm for key in (ED, EC, ML)] == [EDDSA, ES256, ML_DSA_44]


@every_signer
def test_key_round_trip(signer: PrivateKeySigner) -> None:
    assert decode_key(signer.key.encode()) == signer.key
    assert decode_key_set(encode_key_set((signer.key,))) == (signer.key,)
    assert signer.kid == signer.key.key_id == signer.key.thumbprint()
    bare = from_public_key(signer.key.public_key)
    assert bare.thumbprint() == signer.kid
    assert decode_key(bare.encode()) == bare


@every_signer
def test_signature_round_trip(signer: PrivateKeySigner) -> None:
    signature = signer.sign(b"message")
    algorithm = require_algorithm(signer.key, signer.algorithm)
    verify_signature(signer.key, algorithm, b"message", signature)
    changed = bytes((signature[0] ^ 1,)) + signature[1:]
    for bad in (changed, signature[:-1], signature + b"\x00", b"", b"\x00" * len(signature)):
        with pytest.raises(VerificationError):
            verify_signature(signer.key, algorithm, b"message", bad)
    with pytest.raises(VerificationError):
        verify_signature(signer.key, algorithm, b"another message", signature)


@every_signer
def test_a_key_is_used_with_its_own_algorithm_only(signer: PrivateKeySigner) -> None:
    # An alg header that chose how a key is used would let an attacker pick the weaker check.
    for algorithm in (*SIGNERS, -35, -36, -53, -999, 0, 1, "EdDSA", None, True, float(signer.algorithm)):
        if algorithm == signer.algorithm and type(algorithm) is int:
            continue
        with pytest.raises(VerificationError):
            require_algorithm(signer.key, algorithm)


@every_signer
def test_a_key_without_alg_takes_no_algorithm_of_another_type(signer: PrivateKeySigner) -> None:
    key = from_public_key(signer.key.public_key)
    for other in SIGNERS.values():
        if other.key.kty != key.kty:
            with pytest.raises(VerificationError):
                require_algorithm(key, other.algorithm)


def test_an_ecdsa_signature_has_one_length() -> None:
    # A zero in the middle would leave both numbers as they are.
    signer = SIGNERS[ES256]
    signature = signer.sign(b"message")
    for padded in (signature[:32] + b"\x00" + signature[32:], b"\x00" + signature):
        with pytest.raises(VerificationError, match="64 bytes"):
            verify_signature(signer.key, ES256, b"message", padded)


def test_a_key_without_alg_takes_both_names_of_its_algorithm() -> None:
    assert require_algorithm(from_public_key(ED.public_key()), ED25519) == ED25519
    assert require_algorithm(from_public_key(EC.public_key()), ESP256) == ESP256


def test_signer_refuses_an_algorithm_of_another_key_type() -> None:
    for key, algorithm in ((ED, ES256), (EC, EDDSA), (ML, EDDSA), (ED, -999)):
        with pytest.raises(MalformedError):
            make_signer(key, algorithm)
    for other in (ec.generate_private_key(ec.SECP384R1()), ED.public_key(), None):
        with pytest.raises(MalformedError):
            make_signer(other)


def test_signer_never_shows_its_key() -> None:
    assert repr(SIGNERS[EDDSA]) == f"PrivateKeySigner(kid={SIGNERS[EDDSA].kid.hex()}, algorithm=-8)"


def test_refuses_points_of_low_order(vectors: Path) -> None:
    # With such a key one signature verifies for many messages.
    cases = json.loads((vectors / "ed25519" / "ed25519vectors.json").read_text())
    keys = {case["key"] for case in cases if "low_order_A" in (case["flags"] or ())}
    assert len(keys) >= 8
    for key in keys:
        with pytest.raises(MalformedError):
            CoseKey(1, bytes.fromhex(key))


def test_refuses_a_point_off_the_curve() -> None:
    key = SIGNERS[ES256].key
    assert key.y is not None
    with pytest.raises(MalformedError):
        CoseKey(2, key.x, bytes((key.y[0] ^ 1,)) + key.y[1:])
    with pytest.raises(MalformedError):
        CoseKey(2, b"\x00" * 32, b"\x00" * 32)


ED_MEMBERS: dict[int | str, cbor.Value] = {1: 1, -1: 6, -2: ED.public_key().public_bytes_raw()}
EC_MEMBERS = dict(SIGNERS[ES256].key.members())
ML_MEMBERS = dict(SIGNERS[ML_DSA_44].key.members())


@pytest.mark.parametrize(
    "members",
    [
        {},
        [],
        b"",
        {**ED_MEMBERS, -4: b"\x01" * 32},  # a private key
        {**ED_MEMBERS, 1: "OKP"},
        {**ED_MEMBERS, 1: True},
        {**ED_MEMBERS, -1: 7},  # Ed448
        {**EC_MEMBERS, -1: True},
        {**EC_MEMBERS, 3: False},
        {**ED_MEMBERS, -1: 4},  # X25519
        {**ED_MEMBERS, -2: b"\x01" * 31},
        {**ED_MEMBERS, -2: "x"},
        {1: 1, -1: 6},
        {**ED_MEMBERS, 3: ES256},
        {**ED_MEMBERS, 3: "EdDSA"},
        {**ED_MEMBERS, 3: True},
        {**ED_MEMBERS, 2: "kid"},
        {**ED_MEMBERS, 2: b""},
        {**ED_MEMBERS, 4: [2]},  # key_ops: restrictions that would be ignored
        {**EC_MEMBERS, -3: True},  # a compressed point
        {**EC_MEMBERS, -1: 2},  # P-384
        {**EC_MEMBERS, -4: b"\x01" * 32},
        {**ML_MEMBERS, 3: -49},
        {at: value for at, value in ML_MEMBERS.items() if at != 3},
        {**ML_MEMBERS, -2: b"\x01" * 32},
        {1: 4, -1: b"secret"},
    ],
)
def test_refuses_key(members: object) -> None:
    with pytest.raises(MalformedError):
        decode_key(cbor.encode(members))
    with pytest.raises(MalformedError):
        decode_key_set(cbor.encode([members]))


def test_a_foreign_key_keeps_its_kid() -> None:
    key = key_from_members({**ED_MEMBERS, 2: b"11"})
    assert (key.kid, key.key_id) == (b"11", b"11")
    assert decode_key(key.encode()) == key


def test_refuses_key_sets() -> None:
    key = SIGNERS[EDDSA].key
    for data in (b"\x80", key.encode(), encode_key_set((key,) * 257), encode_key_set((key,)) + b"\x00"):
        with pytest.raises(MalformedError):
            decode_key_set(data)


@pytest.mark.parametrize("name", ["ed", "es"])
def test_key_sets_of_others(vectors: Path, name: str) -> None:
    folder = vectors / "cose" / "receipts"
    data = (folder / f"{name}.keyset.cbor").read_bytes()
    (key,) = decode_key_set(data)
    assert key.kid is None  # its kid is its thumbprint
    assert encode_key_set((key,)) == data
    pem = from_public_key(load_pem_public_key((folder / f"{name}.pem").read_bytes()))
    assert pem.thumbprint() == key.thumbprint()
