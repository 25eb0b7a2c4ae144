"""When two values, or two keys, are the same.

Conservative on purpose: two things of one type written in two ways are one value, and whatever is not surely
that is two. A wrong 'same' refuses a true statement, a wrong 'different' lets one stale copy through.
docs/formats/canon.md lists the types. VERSION is stored with each form, so that a better one can come later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Final, NamedTuple

from memory import canon_names
from memory.canon_dates import read_date_or_time, starts_date
from memory.canon_numbers import NUMBER_WORDS
from memory.canon_text import fold_case, folded, normal, words
from memory.canon_units import currency_codes, currency_signs, read_number, read_quantity

VERSION: Final = 1
MAX_TYPED_CHARACTERS: Final = 100
MAX_TYPED_WORDS: Final = 8
_EDGES_OF_VALUE: Final = ")]}\"'!?."


class Canonical(NamedTuple):
    """A value without its spelling; two values are the same if this is equal. `form` is empty for a blank one."""

    kind: str
    form: str


def canonical_value(value: str) -> Canonical:
    """The type a value is written as, and its one form of that type."""
    return _canonical(normal(value))


def same_value(left: str, right: str) -> bool:
    """Whether two values are one, spelled in two ways at most."""
    return left == right or canonical_value(left) == canonical_value(right)


def canonical_text(text: str) -> str:
    """A sentence without letter case and white space: what a verbatim repeat has in common with it."""
    return folded(text)


def canonical_key(key: str) -> str:
    """The words of a key, lower case, joined by slashes: case and the kind of separator make no other key."""
    return "/".join(_words_of_key(key)) or folded(key)


def key_words(key: str) -> frozenset[str]:
    """The words by which a text names a key; a ledger row keeps their hashes, to know them without the key."""
    return canon_names.identifying_words(_words_of_key(key))


def text_words(text: str) -> frozenset[str]:
    """The words of a text that may name something, comparable with `key_words`."""
    return frozenset(canon_names.naming_words(text))


def value_word_count(value: str) -> int:
    """How many words a text must have in a row to state this value; 0 if it is known by its type instead."""
    kind, form = canonical_value(value)
    return sum(1 for _ in words(form)) if kind == "text" else 0


def spans(text: str, word_counts: Collection[int]) -> Iterator[Canonical]:
    """Everything the text may state: spans of so many words, and amounts, dates and so on however long.

    Each form comes once. `word_counts` are the `value_word_count`s of the values to be found; the cost is the
    number of words times the number of different counts.
    """
    seen: set[Canonical] = set()
    for found, _, _ in _stated(normal(text), word_counts):
        if found not in seen:
            seen.add(found)
            yield found


def words_beside(text: str, value: Canonical, rather: Collection[Canonical] = ()) -> frozenset[str] | None:
    """The naming words of a text with one statement of `value` taken out; None if it does not state it.

    A statement that is part of one of `rather` does not count: 'Porto Alegre' does not state 'Porto' where the
    current value is 'Porto Alegre'.
    """
    base = normal(text)
    counts = {sum(1 for _ in words(form)) for kind, form in (value, *rather) if kind == "text"}
    places = [
        (found, start, end)
        for found, start, end in _stated(base, counts)
        if found == value or found in rather
    ]
    outer = [(start, end) for found, start, end in places if found in rather]
    for found, start, end in places:
        if found == value and not any(a <= start and end <= b and (a, b) != (start, end) for a, b in outer):
            return frozenset(canon_names.naming_words(f"{base[:start]} {base[end:]}"))
    return None


def _canonical(base: str) -> Canonical:
    """As `canonical_value`, of a text that is `normal` already."""
    typed = _typed(base)
    if typed is not None:
        return typed
    form = fold_case(base)
    if form in ("true", "false"):
        return Canonical("boolean", form)
    return Canonical("text", _without_ending(form))


def _typed(base: str) -> Canonical | None:
    if len(base) > MAX_TYPED_CHARACTERS or not _may_be_typed(base):
        return None
    if "@" in base:
        address = _address_pattern().fullmatch(base)
        return Canonical("email", fold_case(address["address"])) if address else None
    found = _phone(base) or read_date_or_time(base) or read_quantity(base)
    if found is not None:
        return Canonical(*found)
    return _counted(base)


def _may_be_typed(base: str) -> bool:
    """Whether a text holds a digit, an at sign, or begins with a number word: all that typed values do."""
    if _digit_or_at_pattern().search(base):
        return True
    first = _first_word_pattern().match(base)
    return first is not None and first[0].lower() in NUMBER_WORDS


def _counted(base: str) -> Canonical | None:
    """A number, alone or with what it counts: the digits as written, for 3.10 may be a version."""
    found = read_number(base)
    if found is None:
        return None
    numeral, rest = found
    if not rest:
        return Canonical("number", numeral.written) if numeral.alone else None
    tail = rest.lstrip(" ")
    if not tail[:1].isalpha() or not numeral.alone:
        return None
    return Canonical("count", f"{numeral.written} {_without_ending(fold_case(tail))}")


def _phone(base: str) -> tuple[str, str] | None:
    """A telephone number: international with a plus, or the North American 3-3-4."""
    match = _phone_pattern().fullmatch(base)
    if match is None:
        return None
    international = match["international"]
    digits = "".join(c for c in (international or match["national"]).replace("(0)", "") if c.isdigit())
    if international and not 7 <= len(digits) <= 15:
        return None
    extension = f"x{match['extension']}" if match["extension"] else ""
    return "phone", f"{'+' if international else ''}{digits}{extension}"


def _without_ending(form: str) -> str:
    """A text without the quotes around it and the full stop after it."""
    if len(form) > 2 and form[0] == form[-1] and form[0] in "\"'`" and form[0] not in form[1:-1]:
        form = form[1:-1].strip()
    if (
        form.endswith((".", "。"))
        and len(form) > 2
        and not form[:-1].endswith((".", "。"))
        and not form[:-1].isdigit()
    ):
        form = form[:-1].rstrip()
    return form


def _words_of_key(key: str) -> list[str]:
    text = _minus_in_key_pattern().sub(r"\1−", folded(key))
    return [word for word in _key_separator_pattern().split(text) if word]


def _stated(base: str, word_counts: Collection[int]) -> Iterator[tuple[Canonical, int, int]]:
    """Every form that a run of words has, with the place of the run; a form may come more than once."""
    matches = list(words(base))
    counts = sorted({count for count in word_counts if 0 < count <= len(matches)})
    for place, match in enumerate(matches):
        start = match.start()
        typed_start = _typed_start(base, match)
        if typed_start is not None:
            for last in matches[place : place + MAX_TYPED_WORDS]:
                found = _typed(base[typed_start : last.end()])
                if found is not None:
                    yield found, typed_start, last.end()
        word = match[0].lower()
        if word in ("true", "false"):
            yield Canonical("boolean", word), start, match.end()
        for count in counts:
            if place + count > len(matches):
                break
            end = matches[place + count - 1].end()
            for first, last_end in _with_edges(base, start, end):
                yield Canonical("text", _without_ending(fold_case(base[first:last_end]))), first, last_end


def _typed_start(base: str, match: re.Match[str]) -> int | None:
    """Where a typed value may begin that begins with this word, or None."""
    start, word = match.start(), match[0]
    if start and base[start - 1] == "(" and word[0].isdigit():
        return start - 1
    first = word[0]
    if first.isdigit() or first in "+-." or first in currency_signs() or "@" in word:
        return start
    lower = word.lower().split("-", 1)[0]
    if (lower in NUMBER_WORDS and lower != "one") or lower in currency_codes() or starts_date(word):
        return start
    return start if any(c.isdigit() for c in word) and word[0] in "PpUuCcRrNnAaSs" else None


def _with_edges(base: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span, and the span with the bracket or mark right before or after it that may belong to a value."""
    ends = [end]
    while end < len(base) and len(ends) < 4 and base[end] in _EDGES_OF_VALUE:
        end += 1
        ends.append(end)
    starts = [start, start - 1] if start and base[start - 1] in "([{\"'¿¡@#" else [start]
    for first in starts:
        for last in ends:
            yield first, last


@cache
def _digit_or_at_pattern() -> re.Pattern[str]:
    return re.compile(r"[\d@]")


@cache
def _first_word_pattern() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z]+")


@cache
def _address_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?:mailto:)?<?(?P<address>[^\s@<>,;:\"()\[\]]{1,64}@[^\s@<>,;:\"()\[\]]{1,90}?)>?\.?", re.IGNORECASE
    )


@cache
def _phone_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?:tel:)?(?:(?P<international>\+\d{1,3}(?:[ ./-]?\(?\d+\)?)*)"
        r"|(?P<national>\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}(?P<mark>[ .-])\d{3}(?P=mark)\d{4}))"
        r"(?:,? ?(?:x|ext\.?) ?(?P<extension>\d{1,6}))?",
        re.IGNORECASE,
    )


@cache
def _minus_in_key_pattern() -> re.Pattern[str]:
    # The sign of a number that is a whole part of a key; between letters a hyphen is a separator.
    return re.compile(r"(^|/ ?)-(?=\d)")


@cache
def _key_separator_pattern() -> re.Pattern[str]:
    # A dot between digits stays: python/3.10 is not python/3/10.
    return re.compile(r"[\s/\\_:|>,;-]+|(?<!\d)\.|\.(?!\d)")
