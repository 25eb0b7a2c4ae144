"""Numbers and bytes as the C2SP formats write them: one spelling each, everything else refused.

Two spellings of one value are two byte strings that a signature, a cache or a witness may tell apart, so
`+7`, `007`, `1_000`, Arabic digits and base64 with stray trailing bits are errors here, though Python's own
`int` and `b64decode` take them all.
"""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from tlog.errors import MalformedError

MAX_SIZE = 2**63 - 1  # what every implementation can hold; the largest timestamp too
HASH_BYTES = 32

_DECIMAL = re.compile("0|[1-9][0-9]{0,18}")  # classes spelled out: \d takes every script's digits


def parse_decimal(text: str, what: str) -> int:
    """The number written in canonical ASCII decimal, 0 to 2^63-1; `what` names it in the error."""
    if not _DECIMAL.fullmatch(text) or int(text) > MAX_SIZE:
        raise MalformedError(f"{what}: expected a decimal number from 0 to 2^63-1 without leading zeros")
    return int(text)


def decode_base64(text: str, what: str) -> bytes:
    """The bytes of a canonical standard base64 string (RFC 4648, section 4, padded, trailing bits zero)."""
    try:
        data = a2b_base64(text, strict_mode=True)
    except (Base64Error, ValueError):  # ValueError: not ASCII
        raise MalformedError(f"{what}: expected standard base64") from None
    if encode_base64(data) != text:  # strict_mode lets unused trailing bits and a lone padding through
        raise MalformedError(f"{what}: expected canonical base64")
    return data


def encode_base64(data: bytes) -> str:
    """The canonical standard base64 of `data`."""
    return b2a_base64(data, newline=False).decode("ascii")


def decode_hash(text: str, what: str) -> bytes:
    """The 32 bytes of a canonically base64-encoded SHA-256 hash."""
    data = decode_base64(text, what)
    if len(data) != HASH_BYTES:
        raise MalformedError(f"{what}: expected the base64 of {HASH_BYTES} bytes")
    return data
