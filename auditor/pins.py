"""Digests by which a later audit knows the rows that this one has opened, block by block.

A digest is over every byte of its rows, the salts of their contents among them. So it confirms no guess of what was
erased, and a block in which anything was changed, or erased, is opened again row by row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import cbor2

from auditor.evidence import EventRow

BLOCK: Final = 1024
"""Rows under one digest: fewer make more of them to keep, more are opened again because of one."""


def digest_of(block: Sequence[EventRow]) -> bytes:
    """The digest of a block of rows, every column of each. The last of a store may have fewer rows than others."""
    return hashlib.sha256(cbor2.dumps([tuple(row) for row in block])).digest()
