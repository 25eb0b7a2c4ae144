"""Where a payload goes on in another page of a SQLite file: a text that is cut there stands nowhere in one piece.

A cell that is too large keeps a part in its page and the rest in overflow pages, each of which names the next (SQLite
file format, 1.6 and 1.7). Pages are taken as they are found, in use or free, in the file and in its write-ahead log,
and what does not look as it should is passed over: this only finds more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from auditor import sqlite_format as fmt
from auditor.engines import build_engine

Read = Callable[[int, int], bytes]
MAGIC: Final = b"SQLite format 3\x00"
_WAL_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_MOST_PAGES: Final = 64
"""How many pages of a payload are put together behind a cut: of small ones it takes several."""
_MOST_LOOSE: Final = 4096
"""How many pages that nothing names are looked for by their number."""
_MOST_VERSIONS: Final = 8
"""How many versions of a page, in a log over a file, are taken for what follows."""


@dataclass(frozen=True, slots=True)
class Join:
    """What stands before a cut and what follows it, and where in the file the page with the cut begins."""

    before: bytes
    behind: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class _Image:
    """One version of a page."""

    read: Read
    offset: int
    in_main: bool


def joins(main: Read, wal: Read | None, size_bytes: int) -> Iterator[Join]:
    """Each cut of a payload, with up to so many bytes from both sides of it; none if it is no SQLite file."""
    head = main(0, fmt.HEADER_BYTES)
    if not head.startswith(MAGIC) or len(head) < fmt.HEADER_BYTES:
        return
    raw = int.from_bytes(head[16:18], "big")
    page_bytes = 65536 if raw == 1 else raw
    usable = page_bytes - head[20]
    if page_bytes < 512 or page_bytes & (page_bytes - 1) or usable < 480:
        return
    reader = _Joins(page_bytes, usable, size_bytes, _images(main, wal, page_bytes))
    yield from reader.all()


def _images(main: Read, wal: Read | None, page_bytes: int) -> dict[int, list[_Image]]:
    images: dict[int, list[_Image]] = {}
    for number, offset in enumerate(_offsets(main, page_bytes, 0, page_bytes), start=1):
        images[number] = [_Image(main, offset, True)]
    if wal is not None and wal(0, 4) in _WAL_MAGIC:
        for offset in _offsets(wal, page_bytes, fmt.WAL_HEADER_BYTES, page_bytes + fmt.FRAME_HEADER_BYTES):
            number = int.from_bytes(wal(offset, 4), "big")
            images.setdefault(number, []).append(_Image(wal, offset + fmt.FRAME_HEADER_BYTES, False))
    return images


def _offsets(read: Read, page_bytes: int, start: int, step: int) -> Iterator[int]:
    offset = start
    # The last byte is there if the whole page is.
    while read(offset + step - 1, 1):
        yield offset
        offset += step


class _Joins:
    def __init__(
        self, page_bytes: int, usable: int, size_bytes: int, images: dict[int, list[_Image]]
    ) -> None:
        self._page_bytes, self._usable, self._size = page_bytes, usable, size_bytes
        self._images = images
        self._least = (usable - 12) * 32 // 255 - 23
        self._most = {
            fmt.TABLE_LEAF: usable - 35,
            fmt.INDEX_LEAF: (usable - 12) * 64 // 255 - 23,
            fmt.INDEX_INTERIOR: (usable - 12) * 64 // 255 - 23,
        }

    def all(self) -> Iterator[Join]:
        """Cuts that a page tells of, then those whose cell is gone: a page that nothing names may go on from it."""
        named: set[int] = set()
        loose: set[int] = set()
        for number, image, data in self._pages():
            at = fmt.HEADER_BYTES if number == 1 else 0
            for before, following in self._cuts(data, at):
                named.add(following)
                yield from self._joined(image, before, following)
            if data[at] == 0 and any(data[4:]):
                loose.add(number)
        loose = set(sorted(loose - named)[:_MOST_LOOSE])
        if not loose:
            return
        numbers = [number.to_bytes(4, "big") for number in sorted(loose)]
        find = build_engine(numbers)
        for number, image, data in self._pages():
            for which, end in find(data):
                following = int.from_bytes(numbers[which], "big")
                if end > 4 and following != number:
                    yield from self._joined(image, data[: end - 4], following)

    def _pages(self) -> Iterator[tuple[int, _Image, bytes]]:
        for number, versions in self._images.items():
            for image in versions:
                yield number, image, image.read(image.offset, self._page_bytes)

    def _joined(self, image: _Image, before: bytes, following: int) -> Iterator[Join]:
        for behind in self._behind(following):
            yield Join(before[-self._size :], behind, image.offset if image.in_main else 0)

    def _cuts(self, data: bytes, at: int) -> Iterator[tuple[bytes, int]]:
        """What stands before each cut in a page, and the page where it goes on."""
        kind = data[at]
        if kind in self._most:
            yield from self._cut_cells(data, at, kind)
        following = int.from_bytes(data[:4], "big")
        if following in self._images:
            yield data[4 : self._usable], following

    def _cut_cells(self, data: bytes, at: int, kind: int) -> Iterator[tuple[bytes, int]]:
        child = 4 if kind == fmt.INDEX_INTERIOR else 0
        array = at + 8 + child
        count = min(int.from_bytes(data[at + 3 : at + 5], "big"), (len(data) - array) // 2)
        most = self._most[kind]
        least_first = 0x80 | most >> 7
        for pointer in struct.unpack_from(f">{count}H", data, array):
            place = pointer + child
            # Of most cells the first byte of the size tells that they are not too large.
            if place + 9 > len(data) or data[place] < 0x80:
                continue
            if data[place] < least_first and data[place + 1] < 0x80:
                continue
            size, start = fmt.varint(data, place)
            if kind == fmt.TABLE_LEAF:
                _, start = fmt.varint(data, start)
            local = self._least + (size - self._least) % (self._usable - 4)
            end = start + (local if local <= most else self._least)
            if size > most and end + 4 <= len(data):
                yield data[start:end], int.from_bytes(data[end : end + 4], "big")

    def _behind(self, number: int) -> Iterator[bytes]:
        """What each version of a page begins with, and where that is little, what follows it."""
        for image in self._images.get(number, [])[:_MOST_VERSIONS]:
            data = image.read(image.offset, min(self._size + 4, self._usable))
            behind, following = data[4:], int.from_bytes(data[:4], "big")
            for _ in range(_MOST_PAGES):
                if len(behind) >= self._size or following not in self._images:
                    break
                last = self._images[following][-1]
                data = last.read(last.offset, min(self._size - len(behind) + 4, self._usable))
                behind, following = behind + data[4:], int.from_bytes(data[:4], "big")
            yield behind
