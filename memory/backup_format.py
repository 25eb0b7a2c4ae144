"""The bytes of a backup: frames that are read back strictly, signed as a whole, secrets encrypted one by one.

    "muniment-backup/1\\n"  then frames: 4 bytes of length, deterministic CBOR: [name, field, …]
    the last frame is ["end", COSE_Sign1 over the SHA-256 of all bytes before it]

A secret is nonce ‖ AES-256-GCM ciphertext under the key of its place, with space, place and backup as associated
data, so that none can be put in another's place or into another backup.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import IO, Any, Final

from tlog import cbor
from tlog.cose import (
    ALG,
    KID,
    CoseKey,
    CoseSigner,
    decode_sign1,
    encode_sign1,
    sig_structure,
    verify_sign1,
)
from tlog.cose import TYP as TYP_LABEL
from tlog.errors import MalformedError, VerificationError

MAGIC: Final = b"muniment-backup/1\n"
TYP: Final = "application/vnd.muniment.backup+cose"
MAX_FRAME_BYTES: Final = 80 << 20
_NONCE_BYTES: Final = 12
_END: Final = "end"


class Writer:
    """Writes frames to a file and knows the digest of all of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._put(MAGIC)

    def frame(self, *fields: Any) -> None:
        """Adds one frame."""
        data = cbor.encode(list(fields))
        self._put(len(data).to_bytes(4, "big") + data)

    def end(self, signer: CoseSigner) -> None:
        """Adds the signature over all frames; nothing comes after it."""
        digest = self._digest.digest()
        protected = cbor.encode({ALG: signer.algorithm, KID: signer.kid, TYP_LABEL: TYP})
        signed = encode_sign1(protected, {}, digest, signer.sign(sig_structure(protected, digest)))
        self.frame(_END, signed)

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


def read_frames(file: IO[bytes]) -> Iterator[list[Any]]:
    """The frames of a file up to its end frame; MalformedError where it is none or is cut short.

    Nothing is proved by this: `verify_file` comes first.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise MalformedError("expected a backup")
    while True:
        frame = _next(file)
        if frame[0] == _END:
            return
        yield frame


def verify_file(file: IO[bytes], key_of: Any) -> None:
    """Returns if the file is a whole backup, signed by the key that `key_of` gives for its kid."""
    digest = hashlib.sha256()
    if file.read(len(MAGIC)) != MAGIC:
        raise MalformedError("expected a backup")
    digest.update(MAGIC)
    while True:
        frame, raw = _next_raw(file)
        if frame[0] == _END:
            break
        digest.update(raw)
    if file.read(1) or len(frame) != 2 or not isinstance(frame[1], bytes):
        raise MalformedError("expected a backup to end with its signature")
    message = decode_sign1(frame[1], max_bytes=4096)
    kid = message.headers.get(KID)
    if message.headers.get(TYP_LABEL) != TYP or not isinstance(kid, bytes) or message.payload is None:
        raise MalformedError("expected the signature of a backup")
    key: CoseKey = key_of(kid)
    verify_sign1(message, key)
    if message.payload != digest.digest():
        raise VerificationError(
            "the backup is not what was signed: it was changed or is damaged", code="backup"
        )


def encrypt(key: bytes, backup: bytes, space: str, number: int, secret: object) -> bytes:
    """The secret of a place, for one backup."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, cbor.encode(secret), _context(backup, space, number))


def decrypt(key: bytes, backup: bytes, space: str, number: int, data: bytes) -> Any:
    """What was encrypted; VerificationError if it was not for this key, place and backup."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        plain = AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _context(backup, space, number))
    except InvalidTag:
        raise VerificationError("a record of the backup does not open with its key", code="backup") from None
    return cbor.decode(plain, max_bytes=MAX_FRAME_BYTES)


def _context(backup: bytes, space: str, number: int) -> bytes:
    return cbor.encode(["muniment-backup", backup, space, number])


def _next(file: IO[bytes]) -> list[Any]:
    return _next_raw(file)[0]


def _next_raw(file: IO[bytes]) -> tuple[list[Any], bytes]:
    head = file.read(4)
    size = int.from_bytes(head, "big")
    if len(head) != 4 or not 0 < size <= MAX_FRAME_BYTES:
        raise MalformedError("expected another frame: the backup is cut short or damaged")
    data = file.read(size)
    if len(data) != size:
        raise MalformedError("expected a whole frame: the backup is cut short")
    frame = cbor.decode(data, max_bytes=MAX_FRAME_BYTES)
    if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
        raise MalformedError("expected a frame of a backup")
    return frame, head + data
