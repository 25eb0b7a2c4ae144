"""C2SP signed-note: a text, signed by one or more named keys.

A text is worth nothing until `open_note` has found a known key's signature over it. Which key signed is told
by name and key id together; a line of an unknown key says nothing and is passed over, a line of a known key
has to hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Protocol

from tlog.ascii import decode_base64, encode_base64
from tlog.errors import MalformedError, VerificationError

MAX_NOTE_BYTES = 1 << 20
MAX_SIGNATURES = 100
MAX_NAME_BYTES = 255
KEY_ID_BYTES = 4


class SignatureType(IntEnum):
    """What a key signs, and how; the byte before the public key in a vkey. signed-note, Signature types."""

    ED25519 = 0x01
    ECDSA = 0x02
    COSIGNATURE_ED25519 = 0x04
    RFC6962_TREE_HEAD = 0x05
    MLDSA44 = 0x06


PUBLIC_KEY_BYTES: dict[int, int] = {
    SignatureType.ED25519: 32,
    SignatureType.COSIGNATURE_ED25519: 32,
    SignatureType.MLDSA44: 1312,
}
"""The types that are verified here and have public keys of one length; ECDSA keys are DER."""
_MAX_ECDSA_KEY_BYTES = 128

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f]")
_SIGNATURE_START = "\N{EM DASH} "

_P = 2**255 - 19
# The y coordinates of the eight points of small order: of order 4, 1, 2 and (the last two) 8.
_Y8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER_Y = frozenset((0, 1, _P - 1, _Y8, _P - _Y8))


# Keys


@dataclass(frozen=True)
class VerifierKey:
    """A named public key of one signature type. signed-note, Verifier keys."""

    name: str
    key_id: bytes
    kind: int
    public_key: bytes

    def __post_init__(self) -> None:
        require_name(self.name, "key name")
        _require_public_key(self.kind, self.public_key)
        if self.key_id != make_key_id(self.name, self.kind, self.public_key):
            raise MalformedError("vkey: the key id is not that of this name and key")

    @property
    def vkey(self) -> str:
        """The key as text."""
        return f"{self.name}+{self.key_id.hex()}+{encode_base64(bytes((self.kind,)) + self.public_key)}"


def make_verifier_key(name: str, kind: int, public_key: bytes) -> VerifierKey:
    """The verifier key with the key id that belongs to it."""
    require_name(name, "key name")
    return VerifierKey(name, make_key_id(name, kind, public_key), kind, public_key)


def parse_vkey(text: str) -> VerifierKey:
    """The verifier key written as a vkey, of a type that is verified here."""
    name, _, rest = text.partition("+")
    key_id, _, encoded = rest.partition("+")  # base64 has plus signs of its own
    if not re.fullmatch("[0-9a-f]{8}", key_id):
        raise MalformedError("vkey: expected NAME+8 lowercase hex digits+BASE64")
    key = decode_base64(encoded, "vkey")
    return VerifierKey(name, bytes.fromhex(key_id), key[0] if key else 0, key[1:])


def require_name(name: str, what: str) -> None:
    """Returns if `name` can be a key's name: up to 255 bytes, no space of any kind, no plus."""
    # str.split() without argument cuts at every Unicode space, and at U+001C to U+001F besides.
    if name.split() != [name] or "+" in name or _CONTROL.search(name):
        raise MalformedError(f"{what}: expected a name without spaces, control characters and plus")
    if _utf8_length(name, what) > MAX_NAME_BYTES:
        raise MalformedError(f"{what}: expected at most {MAX_NAME_BYTES} bytes")


def make_key_id(name: str, kind: int, public_key: bytes) -> bytes:
    """The four bytes that stand for the key in signature lines; of an ECDSA key they follow from the key alone."""
    if kind == SignatureType.ECDSA:
        return sha256(public_key).digest()[:KEY_ID_BYTES]
    return sha256(b"%s\n%c%s" % (name.encode(), kind, public_key)).digest()[:KEY_ID_BYTES]


def _require_public_key(kind: int, public_key: bytes) -> None:
    if kind == SignatureType.ECDSA:
        _require_p256_key(public_key)
        return
    length = PUBLIC_KEY_BYTES.get(kind)
    if length is None:
        raise MalformedError(
            "vkey: expected key type 1 (Ed25519), 2 (ECDSA), 4 (cosignature) or 6 (ML-DSA-44)"
        )
    if len(public_key) != length:
        raise MalformedError(f"vkey: expected a public key of {length} bytes")
    if length == 32:
        require_ed25519_point(public_key)


def _require_p256_key(public_key: bytes) -> None:
    """Returns if the bytes are the one DER form of a SubjectPublicKeyInfo with a point of P-256."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

    what = "ECDSA public key: expected a P-256 key as DER (SubjectPublicKeyInfo)"
    if len(public_key) > _MAX_ECDSA_KEY_BYTES:
        raise MalformedError(what)
    try:
        key = load_der_public_key(public_key)
    except (ValueError, UnsupportedAlgorithm):
        raise MalformedError(what) from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise MalformedError(what)
    if key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != public_key:
        raise MalformedError(what)


def require_ed25519_point(public_key: bytes) -> None:
    """Returns unless the key is a point of small order, or is not in its one canonical spelling.

    With a key of small order one signature verifies for many texts (for a quarter of them, or for all), and
    OpenSSL accepts such keys.
    """
    y = int.from_bytes(public_key, "little") & (2**255 - 1)
    if y >= _P or y in _SMALL_ORDER_Y:
        raise MalformedError("Ed25519 public key: expected a canonical point that is not of small order")


# Notes


@dataclass(frozen=True)
class SignatureLine:
    """One signature of a note; `signature` is what follows the key id."""

    name: str
    key_id: bytes
    signature: bytes

    def __post_init__(self) -> None:
        require_name(self.name, "signature line")
        if len(self.key_id) != KEY_ID_BYTES or not self.signature:
            raise MalformedError("signature line: expected a key id of 4 bytes and a signature")

    @property
    def line(self) -> str:
        """The line as it stands in a note, with its newline."""
        return f"{_SIGNATURE_START}{self.name} {encode_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True)
class Note:
    """A text, its final newline included, and the signature lines below it. Nothing of it is verified."""

    text: str
    signatures: tuple[SignatureLine, ...]

    def __post_init__(self) -> None:
        require_text(self.text)
        if not 1 <= len(self.signatures) <= MAX_SIGNATURES:
            raise MalformedError(f"note: expected 1 to {MAX_SIGNATURES} signatures")


@dataclass(frozen=True)
class VerifiedLine:
    """A signature line that holds, and the known key that made it."""

    key: VerifierKey
    line: SignatureLine


class NoteSigner(Protocol):
    """Signs texts as one key of type 0x01."""

    @property
    def verifier_key(self) -> VerifierKey: ...

    def sign(self, text: str) -> SignatureLine: ...


def require_text(text: str) -> None:
    """Returns if `text` can be a note's text: it ends in a newline and has no other control character."""
    if not text.endswith("\n") or _CONTROL.search(text):
        raise MalformedError("note text: expected a final newline and no other control character")
    _utf8_length(text, "note text")


def parse_note(data: bytes) -> Note:
    """The note in `data`, nothing of it verified. signed-note, Format."""
    if len(data) > MAX_NOTE_BYTES:
        raise MalformedError(f"note: expected at most {MAX_NOTE_BYTES} bytes", code="too_large")
    try:
        whole = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError("note: expected UTF-8") from None
    text, separator, signatures = whole.rpartition("\n\n")
    if not separator:
        raise MalformedError("note: expected a text, an empty line and signatures")
    return Note(text + "\n", parse_signature_lines(signatures))


def parse_signature_lines(text: str) -> tuple[SignatureLine, ...]:
    """The signature lines of a note, or of a witness's answer: at least one, and nothing else."""
    *lines, rest = text.split("\n")
    if rest or not 1 <= len(lines) <= MAX_SIGNATURES:
        raise MalformedError(f"signatures: expected 1 to {MAX_SIGNATURES} lines, each ended by a newline")
    return tuple(_parse_signature_line(line) for line in lines)


def _parse_signature_line(line: str) -> SignatureLine:
    name, separator, encoded = line.removeprefix(_SIGNATURE_START).partition(" ")
    if not line.startswith(_SIGNATURE_START) or not separator:
        raise MalformedError("signature line: expected an em dash, a name and base64, a space between each")
    signature = decode_base64(encoded, "signature line")
    return SignatureLine(name, signature[:KEY_ID_BYTES], signature[KEY_ID_BYTES:])


def format_note(note: Note) -> bytes:
    """The bytes of a note, which `parse_note` reads back."""
    data = f"{note.text}\n{''.join(line.line for line in note.signatures)}".encode()
    if len(data) > MAX_NOTE_BYTES:
        raise MalformedError(f"note: expected at most {MAX_NOTE_BYTES} bytes", code="too_large")
    return data


def sign_note(text: str, signers: Iterable[NoteSigner]) -> Note:
    """The note of `text`, signed by each signer."""
    require_text(text)
    return Note(text, tuple(signer.sign(text) for signer in signers))


def add_signatures(note: Note, lines: Iterable[SignatureLine]) -> Note:
    """The note with more lines below, in place of earlier lines of the same keys.

    A note with two lines of one key is refused by strict readers, so none is ever made.
    """
    added = {(line.name, line.key_id): line for line in lines}
    kept = tuple(line for line in note.signatures if (line.name, line.key_id) not in added)
    return Note(note.text, kept + tuple(added.values()))


def open_note(note: Note, keys: Iterable[VerifierKey]) -> tuple[VerifiedLine, ...]:
    """The lines of `keys` over the note's text, at least one. signed-note, Signatures.

    Only keys of the types 0x01 and 0x02 sign a text as such; cosignatures are verified by `tlog.cosignature`. Raises
    VerificationError if no line is of a known key, and if any line of a known key fails or comes twice.
    """
    lines = known_lines(note, keys)
    for line in lines:
        verify_text(line.key, line.line, note.text)
    if not lines:
        raise VerificationError("note: no signature by a known key", code="note_signature")
    return lines


def known_lines(note: Note, keys: Iterable[VerifierKey]) -> tuple[VerifiedLine, ...]:
    """The lines that name one of `keys`, each still to be verified by whoever calls.

    Raises VerificationError if one key has two lines: which of the two counts would be each reader's choice.
    """
    known: dict[tuple[str, bytes], VerifierKey] = {}
    for key in keys:
        if known.setdefault((key.name, key.key_id), key) != key:
            raise MalformedError("keys: two different keys share a name and a key id")
    lines: dict[tuple[str, bytes], VerifiedLine] = {}
    for line in note.signatures:
        identity = (line.name, line.key_id)
        if identity in lines:
            raise VerificationError("note: two signatures by one known key", code="note_signature")
        if identity in known:
            lines[identity] = VerifiedLine(known[identity], line)
    return tuple(lines.values())


def verify_text(key: VerifierKey, line: SignatureLine, text: str) -> None:
    """Returns if the line is the signature of a 0x01 or 0x02 key over `text`. signed-note, Signature types."""
    if (line.name, line.key_id) != (key.name, key.key_id):
        raise VerificationError("note: a signature by another key", code="note_signature")
    if key.kind not in (SignatureType.ED25519, SignatureType.ECDSA):
        raise VerificationError("note: expected a key that signs texts (type 1 or 2)", code="note_signature")
    verify_signature(key, line.signature, text.encode())


def verify_signature(key: VerifierKey, signature: bytes, message: bytes) -> None:
    """Returns if `signature` is the key's over exactly these bytes; raises VerificationError otherwise."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    others: dict[int, Callable[[bytes], Callable[[bytes, bytes], None]]]
    others = {SignatureType.MLDSA44: _mldsa44, SignatureType.ECDSA: _p256}
    verify = others.get(key.kind, _ed25519)
    try:
        verify(key.public_key)(signature, message)
    except InvalidSignature:
        raise VerificationError(
            "note: a known key's signature does not hold", code="note_signature"
        ) from None
    except UnsupportedAlgorithm:
        raise VerificationError("note: this machine's OpenSSL has no ML-DSA", code="note_signature") from None


def _ed25519(public_key: bytes) -> Callable[[bytes, bytes], None]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public_key).verify


def _p256(public_key: bytes) -> Callable[[bytes, bytes], None]:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    key = load_der_public_key(public_key)
    assert isinstance(key, EllipticCurvePublicKey)  # checked when the verifier key was made
    return lambda signature, message: key.verify(signature, message, ECDSA(SHA256()))


def _mldsa44(public_key: bytes) -> Callable[[bytes, bytes], None]:
    from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

    return MLDSA44PublicKey.from_public_bytes(public_key).verify


def _utf8_length(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise MalformedError(f"{what}: expected text that UTF-8 can hold") from None
