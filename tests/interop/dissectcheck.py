"""Runs in sqlite_dissect's environment: its command, but for two of its mistakes that would end it.

python dissectcheck.py OPTION… FILE

Of bytes that only look like a cell it takes a length for a number where it is none, and stops with an error; here
they are no cell, as is its own way with others it cannot read. And it stops at a cell in the very first byte of a gap;
here such a gap is looked at once more with the byte before it.
"""

from __future__ import annotations

import sys
from typing import Any

from sqlite_dissect.carving import carver
from sqlite_dissect.entrypoint import cli
from sqlite_dissect.exception import CellCarvingError

_made = carver.CarvedBTreeCell
_carve = carver.SignatureCarver.carve_unallocated_space


def _cell(*arguments: Any, **named: Any) -> Any:
    try:
        return _made(*arguments, **named)
    except TypeError as error:
        raise CellCarvingError(str(error)) from error


def _gap(version: Any, source: Any, page: int, start: int, gap: bytes, *more: Any) -> Any:
    try:
        return _carve(version, source, page, start, gap, *more)
    except TypeError:
        return _carve(version, source, page, start - 1, b"\x00" + gap, *more)


carver.CarvedBTreeCell = _cell
carver.SignatureCarver.carve_unallocated_space = staticmethod(_gap)

if __name__ == "__main__":
    sys.exit(cli())
