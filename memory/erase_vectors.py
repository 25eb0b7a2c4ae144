"""Pieces of the vectors of what is erased, to be looked for in files as its words are: a vector is as good as its text.

Pieces, since a file keeps a vector in pages; of each a form in one byte a
number as well, which is what indexes make of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from memory.store_read import Snapshot

PIECE_BYTES: Final = 64
_STEP: Final = 4 * PIECE_BYTES
_FLOAT_BYTES: Final = 4
_MOST_INT8: Final = 127
_VECTOR: Final = "SELECT vector FROM vectors WHERE seq = ?"


def vector_needles(view: Snapshot, seqs: Collection[int]) -> tuple[bytes, ...]:
    """What to look for of the vectors of these statements, each once; of bytes that are all alike, nothing."""
    found: dict[bytes, None] = {}
    for seq in seqs:
        for (vector,) in view.rows(_VECTOR, seq):
            found.update(dict.fromkeys(pieces_of_vector(vector)))
    return tuple(found)


def pieces_of_vector(vector: bytes) -> Iterator[bytes]:
    """Pieces of a vector as it is, and in int8 by its largest number and by one."""
    forms = [vector]
    if len(vector) % _FLOAT_BYTES == 0:
        numbers = struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector)
        largest = max(map(abs, numbers), default=0.0)
        if math.isfinite(largest) and all(map(math.isfinite, numbers)):
            forms += [_in_int8(numbers, one) for one in {1.0, largest} if one > 0 and largest <= one]
    for form in forms:
        for at in range(0, len(form), _STEP):
            piece = form[at : at + PIECE_BYTES]
            if len(piece) == PIECE_BYTES and len(set(piece)) > 1:
                yield piece


def _in_int8(numbers: tuple[float, ...], one: float) -> bytes:
    return bytes(round(number / one * _MOST_INT8) & 0xFF for number in numbers)
