"""The parts of a SQLite file as values: header, b-tree pages, cells, records, write-ahead log frames.

An own reader after sqlite.org/fileformat2.html (the numbers in comments are its sections), because SQLite
itself shows rows and never what lies between them. Everything is bounded by the page; what does not fit in it
is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tlog.errors import MalformedError

HEADER_BYTES: Final = 100
WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
MAX_COLUMNS: Final = 2000
_MAGIC: Final = b"SQLite format 3\x00"
_WAL_MAGIC_LITTLE: Final = 0x377F0682
_WAL_MAGIC_BIG: Final = 0x377F0683
_MASK: Final = 0xFFFFFFFF

TABLE_LEAF: Final = 13
TABLE_INTERIOR: Final = 5
INDEX_LEAF: Final = 10
INDEX_INTERIOR: Final = 2

Value = int | bytes | str | None


@dataclass(frozen=True, slots=True)
class Header:
    """What the first 100 bytes say of the file."""

    page_bytes: int
    usable_bytes: int
    page_count: int
    first_trunk: int
    free_pages: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: where it lies in its page, and what it points to. `payload_bytes` counts the overflow too."""

    start: int
    end: int
    child: int
    rowid: int
    payload_start: int
    payload_end: int
    payload_bytes: int
    overflow: int


@dataclass(frozen=True, slots=True)
class Page:
    """A b-tree page, its cells in key order. `array_end` to `content_start` is the gap."""

    kind: int
    cells: tuple[Cell, ...]
    freeblocks: tuple[tuple[int, int], ...]
    array_end: int
    content_start: int
    right_child: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What a b-tree page has beside its cells: `free` lies between and behind them. The right child comes first."""

    array_end: int
    content_start: int
    free: tuple[tuple[int, int], ...]
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The header of a write-ahead log whose own checksum holds."""

    page_bytes: int
    salts: bytes
    byte_order: Literal["<", ">"]
    checksum: tuple[int, int]


def parse_header(data: bytes) -> Header:
    """The header of a database file; MalformedError if it is none, or of a kind this reader can't judge."""
    if len(data) < HEADER_BYTES or data[:16] != _MAGIC:
        raise MalformedError("expected the header of a SQLite database")
    (raw,) = struct.unpack_from(">H", data, 16)
    page_bytes = 65536 if raw == 1 else raw
    if page_bytes < 512 or page_bytes & (page_bytes - 1):
        raise MalformedError("expected a page size that is a power of two from 512 to 65536")
    usable = page_bytes - data[20]
    if usable < 480 or data[21:24] != b"\x40\x20\x20":
        raise MalformedError("expected the reserved space and payload fractions that SQLite writes")
    count, trunk, free = struct.unpack_from(">III", data, 28)
    if struct.unpack_from(">I", data, 52)[0] != 0:
        # Pointer-map pages look like b-tree pages; our stores have none.
        raise MalformedError("expected a database without auto_vacuum")
    return Header(page_bytes, usable, count, trunk, free)


def parse_page(data: bytes, usable: int, at: int) -> Page:
    """The b-tree page whose header stands at byte `at` (100 on page 1, else 0); MalformedError otherwise."""
    kind = data[at]
    if kind not in (TABLE_LEAF, TABLE_INTERIOR, INDEX_LEAF, INDEX_INTERIOR):
        raise MalformedError("expected the kind of a b-tree page", offset=at)
    first_free, count, content_start = struct.unpack_from(">HHH", data, at + 1)
    content_start = content_start or 65536
    interior = kind in (TABLE_INTERIOR, INDEX_INTERIOR)
    array = at + (12 if interior else 8)
    array_end = array + 2 * count
    if not array_end <= content_start <= usable:
        raise MalformedError(
            "expected the cell content after the cell pointers and within the page", offset=at
        )
    right = struct.unpack_from(">I", data, at + 8)[0] if interior else 0
    pointers = struct.unpack_from(f">{count}H", data, array)
    cells = tuple(_parse_cell(data, kind, pointer, content_start, usable) for pointer in pointers)
    freeblocks = tuple(_freeblocks(data, first_free, content_start, usable))
    return Page(kind, cells, freeblocks, array_end, content_start, right)


def outline_page(data: bytes, usable: int) -> Outline | None:
    """What lies between the cells of a b-tree page, without a value for each of them.

    None where a cell goes on elsewhere, or the page is damaged: `parse_page` then tells. Most pages are neither, and
    this takes a fraction of the time.
    """
    kind = data[0]
    if kind not in _ENDS:
        return None
    first_free, count, content_start = struct.unpack_from(">HHH", data, 1)
    array_end = (12 if kind in (TABLE_INTERIOR, INDEX_INTERIOR) else 8) + 2 * count
    if not count or not array_end <= content_start < usable:
        return None
    cells = struct.unpack_from(f">{count}H", data, array_end - 2 * count)
    try:
        ends = _ENDS[kind](data, cells, usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23)
        blocks = tuple(_freeblocks(data, first_free, content_start, usable)) if first_free else ()
    except (IndexError, MalformedError):
        return None
    if ends is None:
        return None
    starts = sorted((*cells, *(start for start, _ in blocks)))
    ends += [end for _, end in blocks]
    ends.sort()
    if starts[0] < content_start or ends[-1] > usable:
        return None
    starts.append(len(data))
    ends.insert(0, content_start)
    free: list[tuple[int, int]] = []
    # Of most pages every cell ends where another starts.
    if starts != ends:
        # Each ends after it starts. So where no start comes before the end of as many, no two share a byte.
        edges = list(zip(ends, starts, strict=True))
        if any(end > start for end, start in edges):
            return None
        free = [edge for edge in edges if edge[0] < edge[1]]
    free += [(start + 4, end) for start, end in blocks]
    children: tuple[int, ...] = ()
    if kind in (TABLE_INTERIOR, INDEX_INTERIOR):
        read = int.from_bytes
        children = (read(data[8:12], "big"), *(read(data[at : at + 4], "big") for at in cells))
    return Outline(array_end, content_start, tuple(free), children)


def local_payload(data: bytes, cell: Cell) -> bytes:
    """The part of a cell's payload that stands in its own page."""
    return data[cell.payload_start : cell.payload_end]


def parse_record(payload: bytes) -> tuple[Value, ...]:
    """The columns of a whole record (2.1); text that is not UTF-8 comes back as bytes."""
    types = record_types(payload)
    position = varint(payload, 0)[0]
    values: list[Value] = []
    for serial in types:
        size = serial_bytes(serial)
        body = payload[position : position + size]
        if len(body) != size:
            raise MalformedError("expected a record as long as its header says")
        position += size
        values.append(_value(serial, body))
    return tuple(values)


def record_types(payload: bytes) -> tuple[int, ...]:
    """The serial types in a record's header, which must lie within `payload`."""
    header_bytes, position = varint(payload, 0)
    if header_bytes > len(payload):
        raise MalformedError("expected the header of a record within its page")
    types: list[int] = []
    while position < header_bytes:
        serial, position = varint(payload, position)
        types.append(serial)
        if len(types) > MAX_COLUMNS:
            raise MalformedError("expected a record of at most 2000 columns")
    return tuple(types)


def serial_bytes(serial: int) -> int:
    """How many bytes a column of this serial type takes."""
    if serial >= 12:
        return (serial - 12) // 2
    if serial in (10, 11):
        raise MalformedError("expected a serial type that SQLite writes")
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[serial]


def parse_wal_header(data: bytes) -> WalHeader:
    """The header of a write-ahead log (4.1); MalformedError if it is none, or its checksum does not hold."""
    if len(data) < WAL_HEADER_BYTES:
        raise MalformedError("expected a write-ahead log header of 32 bytes")
    magic, version, page_bytes = struct.unpack_from(">III", data)
    if magic not in (_WAL_MAGIC_LITTLE, _WAL_MAGIC_BIG) or version != 3007000:
        raise MalformedError("expected the header of a write-ahead log")
    order: Literal["<", ">"] = ">" if magic == _WAL_MAGIC_BIG else "<"
    checksum = wal_checksum(data[:24], (0, 0), order)
    if checksum != struct.unpack_from(">II", data, 24):
        raise MalformedError("expected a write-ahead log header whose checksum holds")
    return WalHeader(page_bytes, data[16:24], order, checksum)


def wal_checksum(data: bytes, start: tuple[int, int], order: Literal["<", ">"]) -> tuple[int, int]:
    """The running checksum of a write-ahead log (4.2) after `data`, whose length is a multiple of 8."""
    first, second = start
    for one, two in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A big-endian base-128 number (1.6) and the position after it."""
    value = 0
    for count in range(9):
        if position + count >= len(data):
            raise MalformedError("expected a number within the page")
        byte = data[position + count]
        if count == 8:
            value = value << 8 | byte
            break
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value - (1 << 64) if value >= 1 << 63 else value, position + count + 1


def _parse_cell(data: bytes, kind: int, start: int, content_start: int, usable: int) -> Cell:
    # 1.6: the four kinds of cell.
    if not content_start <= start <= usable - 4:
        raise MalformedError("expected a cell within the content of its page", offset=start)
    position = start
    child = rowid = 0
    if kind in (TABLE_INTERIOR, INDEX_INTERIOR):
        (child,) = struct.unpack_from(">I", data, position)
        position += 4
    if kind == TABLE_INTERIOR:
        rowid, position = varint(data, position)
        return Cell(start, _cell_end(start, position, usable), child, rowid, position, position, 0, 0)
    payload_bytes, position = varint(data, position)
    if payload_bytes < 0:
        raise MalformedError("expected a payload of zero or more bytes", offset=start)
    if kind == TABLE_LEAF:
        rowid, position = varint(data, position)
    local = _local_bytes(kind, payload_bytes, usable)
    overflow = 0
    payload_end = end = position + local
    if local < payload_bytes:
        if end + 4 > usable:
            raise MalformedError("expected a cell that ends within its page", offset=start)
        (overflow,) = struct.unpack_from(">I", data, end)
        end += 4
        if overflow == 0:
            raise MalformedError("expected an overflow page for a long payload", offset=start)
    end = _cell_end(start, end, usable)
    return Cell(start, end, child, rowid, position, payload_end, payload_bytes, overflow)


def _ends_in_table_leaf(data: bytes, starts: Sequence[int], most: int) -> list[int] | None:
    """Where each cell ends; None if one has an unusual number in it, or goes on elsewhere."""
    ends = []
    for start in starts:
        size, at = data[start], start + 1
        if size > 127:
            size, at = (size & 127) << 7 | data[at], start + 2
            if data[start + 1] > 127:
                return None
        while data[at] > 127:
            at += 1
        # A number of nine bytes ends otherwise.
        if size > most or at > start + 9:
            return None
        at += 1 + size
        ends.append(at if at > start + 4 else start + 4)
    return ends


def _ends_in_index_leaf(data: bytes, starts: Sequence[int], most: int) -> list[int] | None:
    ends = []
    for start in starts:
        size, at = data[start], start + 1
        if size > 127:
            size, at = (size & 127) << 7 | data[at], start + 2
            if data[start + 1] > 127:
                return None
        if size > most:
            return None
        at += size
        ends.append(at if at > start + 4 else start + 4)
    return ends


def _ends_in_table_interior(data: bytes, starts: Sequence[int], _: int) -> list[int] | None:
    ends = []
    for start in starts:
        at = start + 4
        while data[at] > 127:
            at += 1
        if at > start + 11:
            return None
        ends.append(at + 1)
    return ends


def _ends_in_index_interior(data: bytes, starts: Sequence[int], most: int) -> list[int] | None:
    ends = []
    for start in starts:
        size, at = data[start + 4], start + 5
        if size > 127:
            size, at = (size & 127) << 7 | data[at], start + 6
            if data[start + 5] > 127:
                return None
        if size > most:
            return None
        ends.append(at + size)
    return ends


_ENDS: Final[Mapping[int, Callable[[bytes, Sequence[int], int], list[int] | None]]] = {
    TABLE_LEAF: _ends_in_table_leaf,
    TABLE_INTERIOR: _ends_in_table_interior,
    INDEX_LEAF: _ends_in_index_leaf,
    INDEX_INTERIOR: _ends_in_index_interior,
}


def _cell_end(start: int, end: int, usable: int) -> int:
    end = max(end, start + 4)
    if end > usable:
        raise MalformedError("expected a cell that ends within its page", offset=start)
    return end


def _local_bytes(kind: int, payload_bytes: int, usable: int) -> int:
    # 1.6: how much of a payload stays in the page.
    most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    if payload_bytes <= most:
        return payload_bytes
    least = (usable - 12) * 32 // 255 - 23
    wanted = least + (payload_bytes - least) % (usable - 4)
    return wanted if wanted <= most else least


def _freeblocks(data: bytes, first: int, content_start: int, usable: int) -> Iterator[tuple[int, int]]:
    position = first
    lowest = content_start
    while position:
        if not lowest <= position <= usable - 4:
            raise MalformedError(
                "expected freeblocks in order within the content of the page", offset=position
            )
        following, size = struct.unpack_from(">HH", data, position)
        if size < 4 or position + size > usable:
            raise MalformedError("expected a freeblock that ends within its page", offset=position)
        yield position, position + size
        lowest = position + size
        position = following


def _value(serial: int, body: bytes) -> Value:
    if serial == 0:
        return None
    if serial in (8, 9):
        return serial - 8
    if serial <= 6:
        return int.from_bytes(body, "big", signed=True)
    if serial == 7 or serial % 2 == 0:
        return body
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body
