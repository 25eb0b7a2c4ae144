"""Contents as the database may have them: sealed under a random key each, so that to destroy that is to erase them.

    home (keys/seal.key) → tenant → subject → record → content, salt        each wraps the next, AES-256-GCM

A record without a subject hangs on its tenant. What wraps what is bound to its place: a box that is moved to another
row, or another tenant, does not open. The database has none of the keys in the clear.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tlog.errors import VerificationError

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def new_key() -> bytes:
    """A fresh key."""
    return os.urandom(KEY_BYTES)


def seal(key: bytes, data: bytes, place: bytes) -> bytes:
    """The data in a box that opens under this key and in this place alone."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, place)


def unseal(key: bytes, box: bytes, place: bytes) -> bytes:
    """What is in the box; VerificationError if it is of another key or place, or was changed."""
    try:
        return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], place)
    except (InvalidTag, ValueError):
        raise VerificationError(
            "a record of the store does not open under its key: it was changed, or the key is another",
            code="store_damaged",
        ) from None


def place_of(use: str, *numbers: int | bytes) -> bytes:
    """The place of a box: what it holds, and the row that it stands in."""
    parts = [one if isinstance(one, bytes) else one.to_bytes(8, "big") for one in numbers]
    return b"\0".join([use.encode("ascii"), *parts])
