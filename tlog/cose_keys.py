"""COSE keys, the algorithms they sign with, and their thumbprints.

The allow-list of algorithms is short and each is bound to one key type (RFC 9053, 2; RFC 9864; RFC 9964): a
header can never choose how a key is used. A key is known by its `key_id`: its RFC 9679 thumbprint, unless a
foreign key came with another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, utils

from tlog import cbor
from tlog.errors import MalformedError, VerificationError
from tlog.note import require_ed25519_point

# Algorithms (IANA COSE Algorithms).
EDDSA: Final = -8
ED25519: Final = -19
ES256: Final = -7
ESP256: Final = -9
ML_DSA_44: Final = -48

# Key types and curves (RFC 9053, 7; RFC 9964).
KTY_OKP: Final = 1
KTY_EC2: Final = 2
KTY_AKP: Final = 7
CRV_P256: Final = 1
CRV_ED25519: Final = 6

SIGNATURE_BYTES: Final[Mapping[int, int]] = {EDDSA: 64, ED25519: 64, ES256: 64, ESP256: 64, ML_DSA_44: 2420}
_KEY_TYPE: Final[Mapping[int, int]] = {
    EDDSA: KTY_OKP,
    ED25519: KTY_OKP,
    ES256: KTY_EC2,
    ESP256: KTY_EC2,
    ML_DSA_44: KTY_AKP,
}
_DEFAULT_ALGORITHM: Final[Mapping[int, int]] = {KTY_OKP: EDDSA, KTY_EC2: ES256, KTY_AKP: ML_DSA_44}
_ML_DSA_44_PUBLIC_BYTES: Final = 1312
_MAX_KEY_BYTES: Final = 4096
_MAX_KEY_ID_BYTES: Final = 255

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | mldsa.MLDSA44PublicKey
PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | mldsa.MLDSA44PrivateKey


@dataclass(frozen=True)
class CoseKey:
    """A public key: OKP Ed25519 (`x`), EC2 P-256 (`x`, `y`) or AKP ML-DSA-44 (`x` holds `pub`).

    `alg`, where set, is the only algorithm the key may be used with. `kid` is set only where a foreign key is
    known by something else than its thumbprint. A point off its curve or of low order never becomes a key.
    """

    kty: int
    x: bytes
    y: bytes | None = None
    alg: int | None = None
    kid: bytes | None = None

    def __post_init__(self) -> None:
        if self.alg is not None and _KEY_TYPE.get(self.alg) != self.kty:
            raise MalformedError(f"COSE key: type {self.kty} cannot carry algorithm {self.alg}")
        if self.kid is not None and not 1 <= len(self.kid) <= _MAX_KEY_ID_BYTES:
            raise MalformedError(f"COSE key: expected a kid of 1 to {_MAX_KEY_ID_BYTES} bytes")
        if (self.y is not None) != (self.kty == KTY_EC2):
            raise MalformedError("COSE key: a y coordinate belongs to an EC2 key, and only to one")
        _ = self.public_key  # parsed at once, so that a key that exists is a key that works

    @cached_property
    def public_key(self) -> PublicKey:
        """The same key as an object of `cryptography`, parsed once."""
        try:
            return _load_public(self)
        except ValueError:
            raise MalformedError(f"COSE key: not a valid public key of type {self.kty}") from None

    @property
    def key_id(self) -> bytes:
        """What a `kid` header names this key by."""
        return self.kid if self.kid is not None else self.thumbprint()

    def thumbprint(self) -> bytes:
        """The 32-byte SHA-256 thumbprint over the required members only (RFC 9679, 3 and 4)."""
        return self._thumbprint

    @cached_property
    def _thumbprint(self) -> bytes:
        return hashlib.sha256(cbor.encode(self._required_members())).digest()

    def _required_members(self) -> dict[int, int | bytes]:
        if self.kty == KTY_OKP:
            return {1: KTY_OKP, -1: CRV_ED25519, -2: self.x}
        if self.kty == KTY_EC2:
            assert self.y is not None
            return {1: KTY_EC2, -1: CRV_P256, -2: self.x, -3: self.y}
        return {1: KTY_AKP, 3: ML_DSA_44, -1: self.x}

    def encode(self) -> bytes:
        """The deterministic COSE_Key of this key, `kid` included (RFC 9052, 7)."""
        return cbor.encode(self.members())

    def members(self) -> dict[int, int | bytes]:
        """The members of the COSE_Key, for a key set."""
        members = self._required_members() | {2: self.key_id}
        return members if self.alg is None else members | {3: self.alg}


def _load_public(key: CoseKey) -> PublicKey:
    if key.kty == KTY_OKP:
        public_key = ed25519.Ed25519PublicKey.from_public_bytes(key.x)
        require_ed25519_point(key.x)
        return public_key
    if key.kty == KTY_EC2 and key.y is not None and len(key.x) == len(key.y) == 32:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + key.x + key.y)
    if key.kty == KTY_AKP and len(key.x) == _ML_DSA_44_PUBLIC_BYTES:
        return mldsa.MLDSA44PublicKey.from_public_bytes(key.x)
    raise ValueError


def decode_key(data: bytes) -> CoseKey:
    """The public key in one COSE_Key; private members are refused, unknown ones too."""
    members = cbor.decode(data, max_bytes=_MAX_KEY_BYTES, max_depth=2)
    if not isinstance(members, dict):
        raise MalformedError("COSE key: expected a map")
    return key_from_members(members)


def decode_key_set(data: bytes, *, max_keys: int = 256) -> tuple[CoseKey, ...]:
    """The keys of a COSE_KeySet, in its order."""
    keys = cbor.decode(data, max_bytes=max_keys * _MAX_KEY_BYTES, max_depth=3)
    if not isinstance(keys, list) or not 1 <= len(keys) <= max_keys:
        raise MalformedError(f"COSE key set: expected an array of 1 to {max_keys} keys")
    return tuple(key_from_members(members) for members in keys)


def key_from_members(members: cbor.Value) -> CoseKey:
    """The public key with these decoded COSE_Key members."""
    if not isinstance(members, dict):
        raise MalformedError("COSE key: expected a map")
    kty, kid, alg = members.get(1), members.get(2), members.get(3)
    if any(value is True for value in members.values()):
        # To Python, true equals 1: it would pass for a key type, a curve, and half of a point.
        raise MalformedError("COSE key: expected no booleans")
    if not isinstance(kid, bytes | None) or not isinstance(alg, int | None):
        raise MalformedError("COSE key: expected kid as a byte string and alg as an integer")
    if kty == KTY_AKP:
        x, y, expected = members.get(-1), None, {1, 3, -1}
    elif kty == KTY_OKP and members.get(-1) == CRV_ED25519:
        x, y, expected = members.get(-2), None, {1, -1, -2}
    elif kty == KTY_EC2 and members.get(-1) == CRV_P256:
        x, y, expected = members.get(-2), members.get(-3), {1, -1, -2, -3}
    else:
        raise MalformedError("COSE key: expected Ed25519, P-256 or ML-DSA-44")
    if not expected <= members.keys() <= expected | {2, 3}:
        raise MalformedError("COSE key: expected the public members of its type, kid and alg, and no others")
    if not isinstance(x, bytes) or not isinstance(y, bytes | None):
        raise MalformedError("COSE key: expected its public members as byte strings")
    assert isinstance(kty, int)
    key = CoseKey(kty, x, y, alg)
    return key if kid is None or kid == key.thumbprint() else CoseKey(kty, x, y, alg, kid)


def encode_key_set(keys: tuple[CoseKey, ...]) -> bytes:
    """The COSE_KeySet of these keys (RFC 9052, 7)."""
    return cbor.encode([key.members() for key in keys])


def from_public_key(public_key: object, algorithm: int | None = None) -> CoseKey:
    """The CoseKey of a `cryptography` public key, bound to `algorithm` where one is given."""
    if isinstance(public_key, ed25519.Ed25519PublicKey):
        return CoseKey(KTY_OKP, public_key.public_bytes_raw(), alg=algorithm)
    if isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(public_key.curve, ec.SECP256R1):
        point = public_key.public_numbers()
        return CoseKey(KTY_EC2, point.x.to_bytes(32, "big"), point.y.to_bytes(32, "big"), alg=algorithm)
    if isinstance(public_key, mldsa.MLDSA44PublicKey):
        return CoseKey(KTY_AKP, public_key.public_bytes_raw(), alg=algorithm or ML_DSA_44)
    raise MalformedError("COSE key: expected Ed25519, P-256 or ML-DSA-44")


class CoseSigner(Protocol):
    """Signs with one key and one algorithm; the key may live in a file, an agent or a KMS."""

    @property
    def key(self) -> CoseKey: ...

    @property
    def algorithm(self) -> int: ...

    @property
    def kid(self) -> bytes: ...

    def sign(self, to_be_signed: bytes) -> bytes:
        """The raw signature, as COSE carries it."""
        ...


@dataclass(frozen=True)
class PrivateKeySigner:
    """A CoseSigner over a private key in this process, loaded once."""

    key: CoseKey
    algorithm: int
    kid: bytes
    sign: Callable[[bytes], bytes]

    def __repr__(self) -> str:
        return f"PrivateKeySigner(kid={self.kid.hex()}, algorithm={self.algorithm})"


def make_signer(private_key: object, algorithm: int | None = None) -> PrivateKeySigner:
    """A signer over a `cryptography` private key; without `algorithm` -8, -7 or -48 by its type."""
    if not isinstance(
        private_key, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | mldsa.MLDSA44PrivateKey
    ):
        raise MalformedError("COSE key: expected an Ed25519, P-256 or ML-DSA-44 private key")
    kty = from_public_key(private_key.public_key()).kty
    chosen = algorithm if algorithm is not None else _DEFAULT_ALGORITHM[kty]
    key = from_public_key(private_key.public_key(), chosen)
    sign = (
        _ecdsa_sign(private_key) if isinstance(private_key, ec.EllipticCurvePrivateKey) else private_key.sign
    )
    return PrivateKeySigner(key, chosen, key.key_id, sign)


def _ecdsa_sign(private_key: ec.EllipticCurvePrivateKey) -> Callable[[bytes], bytes]:
    scheme = ec.ECDSA(hashes.SHA256())

    def sign(to_be_signed: bytes) -> bytes:
        r, s = utils.decode_dss_signature(private_key.sign(to_be_signed, scheme))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")  # RFC 9053, 2.1

    return sign


def sign_raw(signer: CoseSigner, to_be_signed: bytes) -> bytes:
    """The signature of a signer that may live elsewhere, once it has the length that COSE gives it.

    A KMS that answers with a DER signature would fill a log with entries that nobody can verify.
    """
    signature = signer.sign(to_be_signed)
    if len(signature) != SIGNATURE_BYTES.get(signer.algorithm):
        raise MalformedError(f"COSE signer: not a raw signature of algorithm {signer.algorithm}")
    return signature


def require_algorithm(key: CoseKey, algorithm: object) -> int:
    """`algorithm`, once it is one of ours and fits the type and the `alg` of `key`."""
    if type(algorithm) is not int or algorithm not in _KEY_TYPE:
        raise VerificationError("COSE: expected a protected alg of -7, -8, -9, -19 or -48", code="algorithm")
    if _KEY_TYPE[algorithm] != key.kty or key.alg not in (None, algorithm):
        raise VerificationError(f"COSE: algorithm {algorithm} does not belong to this key", code="algorithm")
    return algorithm


def verify_signature(key: CoseKey, algorithm: int, to_be_signed: bytes, signature: bytes) -> None:
    """Returns when `signature` holds; VerificationError otherwise. Call `require_algorithm` first."""
    if len(signature) != SIGNATURE_BYTES[algorithm]:
        raise VerificationError(f"COSE: expected a signature of {SIGNATURE_BYTES[algorithm]} bytes")
    public_key = key.public_key
    try:
        if isinstance(public_key, ec.EllipticCurvePublicKey):
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            public_key.verify(utils.encode_dss_signature(r, s), to_be_signed, ec.ECDSA(hashes.SHA256()))
        else:
            public_key.verify(signature, to_be_signed)
    except InvalidSignature:
        raise VerificationError("COSE: the signature does not verify", code="signature") from None
