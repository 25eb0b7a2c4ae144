"""The facts of a scope that a query finds, best first: from the index, then from what the facts say.

A word that many facts have is not read to its end: it only re-ranks what the rarer words of the query find, unless
these find too little. So a search costs as much among a million facts as among some thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, overload

from memory import store_search
from memory.rank import Ranked, Reading, Term, chat_share, first_pass, second_pass, weight_of
from memory.search import (
    STOP_WORDS,
    any_of,
    each_of,
    in_key,
    make_match,
    query_words,
    scope_token,
)
from memory.search_forms import forms_of

if TYPE_CHECKING:
    from memory.model import Status
    from memory.store_read import Snapshot

_FREQUENT: Final = 256
"""A word that more facts have than this is frequent, in a scope that is not small."""

_NEWEST: Final = 128
"""Of facts that have a frequent word so many are looked at, the newest."""

_SMALL: Final = 2048
"""Of a scope of so many facts everything is looked at."""

_MAX_KNOWN: Final = 4096
"""As how many facts a scope counts at most: more would only move all weights alike."""

_READ_OF_TURNS: Final = 36
_READ_OF_NOTES: Final = 128
_MAX_LEADERS: Final = 10
"""How many of the first are read, and of how many of them the turns beside."""

_LEAST_FOUND: Final = 64
_MAX_SHARE_OF_KNOWN: Final = 0.9


_Split = Callable[[str], tuple[str, ...]]
_COMMON: Final[list[frozenset[str]]] = []
"""The stems of the stop words, once they were asked for."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a query finds: the facts best first, then those that were not worth reading; and the words it asks for."""

    ranked: Sequence[Ranked] = ()
    rest: Sequence[Ranked] = ()
    terms: Sequence[Term] = ()
    keys: Mapping[int, bytes | None] = field(default_factory=dict)
    """The tag of the key of each fact that was read, None for one without a key"""


@dataclass(frozen=True, slots=True)
class _Search:
    """A search under way: one view, one scope, the statuses that may be found."""

    view: Snapshot
    tenant_id: int
    agent_tag: bytes
    statuses: Sequence[Status]
    known: int
    _newest: dict[str, list[int]] = field(default_factory=dict)

    @property
    def frequent(self) -> int:
        """How many facts may have a word that is not frequent."""
        return _FREQUENT if self.known > _SMALL else _SMALL

    def standing(self, seqs: Iterable[int]) -> set[int]:
        return store_search.having_status(self.view, self.tenant_id, self.agent_tag, seqs, self.statuses)

    def texts(self, seqs: Iterable[int]) -> list[store_search.TextRow]:
        return store_search.texts(self.view, self.tenant_id, self.agent_tag, seqs)

    def neighbours(self, seqs: Iterable[int]) -> dict[int, tuple[int | None, ...]]:
        return store_search.neighbours(self.view, self.tenant_id, self.agent_tag, seqs)

    def newest(self, match: str) -> list[int]:
        """The newest that match; what was found is kept for the time of the search."""
        if match not in self._newest:
            self._newest[match] = self.view.matching_of_status(
                self.tenant_id, self.agent_tag, match, self.statuses, min(_NEWEST, self.frequent)
            )
        return self._newest[match]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A word of a query and what the index has of it, as far as it was read."""

    word: str
    match: str
    having: Sequence[int]
    is_frequent: bool


def find(
    view: Snapshot,
    tenant_id: int,
    agent_tag: bytes,
    query: str,
    statuses: Sequence[Status],
    least: int = 1,
    meaning: Mapping[int, float] = MappingProxyType({}),
) -> Found:
    """The facts of a scope, of some statuses, that have a word of the query or are near in `meaning`.

    Words that are frequent find facts themselves only where the others find fewer than `least`.
    """
    known = store_search.scope_size(view, tenant_id, agent_tag, _MAX_KNOWN)
    search = _Search(view, tenant_id, agent_tag, statuses, known)
    token = scope_token(agent_tag)
    asked = []
    for word in query_words(query):
        match = make_match(token, word)
        having = view.matching(match, search.frequent + 1)
        asked.append(_Asked(word, match, having, len(having) > search.frequent))
    candidates = _candidates(search, asked, max(least, _LEAST_FOUND))
    near = search.standing(meaning) if meaning else set()
    if not candidates and not near:
        return Found()
    split = store_search.splitter(view)
    terms = _weighed(search, asked, candidates, split)
    first = first_pass(terms, candidates)
    order = [*sorted(near - candidates), *(seq for _, seq in first[: _READ_OF_NOTES + len(near)])]
    facts, keys = _read(search, order, candidates | near, split, len(near))
    terms = _completed(terms, asked, facts)
    ranked = second_pass(terms, facts, _common(split), meaning)
    return Found(ranked, _Rest(first, candidates, ranked), terms, keys)


def _candidates(search: _Search, asked: Sequence[_Asked], least: int) -> set[int]:
    rare = {seq for one in asked if not one.is_frequent for seq in one.having}
    found = search.standing(rare) if rare else set()
    frequent = [one.match for one in asked if one.is_frequent]
    if frequent and len(found) < least:
        found.update(search.newest(each_of(frequent)))
        for match in frequent:
            found.update(search.newest(match))
    return found


def _weighed(
    search: _Search,
    asked: Sequence[_Asked],
    candidates: set[int],
    split: _Split,
) -> list[Term]:
    rare = [one.match for one in asked if not one.is_frequent and one.having]
    # Most queries have no word of a key, which is asked once for all words that are not frequent.
    named = bool(rare and search.view.matching(in_key(any_of(rare)), 1))
    terms = []
    for one in asked:
        if not one.having:
            continue
        if one.is_frequent:
            having, keyed = _of_frequent(search, one, rare, candidates)
        else:
            having = candidates & set(one.having)
            keyed = having & set(search.view.matching(in_key(one.match), len(one.having))) if named else set()
        share = len(having) / max(len(candidates), 1) * search.known * _MAX_SHARE_OF_KNOWN
        weight = weight_of(search.known, max(share, search.frequent) if one.is_frequent else len(having))
        stems = split(" ".join(forms_of(one.word)))
        terms.append(Term(one.word, weight, frozenset(stems), having, keyed))
    return terms


def _of_frequent(
    search: _Search, one: _Asked, rare: Sequence[str], candidates: set[int]
) -> tuple[set[int], set[int]]:
    """The candidates that have a frequent word, and those that have it in key, subject or value.

    Never by reading the word to its end: half of a million facts may say it, and none have it in their key.
    """
    having: set[int] = set()
    keyed: set[int] = set()
    if len(candidates) <= search.frequent and (newest := search.newest(one.match)):
        having.update(newest)
        keyed.update(search.view.matching_since(in_key(one.match), newest[-1]))
    if rare:
        beside = search.view.matching(f"({any_of(rare)}) AND ({one.match})")
        having.update(beside)
        if beside:
            keyed.update(search.view.matching(f"({any_of(rare)}) AND {in_key(one.match)}"))
    having &= candidates
    return having, having & keyed


def _completed(terms: Iterable[Term], asked: Iterable[_Asked], facts: Iterable[Reading]) -> list[Term]:
    """The terms, with those facts that were read and have a frequent word whose facts the index was not asked for."""
    frequent = {one.word for one in asked if one.is_frequent}
    return [
        term._replace(
            having=term.having | {fact.seq for fact in facts if not term.stems.isdisjoint(fact.stems)}
        )
        if term.word in frequent
        else term
        for term in terms
    ]


def _read(
    search: _Search, ordered: Sequence[int], wanted: Set[int], split: _Split, least: int
) -> tuple[list[Reading], dict[int, bytes | None]]:
    """The facts that are worth reading, with their neighbours where they are turns of a chat; and their keys."""
    leaders = ordered[: _READ_OF_TURNS + least]
    rows = search.texts(leaders)
    facts = [_reading(row, split) for row in rows]
    if not chat_share(facts):
        rows += search.texts(ordered[len(leaders) : _READ_OF_NOTES + least])
        facts += [_reading(row, split) for row in rows[len(facts) :]]
        return facts, {row.seq: row.key_tag for row in rows}
    # What has a key stands for itself; a turn has none.
    beside = search.neighbours([row.seq for row in rows if row.key_tag is None])
    read = set(leaders)
    near = {
        seq: None
        for leader in leaders[:_MAX_LEADERS]
        for seq in beside.get(leader, ())
        if seq is not None and seq in wanted and seq not in read
    }
    if near:
        more = search.texts(near)
        beside |= search.neighbours([row.seq for row in more if row.key_tag is None])
        facts += [_reading(row, split) for row in more]
        rows += more
    keys = {row.seq: row.key_tag for row in rows}
    return [fact._replace(beside=beside[fact.seq]) if fact.seq in beside else fact for fact in facts], keys


def _reading(row: store_search.TextRow, split: _Split) -> Reading:
    return Reading(row.seq, row.recorded_at, split(row.text), len(row.text))


def _common(split: _Split) -> frozenset[str]:
    if not _COMMON:
        _COMMON.append(frozenset(split(" ".join(STOP_WORDS))))
    return _COMMON[0]


class _Rest(Sequence[Ranked]):
    """What was not read, in the order of the first pass, with scores below all that was; made as it is asked for."""

    def __init__(
        self, first: Sequence[tuple[float, int]], candidates: Set[int], ranked: Sequence[Ranked]
    ) -> None:
        self._all, self._ranked = first, ranked
        self._size = len(first) - sum(one.seq in candidates for one in ranked)

    @cached_property
    def _first(self) -> Sequence[tuple[float, int]]:
        read = {one.seq for one in self._ranked}
        return [pair for pair in self._all if pair[1] not in read]

    @cached_property
    def _unit(self) -> float:
        best = self._first[0][0] if self._first else 0.0
        return min(one.score for one in self._ranked) / best if best else 0.0

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Ranked: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Ranked]: ...
    def __getitem__(self, place: int | slice) -> Ranked | Sequence[Ranked]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        score, seq = self._first[place]
        return Ranked(seq, score * self._unit, score * self._unit)
