"""The claim of a requester: a salt, shown once and kept nowhere, that leads to a hash in the manifest of an erasure.

    claim in the manifest = SHA-256(dCBOR(["claim", salt, request]))

Whoever has the salt shows that the manifest answers their request; without it, the hash says nothing about anybody.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from memory.vault import new_salt
from tlog import cbor
from tlog.errors import MalformedError, VerificationError

CLAIM_BYTES: Final = 32
_CLAIM: Final = re.compile(r"[0-9a-f]{64}")


def new_claim() -> bytes:
    """A fresh salt."""
    return new_salt()


def claim_hash(salt: bytes, request: bytes) -> bytes:
    """What a manifest holds of the claim on its request."""
    return hashlib.sha256(cbor.encode(["claim", salt, request])).digest()


def format_claim(salt: bytes) -> str:
    """The claim as people get it."""
    return salt.hex()


def parse_claim(text: object) -> bytes:
    """The salt in a claim."""
    if not isinstance(text, str) or not _CLAIM.fullmatch(text.strip()):
        raise MalformedError("expected a claim of 64 hexadecimal digits, as the erasure answered it")
    return bytes.fromhex(text.strip())


def verify_claim(salt: bytes, stated: object, request: object) -> None:
    """Returns if the claim is that of a manifest with this hash and request; VerificationError otherwise."""
    if not isinstance(stated, bytes) or not isinstance(request, bytes):
        raise VerificationError("this manifest has no claim on it", code="claim")
    if not hmac.compare_digest(claim_hash(salt, request), stated):
        raise VerificationError("the claim is not that of this manifest", code="claim")
