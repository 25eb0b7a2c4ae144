"""The word index on PostgreSQL: which keyed hashes a fact is found by, and a search expression as a query over them.

Texts are taken apart by the very tokenizer of the SQLite store, so both find the same. What the database sees of a
word is a hash of 64 bits under the key of its tenant, with the token of its scope in it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory.search import is_unsegmented
from memory.store_words import split_words
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.search import Document

Blind = Callable[[str], int]
"""The hash of a word, as a signed number of 64 bits."""
KEY: Final = 1
VALUE: Final = 2
TEXT: Final = 4
_PLACES: Final = (KEY, VALUE, TEXT)
_IN_KEY: Final = "{key value} :"
_TOKEN: Final = re.compile(r'\s*(\{key value\} :|"[^"]*"|\*|\(|\)|AND\b|OR\b)')
_BEGINS: Final = "^"
_SCOPE_DIGITS: Final = 20


def terms_of(document: Document, blind: Blind) -> dict[int, int]:
    """The hash of each word of a fact, and the places that have it."""
    found: dict[int, int] = {}
    for place, column in zip(_PLACES, document.columns, strict=True):
        for word in split()(column):
            for one in _with_beginning(word):
                term = blind(one)
                found[term] = found.get(term, 0) | place
    return found


def query_of(match: str, blind: Blind, tenant_id: int) -> tuple[str, list[Any]]:
    """A SELECT of the numbers of the facts that match an expression of `memory.search`, and its values."""
    parser = _Parser(list(_tokens(match)), blind)
    node = parser.any_of(KEY | VALUE | TEXT)
    if parser.left:
        raise MalformedError("expected a search expression")
    return _render(node, tenant_id)


def _with_beginning(word: str) -> Iterator[str]:
    yield word
    # What asks for one character asks for all that begins with it, which no hash of a longer word tells.
    if len(word) > _SCOPE_DIGITS and is_unsegmented(word[_SCOPE_DIGITS]):
        yield _BEGINS + word[: _SCOPE_DIGITS + 1]


def _tokens(match: str) -> Iterator[str]:
    at = 0
    while at < len(match):
        found = _TOKEN.match(match, at)
        if found is None:
            raise MalformedError("expected a search expression")
        yield found[1]
        at = found.end()


@dataclass(frozen=True, slots=True)
class _Word:
    """Facts that have the words with these hashes, any of them, in some places."""

    terms: tuple[int, ...]
    places: int


@dataclass(frozen=True, slots=True)
class _Several:
    """Facts that all, or any, of these find."""

    joined: str
    parts: tuple[_Node, ...]


_Node = _Word | _Several


class _Parser:
    """The grammar of `memory.search`: words in quotes, OR, AND, brackets, and one restriction to columns."""

    def __init__(self, tokens: Sequence[str], blind: Blind) -> None:
        self.left = list(tokens)
        self._blind = blind

    def any_of(self, places: int) -> _Node:
        parts = [self._all_of(places)]
        while self._take("OR"):
            parts.append(self._all_of(places))
        return _any(parts)

    def _all_of(self, places: int) -> _Node:
        parts = [self._one(places)]
        while self._take("AND"):
            parts.append(self._one(places))
        return parts[0] if len(parts) == 1 else _Several("INTERSECT", tuple(parts))

    def _one(self, places: int) -> _Node:
        if self._take(_IN_KEY):
            return self._one(KEY | VALUE)
        if self._take("("):
            inner = self.any_of(places)
            if not self._take(")"):
                raise MalformedError("expected a search expression with its brackets closed")
            return inner
        token = self.left.pop(0) if self.left else ""
        if not token.startswith('"'):
            raise MalformedError("expected a word of a search expression")
        words = split()(token[1:-1])
        if self._take("*"):
            words = [_BEGINS + word[: _SCOPE_DIGITS + 1] for word in words]
        found = tuple(_Word((self._blind(word),), places) for word in words)
        return found[0] if len(found) == 1 else _Several("INTERSECT", found) if found else _Word((), places)

    def _take(self, token: str) -> bool:
        taken = bool(self.left) and self.left[0] == token
        if taken:
            del self.left[0]
        return taken


def _any(parts: Sequence[_Node]) -> _Node:
    """Words in the same places are one look-up."""
    terms: dict[int, list[int]] = {}
    others: list[_Node] = []
    for part in parts:
        if isinstance(part, _Word):
            terms.setdefault(part.places, []).extend(part.terms)
        else:
            others.append(part)
    words = [_Word(tuple(dict.fromkeys(some)), places) for places, some in terms.items()]
    together: tuple[_Node, ...] = (*words, *others)
    return together[0] if len(together) == 1 else _Several("UNION", together)


def _render(node: _Node, tenant_id: int) -> tuple[str, list[Any]]:
    if isinstance(node, _Several):
        rendered = [_render(part, tenant_id) for part in node.parts]
        sql = f" {node.joined} ".join(f"({part})" for part, _ in rendered)
        return sql, [value for _, values in rendered for value in values]
    sql = "SELECT DISTINCT seq FROM words WHERE tenant = %s AND term = ANY(%s::bigint[])"
    if node.places != KEY | VALUE | TEXT:
        sql += f" AND places & {node.places} <> 0"
    return sql, [tenant_id, list(node.terms)]


_LOCAL: Final = threading.local()


def split() -> Callable[[str], list[str]]:
    """What makes of a text the words that the index of the SQLite store has of it."""
    found: Callable[[str], list[str]] | None = getattr(_LOCAL, "split", None)
    if found is None:
        import apsw

        # A connection is for one thread at a time.
        found = _LOCAL.split = split_words(apsw.Connection(":memory:"))
    return found
