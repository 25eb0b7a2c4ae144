"""Numbers as people write them: signs, separators of thousands, decimal commas, English number words.

Arithmetic is exact: a number is an integer times a power of ten.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

# Longer ones are identifiers, not amounts.
MAX_DIGITS: Final = 40

_SMALL: Final = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen
"""
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS: Final = {word: value for value, word in enumerate(_SMALL.split())} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), start=2)
}
MAGNITUDES: Final = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}


class Numeral(NamedTuple):
    """A number, and its digits as written: 3.10 and 3.1 are one amount and two version numbers."""

    amount: int
    exponent: int
    written: str
    alone: bool = True
    """Whether it is clearly a number with nothing after it: 1,5 may be a list, 007 a name."""


def read_numeral(text: str) -> tuple[Numeral, str] | None:
    """The number at the start of a `normal` text and what follows it, or None."""
    match = _numeral_pattern().match(text)
    if match is None:
        return None
    alone = True
    if match["continental"]:
        written = match["continental"].replace(".", "").replace(" ", "").replace(",", ".")
    elif match["comma"]:
        written, alone = match["comma"].replace(",", "."), False
    else:
        written = match["grouped"]
        for separator in ",_' ":
            written = written.replace(separator, "")
        alone = written == "0" or not written.startswith("0") or written.startswith("0.")
    if len(written) > MAX_DIGITS:
        return None
    return _numeral(match["sign"], written, alone), text[match.end() :]


def read_number_words(text: str) -> tuple[Numeral, str] | None:
    """The English number words at the start of a `normal` text and what follows them, or None."""
    match = _number_words_pattern().match(text)
    if match is None:
        return None
    value = _value_of_words(match[0].lower().replace("-", " ").split())
    if value is None:
        return None
    return _numeral("", str(value), alone=True), text[match.end() :]


def scaled(numeral: Numeral, exponent: int) -> Numeral:
    """The number times a power of ten, its digits written out in full."""
    amount, power = numeral.amount, numeral.exponent + exponent
    if power >= 0:
        return Numeral(amount, power, str(amount * 10**power))
    return Numeral(amount, power, f"{amount}e{power}")


def exact_form(amount: int, exponent: int) -> str:
    """One text for one number: no trailing zeros, so 1.50 and 1.5 have the same."""
    if amount == 0:
        return "0"
    while amount % 10 == 0:
        amount //= 10
        exponent += 1
    return f"{amount}e{exponent}"


def _numeral(sign: str, written: str, alone: bool) -> Numeral:
    whole, _, fraction = written.partition(".")
    amount = int(whole + fraction)
    written = f"{whole or '0'}.{fraction}" if fraction else whole
    if sign == "-":
        return Numeral(-amount, -len(fraction), f"-{written}", alone)
    return Numeral(amount, -len(fraction), written, alone)


def _value_of_words(parts: list[str]) -> int | None:
    """Below a thousand million million, in the one order English has: 'nineteen ninety' is no number here."""
    total, group, last_magnitude = 0, 0, 15
    for part in parts:
        if part == "and":
            if group % 100 or not total + group:
                return None
        elif part == "hundred":
            if not 1 <= group <= 9:
                return None
            group *= 100
        elif part in MAGNITUDES:
            if not group or MAGNITUDES[part] >= last_magnitude:
                return None
            last_magnitude = MAGNITUDES[part]
            total, group = total + group * 10**last_magnitude, 0
        else:
            value, rest = NUMBER_WORDS[part], group % 100
            follows_tens = value < 10 and rest >= 20 and rest % 10 == 0
            if (rest and not follows_tens) or (value == 0 and len(parts) > 1):
                return None
            group += value
    return total + group


@cache
def _numeral_pattern() -> re.Pattern[str]:
    return re.compile(
        r"""(?P<sign>[+-]?)(?:
            (?P<continental> [1-9]\d{0,2}(?:\.\d{3})+,\d+ | [1-9]\d{0,2}(?:[ ]\d{3})+,(?!\d{3}(?!\d))\d+ )
          | (?P<grouped> (?: [1-9]\d{0,2}(?:,\d{3})+
                           | [1-9]\d?(?:,\d{2})+,\d{3}
                           | [1-9]\d{0,2}(?:[ ]\d{3})+
                           | [1-9]\d{0,2}(?:'\d{3})+
                           | [1-9]\d{0,2}(?:_\d{3})+
                           | \d+(?!,\d) )(?:\.\d+)?
                       | \.\d+ )
          | (?P<comma> (?:0|[1-9]\d*),\d+ )
        )(?![\d.,]\d|\d)""",
        re.VERBOSE,
    )


@cache
def _number_words_pattern() -> re.Pattern[str]:
    word = "|".join([*sorted(NUMBER_WORDS, key=len, reverse=True), "hundred", *MAGNITUDES])
    return re.compile(rf"(?:{word})(?:(?:[ -]and)?[ -](?:{word}))*(?![\w'])", re.IGNORECASE)
