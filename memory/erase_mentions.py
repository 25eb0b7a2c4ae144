"""Who else names somebody: texts in one form of Unicode, without case, and whole words alone.

A name is looked for as the store compares texts (memory.canon_text), so it makes no difference whether a letter
is composed, wide or capital, or which hyphen or space stands in it. Of a subject the separators are alike, as
they are in its tag: dana-scully is Dana Scully, and so is Scully, Dana. user-1 is in neither user-10 nor superuser-1.
A number is compared by its digits, with and without the prefix of a country: 040 123 45 67 is +49 40 1234567.

Most contents mention nobody. Those are told by their bytes alone, which is much faster than to decode them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import permutations
from typing import Any, Final, NamedTuple

from memory.canon_text import folded
from memory.event import decode_content
from tlog.errors import Error

FIELDS: Final = ("text", "key", "value", "subject", "source", "reason", "authority")
_SEPARATORS: Final = r"\s/\\_:|>,;.-"
_BETWEEN: Final = f"[{_SEPARATORS}]{{1,3}}"
# Of a number: what stands between its digits, or between its groups if it has letters.
_GROUPED: Final = r"[\s()./-]{0,3}"
_RUN: Final = re.compile(rf"(?<![\w.,])\+?\(?[0-9]+(?:{_GROUPED}[0-9]+)*(?!\w)")
_NUMBER: Final = re.compile(r"\+?[\s()./-]*[0-9][0-9\s()./-]*")
_FEWEST_DIGITS: Final = 7
_MOST_DIGITS: Final = 24
# What a number may have before that which it shares with another: the prefix of a country, without its zeros.
_PREFIX_DIGITS: Final = 3
_WHOLE_DIGITS: Final = 9
_ORDERED: Final = 3
# Between fields: no word goes on over it, and no name has its parts on both sides of it.
_BESIDE: Final = " = "


# What may stand between the characters of a match, and what a text is compared without.
_LEFT_OUT: Final = bytes(range(0x21)) + b"\x7f/\\_:|>,;.-()"
_ASCII: Final = bytes(range(0x80))
_LOWER: Final = bytes(range(256)).lower()
_ASCII_RUN: Final = re.compile(rb"[\x21-\x7e]+")
# Two bytes of UTF-8 are as far as Cyrillic goes: of these characters it is known what each is compared as.
_KNOWN: Final = range(0x80, 0x530)


class Name(NamedTuple):
    """A pattern of a name; `part` is in what matches it, and so is `run`, but for separators between."""

    pattern: str
    part: str
    run: str


class Mentions:
    """Tells which contents mention one of some names."""

    def __init__(self, names: Iterable[Name], numbers: Iterable[str] = ()) -> None:
        distinct = tuple(dict.fromkeys(names))
        self._names = tuple((name.part, re.compile(name.pattern)) for name in distinct)
        self._numbers = frozenset(numbers)
        runs = {_run_of(name.run) for name in distinct}
        runs |= {number[-_FEWEST_DIGITS:].encode() for number in self._numbers}
        # Where there is nothing to look for in bytes, the name is in no text of ASCII alone.
        self._runs = tuple(run for run in runs if run is not None)
        self._others = (_ANY_OTHER if None in runs else _foldable()).search

    def __bool__(self) -> bool:
        return bool(self._names or self._numbers)

    def may_be_in(self, encoded: bytes) -> bool:
        """False if this encoded content mentions none of the names. Few others are told so."""
        squeezed = encoded.translate(_LOWER, _LEFT_OUT)
        for run in self._runs:
            if run in squeezed:
                return True
        # Of most contents few bytes are left, and are told by these.
        if self._others(encoded.translate(None, _ASCII)) is None or self._others(encoded) is None:
            return False
        return not _is_ascii(encoded)

    def __call__(self, content: Mapping[str, Any]) -> bool:
        """Whether a content mentions one of the names."""
        text = folded(_BESIDE.join(str(content[name]) for name in FIELDS if content.get(name)))
        if any(part in text and _has_word(text, pattern) for part, pattern in self._names):
            return True
        return bool(self._numbers) and any(
            _same_number(one, number) for one in _numbers_in(text) for number in self._numbers
        )


def mentions_of_subjects(names: Iterable[str]) -> Mentions:
    """Mentions of these names, whatever separates their parts, and in whatever order if these are words."""
    texts = [folded(name) for name in names]
    split = [parts for text in texts if (parts := _parts(text))]
    return Mentions(
        (
            *(
                Name(_BETWEEN.join(map(re.escape, order)), max(parts, key=len), "".join(order))
                for parts in split
                for order in _orders(parts)
            ),
            *_grouped(texts),
        ),
        _digits_of(texts),
    )


def mentions_of_values(values: Iterable[str]) -> Mentions:
    """Mentions of these values, as they are written; of numbers, as they may be grouped."""
    texts = [text for value in values if (text := folded(value))]
    return Mentions(
        (*(Name(re.escape(text), text, text) for text in texts), *_grouped(texts)), _digits_of(texts)
    )


_ANY_OTHER: Final = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")
"""A character that is not ASCII, or a number that looks like one."""


def _is_ascii(encoded: bytes) -> bool:
    """Whether all of its texts are: what looked like a character was a part of a number."""
    try:
        content = decode_content(encoded)
    except Error:
        # What it is then is for those to judge who need it.
        return False
    return all(str(content[name]).isascii() for name in FIELDS if content.get(name))


def _run_of(text: str) -> bytes | None:
    """The longest part in ASCII, as it stands in a squeezed content that has the text; None if no ASCII is in it."""
    squeezed = text.encode("utf-8", "surrogatepass").translate(None, _LEFT_OUT)
    runs = _ASCII_RUN.findall(squeezed)
    return max(runs, key=len, default=b"") if runs or not squeezed else None


@cache
def _foldable() -> re.Pattern[bytes]:
    """Characters that may be compared as ASCII, or as nothing at all: a text with one is looked at by itself."""
    leads: dict[int, list[int]] = {}
    for code in _KNOWN:
        alike = folded(chr(code))
        if not alike.strip() or any(c.isascii() for c in alike):
            lead, follower = chr(code).encode()
            leads.setdefault(lead, []).append(follower)
    known = b"|".join(
        b"%s[%s]" % (_escaped(lead), b"".join(map(_escaped, followers))) for lead, followers in leads.items()
    )
    first_unknown = _escaped(chr(_KNOWN.stop).encode()[0])
    return re.compile(rb"%s|[%s-\xdf][\x80-\xbf]|[\xe0-\xf4][\x80-\xbf]{2}" % (known, first_unknown))


def _escaped(byte: int) -> bytes:
    return b"\\x%02x" % byte


def _orders(parts: list[str]) -> Iterator[tuple[str, ...]]:
    """The orders that the parts of a name are written in: each of a few, and of more those that put the end first."""
    if not all(part.isalpha() for part in parts):
        yield tuple(parts)
    elif len(parts) <= _ORDERED:
        yield from permutations(parts)
    else:
        yield from ((*parts[at:], *parts[:at]) for at in range(len(parts)))


def _grouped(texts: Iterable[str]) -> Iterator[Name]:
    """Numbers with letters in them, such as those of accounts, whatever stands between their groups."""
    for text in texts:
        characters = [c for c in text if c.isalnum()]
        rest = re.sub(_GROUPED, "", text)
        digits = sum(c.isdigit() for c in characters)
        if digits >= _FEWEST_DIGITS and digits < len(characters) == len(rest):
            yield Name(_GROUPED.join(map(re.escape, characters)), "", "".join(characters))


def _digits_of(texts: Iterable[str]) -> Iterator[str]:
    """The digits of those that are numbers long enough to be somebody's."""
    for text in texts:
        digits = "".join(re.findall("[0-9]", text))
        if _NUMBER.fullmatch(text) and _FEWEST_DIGITS <= len(digits.lstrip("0")) <= _MOST_DIGITS:
            yield digits


def _numbers_in(text: str) -> Iterator[str]:
    """Each number that groups of digits beside each other may make."""
    for match in _RUN.finditer(text):
        groups = re.findall("[0-9]+", match[0])
        for start in range(len(groups)):
            number = ""
            for group in groups[start:]:
                number += group
                if len(number) > _MOST_DIGITS:
                    break
                yield number


def _same_number(one: str, other: str) -> bool:
    """Whether two numbers are the same but for a country's prefix and the zeros before and behind it."""
    longer, shorter = sorted((one, other), key=lambda number: len(number.lstrip("0")), reverse=True)
    core = shorter.lstrip("0")
    if len(core) < _FEWEST_DIGITS or not longer.endswith(core):
        return False
    prefix = longer.removesuffix(core).strip("0")
    # A number without its country begins with a zero in most; where it does not, it is long.
    whole = shorter.startswith("0") or len(core) >= _WHOLE_DIGITS
    return not prefix or (whole and len(prefix) <= _PREFIX_DIGITS)


def _parts(name: str) -> list[str]:
    """The parts of a name between separators; the whole of it where it is made of nothing else."""
    return [part for part in re.split(f"[{_SEPARATORS}]+", name) if part] or ([name] if name else [])


def _has_word(text: str, pattern: re.Pattern[str]) -> bool:
    at = 0
    while match := pattern.search(text, at):
        start, end = match.span()
        before = start == 0 or not _joined(text[start - 1], text[start])
        if before and (end == len(text) or not _joined(text[end - 1], text[end])):
            return True
        at = start + 1
    return False


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours are of one word. Scripts without spaces have no bounds, so none is asked for."""
    unspaced = "Lo" in (unicodedata.category(left), unicodedata.category(right))
    return left.isalnum() and right.isalnum() and not unspaced
