"""tlog.cose: strict decoding, and pycose held equal to the direct path."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, utils
from hypothesis import given, settings
from hypothesis import strategies as st

from tlog import cbor
from tlog.cose import (
    ALG,
    CRIT,
    CWT_CLAIMS,
    ED25519,
    EDDSA,
    ES256,
    ESP256,
    KID,
    MAX_MESSAGE_BYTES,
    ML_DSA_44,
    SIZE_LABEL,
    CoseKey,
    PrivateKeySigner,
    Sign1,
    decode_sign1,
    encode_protected,
    encode_sign1,
    make_signer,
    require_algorithm,
    sig_structure,
    sign1,
    sign1_detached,
    verify_sign1,
    verify_signature,
)
from tlog.errors import Error, MalformedError, VerificationError

ED = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
EC = ec.derive_private_key(7, ec.SECP256R1())
ML = mldsa.MLDSA44PrivateKey.from_seed_bytes(b"\x02" * 32)
SIGNERS = [
    make_signer(ED, EDDSA),
    make_signer(ED, ED25519),
    make_signer(EC, ES256),
    make_signer(EC, ESP256),
    make_signer(ML, ML_DSA_44),
]
every_signer = pytest.mark.parametrize("signer", SIGNERS, ids=lambda one: str(one.algorithm))
PAYLOAD = b"payload"


def forge(
    signer: PrivateKeySigner, headers: object, unprotected: object = None, payload: object = PAYLOAD
) -> bytes:
    """A message with a good signature over whatever headers."""
    protected = headers if isinstance(headers, bytes) else cbor.encode(headers)
    signed = payload if isinstance(payload, bytes) else b""
    signature = signer.sign(sig_structure(protected, signed))
    return cbor.encode_tagged(18, [protected, {} if unprotected is None else unprotected, payload, signature])


# Round trips


@every_signer
def test_round_trip(signer: PrivateKeySigner) -> None:
    headers: dict[int | str, object] = {CWT_CLAIMS: {1: "a", 2: "b"}, "text label": 1}
    message = decode_sign1(sign1(signer, headers, PAYLOAD, unprotected={99: [1]}))
    assert message.headers == {**headers, ALG: signer.algorithm, KID: signer.kid}
    assert (message.unprotected, message.payload) == ({99: [1]}, PAYLOAD)
    verify_sign1(message, signer.key)
    for other in SIGNERS:
        if other is not signer:
            with pytest.raises(VerificationError):
                verify_sign1(message, other.key)


@every_signer
def test_detached_round_trip(signer: PrivateKeySigner) -> None:
    message = decode_sign1(sign1_detached(signer, {}, PAYLOAD))
    assert message.payload is None
    verify_sign1(message, signer.key, PAYLOAD)
    with pytest.raises(VerificationError):
        verify_sign1(message, signer.key, b"another payload")
    with pytest.raises(VerificationError, match="one payload"):
        verify_sign1(message, signer.key)


@every_signer
def test_an_attached_payload_is_never_left_unauthenticated(signer: PrivateKeySigner) -> None:
    message = decode_sign1(sign1(signer, {}, PAYLOAD))
    with pytest.raises(VerificationError, match="one payload"):
        verify_sign1(message, signer.key, PAYLOAD)


@every_signer
def test_every_part_is_signed(signer: PrivateKeySigner) -> None:
    raw = bytearray(sign1(signer, {}, PAYLOAD))
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        with pytest.raises(Error):
            verify_sign1(decode_sign1(bytes(changed)), signer.key)
        if len(raw) > 1000 and at > 100:
            break


def test_alg_and_kid_are_those_of_the_signer() -> None:
    signer = SIGNERS[0]
    assert sign1(signer, {ALG: EDDSA, KID: signer.kid}, PAYLOAD) == sign1(signer, {}, PAYLOAD)
    for headers in ({ALG: ES256}, {KID: b"other"}):
        with pytest.raises(MalformedError):
            sign1(signer, headers, PAYLOAD)


def test_signs_nothing_that_would_not_decode() -> None:
    for headers, unprotected in (
        ({}, {KID: b"x"}),
        ({}, {CRIT: [1]}),
        ({CRIT: [77], 77: 1}, {}),
        ({1.0: 1}, {}),
    ):
        with pytest.raises(MalformedError):
            sign1(SIGNERS[0], headers, PAYLOAD, unprotected=unprotected)  # type: ignore[arg-type]


# Strict decoding

HEADERS = {ALG: EDDSA, KID: b"k"}
GOOD = forge(SIGNERS[0], HEADERS)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        GOOD + b"\x00",
        GOOD[1:],
        b"\xd8\x12" + GOOD[1:],
        b"\xd1" + GOOD[1:],
        b"\xd9\xd9\xf7" + GOOD,
        cbor.encode_tagged(18, []),
        cbor.encode_tagged(18, [b"", {}, b"", b"s", 1]),
        cbor.encode_tagged(18, [b"", {}, b""]),
        cbor.encode_tagged(18, {0: b"", 1: {}, 2: b"", 3: b"s"}),
        cbor.encode_tagged(18, ["", {}, b"", b"s"]),
        cbor.encode_tagged(18, [HEADERS, {}, b"", b"s"]),
        cbor.encode_tagged(18, [b"", [], b"", b"s"]),
        cbor.encode_tagged(18, [b"", None, b"", b"s"]),
        cbor.encode_tagged(18, [b"", {}, "", b"s"]),
        cbor.encode_tagged(18, [b"", {}, False, b"s"]),
        cbor.encode_tagged(18, [b"", {}, b"", b""]),
        cbor.encode_tagged(18, [b"", {}, b"", None]),
        cbor.encode_tagged(18, [b"\x00", {}, b"", b"s"]),
        cbor.encode_tagged(18, [b"\xa0\x00", {}, b"", b"s"]),
        cbor.encode_tagged(18, [b"\xbf\xff", {}, b"", b"s"]),
        cbor.encode_tagged(18, [b"\xa2\x01\x27\x01\x26", {}, b"", b"s"]),
        cbor.encode_tagged(18, [b"\xa2\x01\x27\xf5\x26", {}, b"", b"s"]),
        cbor.encode_tagged(18, [b"\xa2\x01\x27\x18\x01\x26", {}, b"", b"s"]),
        forge(SIGNERS[0], HEADERS, {ALG: EDDSA}),
        forge(SIGNERS[0], HEADERS, {KID: b"k"}),
        forge(SIGNERS[0], {ALG: EDDSA, KID: "k"}),
        forge(SIGNERS[0], {ALG: EDDSA}, {KID: 1}),
        forge(SIGNERS[0], {ALG: b"\x27"}),
        forge(SIGNERS[0], {ALG: True}),
        forge(SIGNERS[0], {ALG: None}),
        forge(SIGNERS[0], {**HEADERS, 3: b"text/plain"}),
    ],
    ids=range(32),
)
def test_refuses_message(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_sign1(raw)


@pytest.mark.parametrize(
    ("critical", "unprotected"),
    [
        ([], {}),
        ({}, {}),
        (77, {}),
        ([77], {}),  # present, not understood
        ([78], {}),  # absent
        ([16], {}),  # absent, though understood
        ([[1]], {}),
        ([{1: 1}], {}),
        ([b"\x01"], {}),
        ([None], {}),
        ([True], {}),
        ([ALG, 77], {}),
        ([88], {88: 1}),  # only unprotected
        ([SIZE_LABEL], {}),  # understood in receipts only
    ],
)
def test_refuses_crit(critical: object, unprotected: dict[int, object]) -> None:
    raw = forge(SIGNERS[0], {**HEADERS, 77: 1, SIZE_LABEL: 1, CRIT: critical}, unprotected)
    with pytest.raises(MalformedError, match="crit"):
        decode_sign1(raw)


def test_crit_that_is_understood() -> None:
    raw = forge(SIGNERS[0], {**HEADERS, 77: 1, CRIT: [KID, 77]})
    with pytest.raises(MalformedError):
        decode_sign1(raw)
    verify_sign1(decode_sign1(raw, understood=frozenset((77,))), SIGNERS[0].key)


def test_refuses_crit_that_is_not_protected() -> None:
    with pytest.raises(MalformedError, match="protected"):
        decode_sign1(forge(SIGNERS[0], HEADERS, {CRIT: [KID]}))


def test_size_is_bounded() -> None:
    with pytest.raises(MalformedError):
        decode_sign1(forge(SIGNERS[0], HEADERS, payload=b"x" * MAX_MESSAGE_BYTES))
    with pytest.raises(MalformedError):
        decode_sign1(GOOD, max_bytes=len(GOOD) - 1)


@pytest.mark.parametrize(
    "headers",
    [{}, {"1": EDDSA}, {"alg": EDDSA}, {KID: b"k"}, {ALG: "EdDSA"}, {ALG: -999}, {ALG: -35}, {ALG: ES256}],
    ids=str,
)
def test_alg_must_be_one_that_fits_the_key(headers: dict[int | str, object]) -> None:
    raw = forge(SIGNERS[0], headers)
    with pytest.raises(VerificationError):
        verify_sign1(decode_sign1(raw), SIGNERS[0].key)


def test_alg_outside_the_signature_is_no_alg() -> None:
    with pytest.raises(VerificationError):
        verify_sign1(decode_sign1(forge(SIGNERS[0], b"", {ALG: EDDSA})), SIGNERS[0].key)


def test_a_text_label_never_shadows_alg() -> None:
    # pycose reads "alg" as label 1.
    signer = SIGNERS[0]
    verify_sign1(decode_sign1(forge(signer, {ALG: EDDSA, "alg": ES256})), signer.key)
    verify_sign1(decode_sign1(forge(signer, {ALG: EDDSA}, {"ALG": ES256})), signer.key)


def test_empty_protected_headers_are_signed_as_no_bytes() -> None:
    # RFC 9052, 3: a zero-length map is encoded as a zero-length string.
    assert encode_protected({}) == b""
    assert (
        sig_structure(b"\xa0", b"p")
        == sig_structure(b"", b"p")
        == cbor.encode(["Signature1", b"", b"", b"p"])
    )
    for protected in (b"", b"\xa0"):
        assert decode_sign1(encode_sign1(protected, {}, b"p", b"s")).headers == {}


# pycose

labels = st.integers(100, 70000) | st.integers(-80000, -66000)
scalars = st.integers(-(2**64), 2**64 - 1) | st.text(max_size=20) | st.binary(max_size=20) | st.booleans()
header_maps = st.dictionaries(labels, scalars | st.lists(scalars, max_size=3), max_size=4)


def pycose_message(headers: dict[Any, Any], unprotected: dict[Any, Any], payload: bytes | None) -> Any:
    from pycose.messages.sign1message import Sign1Message

    ordered = cbor.decode(cbor.encode(headers), max_bytes=MAX_MESSAGE_BYTES)
    bare = cbor.decode(cbor.encode(unprotected), max_bytes=MAX_MESSAGE_BYTES)
    return Sign1Message(phdr=ordered, uhdr=bare, payload=payload)


def pycose_private_key(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> Any:
    from pycose.keys import CoseKey as PycoseKey

    return PycoseKey._from_cryptography_key(key)


@settings(max_examples=60, deadline=None)
@given(header_maps, header_maps, st.binary(max_size=100), st.booleans())
def test_ed25519_messages_equal_those_of_pycose(
    headers: dict[int, Any], unprotected: dict[int, Any], payload: bytes, detached: bool
) -> None:
    signer = SIGNERS[0]
    unprotected = {label: value for label, value in unprotected.items() if label not in headers}
    theirs = pycose_message(
        {**headers, ALG: EDDSA, KID: signer.kid}, unprotected, None if detached else payload
    )
    theirs.key = pycose_private_key(ED)
    make = sign1_detached if detached else sign1
    ours = make(signer, {**headers}, payload, unprotected={**unprotected})
    assert theirs.encode(detached_payload=payload if detached else None) == ours


def direct(message: Sign1, key: CoseKey, detached_payload: bytes | None) -> None:
    """The path that statements and receipts take."""
    payload = message.payload if detached_payload is None else detached_payload
    assert payload is not None
    algorithm = require_algorithm(key, message.headers.get(ALG))
    verify_signature(key, algorithm, sig_structure(message.protected, payload), message.signature)


def outcome(verify: Any, *arguments: object) -> bool:
    try:
        verify(*arguments)
    except VerificationError:
        return False
    return True


@settings(max_examples=40, deadline=None)
@given(st.data(), header_maps, st.binary(max_size=60), st.booleans())
def test_pycose_and_the_direct_path_say_the_same(
    data: st.DataObject, headers: dict[int, Any], payload: bytes, detached: bool
) -> None:
    signer = data.draw(st.sampled_from(SIGNERS))
    make = sign1_detached if detached else sign1
    message = decode_sign1(make(signer, {**headers}, payload))
    given_payload = payload if detached else None
    assert outcome(verify_sign1, message, signer.key, given_payload)
    assert outcome(direct, message, signer.key, given_payload)
    signature = bytearray(message.signature)
    signature[data.draw(st.integers(0, 63))] ^= data.draw(st.integers(1, 255))
    changed = decode_sign1(
        encode_sign1(message.protected, message.unprotected, message.payload, bytes(signature))
    )
    assert not outcome(verify_sign1, changed, signer.key, given_payload)
    assert not outcome(direct, changed, signer.key, given_payload)


@pytest.mark.parametrize("size", [1, 63, 65, 100])
def test_a_signature_of_another_length_never_verifies(size: int) -> None:
    for signer in SIGNERS:
        raw = encode_sign1(encode_protected({ALG: signer.algorithm}), {}, PAYLOAD, b"\x01" * size)
        with pytest.raises(VerificationError):
            verify_sign1(decode_sign1(raw), signer.key)


# The examples of the COSE working group


def examples(vectors: Path) -> list[tuple[str, dict[str, Any]]]:
    files = sorted((vectors / "cose" / "cose-wg").glob("*/*.json"))
    assert len(files) == 21
    return [(path.stem, json.loads(path.read_text())) for path in files]


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


def unbase64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
DIGESTS = {"ES256": hashes.SHA256(), "ES384": hashes.SHA384(), "ES512": hashes.SHA512()}


def holds(example: dict[str, Any], to_be_signed: bytes, signature: bytes) -> bool:
    """What `cryptography` says of a signature, for the algorithms outside our allow-list too."""
    sign0 = example["input"]["sign0"]
    key = sign0["key"]
    try:
        if key["kty"] == "OKP":
            from cryptography.hazmat.primitives.asymmetric import ed448

            public = unhex(key["x_hex"])
            kind = ed25519.Ed25519PublicKey if len(public) == 32 else ed448.Ed448PublicKey
            kind.from_public_bytes(public).verify(signature, to_be_signed)
        else:
            point = b"\x04" + unbase64(key["x"]) + unbase64(key["y"])
            half = len(signature) // 2
            der = utils.encode_dss_signature(
                int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
            )
            digest = DIGESTS[sign0.get("alg", "ES256")]
            ec.EllipticCurvePublicKey.from_encoded_point(CURVES[key["crv"]], point).verify(
                der, to_be_signed, ec.ECDSA(digest)
            )
    except InvalidSignature:
        return False
    return True


def test_cose_wg_examples(vectors: Path) -> None:
    seen: dict[str, str] = {}
    for name, example in examples(vectors):
        raw = unhex(example["output"]["cbor"])
        if "sign0" not in example["input"] or name in ("sign-fail-01", "sign-pass-03"):
            # COSE_Sign (tag 98), another tag, and no tag: RFC 9943 wants tag 18.
            with pytest.raises(MalformedError):
                decode_sign1(raw)
            seen[name] = "refused"
            continue
        message = decode_sign1(raw)
        assert message.raw == raw
        assert encode_sign1(message.protected, message.unprotected, message.payload, message.signature) == raw
        aad = unhex(example["input"]["sign0"].get("external", ""))
        assert message.payload is not None
        to_be_signed = sig_structure(message.protected, message.payload, aad)
        if not example.get("fail"):
            assert to_be_signed == unhex(example["intermediates"]["ToBeSign_hex"]), name
        seen[name] = "holds" if holds(example, to_be_signed, message.signature) else "does not hold"
    passing = [name for name, verdict in seen.items() if verdict == "holds"]
    assert passing == [
        *(f"ecdsa-sig-0{number}" for number in (1, 2, 3, 4)),
        *(f"eddsa-sig-0{number}" for number in (1, 2)),
        "sign-pass-01",
        "sign-pass-02",
    ]


def test_cose_wg_examples_under_our_allow_list(vectors: Path) -> None:
    accepted = []
    for name, example in examples(vectors):
        key = example["input"].get("sign0", {}).get("key", {})
        if "x_hex" in key and len(key["x_hex"]) == 64:
            cose_key = CoseKey(1, unhex(key["x_hex"]), kid=b"11")
        elif key.get("crv") == "P-256":
            cose_key = CoseKey(2, unbase64(key["x"]), unbase64(key["y"]), kid=b"11")
        else:
            continue
        try:
            verify_sign1(decode_sign1(unhex(example["output"]["cbor"])), cose_key)
            accepted.append(name)
        except Error:
            pass
    # Not sign-pass-01 (alg is not protected), -02 (external data), -03 (no tag): none is in our formats.
    assert accepted == ["ecdsa-sig-01", "eddsa-sig-01"]
