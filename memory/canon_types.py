"""The type a value is written as, and its one form of that type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from memory.canon_dates import compact_date, date_words, read_date_or_time
from memory.canon_numbers import NUMBER_WORDS
from memory.canon_text import fold_case
from memory.canon_units import currency_names, read_number, read_quantity, unit_words

MAX_TYPED_CHARACTERS: Final = 100
_STOPS: Final = ".。,;、"
_BRACKETS: Final = "(["
_PAIRS: Final = (
    ('"', '"'),
    ("'", "'"),
    ("`", "`"),
    ("**", "**"),
    ("«", "»"),
    ("‹", "›"),
    ("「", "」"),
    ("『", "』"),
    ("(", ")"),
    ("[", "]"),
    ("<", ">"),
)
_READINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "m": ("minutes", "metres"),
    "k": ("thousand",),
    "pound": ("GBP", "lbs"),
    "pounds": ("GBP", "lbs"),
}


class Canonical(NamedTuple):
    """A value without its spelling; two values are the same if this is equal. `form` is empty for a blank one."""

    kind: str
    form: str


def canonical(base: str) -> Canonical:
    """The canonical form of a text that is `canon_text.normal`."""
    bare = without_ending(base)
    typed = read_typed(bare) or (read_typed(base) if bare != base else None)
    if typed is not None:
        return typed
    form = without_ending(fold_case(base))
    return Canonical("boolean" if form in ("true", "false") else "text", form)


def forms(base: str) -> tuple[Canonical, ...]:
    """Every form of a `normal` text, the first its own: one written in an ambiguous way has a form for each reading.

    5m is 5 minutes and 5 metres, and neither of these is the other.
    """
    first = canonical(base)
    if first.kind == "number":
        # ISO 8601's basic format is a date, and a number
        date = compact_date(without_ending(base))
        return (first,) if date is None else (first, Canonical(*date))
    if first.kind != "count":
        return (first,)
    number, _, unit = first.form.partition(" ")
    readings = _READINGS.get(unit, ())
    if _hour_pattern().fullmatch(first.form):
        # 18h45 is a time, and a duration
        minute = unit[1:]
        return (first, canonical(f"{number}:{minute}"), canonical(f"{number} h {minute} min"))
    if unit == "M":
        readings = ("million",)
    return (first, *(canonical(f"{number} {reading}") for reading in readings))


def read_typed(base: str) -> Canonical | None:
    """The number, amount, date, time, telephone number or address that a `normal` text is as a whole, or None."""
    if not base or len(base) > MAX_TYPED_CHARACTERS:
        return None
    if "@" in base:
        address = _address_pattern().fullmatch(base)
        return Canonical("email", fold_case(address["address"])) if address else None
    if base[0].isalpha():
        if base[:4] in ("the ", "The ", "THE ") and base[4:5].isdigit():
            base = base[4:]  # the 1st of March
        elif first_letters(base) not in first_words():
            return None
    # Each reader is asked only where the characters allow it: most values are plain text, or plain numbers.
    letters = _letter_or_sign_pattern().search(base) is not None
    if not letters and _marked_pattern().search(base) is None:
        return read_counted(base)
    found = _phone(base) or read_date_or_time(base)
    if found is None and letters:
        found = read_quantity(base)
    return Canonical(*found) if found else read_counted(base)


def read_counted(base: str) -> Canonical | None:
    """A number, alone or with what it counts: the digits as written, for 3.10 may be a version."""
    found = read_number(base)
    if found is None or not found[0].alone:
        return None
    numeral, rest = found
    if not rest:
        return Canonical("number", numeral.written)
    tail = rest.lstrip(" ")
    return (
        # A million, or a mega of anything, is no metre and no minute.
        Canonical("count", f"{numeral.written} {'M' if tail == 'M' else without_ending(fold_case(tail))}")
        if tail[0].isalpha()
        else None
    )


def without_ending(form: str) -> str:
    """A text without what a sentence puts around and after it: quotes, brackets around words, a stop, a comma."""
    while len(form) > 2:
        bare = _unwrapped(form)
        if bare[-1] in _STOPS and len(bare) > 2 and bare[-2] not in _STOPS and not _ordinal(bare):
            bare = bare[:-1].rstrip()
        if bare == form or not bare:
            return form
        form = bare
    return form


def _ordinal(form: str) -> bool:
    """Whether this is what some languages write for the third; more digits are rather a number at a sentence's end."""
    return len(form) < 3 and form[:-1].isdigit()


def _unwrapped(form: str) -> str:
    """The text between two marks that belong together, if they are of the whole and not of a part."""
    for opening, closing in _PAIRS:
        if form.startswith(opening) and form.endswith(closing):
            inner = form[len(opening) : len(form) - len(closing)].strip()
            # (5) is minus five in a ledger, [x] a box that is ticked, <b> a tag.
            whole = len(inner) > 1 and opening not in inner and closing not in inner
            plain = opening not in _BRACKETS or (inner[:1].isalpha() and "," not in inner)
            if whole and plain and (opening != "<" or "://" in inner):
                return inner
    return form


def first_letters(text: str) -> str:
    """The letters a text begins with, lower case: 'usd' of 'USD5'."""
    match = _letters_pattern().match(text)
    return fold_case(match[0]) if match else ""


@cache
def first_words() -> frozenset[str]:
    """The words, or beginnings of words, that a typed value which does not begin with a digit may begin with."""
    currencies = {first_letters(name) for name in currency_names()}
    return frozenset({*NUMBER_WORDS, *currencies, *date_words(), "p", "pt", "tel", "mailto"} - {""})


@cache
def inner_words() -> frozenset[str]:
    """The words that may follow the first one of a typed value."""
    joining = {"of", "at", "and", "de", "del", "hundred", "ext", "x"}
    return frozenset({*first_words(), *currency_names(), *unit_words(), *joining})


def _phone(base: str) -> tuple[str, str] | None:
    """A telephone number: international with a plus, or the North American 3-3-4."""
    match = _phone_pattern().fullmatch(base)
    if match is None:
        return None
    international = match["international"]
    digits = "".join(c for c in (international or match["national"]).replace("(0)", "") if c.isdigit())
    digits = digits.removeprefix("00")
    if international and not 7 <= len(digits) <= 15:
        return None
    extension = f"x{match['extension']}" if match["extension"] else ""
    return "phone", f"{'+' if international else ''}{digits}{extension}"


@cache
def _hour_pattern() -> re.Pattern[str]:
    return re.compile(r"\d{1,2} h[0-5]\d")


@cache
def _letters_pattern() -> re.Pattern[str]:
    return re.compile(r"[^\W\d_]+")


@cache
def _letter_or_sign_pattern() -> re.Pattern[str]:
    return re.compile(r"[^\d\s.,:/()'_+-]")


@cache
def _marked_pattern() -> re.Pattern[str]:
    # What dates, times and telephone numbers have and plain numbers do not.
    return re.compile(r"[:/(]|\d-|\.\d+\.|^(?:\+|00)[\d ]{7}|\d{3} \d{3} \d{4}$")


@cache
def _address_pattern() -> re.Pattern[str]:
    part = r"[^\s@<>,;:\"()\[\]]"
    return re.compile(rf"(?:mailto:)?<?(?P<address>{part}{{1,64}}@{part}{{1,90}}?)>?\.?", re.IGNORECASE)


@cache
def _phone_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?:tel:)?(?:(?P<international>(?:\(\+\d{1,3}\)|(?:\+|00(?=[1-9]))\d{1,3})(?:[ ./-]?\(?\d+\)?)*)"
        r"|(?P<national>\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}(?P<mark>[ .-])\d{3}(?P=mark)\d{4}))"
        r"(?:,? ?(?:x|ext\.?) ?(?P<extension>\d{1,6}))?",
        re.IGNORECASE,
    )
