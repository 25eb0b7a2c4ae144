"""C2SP tlog-cosignature: what a witness signs about a checkpoint, and how its line is verified.

An Ed25519 cosignature (0x04) says that of all heads of this log the witness has seen, this was the largest at
that time, and that all are consistent. It covers the note's text, not the witness's name, so a witness key
must have one name only. An ML-DSA-44 cosignature (0x06) covers name, origin, size and root, not the extension
lines; with time 0 it says that the head is consistent, not that it is the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tlog.ascii import HASH_BYTES, MAX_SIZE
from tlog.checkpoint import parse_checkpoint
from tlog.errors import MalformedError, VerificationError
from tlog.note import (
    SignatureLine,
    SignatureType,
    VerifierKey,
    require_text,
    verify_signature,
    verify_text,
)

TIMESTAMP_BYTES = 8
MAX_CLOCK_SKEW_SECONDS = 300  # how far the clocks of a witness and of whoever reads its times may be apart
SIGNATURE_BYTES: dict[int, int] = {SignatureType.COSIGNATURE_ED25519: 64, SignatureType.MLDSA44: 2420}

_SUBTREE_LABEL = b"subtree/v1\n\0"


@dataclass(frozen=True)
class Cosignature:
    """A witness's line that holds, and the time in seconds at which it says it was made."""

    key: VerifierKey
    timestamp: int
    line: SignatureLine


class Cosigner(Protocol):
    """Cosigns checkpoints as one key of type 0x04 or 0x06."""

    @property
    def verifier_key(self) -> VerifierKey: ...

    def cosign(self, text: str, timestamp: int) -> SignatureLine: ...


def cosigned_message_ed25519(timestamp: int, note_text: str) -> bytes:
    """The bytes a 0x04 cosignature signs. tlog-cosignature, Ed25519 signed message."""
    _require_timestamp(timestamp)
    require_text(note_text)
    return f"cosignature/v1\ntime {timestamp}\n{note_text}".encode()


def cosigned_message_mldsa44(
    name: str, timestamp: int, origin: str, start: int, end: int, root: bytes
) -> bytes:
    """The bytes a 0x06 cosignature signs. tlog-cosignature, ML-DSA-44 signed message.

    A checkpoint is the subtree from 0 to its size.
    """
    _require_timestamp(timestamp)
    if not 0 <= start <= end <= MAX_SIZE or len(root) != HASH_BYTES:
        raise MalformedError("cosigned subtree: expected start, end and a hash of 32 bytes")
    if start and timestamp:
        raise MalformedError("cosigned subtree: expected time 0 for a subtree that does not start at 0")
    return b"".join(
        (
            _SUBTREE_LABEL,
            _length_prefixed(name),
            timestamp.to_bytes(8),
            _length_prefixed(origin),
            start.to_bytes(8),
            end.to_bytes(8),
            root,
        )
    )


def cosigned_message(key: VerifierKey, timestamp: int, checkpoint_text: str) -> bytes:
    """The bytes that a cosigner with this key signs for a checkpoint; what a Cosigner is made of."""
    checkpoint = parse_checkpoint(checkpoint_text)
    if key.kind == SignatureType.COSIGNATURE_ED25519:
        return cosigned_message_ed25519(timestamp, checkpoint_text)
    if key.kind == SignatureType.MLDSA44:
        return cosigned_message_mldsa44(
            key.name, timestamp, checkpoint.origin, 0, checkpoint.size, checkpoint.root
        )
    raise MalformedError("cosigner: expected a key of type 4 (Ed25519) or 6 (ML-DSA-44)")


def make_cosignature_line(key: VerifierKey, timestamp: int, signature: bytes) -> SignatureLine:
    """The line of a cosigner's bare signature. tlog-cosignature, Format."""
    _require_timestamp(timestamp)
    if len(signature) != SIGNATURE_BYTES.get(key.kind):
        raise MalformedError("cosigner: expected a signature of the length that the key's type has")
    return SignatureLine(key.name, key.key_id, timestamp.to_bytes(TIMESTAMP_BYTES) + signature)


def verify_cosignature(key: VerifierKey, line: SignatureLine, note_text: str) -> Cosignature:
    """The cosignature of the checkpoint `note_text` by a witness.

    Raises VerificationError with code `cosignature` if it does not hold, or claims the time 0, with which a
    witness would not say that it knows of no larger head.
    """
    cosignature = _verify(key, line, note_text)
    if cosignature.timestamp == 0:
        raise VerificationError("cosignature: expected a time after 0", code="cosignature")
    return cosignature


def verify_log_line(key: VerifierKey, line: SignatureLine, note_text: str) -> None:
    """Returns if the line is a log's own signature of its checkpoint, of type 0x01 or 0x06.

    A log's 0x06 line may have time 0: that no larger head exists is for witnesses to say.
    """
    if key.kind == SignatureType.MLDSA44:
        _verify(key, line, note_text)
    else:
        verify_text(key, line, note_text)


def _verify(key: VerifierKey, line: SignatureLine, note_text: str) -> Cosignature:
    if (line.name, line.key_id) != (key.name, key.key_id):
        raise VerificationError("cosignature: is by another key", code="cosignature")
    timestamp, signature = _split(key, line)
    message = cosigned_message(key, timestamp, note_text)
    try:
        verify_signature(key, signature, message)
    except VerificationError as error:
        raise VerificationError(error.message, code="cosignature") from None
    return Cosignature(key, timestamp, line)


def _split(key: VerifierKey, line: SignatureLine) -> tuple[int, bytes]:
    length = SIGNATURE_BYTES.get(key.kind)
    if length is None or len(line.signature) != TIMESTAMP_BYTES + length:
        raise VerificationError(
            "cosignature: expected a time of 8 bytes and one signature", code="cosignature"
        )
    timestamp = int.from_bytes(line.signature[:TIMESTAMP_BYTES])
    if timestamp > MAX_SIZE:
        raise VerificationError("cosignature: expected a time up to 2^63-1", code="cosignature")
    return timestamp, line.signature[TIMESTAMP_BYTES:]


def _require_timestamp(timestamp: int) -> None:
    if not 0 <= timestamp <= MAX_SIZE:
        raise MalformedError("cosignature: expected a time from 0 to 2^63-1 seconds")


def _length_prefixed(name: str) -> bytes:
    data = name.encode()
    if not 1 <= len(data) <= 255:
        raise MalformedError("cosigned name or origin: expected 1 to 255 bytes")
    return bytes((len(data),)) + data
