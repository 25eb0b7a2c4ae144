"""Words: the columns under which a fact is found, and the full-text query for any string a caller gives.

Scripts that are written without spaces (Chinese, Japanese, Thai and others, and Korean, whose particles stick
to words) are taken out of the word columns and indexed as overlapping pairs of characters. A query is data: each
word of it goes into the match expression inside quotes, so no operator of FTS5 can be reached from it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

VERSION: Final = 1
"""Of the columns made from a content. A row is deleted by its columns, so another version means a new index."""

MAX_TERMS: Final = 64
_UNSEGMENTED: Final = re.compile(
    "["
    "\u0e01-\u0e5b\u0e81-\u0edf"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u1100-\u11ff\uac00-\ud7ff"  # Hangul
    "\u3005-\u3007\u3031-\u3035\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff"  # Japanese marks, Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "]+"
)
_ASCII_WORD: Final = re.compile(r"[A-Za-z0-9]+")
# Dropped from queries alone: the index has every word, for a phrase may be made of nothing else.
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


@dataclass(frozen=True, slots=True)
class Document:
    """What the word index holds of one fact."""

    scope: str
    key: str
    value: str
    body: str
    grams: str

    @property
    def columns(self) -> tuple[str, str, str, str, str]:
        """The columns in the order of the index."""
        return self.scope, self.key, self.value, self.body, self.grams


def scope_token(agent_tag: bytes) -> str:
    """The word that stands for a scope in the word index: digits, which no stemmer changes."""
    return str(int.from_bytes(agent_tag[:16], "big"))


def make_document(scope: str, content: Mapping[str, Any]) -> Document:
    """The columns of a fact with this content; the same content always gives the same."""
    named = " ".join(str(content[name]) for name in ("key", "subject") if content.get(name))
    fields = [
        _normal(field) for field in (named, str(content.get("value") or ""), str(content.get("text") or ""))
    ]
    grams = [gram for field in fields for run in _runs(field) for gram in _index_grams(run)]
    key, value, body = (field if field.isascii() else _UNSEGMENTED.sub(" ", field) for field in fields)
    return Document(scope, key, value, body, " ".join(grams))


def make_match(scope: str, query: str) -> str | None:
    """The full-text expression that finds any of the words of `query` in one scope; None if it has no words.

    Stop words are left out unless there is nothing else. At most MAX_TERMS different words count.
    """
    text = _normal(query)
    grams = _distinct(gram for run in _runs(text) for gram in _query_grams(run))
    words = _distinct(_words(text if text.isascii() else _UNSEGMENTED.sub(" ", text)))
    telling = [word for word in words if word.lower() not in STOP_WORDS]
    if telling or grams:
        words = telling
    if not words and not grams:
        return None
    alternatives = []
    if words:
        alternatives.append(f"{{key value body}} : ({' OR '.join(map(_quoted, words))})")
    if grams:
        alternatives.append(f"grams : ({' OR '.join(map(_quoted_gram, grams))})")
    return f"scope : {_quoted(scope)} AND ({' OR '.join(alternatives)})"


def _normal(text: str) -> str:
    """Compatible forms made one. The tables are frozen: a fact indexed under one Python is deleted under another."""
    return text if text.isascii() else unicodedata.ucd_3_2_0.normalize("NFKC", text)


def _words(text: str) -> Iterator[str]:
    """Runs of letters, digits and marks: what the tokenizer of the index takes for a word."""
    if text.isascii():
        yield from _ASCII_WORD.findall(text)
        return
    spaced = "".join(c if c.isalnum() or unicodedata.category(c) in ("Mn", "Mc", "Co") else " " for c in text)
    yield from spaced.split()


def _runs(text: str) -> Iterator[str]:
    if not text.isascii():
        yield from _UNSEGMENTED.findall(text)


def _index_grams(run: str) -> Iterator[str]:
    """Each pair of neighbours, and the last character alone: each character begins one gram."""
    for at in range(len(run)):
        yield run[at : at + 2]


def _query_grams(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for at in range(len(run) - 1):
        yield run[at : at + 2]


def _distinct(words: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for word in words:
        found[word] = None
        if len(found) == MAX_TERMS:
            break
    return list(found)


def _quoted(word: str) -> str:
    # Words hold letters, digits and marks alone; doubling quotes keeps it safe if that ever changes.
    return '"' + word.replace('"', '""') + '"'


def _quoted_gram(gram: str) -> str:
    return _quoted(gram) + " *" if len(gram) == 1 else _quoted(gram)
