"""What a text states: the values that its runs of words are, and what it is about beside one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from re import Match
from typing import Final

from memory.canon_names import naming_words
from memory.canon_numbers import MAGNITUDES, NUMBER_WORDS
from memory.canon_text import fold_case, normal, words
from memory.canon_types import (
    Canonical,
    canonical,
    first_letters,
    first_words,
    forms,
    inner_words,
    read_counted,
    read_typed,
    without_ending,
)
from memory.canon_units import currency_signs

MAX_SPAN_WORDS: Final = 32
MAX_PLACES: Final = 20
WORDS_NEAR: Final = 50
MAX_TYPED_WORDS: Final = 10
MAX_GROUPS: Final = 6
Place = tuple[int, int]
Stated = tuple[Canonical, int, int]
"""A form, and where in the text its run of words begins and ends."""

_WHOLE: Final = frozenset({"date", "datetime", "month", "time", "phone"})
_INSIDE_NUMBER: Final = frozenset(",:'/")
_CLOSING: Final = ")]}\"'!?./:"
_OPENING: Final = "([{\"'¿¡@#<>/:"


def value_word_count(value: str) -> int:
    """How many words a text must have in a row to state this value; 0 if it is known by its type instead."""
    return word_count(canonical(normal(value)))


def word_count(value: Canonical) -> int:
    """As `value_word_count`, of one form of a value."""
    return sum(1 for _ in words(value.form)) if value.kind in ("text", "count") else 0


class Reading:
    """A text read once for all that is asked of it; it lives no longer than the write that asks."""

    def __init__(self, text: str) -> None:
        self.base = normal(text)
        self.run = tuple(words(self.base))
        self._counts: set[int] = set()
        self._found: dict[Canonical, list[Place]] | None = None

    def found(self, word_counts: Collection[int]) -> dict[Canonical, list[Place]]:
        """What the text states, as by `spans`, with every place where it does."""
        counts = {count for count in word_counts if 0 < count <= MAX_SPAN_WORDS}
        if self._found is None or not counts <= self._counts:
            self._counts |= counts
            self._found = {}
            for form, start, end in _stated(self.base, self.run, self._counts):
                self._found.setdefault(form, []).append((start, end))
        return self._found


def spans(text: str | Reading, word_counts: Collection[int]) -> Iterator[Canonical]:
    """Everything the text may state: spans of so many words, and amounts, dates and so on however long.

    Each form comes once. `word_counts` are the `word_count`s of the values to be found, and those of more than
    MAX_SPAN_WORDS are not; the cost is the number of words times the number of different counts.
    """
    reading = text if isinstance(text, Reading) else Reading(text)
    yield from reading.found(word_counts)


def places_of(reading: Reading, value: Canonical) -> tuple[Place, ...]:
    """Where in `reading.base` the text states a value, in order; some may overlap."""
    return tuple(reading.found({word_count(value)}).get(value, ()))


def words_beside(
    text: str | Reading, value: Canonical, rather: Collection[Canonical] = ()
) -> frozenset[str] | None:
    """The naming words near a statement of `value` in the text, itself left out; None if there is none.

    Near is within WORDS_NEAR words: further away, long texts name everything. A statement that is part of one
    of `rather` does not count: 'Porto Alegre' does not state 'Porto' where that is the current value.
    """
    reading = text if isinstance(text, Reading) else Reading(text)
    places = places_of(reading, value)
    near: set[str] | None = None
    for start, end in places[:MAX_PLACES]:
        first = bisect_left(reading.run, start, key=Match.start)
        last = bisect_left(reading.run, end, key=Match.start)
        around = reading.run[max(0, first - WORDS_NEAR) : last + WORDS_NEAR]
        left, right = min(start, around[0].start()), max(end, around[-1].end())
        if not _is_part(reading.base[left:right], (start - left, end - left), {*rather} - {value}):
            near = near or set()
            near.update(naming_words(f"{reading.base[left:start]} {reading.base[end:right]}"))
    return None if near is None else frozenset(near)


def _is_part(base: str, place: Place, rather: set[Canonical]) -> bool:
    """Whether a place lies within a statement of one of these."""
    if not rather:
        return False
    counts = {word_count(form) for form in rather}
    return any(
        form in rather and start <= place[0] and place[1] <= end
        for form, start, end in _stated(base, tuple(words(base)), counts)
    )


def _stated(base: str, run: Sequence[Match[str]], word_counts: Collection[int]) -> Iterator[Stated]:
    """Every form that a run of words has, with the place of the run; a form may come more than once."""
    counts = sorted({count for count in word_counts if 0 < count <= len(run)})
    covered = 0
    for place, match in enumerate(run):
        for start in _typed_starts(base, match):
            # A number inside a longer typed value is part of it and not stated: the 1 of March 1, 2026.
            inner = start < covered
            for stated in _typed_from(base, run, place, start, counts):
                if not inner or stated[0].kind not in ("number", "count"):
                    yield stated
                if stated[0].kind != "count":
                    covered = max(covered, stated[2])
        lower = match[0].lower()
        if lower in ("true", "false"):
            yield Canonical("boolean", lower), match.start(), match.end()
        for count in counts:
            if place + count > len(run):
                break
            for first, last in _with_edges(base, match.start(), run[place + count - 1].end()):
                yield Canonical("text", without_ending(fold_case(base[first:last]))), first, last


def _typed_from(
    base: str, run: Sequence[Match[str]], place: int, start: int, counts: Sequence[int]
) -> Iterator[Stated]:
    """The typed values that begin with a word; of numbers the longest, and none where it is part of a date."""
    stated = [*_typed_ends(base, run, place, start), *_counted_ends(base, run, place, counts)]
    number = None
    for each in stated:
        if each[0].kind == "number":
            # 'one' alone is a pronoun more often than a number.
            number = None if fold_case(base[each[1] : each[2]]) == "one" else each
        elif each[0].kind == "count":
            yield from ((form, *each[1:]) for form in forms(base[each[1] : each[2]]))
        else:
            yield each
    if number is not None and not any(found.kind in _WHOLE for found, _, _ in stated):
        yield number


def _typed_starts(base: str, match: Match[str]) -> tuple[int, ...]:
    """Where a typed value may begin that begins with this word."""
    start, word = match.start(), match[0]
    first = word[0]
    if first.isalpha():
        return (start,) if "@" in word or first_letters(word) in first_words() else ()
    if (first.isdigit() or first == "+") and start and base[start - 1] == "(":
        # (415) 555-0132 begins with the bracket, (90 days) after it.
        return start - 1, start
    return (start,) if first.isdigit() or first in "+-." or first in currency_signs() else ()


def _typed_ends(base: str, run: Sequence[Match[str]], place: int, start: int) -> Iterator[Stated]:
    """A word, and it with the words after it that typed values have, wherever that is a typed value."""
    end = run[place].end()
    phone, groups = base[start] in "+(", 1
    for following in range(place + 1, place + MAX_TYPED_WORDS + 1):
        found = None if _cut(base, start, end) else read_typed(base[start:end])
        if found is not None and (found.kind != "count" or following == place + 1):
            yield found, start, end
        if following >= len(run):
            return
        word, text, between = run[following - 1][0], run[following][0], base[end : run[following].start()]
        time = base[run[following].end() : run[following].end() + 1] == ":"
        if text[0].isdigit() and word.isdigit() and between == " " and not time:
            # Numbers beside each other are groups of digits, or have nothing to do with each other.
            groups += 1
            if groups > MAX_GROUPS or not (phone or (text.isdigit() and len(text) in (3, 4))):
                return
        elif len(between) > 2 or not (text[0].isdigit() or _is_inner(text)):
            return
        end = run[following].end()


def _cut(base: str, start: int, end: int) -> bool:
    """Whether the place is cut out of a number or a time: the 5 of 5,000, the 30 of 2:30."""
    before = start >= 2 and base[start - 1] in _INSIDE_NUMBER and base[start - 2].isdigit()
    return before or (base[end : end + 1] in _INSIDE_NUMBER and base[end + 1 : end + 2].isdigit())


def _is_inner(word: str) -> bool:
    return word in inner_words() or fold_case(word) in inner_words() or first_letters(word) in inner_words()


def _counted_ends(
    base: str, run: Sequence[Match[str]], place: int, counts: Sequence[int]
) -> Iterator[Stated]:
    """A number with what it counts: the number is one word of the value, though it may be several here."""
    start, tail = run[place].start(), place + 1
    while tail < len(run) and tail < place + MAX_GROUPS and (run[tail][0].isdigit() or _counts(run[tail][0])):
        tail += 1
    for count in counts:
        last = tail + count - 2
        if count < 2 or last >= len(run):
            continue
        found = read_counted(base[start : run[last].end()])
        if found is not None and found.kind == "count":
            yield found, start, run[last].end()


def _counts(word: str) -> bool:
    return word.lower() in NUMBER_WORDS or word.lower() in ("hundred", "and", *MAGNITUDES)


def _with_edges(base: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span, and the span with the brackets or marks right beside it, which may belong to a value."""
    ends = [end]
    while end < len(base) and len(ends) < 4 and base[end] in _CLOSING:
        end += 1
        ends.append(end)
    starts = [start]
    while start and len(starts) < 3 and base[start - 1] in _OPENING:
        start -= 1
        starts.append(start)
    for first in starts:
        for last in ends:
            yield first, last
