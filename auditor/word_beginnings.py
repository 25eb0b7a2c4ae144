"""Whether the word index leads to each word that it holds: by the beginnings of words that its pages are noted under.

FTS5 looks for a word on the last page whose noted beginning does not come after the word. A beginning that comes
before the last word of the page in front of it leads past the words between the two: they stand in the index, and
nobody finds them. SQLite's own check lets that pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final

import apsw

from auditor.findings import Finding

_NOTED: Final = """
    SELECT i.segid, CAST(i.term AS BLOB), i.pgno >> 1, d.block FROM search_idx i
    LEFT JOIN search_data d ON d.id = (i.segid << 37) + (i.pgno >> 1) ORDER BY i.segid, i.term
"""
_MORE: Final = 0x80
"""The bit of a byte that says that a number goes on."""


def check_beginnings(connection: apsw.Connection) -> Iterator[Finding]:
    """A finding for each piece of the index in which a word is looked for on another page than its own."""
    for segment, pages in groupby(connection.execute(_NOTED), itemgetter(0)):
        if not _is_led_to(pages):
            what = "The word index notes a page under a beginning that its words do not come after: some are not found."
            where = f"store.db search_idx segment {segment if type(segment) is int else 'unknown'}"
            yield Finding("FACT_ALTERED", where, what)


def _is_led_to(pages: Iterator[tuple[Any, ...]]) -> bool:
    last, before = b"", 0
    try:
        for _, beginning, number, block in pages:
            if number <= before or (before and beginning <= last):
                return False
            before = number
            # A page goes as its words are merged into another piece, or all of them may have been taken out.
            ends = None if block is None else first_and_last(block)
            if ends is not None:
                if ends[0] < beginning:
                    return False
                last = ends[1]
    except (IndexError, TypeError):
        return False
    return True


def first_and_last(page: bytes) -> tuple[bytes, bytes] | None:
    """The first and the last word of a page of the index, each after the number of the index; None if it has none.

    A page ends with where its words begin. Each but the first says how many bytes it has in common with the one
    before it, so that the last is put together from its end.
    """
    marks = page[int.from_bytes(page[2:4], "big") :]
    if not marks:
        return None
    steps = marks if max(marks) < _MORE else _numbers(marks)
    places = list(accumulate(steps))
    size, at = _number(page, places[0])
    first = page[at : at + size]
    parts, needed = [], -1
    for place in reversed(places[1:]):
        common = page[place]
        if common < _MORE and 0 <= needed <= common:
            continue
        common, at = _number(page, place)
        if 0 <= needed <= common:
            continue
        size, at = _number(page, at)
        parts.append(page[at : at + (size if needed < 0 else needed - common)])
        needed = common
    parts.append(first if needed < 0 else first[:needed])
    return first, b"".join(reversed(parts))


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _number(data, at)
        yield number


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of SQLite's of up to four bytes, and where it ends: none on a page is longer."""
    value = 0
    for _ in range(4):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < _MORE:
            return value, at
    raise IndexError
