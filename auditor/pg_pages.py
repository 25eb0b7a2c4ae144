"""One page of a table in PostgreSQL: its rows by place, and what its free bytes still hold.

With code of the auditor's own, from the layout that the server's manual gives: a page has a header, a list of
pointers, and rows from its end downwards. A vacuum takes a pointer away and moves rows together; the bytes stay.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tlog.errors import MalformedError

_HEADER: Final = struct.Struct("<HHHH")
_HEADER_AT: Final = 12
_HEADER_BYTES: Final = 24
_ROW_HEADER_BYTES: Final = 23
_LAYOUT: Final = 4
_ALIGNED: Final = 8
# What a page of a tree ends with: its neighbours, its level, and flags, of which one says that it is the first page of
# all, and one that it was given up.
_TREE_BYTES: Final = 16
_FLAGS: Final = struct.Struct("<H")
_FLAGS_AT: Final = 12
_NO_ENTRIES: Final = 0b1100
_NORMAL, _DEAD = 1, 3
_XMIN_FROZEN: Final = 0x0300
_XMIN_INVALID: Final = 0x0200
_ENDED_BY_NONE: Final = 0x0800
_LOCKED_ONLY: Final = 0x0080


@dataclass(frozen=True, slots=True)
class Sought:
    """Rows of which nothing may be left, and where two of their columns of eight bytes stand that tell them."""

    columns: tuple[int, int]
    rows: frozenset[tuple[int, int]]
    anew: frozenset[tuple[int, int]] = frozenset()
    """Those of them of which no byte may be left, since all that had it was written anew."""
    texts: tuple[bytes, ...] = ()
    """Bytes that stood in such rows and in no others, of which nothing may be left wherever in a page."""

    def is_in(self, data: bytes) -> bool:
        """Whether the data of a row are of such a one."""
        return self.count(data[: (max(self.columns) + 1) * _ALIGNED]) > 0

    def count(self, run: bytes) -> int:
        """At how many places of an aligned run such a row's columns stand."""
        if not self.rows:
            return 0
        numbers = struct.unpack(f"<{len(run) // _ALIGNED}q", run[: len(run) - len(run) % _ALIGNED])
        first, second = self.columns
        return sum(pair in self.rows for pair in zip(numbers[first:], numbers[second:], strict=False))


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row that a pointer leads to, whoever may still see it."""

    pointer: int
    began_by: int
    """The number of the transaction that wrote it, without its epoch."""
    ended: bool
    """Set where another has deleted it, or put a newer one in its place."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a page, and its free bytes that are not zero, as runs of (offset, bytes)."""

    rows: tuple[PageRow, ...]
    free: tuple[tuple[int, bytes], ...]

    @property
    def free_bytes(self) -> int:
        """How many free bytes are not zero."""
        return sum(len(run) - run.count(0) for _, run in self.free)

    def leftovers(self, sought: Sought) -> int:
        """At how many places such a row stands in the free bytes."""
        return sum(sought.count(run[-start % _ALIGNED :]) for start, run in self.free)


@dataclass(frozen=True, slots=True)
class IndexPage:
    """A page of an index: entries that are marked as of no row any more, and free bytes that are not zero.

    `body` is where entries are, or were.
    """

    dead: int
    free_bytes: int
    body: bytes


def read_index_page(raw: bytes) -> IndexPage:
    """The page; MalformedError if it is laid out in a way that is not known here."""
    lower, upper, special = _limits(raw)
    if upper == 0:
        return IndexPage(0, len(raw) - raw.count(0), raw)
    taken, dead = [(0, lower), (special, len(raw))], 0
    flags = _FLAGS.unpack_from(raw, special + _FLAGS_AT)[0] if special + _TREE_BYTES == len(raw) else 0
    if flags & _NO_ENTRIES:
        # What stands in front of such a page are no pointers: where the tree begins, or when the page was given up.
        return IndexPage(
            0, sum(len(run) - run.count(0) for _, run in _filled(raw, taken)), raw[lower:special]
        )
    for _, start, kind, size in _pointers(raw, lower):
        # What is marked keeps its bytes until the page is tidied.
        if kind in (_NORMAL, _DEAD) and size:
            if start < upper or start + size > special:
                raise MalformedError("expected the entries of a page to lie in it")
            taken.append((start, start + size))
            dead += kind == _DEAD
    free = _filled(raw, taken)
    begin = lower + -lower % _ALIGNED
    return IndexPage(dead, sum(len(run) - run.count(0) for _, run in free), raw[begin:special])


def read_page(raw: bytes) -> Page:
    """The page; MalformedError if it is laid out in a way that is not known here."""
    lower, upper, special = _limits(raw)
    if upper == 0:
        # Never used: the server fills it with zeros.
        return Page((), _filled(raw, [(0, 0)]))
    rows: list[PageRow] = []
    taken = [(0, lower), (special, len(raw))]
    for number, start, kind, size in _pointers(raw, lower):
        if kind == _NORMAL:
            if start < upper or start + size > special or size < _ROW_HEADER_BYTES:
                raise MalformedError("expected the rows of a page to lie in it")
            rows.append(_row(number, raw[start : start + size]))
            taken.append((start, start + size))
    return Page(tuple(rows), _filled(raw, taken))


def _limits(raw: bytes) -> tuple[int, int, int]:
    """Where the pointers of a page end, its rows begin, and end; three zeros for a page that was never used."""
    lower, upper, special, version = _HEADER.unpack_from(raw, _HEADER_AT)
    if upper == 0:
        return 0, 0, 0
    if (
        version & 0xFF != _LAYOUT
        or version & 0xFF00 != len(raw)
        or not _HEADER_BYTES <= lower <= upper <= special
    ):
        raise MalformedError("expected a page of PostgreSQL, of layout 4")
    if special > len(raw):
        raise MalformedError("expected a page of PostgreSQL, of layout 4")
    return lower, upper, special


def _pointers(raw: bytes, lower: int) -> Iterator[tuple[int, int, int, int]]:
    """The pointers of a page: their numbers from 1, where each leads, of what kind it is, and to how many bytes."""
    for number, (pointer,) in enumerate(struct.iter_unpack("<I", raw[_HEADER_BYTES : lower - lower % 4]), 1):
        yield number, pointer & 0x7FFF, pointer >> 15 & 3, pointer >> 17


def _row(pointer: int, raw: bytes) -> PageRow:
    began_by, ended_by = struct.unpack_from("<II", raw)
    flags, begins = struct.unpack_from("<HB", raw, 20)
    undone = flags & _XMIN_FROZEN == _XMIN_INVALID
    ended = ended_by != 0 and not undone and not flags & (_ENDED_BY_NONE | _LOCKED_ONLY)
    return PageRow(pointer, began_by, ended, raw[begins:])


def _filled(raw: bytes, taken: Sequence[tuple[int, int]]) -> tuple[tuple[int, bytes], ...]:
    return tuple(
        (start, raw[start:end]) for start, end in _gaps(sorted(taken), len(raw)) if any(raw[start:end])
    )


def _gaps(taken: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end in (*taken, (size, size)):
        if start > at:
            yield at, start
        at = max(at, end)
