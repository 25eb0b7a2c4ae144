"""COSE_Sign1 (RFC 9052, 4.2): strict decoding, and pycose behind it.

Every message is decoded here first: tag 18, deterministic, bounded, no label twice (also not across the two
buckets), `crit` obeyed. Only what passed reaches pycose, which then assembles and verifies messages of free
shape; ML-DSA, which pycose does not know, and statements and receipts, whose shape is fixed, take the direct
path over the same bytes. Protected bytes are verified as received and never encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tlog import cbor
from tlog.cose_keys import (
    ED25519,
    EDDSA,
    ES256,
    ESP256,
    ML_DSA_44,
    CoseKey,
    CoseSigner,
    PrivateKeySigner,
    decode_key,
    decode_key_set,
    encode_key_set,
    from_public_key,
    key_from_members,
    make_signer,
    require_algorithm,
    sign_raw,
    verify_signature,
)
from tlog.errors import MalformedError, VerificationError

if TYPE_CHECKING:
    from pycose.messages.sign1message import Sign1Message

__all__ = [
    # Header labels and values.
    "ALG",
    "CRIT",
    "CONTENT_TYPE",
    "KID",
    "CWT_CLAIMS",
    "CWT_ISS",
    "CWT_SUB",
    "TYP",
    "PAYLOAD_HASH_ALG",
    "PREIMAGE_CONTENT_TYPE",
    "PAYLOAD_LOCATION",
    "RECEIPTS",
    "VDS",
    "VDP",
    "SHA_256",
    "SIZE_LABEL",
    "CHECKPOINT_LABEL",
    # Keys and algorithms, from tlog.cose_keys.
    "EDDSA",
    "ED25519",
    "ES256",
    "ESP256",
    "ML_DSA_44",
    "CoseKey",
    "CoseSigner",
    "PrivateKeySigner",
    "require_algorithm",
    "decode_key",
    "decode_key_set",
    "encode_key_set",
    "from_public_key",
    "key_from_members",
    "make_signer",
    "sign_raw",
    "verify_signature",
    # Messages.
    "MAX_MESSAGE_BYTES",
    "Sign1",
    "decode_sign1",
    "encode_sign1",
    "encode_protected",
    "sig_structure",
    "sign1",
    "sign1_detached",
    "verify_sign1",
]

# Header labels (IANA COSE Header Parameters).
ALG: Final = 1
CRIT: Final = 2
CONTENT_TYPE: Final = 3
KID: Final = 4
CWT_CLAIMS: Final = 15  # RFC 9597
TYP: Final = 16  # RFC 9596
PAYLOAD_HASH_ALG: Final = 258  # RFC 9995
PREIMAGE_CONTENT_TYPE: Final = 259
PAYLOAD_LOCATION: Final = 260
RECEIPTS: Final = 394  # RFC 9942
VDS: Final = 395
VDP: Final = 396
# Private use labels of ours (below -65536): the signed tree size, and the checkpoint beside a receipt.
SIZE_LABEL: Final = -70001
CHECKPOINT_LABEL: Final = -70002

CWT_ISS: Final = 1
CWT_SUB: Final = 2
SHA_256: Final = -16

LEGACY_LABELS: Final = frozenset((13, 391, 392, 393, -111, -222, -6800, -6801, -6802))

MAX_MESSAGE_BYTES: Final = 1 << 20
_TAG: Final = 18
# What a `crit` may name in any message; a format with labels of its own says which it understands besides.
_UNDERSTOOD: Final = frozenset((ALG, CONTENT_TYPE, KID, CWT_CLAIMS, TYP, PAYLOAD_HASH_ALG))

Headers = dict[int | str, cbor.Value]


@dataclass(frozen=True)
class Sign1:
    """A decoded COSE_Sign1; `protected` are the bytes that were signed, `headers` the map in them."""

    protected: bytes
    headers: Headers
    unprotected: Headers
    payload: bytes | None
    signature: bytes
    raw: bytes


def decode_sign1(
    data: bytes, *, max_bytes: int = MAX_MESSAGE_BYTES, understood: frozenset[int] = frozenset()
) -> Sign1:
    """The message in `data`; nothing about its signature is known yet.

    Raises MalformedError unless it is a tagged, deterministic COSE_Sign1 of exactly these bytes whose labels
    are unambiguous and whose critical labels are in `understood`, or among the few every message may name.
    """
    parts = cbor.decode_tagged(_TAG, data, max_bytes=max_bytes)
    if not isinstance(parts, list) or len(parts) != 4:
        raise MalformedError("COSE_Sign1: expected an array of four elements")
    protected, unprotected, payload, signature = parts
    if not isinstance(protected, bytes) or not isinstance(unprotected, dict):
        raise MalformedError(
            "COSE_Sign1: expected protected headers as a byte string and unprotected as a map"
        )
    if not isinstance(payload, bytes | None):
        raise MalformedError("COSE_Sign1: expected the payload as a byte string or null")
    if not isinstance(signature, bytes) or not signature:
        raise MalformedError("COSE_Sign1: expected the signature as a byte string that is not empty")
    headers = _protected_headers(protected)
    _require_headers(headers, unprotected)
    _require_critical(headers, understood | _UNDERSTOOD)
    return Sign1(protected, headers, unprotected, payload, signature, data)


def _protected_headers(protected: bytes) -> Headers:
    if not protected:
        return {}
    headers = cbor.decode(protected, max_bytes=len(protected))
    if not isinstance(headers, dict):
        raise MalformedError("COSE_Sign1: expected a map inside the protected headers")
    return headers


def _require_headers(headers: Headers, unprotected: Headers) -> None:
    if headers.keys() & unprotected.keys():
        # RFC 9052, 3: a label in both buckets makes the message malformed.
        raise MalformedError("COSE_Sign1: a label stands in both header buckets")
    for bucket in (headers, unprotected):
        if not isinstance(bucket.get(KID, b""), bytes):
            raise MalformedError("COSE_Sign1: expected kid as a byte string")
        for label in (ALG, CONTENT_TYPE, TYP):
            value = bucket.get(label, 0)
            if type(value) is not int and type(value) is not str:
                raise MalformedError(f"COSE_Sign1: expected label {label} as an integer or text")
    if CRIT in unprotected:
        raise MalformedError("COSE_Sign1: crit must be protected")  # RFC 9052, 3.1


def require_no_legacy(message: Sign1) -> None:
    """Returns if no label is one that drafts used for what has another number now.

    A verifier of a draft would read such a label and one of the standards would not: the same bytes would say
    two things.
    """
    if LEGACY_LABELS & (message.headers.keys() | message.unprotected.keys()):
        raise MalformedError(
            "COSE_Sign1: expected no label of a draft (13, 391 to 393, -111, -222, -6800 to -6802)"
        )


def _require_critical(headers: Headers, understood: frozenset[int]) -> None:
    if CRIT not in headers:
        return
    critical = headers[CRIT]
    if not isinstance(critical, list) or not critical:
        raise MalformedError("COSE_Sign1: expected crit as an array of labels that is not empty")
    for label in critical:
        if type(label) is not int and type(label) is not str:
            raise MalformedError("COSE_Sign1: expected labels in crit as integers or texts")
        if label not in headers:
            raise MalformedError("COSE_Sign1: crit names a label that is not in the protected headers")
        if label not in understood:
            raise MalformedError("COSE_Sign1: crit names a label that is not understood here")


def encode_protected(headers: Mapping[int | str, object]) -> bytes:
    """The protected header bytes; no headers are no bytes (RFC 9052, 3)."""
    return cbor.encode(dict(headers)) if headers else b""


def encode_sign1(
    protected: bytes, unprotected: Mapping[int | str, object], payload: bytes | None, signature: bytes
) -> bytes:
    """The tagged COSE_Sign1 of these parts, with the protected bytes exactly as given."""
    body = b"\xf6" if payload is None else cbor.byte_string(payload)
    return b"".join(
        (
            b"\xd2\x84",
            cbor.byte_string(protected),
            cbor.encode(dict(unprotected)),
            body,
            cbor.byte_string(signature),
        )
    )


def sig_structure(protected: bytes, payload: bytes, external_aad: bytes = b"") -> bytes:
    """The bytes that are signed (RFC 9052, 4.4); an empty protected map counts as no bytes."""
    signed = b"" if protected == b"\xa0" else protected
    return b"".join(
        (
            b"\x84\x6aSignature1",
            cbor.byte_string(signed),
            cbor.byte_string(external_aad),
            cbor.byte_string(payload),
        )
    )


def sign1(
    signer: CoseSigner,
    protected: Mapping[int | str, object],
    payload: bytes,
    *,
    unprotected: Mapping[int | str, object] | None = None,
) -> bytes:
    """A signed COSE_Sign1 that carries `payload`; alg and kid of the signer join the protected headers."""
    encoded = _signer_headers(signer, protected)
    signature = sign_raw(signer, sig_structure(encoded, payload))
    return _assemble(encoded, dict(unprotected or {}), payload, signature)


def sign1_detached(
    signer: CoseSigner,
    protected: Mapping[int | str, object],
    payload: bytes,
    *,
    unprotected: Mapping[int | str, object] | None = None,
) -> bytes:
    """A signed COSE_Sign1 over `payload` that does not carry it."""
    encoded = _signer_headers(signer, protected)
    signature = sign_raw(signer, sig_structure(encoded, payload))
    return _assemble(encoded, dict(unprotected or {}), None, signature)


def _signer_headers(signer: CoseSigner, protected: Mapping[int | str, object]) -> bytes:
    mine: dict[int | str, object] = {ALG: signer.algorithm, KID: signer.kid}
    if any(protected.get(label, value) != value for label, value in mine.items()):
        raise MalformedError("COSE_Sign1: expected alg and kid to be those of the signer, or left out")
    return encode_protected({**protected, **mine})


def _assemble(
    protected: bytes, unprotected: dict[int | str, object], payload: bytes | None, signature: bytes
) -> bytes:
    # What we write we can read: this also refuses labels that would be ambiguous.
    message = decode_sign1(encode_sign1(protected, unprotected, payload, signature))
    if not _pycose_can(message):
        return message.raw
    encoded: bytes = _pycose_message(message).encode(sign=False)
    return encoded


def verify_sign1(message: Sign1, key: CoseKey, detached_payload: bytes | None = None) -> None:
    """Returns when the signature of `message` under `key` holds; raises VerificationError otherwise.

    A payload is taken from the message or from `detached_payload`, never from both: given twice, the attached
    one would be left unauthenticated.
    """
    algorithm = require_algorithm(key, message.headers.get(ALG))
    if (message.payload is None) == (detached_payload is None):
        raise VerificationError("COSE_Sign1: expected one payload, either attached or detached")
    if _pycose_can(message):
        _verify_with_pycose(message, key, detached_payload)
        return
    payload = message.payload if detached_payload is None else detached_payload
    assert payload is not None
    verify_signature(key, algorithm, sig_structure(message.protected, payload), message.signature)


def _pycose_can(message: Sign1) -> bool:
    # pycose reads the text label "alg" as label 1, so a message with text labels is not for it.
    if any(type(label) is str for label in (*message.headers, *message.unprotected)):
        return False
    return message.headers.get(ALG) in (EDDSA, ED25519, ES256, ESP256)


def _verify_with_pycose(message: Sign1, key: CoseKey, detached_payload: bytes | None) -> None:
    from pycose.exceptions import CoseException

    pycose_message = _pycose_message(message)
    pycose_message.key = _pycose_key(key)
    try:
        holds = pycose_message.verify_signature(detached_payload=detached_payload)
    except (CoseException, ValueError, TypeError, AttributeError, LookupError):
        # pycose lets errors of its own parts through; each means that it could not verify.
        raise VerificationError("COSE: the signature could not be checked", code="signature") from None
    if not holds:
        raise VerificationError("COSE: the signature does not verify", code="signature")


def _pycose_message(message: Sign1) -> Sign1Message:
    from pycose.messages.sign1message import Sign1Message

    _register_pycose_algorithms()
    parts = [message.protected, dict(message.unprotected), message.payload, message.signature]
    return Sign1Message.from_cose_obj(parts, True)


def _pycose_key(key: CoseKey) -> Any:
    from pycose.keys.ec2 import EC2Key
    from pycose.keys.okp import OKPKey

    if key.y is not None:
        return EC2Key(crv="P_256", x=key.x, y=key.y)
    return OKPKey(crv="ED25519", x=key.x)


@cache
def _register_pycose_algorithms() -> None:
    """Teaches pycose the fully specified names of two algorithms that it has (RFC 9864)."""
    from pycose.algorithms import CoseAlgorithm, EdDSA, Es256

    class FullySpecifiedEd25519(EdDSA):
        identifier = ED25519
        fullname = "ED25519"

    class FullySpecifiedEsp256(Es256):
        identifier = ESP256
        fullname = "ESP256"

    for algorithm in (FullySpecifiedEd25519, FullySpecifiedEsp256):
        CoseAlgorithm.register_attribute()(algorithm)
