"""Text as it is compared: compatibility forms, letter case, white space, and where words begin and end.

Superscripts, subscripts, fractions and circled characters stay as they are: NFKC would make 10² and 102,
or 1½ and 11⁄2, one text (UAX 15, section 1.2 warns of it).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final

# Characters nobody sees (Default_Ignorable_Code_Point, DerivedCoreProperties.txt): dropped, as
# NFKC_Casefold drops them, or a hidden one would make another value of a retired one.
_INVISIBLE: Final = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
# One character in several typographic shapes.
_SHAPES: Final = {
    "-": "‐‑‒–−﹣－",
    "'": "‘’‛ʼ´",
    '"': "“”„‟",
    ".": "٫",
    ",": "٬",
    # Braille with no dots: a blank that is no white space to Unicode.
    " ": "\u2800",
}
_KEPT_AS_WRITTEN: Final = ("<super>", "<sub>", "<fraction>", "<circle>")

# Scripts written without spaces, or with particles joined on: every character is a word of its own.
_UNSPACED: Final = (
    "\u3005\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
    "\uac00-\ud7a3\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
_KATAKANA: Final = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
# Between letters of these and of the others a word ends: serverدبي is two.
_LATIN: Final = "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff"
_OTHER_LETTERS: Final = (
    "\u0370-\u0dff\u10a0-\u10ff\u1100-\u177f\u1800-\u1aff\u1c00-\u1dbf\u1f00-\u1fff\u2c80-\u2dff\ua000-\uabff"
)
SCRIPT_CHANGE: Final = f"(?<=[{_LATIN}])(?=[{_OTHER_LETTERS}])|(?<=[{_OTHER_LETTERS}])(?=[{_LATIN}])"
_BETWEEN_WORDS: Final = "\\s=:,;/|\\\\()\\[\\]{}\"'`<>!?¿¡«»‹›、。・「」『』【】〈〉《》…—―؟،؛।·"


def normal(text: str) -> str:
    """The text in one compatibility form and with single spaces, letter case as written."""
    if not text.isascii():
        text = _one_form(text)
    if not text.isprintable():
        text = "".join(
            " " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c) != "Cc"
        )
    return " ".join(text.split())


def folded(text: str) -> str:
    """The text as it is compared: `normal`, and without letter case."""
    return fold_case(normal(text))


def fold_case(text: str) -> str:
    """A text that is `normal` already, without letter case."""
    if text.isascii():
        return text.lower()
    return _one_form(text.casefold())


def words(text: str) -> Iterator[re.Match[str]]:
    """The words of a text that is `normal`, in order, with their places.

    A word ends at white space, at brackets, quotes and the marks between clauses, and where the script
    changes; in a script without spaces each character is one.
    """
    return (_ascii_word_pattern() if text.isascii() else _word_pattern()).finditer(text)


def unspaced(word: str) -> bool:
    """Whether the word is written in a script without spaces."""
    return _unspaced_pattern().match(word) is not None


def _one_form(text: str) -> str:
    text = text.translate(_table())
    composed = unicodedata.normalize("NFKC", text)
    if composed != text:
        composed = _nfkc(text).translate(_table())
    if any(c.isdecimal() and not c.isascii() for c in composed):
        composed = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in composed)
    return composed


def _nfkc(text: str) -> str:
    parts: list[str] = []
    start = 0
    for place, character in enumerate(text):
        if unicodedata.decomposition(character).startswith(_KEPT_AS_WRITTEN):
            parts += (unicodedata.normalize("NFKC", text[start:place]), character)
            start = place + 1
    parts.append(unicodedata.normalize("NFKC", text[start:]))
    return "".join(parts)


@cache
def _table() -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for first, last in _INVISIBLE:
        table.update(dict.fromkeys(range(first, last + 1)))
    for shape, others in _SHAPES.items():
        table.update(dict.fromkeys(map(ord, others), shape))
    return table


@cache
def _ascii_word_pattern() -> re.Pattern[str]:
    # The same on ASCII, and compiled in a tenth of the time: most texts need no more.
    return re.compile(_spaced_word("\\s=:,;/|\\\\()\\[\\]{}\"'`<>!?"))


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(
        f"[{_UNSPACED}]|[{_KATAKANA}]+|{_spaced_word(_BETWEEN_WORDS + _UNSPACED + _KATAKANA, f'(?!{SCRIPT_CHANGE})')}"
    )


def _spaced_word(outside: str, inside: str = "") -> str:
    # A full stop belongs to a word that goes on after it, or that begins with it as .5 does.
    return f"(?:\\.(?=\\d)|[^.{outside}])(?:{inside}(?:[^.{outside}]|\\.(?=[^.{outside}])))*"


@cache
def _unspaced_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")
