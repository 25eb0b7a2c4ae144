"""SCITT signed statements (RFC 9943), and the one shape that is written to the log.

An entry of ours is a COSE_Sign1 of fixed shape whose payload is the 32-byte commitment C, a hash envelope
(RFC 9995):

    d2 84 <protected> a0 <C> <signature>
    protected: {1: alg, 4: kid, 15: {1: iss, 2: sub}, 16: TYP, 258: -16}

Its identity is (issuer, C): not its signature, which ECDSA and ML-DSA make anew each time, and not its
index, which does not exist yet when it is signed. Statements of that shape are made and read directly,
without a COSE library; the result equals the general path byte for byte. Statements of others are read by
the general path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tlog import cbor
from tlog.cose import (
    ALG,
    CONTENT_TYPE,
    CWT_CLAIMS,
    CWT_ISS,
    CWT_SUB,
    KID,
    PAYLOAD_HASH_ALG,
    PAYLOAD_LOCATION,
    PREIMAGE_CONTENT_TYPE,
    SHA_256,
    VDS,
    CoseKey,
    CoseSigner,
    Headers,
    Sign1,
    decode_sign1,
    encode_sign1,
    require_algorithm,
    sig_structure,
    sign_raw,
    verify_sign1,
    verify_signature,
)
from tlog.cose import TYP as TYP_LABEL
from tlog.errors import MalformedError, VerificationError

TYP: Final = "application/vnd.muniment.statement+cose"
MAX_ENTRY_BYTES: Final = 65535  # what an entry bundle can hold (C2SP tlog-tiles)
HASH_BYTES: Final = 32
_USUAL_SIGNATURE_BYTES: Final = 64  # of Ed25519 and of ECDSA with P-256
_SIGNATURE_HEAD: Final = cbor.head(2, _USUAL_SIGNATURE_BYTES)
# Counted from the end of an entry with such a signature.
_SIGNATURE_AT: Final = len(_SIGNATURE_HEAD) + _USUAL_SIGNATURE_BYTES
_COMMITMENT_AT: Final = HASH_BYTES + _SIGNATURE_AT
_MAX_NAME_BYTES: Final = 8192  # RFC 9943 bounds an issuer at 8192 characters
_PROTECTED_LABELS: Final = frozenset((ALG, KID, CWT_CLAIMS, TYP_LABEL, PAYLOAD_HASH_ALG))
# Unsigned, each of these would let anybody say who issued a statement or what its payload is.
_PROTECTED_ONLY: Final = frozenset(
    (ALG, KID, CWT_CLAIMS, TYP_LABEL, PAYLOAD_HASH_ALG, PREIMAGE_CONTENT_TYPE, PAYLOAD_LOCATION, VDS)
)
_DIGEST_BYTES: Final[Mapping[int, int]] = {SHA_256: 32, -43: 48, -44: 64}
Verify = Callable[[CoseKey, int, bytes, bytes], None]
"""(key, algorithm, what was signed, signature): returns when it holds, raises VerificationError otherwise."""


@dataclass(frozen=True)
class Statement:
    """A statement of our shape; `payload_hash` is its commitment C, `raw` the entry itself."""

    issuer: str
    subject: str
    kid: bytes
    algorithm: int
    payload_hash: bytes
    raw: bytes


@dataclass(frozen=True)
class SignedStatement:
    """Any SCITT signed statement; `payload_hash_algorithm` is set where it is a hash envelope."""

    issuer: str
    subject: str
    kid: bytes
    payload_hash_algorithm: int | None
    message: Sign1


@dataclass(frozen=True)
class _Header:
    algorithm: int
    kid: bytes
    issuer: str
    subject: str
    signed_prefix: bytes


@dataclass(frozen=True)
class _Shape:
    """What stands in front of the commitment: in an entry, and in what its signature is over."""

    entry_prefix: bytes
    signed_prefix: bytes


def sign_statement(signer: CoseSigner, issuer: str, subject: str, payload_hash: bytes) -> bytes:
    """The entry in which `signer` states the commitment `payload_hash`."""
    if len(payload_hash) != HASH_BYTES:
        raise MalformedError(f"statement: expected a commitment of {HASH_BYTES} bytes")
    shape = _shape(signer.algorithm, signer.kid, issuer, subject)
    signature = sign_raw(signer, shape.signed_prefix + payload_hash)
    return b"".join((shape.entry_prefix, payload_hash, cbor.byte_string(signature)))


@lru_cache(maxsize=64)
def _shape(algorithm: int, kid: bytes, issuer: str, subject: str) -> _Shape:
    """What all statements under one header begin with; a store's share it, so it is made once."""
    protected = cbor.encode(
        {
            ALG: algorithm,
            KID: kid,
            CWT_CLAIMS: {CWT_ISS: require_name(issuer), CWT_SUB: require_name(subject)},
            TYP_LABEL: TYP,
            PAYLOAD_HASH_ALG: SHA_256,
        }
    )
    entry_prefix = b"".join((b"\xd2\x84", cbor.byte_string(protected), b"\xa0\x58\x20"))
    return _Shape(entry_prefix, _signed_prefix(protected))


def _signed_prefix(protected: bytes) -> bytes:
    """The bytes that are signed, without the commitment that they end with (RFC 9052, 4.4)."""
    return sig_structure(protected, bytes(HASH_BYTES))[:-HASH_BYTES]


def require_name(name: object) -> str:
    """`name`, once it can be an issuer or a subject."""
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME_BYTES:
        raise MalformedError(f"statement: expected iss and sub as texts of 1 to {_MAX_NAME_BYTES} characters")
    return name


def parse_statement(entry: bytes) -> Statement:
    """The statement of our shape in `entry`; its signature is not checked. Raises MalformedError."""
    header, payload_hash, _ = _read(entry)
    return Statement(header.issuer, header.subject, header.kid, header.algorithm, payload_hash, entry)


def payload_hash_of(entry: bytes) -> bytes:
    """The commitment that the statement of our shape in `entry` states; its signature is not checked."""
    return _read(entry)[1]


def signer_of(entry: bytes) -> tuple[str, bytes]:
    """The issuer and the kid that the statement of our shape in `entry` states; its signature is not checked."""
    header = _read(entry)[0]
    return header.issuer, header.kid


def verify_statement(entry: bytes, key: CoseKey) -> Statement:
    """The statement of our shape in `entry`, signed by `key`."""
    require_signed(entry, key)
    return parse_statement(entry)


def require_signed(entry: bytes, key: CoseKey, verify: Verify = verify_signature) -> None:
    """Returns when `entry` is a statement of our shape that `key` has signed."""
    header, payload_hash, signature = _read(entry)
    require_kid(header.kid, key)
    algorithm = require_algorithm(key, header.algorithm)
    verify(key, algorithm, header.signed_prefix + payload_hash, signature)


def signed_by(entry: bytes, keys: Mapping[bytes, CoseKey], verify: Verify = verify_signature) -> bytes:
    """The kid under which, of these keys by their kids, one has signed `entry`; raises as `require_signed` does."""
    header, payload_hash, signature = _read(entry)
    key = keys.get(header.kid)
    if key is None:
        raise VerificationError("statement: signed by a key that was not given", code="key_unknown")
    algorithm = require_algorithm(key, header.algorithm)
    verify(key, algorithm, header.signed_prefix + payload_hash, signature)
    return header.kid


def require_kid(kid: bytes, key: CoseKey) -> None:
    """Returns when `kid` names `key`."""
    if kid != key.key_id:
        raise VerificationError("COSE: the kid names another key than the one it is checked with", code="kid")


def _read(entry: bytes) -> tuple[_Header, bytes, bytes]:
    """Header, commitment and signature of an entry of our shape."""
    if entry[-_SIGNATURE_AT:-_USUAL_SIGNATURE_BYTES] == _SIGNATURE_HEAD:
        header = _header_before(entry[:-_COMMITMENT_AT])
        if header is not None:
            return header, entry[-_COMMITMENT_AT:-_SIGNATURE_AT], entry[-_USUAL_SIGNATURE_BYTES:]
    protected, payload_hash, signature = _split(entry)
    return _decode_header(protected), payload_hash, signature


@lru_cache(maxsize=64)
def _header_before(beginning: bytes) -> _Header | None:
    """The header of all entries that begin so, and go on with a commitment and a signature of the usual length alone.

    Entries of a store share it, so what they begin with is read once. None if there are no such entries.
    """
    try:
        usual = beginning + bytes(HASH_BYTES) + _SIGNATURE_HEAD + bytes(_USUAL_SIGNATURE_BYTES)
        protected, _, signature = _split(usual)
        return _decode_header(protected) if len(signature) == _USUAL_SIGNATURE_BYTES else None
    except MalformedError:
        return None


def _split(entry: bytes) -> tuple[bytes, bytes, bytes]:
    """Protected bytes, commitment and signature of an entry of our shape."""
    if len(entry) > MAX_ENTRY_BYTES:
        raise MalformedError(f"statement: expected at most {MAX_ENTRY_BYTES} bytes")
    if entry[:2] != b"\xd2\x84":
        raise MalformedError("statement: expected a COSE_Sign1 under tag 18")
    protected, at = _byte_string(entry, 2)
    if entry[at : at + 3] != b"\xa0\x58\x20":
        raise MalformedError("statement: expected no unprotected headers and a payload of 32 bytes")
    end = at + 3 + HASH_BYTES
    signature, stop = _byte_string(entry, end)
    if stop != len(entry) or not signature:
        raise MalformedError("statement: expected a signature and nothing after it")
    return protected, entry[at + 3 : end], signature


def _byte_string(data: bytes, at: int) -> tuple[bytes, int]:
    """The byte string at `at` and the offset behind it, in its shortest form."""
    head = data[at : at + 3]
    if len(head) == 3 and head[0] == 0x58 and head[1] >= 24:
        start, size = at + 2, head[1]
    elif len(head) == 3 and head[0] == 0x59 and head[1] > 0:
        start, size = at + 3, head[1] << 8 | head[2]
    else:
        raise MalformedError("statement: expected a byte string of 24 to 65535 bytes in its shortest form")
    if start + size > len(data):
        raise MalformedError("statement: the data ends inside a byte string")
    return data[start : start + size], start + size


@lru_cache(maxsize=64)
def _decode_header(protected: bytes) -> _Header:
    """The one header that encodes to `protected`; entries of a store share it, so it is decoded once."""
    headers = cbor.decode(protected, max_bytes=MAX_ENTRY_BYTES)
    if not isinstance(headers, dict) or headers.keys() != _PROTECTED_LABELS:
        raise MalformedError("statement: expected alg, kid, claims, typ and payload hash alg only")
    if headers[TYP_LABEL] != TYP or headers[PAYLOAD_HASH_ALG] != SHA_256:
        raise MalformedError("statement: expected the type of a statement and SHA-256")
    claims = headers[CWT_CLAIMS]
    if not isinstance(claims, dict) or claims.keys() != {CWT_ISS, CWT_SUB}:
        raise MalformedError("statement: expected the claims iss and sub, and no others")
    kid, algorithm = headers[KID], headers[ALG]
    if not isinstance(kid, bytes) or not kid or type(algorithm) is not int:
        raise MalformedError("statement: expected kid as a byte string and alg as an integer")
    issuer, subject = require_name(claims[CWT_ISS]), require_name(claims[CWT_SUB])
    return _Header(algorithm, kid, issuer, subject, _signed_prefix(protected))


def parse_signed_statement(data: bytes) -> SignedStatement:
    """Any SCITT signed statement in `data`; its signature is not checked."""
    message = decode_sign1(data, understood=_PROTECTED_ONLY)
    if _PROTECTED_ONLY & message.unprotected.keys():
        raise MalformedError("signed statement: a label that must be protected is not")
    issuer, subject, kid = issuer_headers(message.headers)
    return SignedStatement(issuer, subject, kid, _hash_envelope(message), message)


def issuer_headers(headers: Headers) -> tuple[str, str, bytes]:
    """iss, sub and kid from the protected headers of a statement or receipt (RFC 9943, 6)."""
    claims, kid = headers.get(CWT_CLAIMS), headers.get(KID)
    if not isinstance(claims, dict):
        raise MalformedError("COSE: expected CWT claims in the protected headers")
    if not isinstance(kid, bytes) or not kid:
        # Certificate chains (x5t, x5chain) are not supported, so kid is what finds the key.
        raise MalformedError("COSE: expected a kid in the protected headers")
    return require_name(claims.get(CWT_ISS)), require_name(claims.get(CWT_SUB)), kid


def _hash_envelope(message: Sign1) -> int | None:
    """The payload hash algorithm (RFC 9995, 4), None where the payload is not a hash."""
    headers = message.headers
    if PAYLOAD_HASH_ALG not in headers:
        if headers.keys() & {PREIMAGE_CONTENT_TYPE, PAYLOAD_LOCATION}:
            raise MalformedError("signed statement: a preimage is described, but there is no hash alg")
        return None
    algorithm = headers[PAYLOAD_HASH_ALG]
    if type(algorithm) is not int or algorithm not in _DIGEST_BYTES:
        raise MalformedError("signed statement: expected SHA-256, SHA-384 or SHA-512 as payload hash alg")
    if CONTENT_TYPE in headers or CONTENT_TYPE in message.unprotected:
        raise MalformedError("signed statement: a hash envelope has no content type of its own")
    if message.payload is not None and len(message.payload) != _DIGEST_BYTES[algorithm]:
        raise MalformedError("signed statement: the payload is not as long as its hash algorithm makes it")
    return algorithm


def verify_signed_statement(
    data: bytes, key: CoseKey, detached_payload: bytes | None = None
) -> SignedStatement:
    """Any SCITT signed statement in `data`, signed by `key`."""
    statement = parse_signed_statement(data)
    require_kid(statement.kid, key)
    verify_sign1(statement.message, key, detached_payload)
    return statement


def entry_of(signed_statement: bytes) -> bytes:
    """The entry that a log registers for a signed statement: the same, its unprotected headers removed.

    RFC 9943, 6.3: unprotected headers are cleared before inclusion, so what is logged is what was signed.
    """
    message = parse_signed_statement(signed_statement).message
    if message.payload is None:
        raise MalformedError("signed statement: expected its payload attached", code="payload_missing")
    entry = encode_sign1(message.protected, {}, message.payload, message.signature)
    if len(entry) > MAX_ENTRY_BYTES:
        raise MalformedError(f"signed statement: expected an entry of at most {MAX_ENTRY_BYTES} bytes")
    return entry


def identity(issuer: str, payload_hash: bytes) -> bytes:
    """The 32 bytes that a statement of ours is known by: SHA-256 over dCBOR([issuer, C])."""
    return hashlib.sha256(_identity_prefix(issuer) + cbor.byte_string(payload_hash)).digest()


@lru_cache(maxsize=64)
def _identity_prefix(issuer: str) -> bytes:
    return cbor.head(4, 2) + cbor.encode(issuer)


def entry_identity(entry: bytes) -> bytes:
    """The 32 bytes by which a log knows that it has an entry already.

    A statement of our shape is known by its issuer and commitment. Of any other all that was signed counts,
    so that two statements which differ in any header stay two; only a second signature changes nothing.
    """
    try:
        header, payload_hash, _ = _read(entry)
    except MalformedError:
        message = parse_signed_statement(entry).message
        return hashlib.sha256(cbor.encode([message.protected, message.payload])).digest()
    return identity(header.issuer, payload_hash)
