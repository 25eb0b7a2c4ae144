"""Words: under which of them a fact is found, and which of them a query asks for.

Every word in the index begins with the token of its scope, so that how many facts have a word, and with it every
rank, is told from the facts of that scope alone. Scripts that are written without spaces (Chinese, Japanese, Thai
and others, and Korean, whose particles stick to words) are indexed as overlapping pairs of characters.
A query is data: each word of it goes into the match expression inside quotes, so no operator of FTS5 can be
reached from it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from memory.search_forms import forms_of

VERSION: Final = 2
"""Of the columns made from a content. A row is deleted by its columns, so another version means a new index."""

UNINDEXED: Final = frozenset({"held", "refused", "discarded"})
"""Statuses of facts that were never let through: the index has no word of them."""

MAX_TERMS: Final = 64
_MAX_KNOWN: Final = 1 << 14
_MAX_JOINED: Final = 48
_SCOPE_BYTES: Final = 8
_SCOPE_DIGITS: Final = 20

# Dropped from queries alone: the index has every word, for a query may be made of nothing else.
_STOP_WORDS: Final = (
    "a about after again all also am an and any are as at be because been before being both but by "
    "can could did do does doing done during each few for from further get got had has have having he "
    "her here hers him his how i if in into is it its itself just like let me more most much my no "
    "nor not now of off on once only or other our ours out over own please same say says said she "
    "should so some such tell than that the their theirs them then there these they this those "
    "through to too under until up us very was we were what when where which while who whom whose why "
    "will with would you your yours"
)
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())


class Document(NamedTuple):
    """What the word index holds of one fact: words with spaces between."""

    key: str
    value: str
    body: str

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns in the order of the index."""
        return self


@lru_cache(maxsize=1024)
def scope_token(agent_tag: bytes) -> str:
    """What every word of a scope begins with: digits, which no stemmer changes, as many for every scope."""
    return f"{int.from_bytes(agent_tag[:_SCOPE_BYTES], 'big'):0{_SCOPE_DIGITS}}"


def make_document(scope: str, content: Mapping[str, Any]) -> Document:
    """The columns of a fact with this content; the same content always gives the same."""
    key, subject = content.get("key"), content.get("subject")
    named = f"{key} {subject}" if key and subject else str(key or subject or "")
    return Document(
        _column(scope, named),
        _column(scope, str(content.get("value") or "")),
        _column(scope, str(content.get("text") or "")),
    )


def make_matches(scope: str, query: str) -> tuple[str, ...]:
    """A full-text expression for each word of a query, in one scope; none if it has no words.

    Stop words are left out unless there is nothing else. At most MAX_TERMS words and as many pairs count.
    """
    return tuple(make_match(scope, word) for word in query_words(query))


def make_match(scope: str, word: str) -> str:
    """The full-text expression for one word of `query_words`, in any of its forms."""
    if word.endswith("*"):
        return f'"{scope}{word[:-1]}" *'
    return " OR ".join(f'"{scope}{form}"' for form in forms_of(word))


def is_unsegmented(character: str) -> bool:
    """Whether a character is of a script without spaces, whose texts are indexed as pairs."""
    return _unsegmented().fullmatch(character) is not None


def in_key(match: str) -> str:
    """The expression for the same word in key, subject or value alone."""
    return f"{{key value}} : ({match})"


def any_of(matches: Sequence[str]) -> str:
    """The expression for any of these words."""
    return " OR ".join(matches)


def each_of(matches: Sequence[str]) -> str:
    """The expression for all of these words."""
    return " AND ".join(f"({match})" for match in matches)


def index_words(text: str) -> list[str]:
    """The words of a text under which it is found, each of them one for the tokenizer of the index."""
    return [*text_words(text), *joined_words(text)]


def text_words(text: str) -> list[str]:
    """The words of a text as they stand in it, without those that hyphens join."""
    if text.isascii():
        return _ascii_word().findall(text)
    plain = _plain(text)
    grams = [gram for run in _unsegmented().findall(plain) for gram in _index_grams(run)]
    return [*_spaced(plain), *grams]


def joined_words(text: str) -> list[str]:
    """What hyphens part, each as one word: who asks for `email` finds `e-mail`, and the other way round."""
    if text.isascii():
        if "-" not in text:
            return []
        hyphened = _ascii_hyphened().findall(text)
    else:
        plain = _normal(text).translate(_HYPHENED)
        hyphened = _hyphened().findall(plain) if "-" in plain else []
    joined = [word.replace("-", "") for word in hyphened]
    return [word for word in joined if len(word) <= _MAX_JOINED and not _unsegmented().search(word)]


def query_words(query: str) -> list[str]:
    """The words that a query asks for; one that ends in an asterisk asks for what begins so."""
    return _words_of_query(_clitic().sub(" ", query)) or _words_of_query(query)


def _words_of_query(query: str) -> list[str]:
    if query.isascii():
        words, grams = _distinct(_ascii_word().findall(query)), []
    else:
        plain = _plain(query)
        words = _distinct(_spaced(plain))
        grams = _distinct(gram for run in _unsegmented().findall(plain) for gram in _query_grams(run))
    telling = [word for word in words if word.lower() not in STOP_WORDS]
    joined = [word for word in _distinct(joined_words(query)) if word not in words][: MAX_TERMS - len(words)]
    return [*(telling if telling or grams else words), *joined, *grams]


def _column(scope: str, text: str) -> str:
    # Once is enough: the index notes that a column has a word, not how often.
    words = dict.fromkeys(index_words(text))
    return scope + f" {scope}".join(words) if words else ""


def _plain(text: str) -> str:
    """The text with compatible forms made one, and nothing in it but words and spaces.

    All tables are of one version: a fact indexed under one Python and SQLite is deleted under another.
    """
    return _normal(text).translate(_PLAIN)


def _normal(text: str) -> str:
    return unicodedata.ucd_3_2_0.normalize("NFKC", text)


def _spaced(plain: str) -> list[str]:
    """The words that stand between spaces."""
    return _unsegmented().sub(" ", plain).split()


@cache
def _ascii_word() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z0-9]+")


@cache
def _ascii_hyphened() -> re.Pattern[str]:
    # From the beginning of a word alone, else one word of a megabyte would be tried from each of its letters.
    return re.compile("(?<![A-Za-z0-9])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)+")


@cache
def _hyphened() -> re.Pattern[str]:
    return re.compile("(?<![^ -])[^ -]+(?:-[^ -]+)+")


@cache
def _clitic() -> re.Pattern[str]:
    """What an apostrophe joins to a word, which tells nothing, and is rare where few write so: "Ann's", "l'été"."""
    return re.compile(
        r"(?<=[^\W\d_])['\u2019\uff07](?:s|t|d|m|ll|re|ve)(?![\w'\u2019\uff07])"
        r"|(?<!\w)(?:[cdjlmnst]|qu)['\u2019\uff07](?=[^\W\d_])",
        re.IGNORECASE,
    )


@cache
def _unsegmented() -> re.Pattern[str]:
    return re.compile(
        "["
        "\u0e01-\u0e5b\u0e81-\u0edf"  # Thai, Lao
        "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
        "\u1100-\u11ff\uac00-\ud7ff"  # Hangul
        "\u3005-\u3007\u3031-\u3035\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff"  # Japanese marks and syllables
        "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
        "]+"
    )


class _Plain(dict[int, str]):
    """What becomes of a character: a letter stays, of some scripts its base; a digit is one of ASCII; else a space.

    Marks stay where they make another letter of it, as in Indic scripts. Those of Latin, Greek, Cyrillic, Hebrew and
    Arabic are left out, for the same word is written with and without them. What Unicode 3.2 does not know is a word
    of its own, in ASCII: versions of SQLite differ in what they take it for.
    """

    def __init__(self, **kept: str) -> None:
        super().__init__({ord(character): plain for character, plain in kept.items()})

    def __missing__(self, code: int) -> str:
        plain = _plain_of(chr(code))
        if len(self) < _MAX_KNOWN:
            self[code] = plain
        return plain


def _plain_of(character: str) -> str:
    if character in _WITHIN_WORDS or _is_left_out(character):
        return ""
    category = unicodedata.ucd_3_2_0.category(character)
    if category == "Cn":
        return f" u{ord(character):x} "
    if category[0] not in "LN" and category not in ("Mn", "Mc", "Co"):
        return " "
    if category == "Nd":
        return str(unicodedata.ucd_3_2_0.decimal(character))
    return _folded(character) if _FOLDED.match(character) else character


def _folded(character: str) -> str:
    """A letter without its marks, and one that has no marks to lose by the letters that it is written with else."""
    base = unicodedata.ucd_3_2_0.normalize("NFKD", character)
    return "".join(_LETTERS.get(one, one) for one in base if not _is_left_out(one))


def _is_left_out(character: str) -> bool:
    return _MARKS.match(character) is not None


_WITHIN_WORDS: Final = frozenset("\u00ad\u0640\u200c\u200d\u2060\ufeff")
"""Not seen, or only to be seen: a soft hyphen, the Arabic stroke that makes words longer, joiners."""
_MARKS: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed]"
)
_FOLDED: Final = re.compile("[\u00c0-\u024f\u0370-\u052f\u0621-\u06d3\u1e00-\u1fff]")
"""Latin, Greek, Cyrillic and Arabic letters."""
_LETTERS: Final[Mapping[str, str]] = MappingProxyType(
    {"\u00df": "ss", "\u0131": "i"}
    | dict.fromkeys("\u00c6\u00e6", "ae")
    | dict.fromkeys("\u0152\u0153", "oe")
    | dict.fromkeys("\u00d8\u00f8", "o")
    | dict.fromkeys("\u0141\u0142", "l")
    | dict.fromkeys("\u00d0\u00f0\u0110\u0111", "d")
    | dict.fromkeys("\u00de\u00fe", "th")
    | dict.fromkeys("\u0126\u0127", "h")
)
_PLAIN: Final = _Plain()
_HYPHENED: Final = _Plain(**{"-": "-", "\u2010": "-", "\u2011": "-"})


def _index_grams(run: str) -> Iterator[str]:
    """Each pair of neighbours, and the last character alone: each character begins one gram."""
    for at in range(len(run)):
        yield run[at : at + 2]


def _query_grams(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield f"{run}*"
    for at in range(len(run) - 1):
        yield run[at : at + 2]


def _distinct(words: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for word in words:
        found[word] = None
        if len(found) == MAX_TERMS:
            break
    return list(found)
