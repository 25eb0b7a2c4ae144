"""The link of a plain write in the one form that it has: put together from its parts, and read by its pattern.

Nearly every statement of a store is one: a write with an outcome for its only detail, which retires one other or none.
What is no such link is for `memory.event`, whose encoder and decoder make and take the same bytes of these, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tlog import cbor

TENANT_BYTES: Final = 16
COMMITMENT_BYTES: Final = 32
OUTCOMES: Final = ("stored", "superseded", "history")
_WORD: Final = 1 << 64
_HASH: Final = cbor.head(2, COMMITMENT_BYTES)
_SEQ: Final = cbor.encode("seq")
_ALONE: Final = cbor.head(5, 5) + _SEQ
_TENANT: Final = b"".join(
    (*map(cbor.encode, ("kind", "write", "tenant")), cbor.head(2, TENANT_BYTES)),
)
_OUTCOME: Final = cbor.encode("outcome")
_TENANT_SEQ: Final = cbor.encode("tenant_seq")
_TOLD: Final[Mapping[object, bytes]] = {word: _OUTCOME + cbor.encode(word) + _TENANT_SEQ for word in OUTCOMES}
_READ: Final[Mapping[bytes, str]] = {cbor.encode(word): word for word in OUTCOMES}


class Written(NamedTuple):
    """The parts of such a link."""

    seq: int
    tenant: bytes
    tenant_seq: int
    outcome: str
    retired: bytes | None


def encode(seq: object, tenant: object, tenant_seq: object, outcome: object) -> bytes | None:
    """The link of a write that retires nothing; None if these are not the parts of one."""
    told = _TOLD.get(outcome) if type(outcome) is str else None
    if told is None or type(tenant) is not bytes or len(tenant) != TENANT_BYTES:
        return None
    if type(seq) is not int or type(tenant_seq) is not int:
        return None
    if not (0 < seq < _WORD and 0 < tenant_seq < _WORD):
        return None
    return b"".join((_ALONE, cbor.head(0, seq), _TENANT, tenant, told, cbor.head(0, tenant_seq)))


def decode(data: bytes) -> Written | None:
    """The parts of the link that these bytes are, if they are one with numbers of 32 bits at most."""
    found = _PATTERN.fullmatch(data)
    if found is None:
        return None
    alone, seq_after, retired, tenant, outcome, tenant_seq = found.groups()
    return Written(_integer(alone or seq_after), tenant, _integer(tenant_seq), _READ[outcome], retired)


def _integer(encoded: bytes) -> int:
    return encoded[0] if len(encoded) == 1 else int.from_bytes(encoded[1:], "big")


def _pattern() -> re.Pattern[bytes]:
    number = rb"([\x01-\x17]|\x18[\x18-\xff]|\x19[\x01-\xff].|\x1a(?!\x00\x00)....)"
    acts = re.escape(cbor.encode("acts") + cbor.head(5, 1) + cbor.encode("retires") + cbor.head(4, 1) + _HASH)
    return re.compile(
        b"".join(
            (
                b"(?:%s%s|" % (re.escape(_ALONE), number),
                b"%s%s%s(.{32}))" % (re.escape(cbor.head(5, 6) + _SEQ), number, acts),
                re.escape(_TENANT),
                b"(.{%d})" % TENANT_BYTES,
                b"%s(%s)" % (re.escape(_OUTCOME), b"|".join(map(re.escape, _READ))),
                re.escape(_TENANT_SEQ) + number,
            )
        ),
        re.DOTALL,
    )


_PATTERN: Final = _pattern()
