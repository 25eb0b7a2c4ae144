"""The facts of a scope that a query finds, best first: from the index, then from what the facts say.

A word that many facts have is not read to its end: it only re-ranks what the rarer words of the query find, unless
these find too little. So a search costs as much among a million facts as among some thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
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
from memory.search_forms import CHANGES, forms_of

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

_READ_CHARACTERS: Final = 8192
"""Of a text that is longer, the beginning is read: a word from further on counts as one that is said once."""

_LEAST_FOUND: Final = 64
_MAX_SHARE_OF_KNOWN: Final = 0.9


_Split = Callable[[str], Sequence[str]]
_NONE: Final = frozenset[str]()
_COMMON: Final[list[frozenset[str]]] = []
"""The stems of the stop words, once they were asked for."""
_CHANGES: Final[list[frozenset[str]]] = []


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

    def rare(self, match: str) -> Sequence[int] | None:
        """The facts that match, None if there are so many that what they match is frequent."""
        if self.known <= _SMALL:
            found = self.view.matching(match, self.frequent + 1)
            return found if len(found) <= self.frequent else None
        # To count them is much less than to read them, and half of the words of a question are frequent.
        return None if self.view.has_more(match, self.frequent) else self.view.matching(match)

    def newest(self, match: str) -> list[int]:
        """The newest that match, of those that `look_for` looked for."""
        return self._newest[match]

    def look_for(self, matches: Iterable[str]) -> None:
        """Finds the newest facts that match each of these, and keeps them for the time of the search."""
        most = min(_NEWEST, self.frequent)
        unknown = [match for match in matches if match not in self._newest]
        found = {match: self.view.newest_matching(match, most) for match in unknown}
        standing = self.standing(set(chain.from_iterable(found.values()))) if found else set()
        for match, seqs in found.items():
            kept = [seq for seq in seqs if seq in standing]
            if len(kept) < len(seqs) == most:
                # One of the newest is past: an older one is looked for in its place, fact by fact.
                scope = self.tenant_id, self.agent_tag
                kept = self.view.matching_of_status(*scope, match, self.statuses, most)
            self._newest[match] = kept


@dataclass(frozen=True, slots=True)
class _Asked:
    """A word of a query and what the index has of it, as far as it was read."""

    word: str
    match: str
    having: Sequence[int] | None
    """The facts that have it, None if they are too many to be read"""

    @property
    def is_frequent(self) -> bool:
        return self.having is None


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
        asked.append(_Asked(word, match, search.rare(match)))
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
    ranked = second_pass(terms, facts, _common(split), meaning, _changes(split))
    return Found(ranked, _Rest(first, candidates, ranked), terms, keys)


def _candidates(search: _Search, asked: Sequence[_Asked], least: int) -> set[int]:
    rare = {seq for one in asked for seq in one.having or ()}
    found = search.standing(rare) if rare else set()
    frequent = [one.match for one in asked if one.is_frequent]
    if frequent and len(found) < least:
        together = each_of(frequent)
        search.look_for([together, *frequent])
        for match in (together, *frequent):
            found.update(search.newest(match))
    return found


def _weighed(
    search: _Search,
    asked: Sequence[_Asked],
    candidates: set[int],
    split: _Split,
) -> list[Term]:
    rare = [one.match for one in asked if one.having]
    # Most queries have no word of a key, which is asked once for all rare words.
    named = bool(rare and search.view.matching(in_key(any_of(rare)), 1))
    if len(candidates) <= search.frequent:
        search.look_for([one.match for one in asked if one.is_frequent])
    terms = []
    for one in asked:
        if one.having is None:
            having, keyed = _having_frequent(search, any_of(rare), one.match, candidates), set[int]()
            share = len(having) / max(len(candidates), 1) * search.known * _MAX_SHARE_OF_KNOWN
            weight = weight_of(search.known, max(share, search.frequent))
        elif one.having:
            having = candidates.intersection(one.having)
            keyed = having & set(search.view.matching(in_key(one.match), len(one.having))) if named else set()
            weight = weight_of(search.known, len(having))
        else:
            continue
        stems = split(" ".join(forms_of(one.word)))
        terms.append(Term(one.word, weight, frozenset(stems), having, keyed))
    return terms


def _having_frequent(search: _Search, rare: str, match: str, candidates: Set[int]) -> set[int]:
    """The candidates that have a frequent word: some of the newest, and those that a rare word found.

    Never by reading the word to its end: half of a million facts may say it.
    """
    having = set(search.newest(match)) if len(candidates) <= search.frequent else set()
    if rare:
        having.update(search.view.matching(f"({rare}) AND ({match})"))
    return having & candidates


def _completed(terms: Sequence[Term], asked: Iterable[_Asked], facts: Iterable[Reading]) -> list[Term]:
    """The terms, with those facts that were read and have a frequent word, of which the index tells the newest alone.

    Whether a frequent word stands in a key the index is not asked at all: it would be read far to find none.
    """
    frequent = {one.word for one in asked if one.is_frequent}
    wanted = frozenset[str]().union(*(term.stems for term in terms if term.word in frequent))
    if not wanted:
        return list(terms)
    saying: dict[str, set[int]] = {stem: set() for stem in wanted}
    named: dict[str, set[int]] = {stem: set() for stem in wanted}
    for fact in facts:
        for stem in wanted & fact.distinct:
            saying[stem].add(fact.seq)
        for stem in wanted & fact.named:
            named[stem].add(fact.seq)
    return [
        Term(
            term.word,
            term.weight,
            term.stems,
            set[int]().union(term.having, *(saying[stem] | named[stem] for stem in term.stems)),
            set[int]().union(term.keyed, *(named[stem] for stem in term.stems)),
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
    # Made anew by its fields, which takes a third of the time of `_replace`.
    return [Reading(*fact[:6], beside[fact.seq]) if fact.seq in beside else fact for fact in facts], keys


def _reading(row: store_search.TextRow, split: _Split) -> Reading:
    stems = split(row.text[:_READ_CHARACTERS])
    named = frozenset(split(row.named)) if row.named else _NONE
    return Reading(row.seq, row.recorded_at, stems, frozenset(stems), named, len(row.text))


def _common(split: _Split) -> frozenset[str]:
    if not _COMMON:
        _COMMON.append(frozenset(split(" ".join(STOP_WORDS))))
    return _COMMON[0]


def _changes(split: _Split) -> frozenset[str]:
    if not _CHANGES:
        _CHANGES.append(frozenset(split(" ".join(CHANGES))))
    return _CHANGES[0]


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
