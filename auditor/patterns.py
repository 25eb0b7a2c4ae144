"""Needles in bytes: the forms of `auditor.encodings` looked for all at once, also where lines are broken.

Three looks at each part of a file: as it is; with every run of white space, of whatever kind, as one space; and, for
hexadecimal and base64, with no white space at all. What a first look finds, a later one does not count again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from auditor.encodings import Encoding, View

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

CANARY: Final = -1
"""Stands for the control in place of the number of a needle."""
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
"""White space of other kinds. Each begins with one byte that is quickly looked for."""
_CARRY_BYTES: Final = 256
"""How much longer than a needle, with white space in it, what is there may be."""


@dataclass(frozen=True, slots=True)
class _Look:
    """An automaton over one look at the bytes; `owners` tells whose form a pattern is."""

    view: View
    automaton: BytesAhoCorasick
    owners: tuple[tuple[int, Encoding], ...]


@dataclass(frozen=True, slots=True)
class Patterns:
    """Everything that is looked for, and how much of one part has to be looked at again with the next."""

    looks: tuple[_Look, ...]
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
    """The automata of needles, each with its forms, and of the control."""
    from ahocorasick_rs import BytesAhoCorasick

    owned = [(number, form) for number, each in enumerate(forms) for form in each]
    owned += [(CANARY, form) for form in control]
    looks = []
    for view in _VIEWS:
        chosen = tuple((number, form) for number, form in owned if form.view == view)
        if chosen:
            looks.append(_Look(view, BytesAhoCorasick([form.data for _, form in chosen]), chosen))
    longest = max(len(form.data) for _, form in owned)
    return Patterns(tuple(looks), longest + longest // 16 + _CARRY_BYTES)


def search(patterns: Patterns, data: bytes, seen_bytes: int, start: int, tally: Tally, prefix: str) -> None:
    """Tally the matches in `data` that end after its first `seen_bytes`, which were searched before."""
    counted: Counter[tuple[int, bytes]] = Counter()
    for look in patterns.looks:
        seen_as, in_place = _VIEWS[look.view], look.view in _IN_PLACE
        seen = seen_bytes if in_place else len(seen_as(data[:seen_bytes]))
        new: Counter[tuple[int, bytes]] = Counter()
        for pattern, begin, end in look.automaton.find_matches_as_indexes(seen_as(data), overlapping=True):
            needle, form = look.owners[pattern]
            if end <= seen:
                continue
            new[needle, form.core] += 1
            if new[needle, form.core] > counted[needle, form.core]:
                at = start if prefix else start + (begin if in_place else seen_bytes)
                tally.add(needle, prefix + form.name, at)
        counted |= new


def unlike(form: Encoding) -> bytes:
    """The form as it may lie in a file so that it is found in its own way of looking, and in no other."""
    if form.view in _IN_PLACE:
        return form.data
    if form.view == "spaced":
        return form.data[:3].replace(b" ", b"\t\n") + b"=\r\n" + form.data[3:].replace(b" ", b"\xc2\xa0\n")
    return b"\r\n ".join(form.data[at : at + 5] for at in range(0, len(form.data), 5))


def _spaced(data: bytes) -> bytes:
    data = _BROKEN_LINE.sub(b"", data.lower())
    for blank in _BLANKS:
        data = blank.sub(b" ", data)
    data = data.translate(_SPACES)
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data


def _joined(data: bytes) -> bytes:
    return data.translate(None, b" \t\r\n\v\f")


def _as_is(data: bytes) -> bytes:
    return data


# In the order in which they count.
_VIEWS: Final[dict[View, Callable[[bytes], bytes]]] = {
    "exact": _as_is,
    "folded": bytes.lower,
    "spaced": _spaced,
    "joined": _joined,
}
_IN_PLACE: Final[frozenset[View]] = frozenset({"exact", "folded"})
"""The looks that leave every byte where it is."""


def hits_in(tally: Tally) -> Iterator[tuple[int, str, int, int]]:
    """Needle, form, count and first offset of what was found of needles."""
    for (needle, encoding), count in sorted(tally.counts.items()):
        if needle != CANARY:
            yield needle, encoding, count, tally.firsts[needle, encoding]
