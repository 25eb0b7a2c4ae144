"""Needles in bytes: every form of `auditor.encodings` looked for at once, also where lines are broken.

The bytes are looked at once, in lower case and without white space or signs of equality, and so are the forms: what
differs from a form in nothing else is a candidate. Each is then compared where it stands, in the way of its form: as
it is, without case, with other white space between its words, or with white space anywhere in it. White space that is
no single byte (hard spaces, line ends of HTML) is known by what it begins with, behind the words before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from auditor.encodings import DROPPED, Encoding, View
from auditor.engines import Find, build_engine

CANARY: Final = -1
"""Stands for the control in place of the number of a needle."""
_LOWER: Final = bytes(range(256)).lower()
_WHITE: Final = b" \t\r\n\v\f"
_SPACES: Final = bytes.maketrans(b"\t\r\n\v\f", b"     ")
_BROKEN_LINE: Final = re.compile(rb"=[\r\n]\n?")
_BLANKS: Final = (
    re.compile(rb"\xc2[\x85\xa0]"),
    re.compile(rb"\xe2[\x80\x81][\x80-\x8b\x9f\xaf]"),
    re.compile(rb"\xe3[\x80\x81]\x80"),
    re.compile(rb"&(?:nbsp|#160|#xa0);"),
    re.compile(rb"<[bp]r? ?/?>"),
    re.compile(rb"\\(?:[nrt]|u00a0)"),
)
"""White space of other kinds, each of which begins with one of `_MARKS`."""
_MARKS: Final = (b"\xc2", b"\xe2", b"\xe3", b"&", b"<", b"\\")
_BEFORE_BYTES: Final = 8
"""How much of the words before such white space is looked for together with its beginning."""
_CARRY_BYTES: Final = 256
"""How much longer than a needle, with white space in it, what is there may be."""
_ORDER: Final[tuple[View, ...]] = ("exact", "folded", "spaced", "joined")
"""In which ways of looking find first: what one has found, a later one does not count again."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A form that a candidate may be: `squeezed_bytes` of it end there, or stand before a blank if `at_blank`."""

    needle: int
    form: Encoding
    squeezed_bytes: int
    trail: int
    at_blank: bool = False


@dataclass(frozen=True, slots=True)
class Patterns:
    """Everything that is looked for, and how much of one part has to be looked at again with the next."""

    find: Find
    wanted: tuple[tuple[_Wanted, ...], ...]
    carry_bytes: int


@dataclass(slots=True)
class Tally:
    """How often each needle was found in each form, and where first."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    firsts: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, needle: int, encoding: str, offset: int) -> None:
        place = (needle, encoding)
        self.counts[place] += 1
        self.firsts.setdefault(place, offset)


def compile_patterns(forms: Sequence[Sequence[Encoding]], control: Sequence[Encoding]) -> Patterns:
    """What finds needles, each with its forms, and the control."""
    owned = [(number, form) for number, each in enumerate(forms) for form in each]
    owned += [(CANARY, form) for form in control]
    owned.sort(key=lambda one: _ORDER.index(one[1].view))
    wanted: dict[bytes, list[_Wanted]] = {}
    for number, form in owned:
        for pattern, one in _patterns_of(number, form):
            wanted.setdefault(pattern, []).append(one)
    longest = max(len(form.data) for _, form in owned)
    return Patterns(
        build_engine(tuple(wanted)),
        tuple(tuple(each) for each in wanted.values()),
        longest + longest // 16 + _CARRY_BYTES,
    )


def search(patterns: Patterns, data: bytes, seen_bytes: int, start: int, tally: Tally, prefix: str) -> None:
    """Tally the matches in `data` that end after its first `seen_bytes`, which were searched before."""
    for needle, name, (begin, end) in _matches(patterns, data):
        if end > seen_bytes:
            tally.add(needle, prefix + name, start if prefix else start + begin)


def search_across(
    patterns: Patterns, before: bytes, behind: bytes, start: int, tally: Tally, prefix: str
) -> None:
    """Tally the matches that begin in what stands before a cut and end behind it; `start` is where to say they are."""
    cut = len(before)
    for needle, name, (begin, end) in _matches(patterns, before + behind):
        if begin < cut < end:
            tally.add(needle, prefix + name, start)


def _matches(patterns: Patterns, data: bytes) -> Iterator[tuple[int, str, Span]]:
    """Needle, form and place of each match, in the order of their ends."""
    candidates = patterns.find(data.translate(_LOWER, DROPPED))
    if not candidates:
        return
    place, counted = _Places(data), set[tuple[int, bytes, Span]]()
    for pattern, squeezed_end in candidates:
        end = place.behind(squeezed_end)
        for one in patterns.wanted[pattern]:
            span = _COMPARED[one.form.view](data, end, one)
            if span is None:
                continue
            found = (one.needle, one.form.core, span)
            if found not in counted:
                counted.add(found)
                yield one.needle, one.form.name, span


def unlike(form: Encoding) -> bytes:
    """The form as it may lie in a file so that it is found in its own way of looking, and in no other."""
    if form.view in ("exact", "folded"):
        return form.data
    if form.view == "spaced":
        return form.data[:3].replace(b" ", b"\t\n") + b"=\r\n" + form.data[3:].replace(b" ", b"\xc2\xa0\n")
    return b"\r\n ".join(form.data[at : at + 5] for at in range(0, len(form.data), 5))


def hits_in(tally: Tally) -> Iterator[tuple[int, str, int, int]]:
    """Needle, form, count and first offset of what was found of needles."""
    for (needle, encoding), count in sorted(tally.counts.items()):
        if needle != CANARY:
            yield needle, encoding, count, tally.firsts[needle, encoding]


def _patterns_of(needle: int, form: Encoding) -> Iterator[tuple[bytes, _Wanted]]:
    squeezed = _squeezed(form.data)
    trail = len(form.data) - len(form.data.rstrip(DROPPED))
    yield squeezed, _Wanted(needle, form, len(squeezed), trail)
    if form.view != "spaced":
        return
    for gap in re.finditer(b" ", form.data):
        before = _squeezed(form.data[: gap.start()])
        for mark in _MARKS if before else ():
            yield before[-_BEFORE_BYTES:] + mark, _Wanted(needle, form, len(before) + 1, 0, at_blank=True)


def _squeezed(data: bytes) -> bytes:
    return data.translate(_LOWER, DROPPED)


class _Places:
    """Where in the bytes stands what was found in them without white space; asked from their front to their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = self._squeezed = 0

    def behind(self, squeezed_end: int) -> int:
        """The place behind the last of so many bytes that are left."""
        while rest := squeezed_end - self._squeezed:
            part = self._data[self._at : self._at + rest]
            self._at += rest
            self._squeezed += len(part.translate(None, DROPPED))
        return self._at


def _begin(data: bytes, end: int, squeezed_bytes: int) -> int:
    """Where so many bytes that are left, and end there, begin."""
    at = end
    while squeezed_bytes:
        part = data[max(at - squeezed_bytes, 0) : at]
        at -= len(part)
        squeezed_bytes -= len(part.translate(None, DROPPED))
    return at


def _as_it_is(data: bytes, end: int, one: _Wanted) -> Span | None:
    end += one.trail
    begin = end - len(one.form.data)
    return (begin, end) if begin >= 0 and data[begin:end] == one.form.data else None


def _without_case(data: bytes, end: int, one: _Wanted) -> Span | None:
    end += one.trail
    begin = end - len(one.form.data)
    return (begin, end) if begin >= 0 and data[begin:end].lower() == one.form.data else None


def _with_other_space(data: bytes, end: int, one: _Wanted) -> Span | None:
    wanted = one.form.data
    begin = _begin(data, end, one.squeezed_bytes)
    begin = max(begin - (len(wanted) - len(wanted.lstrip(DROPPED))), 0)
    if not one.at_blank:
        return (begin, end) if _spaced(data[begin:end]) == wanted else None
    last = min(begin + len(wanted) + len(wanted) // 16 + _CARRY_BYTES, len(data))
    if not _spaced(data[begin:last]).startswith(wanted):
        return None
    ends = range(end, last + 1)
    reached = bisect_left(ends, True, key=lambda to: _spaced(data[begin:to]).startswith(wanted))
    return begin, ends[reached]


def _without_space(data: bytes, end: int, one: _Wanted) -> Span | None:
    begin = _begin(data, end, one.squeezed_bytes)
    return (begin, end) if data[begin:end].translate(None, _WHITE) == one.form.data else None


_COMPARED: Final[dict[View, Callable[[bytes, int, _Wanted], Span | None]]] = {
    "exact": _as_it_is,
    "folded": _without_case,
    "spaced": _with_other_space,
    "joined": _without_space,
}


def _spaced(data: bytes) -> bytes:
    data = _BROKEN_LINE.sub(b"", data.lower())
    for blank in _BLANKS:
        data = blank.sub(b" ", data)
    data = data.translate(_SPACES)
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data
