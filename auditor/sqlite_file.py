"""Where the pages of a SQLite database stand: the main file, and the write-ahead log over it.

The newest version of a page may stand in the log; the versions it replaced are `old_pages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from auditor import sqlite_format as fmt
from tlog.errors import MalformedError


class ByteSource(Protocol):
    """A file that is read in place."""

    @property
    def size_bytes(self) -> int:
        """How long the file is."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from `offset`, fewer at the end of the file."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """A file whose bytes are all in memory."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        return len(self.data)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from `offset`, fewer at the end of the file."""
        return self.data[offset : offset + size_bytes]


@dataclass(frozen=True, slots=True)
class OldPage:
    """A version of a page that a newer one replaced, still in one of the files.

    Or that is not the newest yet: `in_flight` is a frame of a transaction that was being written, or was given up.
    """

    place: str
    page: int
    data: bytes
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class Pages:
    """A database and its log, opened: where the newest version of each page stands."""

    header: fmt.Header
    page_count: int
    main: ByteSource
    wal: ByteSource | None
    newest: dict[int, int]
    """Page number to the offset of its newest committed version in the log."""
    frames: int
    """How many whole frames the log has room for, committed or not."""
    in_flight: range = range(0)
    """Frames behind the last commit of a transaction that has not committed."""
    torn: bool = False
    """Behind the last commit that holds there is the mark of another: damage, or a commit being written."""

    def read(self, number: int) -> bytes:
        """The newest version of a page."""
        offset = self.newest.get(number)
        size = self.header.page_bytes
        if offset is not None and self.wal is not None:
            data = self.wal.read(offset, size)
        else:
            data = self.main.read((number - 1) * size, size)
        if len(data) != size:
            raise MalformedError("expected a page that the file holds as a whole", page=number)
        return data


def open_pages(main: ByteSource, wal: ByteSource | None) -> Pages:
    """The database in these files; MalformedError if its header or the header of its log can't be read."""
    first_of_main = main.read(0, fmt.HEADER_BYTES)
    page_bytes = 0
    newest: dict[int, int] = {}
    count = 0
    in_flight, torn = range(0), False
    if wal is not None and wal.size_bytes >= fmt.WAL_HEADER_BYTES:
        page_bytes, newest, count, committed = _committed_frames(wal)
        in_flight, torn = _uncommitted_frames(wal, page_bytes, committed)
    if wal is not None and 1 in newest:
        first_of_main = wal.read(newest[1], fmt.HEADER_BYTES)
    header = fmt.parse_header(first_of_main)
    if page_bytes not in (0, header.page_bytes):
        raise MalformedError("expected a write-ahead log with the page size of its database")
    in_main = main.size_bytes // header.page_bytes
    frames = 0
    if wal is not None:
        frames = max(0, wal.size_bytes - fmt.WAL_HEADER_BYTES) // (header.page_bytes + fmt.FRAME_HEADER_BYTES)
    # Without a log the header's count must be what the file holds; SQLite itself trusts it under conditions.
    return Pages(header, count or header.page_count or in_main, main, wal, newest, frames, in_flight, torn)


def old_pages(pages: Pages) -> Iterator[OldPage]:
    """Each version of a page that is not the newest: in the log, and in the main file under a newer one."""
    size = pages.header.page_bytes
    for number in sorted(pages.newest):
        data = pages.main.read((number - 1) * size, size)
        if len(data) == size:
            yield OldPage("store.db", number, data)
    if pages.wal is None:
        return
    for frame in range(pages.frames):
        start = fmt.WAL_HEADER_BYTES + frame * (size + fmt.FRAME_HEADER_BYTES)
        number = int.from_bytes(pages.wal.read(start, 4), "big")
        if pages.newest.get(number) != start + fmt.FRAME_HEADER_BYTES:
            data = pages.wal.read(start + fmt.FRAME_HEADER_BYTES, size)
            yield OldPage(f"store.db-wal frame {frame + 1}", number, data, frame in pages.in_flight)


def leaf_rows(data: bytes, header: fmt.Header, number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Row number and column types of each row in a leaf of a table; nothing for any other page.

    Made for old pages, which may be torn: it ends where a page stops making sense.
    """
    try:
        at = fmt.HEADER_BYTES if number == 1 else 0
        if data[at] != fmt.TABLE_LEAF:
            return
        for cell in fmt.parse_page(data, header.usable_bytes, at).cells:
            yield cell.rowid, fmt.record_types(fmt.local_payload(data, cell))
    except MalformedError:
        return


def _uncommitted_frames(wal: ByteSource, page_bytes: int, committed: int) -> tuple[range, bool]:
    """The frames of this generation behind the last commit that holds, and whether one of them commits.

    A transaction that outgrows the cache writes its frames before it commits, and writes them again in place. From
    then on its frames have zeros for salts and checksum, which are set right as it commits: only the missing mark
    of a commit tells that it has not.
    """
    if not page_bytes:
        return range(0), False
    salts = wal.read(0, fmt.WAL_HEADER_BYTES)[16:24]
    size = page_bytes + fmt.FRAME_HEADER_BYTES
    whole = max(0, wal.size_bytes - fmt.WAL_HEADER_BYTES) // size
    end = committed
    torn = False
    for frame in range(committed, whole):
        head = wal.read(fmt.WAL_HEADER_BYTES + frame * size, fmt.FRAME_HEADER_BYTES)
        own = head[:4] != bytes(4) and (head[8:16] == salts or head[8:] == bytes(16))
        if own and frame == end:
            end += 1
            torn = torn or head[4:8] != bytes(4)
        # One of this generation behind one that is not: what was between them is lost, or was not copied yet.
        torn = torn or (head[8:16] == salts and frame >= end)
    # Where a commit is lost, what its frames hold is no longer there: nothing of it is excused as being under way.
    return (range(0) if torn else range(committed, end)), torn


def _committed_frames(wal: ByteSource) -> tuple[int, dict[int, int], int, int]:
    """Page size, newest committed offset of each page, page count of the last commit, frames up to it (4.1-4.3)."""
    try:
        header = fmt.parse_wal_header(wal.read(0, fmt.WAL_HEADER_BYTES))
    except MalformedError:
        # SQLite takes a log with a broken header for empty, and so do we: its frames are all old pages.
        return 0, {}, 0, 0
    if header.page_bytes < 512 or header.page_bytes > 65536:
        raise MalformedError("expected a write-ahead log with a page size that SQLite writes")
    newest: dict[int, int] = {}
    pending: dict[int, int] = {}
    count = committed = frames = 0
    checksum = header.checksum
    position = fmt.WAL_HEADER_BYTES
    while True:
        frame = wal.read(position, fmt.FRAME_HEADER_BYTES + header.page_bytes)
        if len(frame) < fmt.FRAME_HEADER_BYTES + header.page_bytes or frame[8:16] != header.salts:
            break
        checksum = fmt.wal_checksum(frame[:8], checksum, header.byte_order)
        checksum = fmt.wal_checksum(frame[fmt.FRAME_HEADER_BYTES :], checksum, header.byte_order)
        stated = int.from_bytes(frame[16:20], "big"), int.from_bytes(frame[20:24], "big")
        number, pages_after = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:8], "big")
        if stated != checksum or number == 0:
            break
        pending[number] = position + fmt.FRAME_HEADER_BYTES
        frames += 1
        if pages_after:
            newest.update(pending)
            pending = {}
            count, committed = pages_after, frames
        position += len(frame)
    newest = {number: offset for number, offset in newest.items() if number <= count}
    return header.page_bytes, newest, count, committed
