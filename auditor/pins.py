"""Digests by which a later audit knows the rows that this one has opened, block by block.

A digest is over every byte of its rows, the salts of their contents among them. So it confirms no guess of what was
erased, and a block in which anything was changed, or erased, is opened again row by row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import cbor2

from auditor.evidence import EventRow

BLOCK: Final = 1024
"""Rows under one digest: fewer make more of them to keep, more are opened again because of one."""


def digests_of(events: Sequence[EventRow]) -> Iterator[bytes]:
    """The digest of each block of rows, in the order of their numbers. The last may have fewer than others."""
    for start in range(0, len(events), BLOCK):
        rows = [tuple(row) for row in events[start : start + BLOCK]]
        yield hashlib.sha256(cbor2.dumps(rows)).digest()


def known_blocks(digests: Sequence[bytes], kept: Sequence[bytes]) -> frozenset[int]:
    """The blocks whose rows an earlier audit has opened, byte for byte."""
    pairs = zip(digests, kept, strict=False)
    return frozenset(number for number, (digest, before) in enumerate(pairs) if digest == before)
