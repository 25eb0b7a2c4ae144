"""A SQLite file layer that leaves no stale bytes between the cells of a b-tree page.

When SQLite splits or rebalances a page it copies cells that still count and leaves the old copy in the
unallocated gap of a live page. secure_delete does not reach it, and a later delete of the row does not either.
So, as a page of the main file is written, the bytes between the end of its cell pointer array and the start of
its cells are set to zero: no reader ever looks at them (SQLite file format, 1.6). Whatever else is free in a
page, secure_delete has zeroed already.
"""

from __future__ import annotations

import threading
from typing import Final

import apsw

NAME: Final = "muniment"
# Beyond this page number the first byte of an overflow or freelist page, which is the number of the page that
# follows, could equal the type byte of a b-tree page. 137 GB at the default page size.
MAX_PAGES: Final = 0x02000000 - 1

_LEAF_TYPES: Final = (0x0A, 0x0D)
_INTERIOR_TYPES: Final = (0x02, 0x05)
_FILE_HEADER_BYTES: Final = 100
_MIN_PAGE_BYTES: Final = 512
_MAX_PAGE_BYTES: Final = 65536


def zero_gap(page: bytes, offset: int) -> bytes:
    """`page`, written at `offset` of the main file, with the unallocated gap of a b-tree page zeroed.

    What is no b-tree page, or does not look like a sound one, comes back as it is.
    """
    size = len(page)
    if size < _MIN_PAGE_BYTES or size > _MAX_PAGE_BYTES or size & (size - 1) or offset % size:
        return page
    header = _FILE_HEADER_BYTES if offset == 0 else 0
    kind = page[header]
    if kind in _LEAF_TYPES:
        cells = header + 8
    elif kind in _INTERIOR_TYPES:
        cells = header + 12
    else:
        return page
    start = cells + 2 * (page[header + 3] << 8 | page[header + 4])
    # A content start of zero stands for 65536 (SQLite file format, 1.6).
    end = (page[header + 5] << 8 | page[header + 6]) or _MAX_PAGE_BYTES
    if start >= end or end > size:
        return page
    return page[:start] + bytes(end - start) + page[end:]


def register() -> str:
    """The name to open connections with. Registers the file layer once for the process."""
    global _registered
    with _lock:
        if _registered is None:
            _registered = _ZeroingVFS()
    return NAME


class _ZeroingFile(apsw.VFSFile):
    """The main database file."""

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(zero_gap(data, offset), offset)


class _ZeroingVFS(apsw.VFS):
    """The default file layer, but for the main database file."""

    def __init__(self) -> None:
        super().__init__(NAME, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _ZeroingFile("", name, flags)
        return apsw.VFSFile("", name, flags)


_lock = threading.Lock()
_registered: _ZeroingVFS | None = None
