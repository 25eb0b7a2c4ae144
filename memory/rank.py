"""Which of the facts that a query finds comes first: pure, from the words of the query and of the facts.

A first pass tells from the index alone which facts are worth reading; the second reads them. There a word counts for
more the fewer facts of the scope have it, the more often a fact says it and the shorter the fact is (BM25). Words that
the best facts have in common count a little too. In short turns of a chat the turns beside one count as well: an
answer seldom repeats what it answers. Where two facts are about the same matter, the newer comes first.

All that is counted is of one scope, so nothing that others write moves a rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from math import fsum, log
from types import MappingProxyType
from typing import Final, NamedTuple

from memory.rank_newer import newer_first

_SATURATION_IN_CHAT: Final = 1.5
_SATURATION_IN_NOTES: Final = 2.0
_LENGTH_SHARE: Final = 0.7
_LEAST_SIZE: Final = 160
"""Characters below which it says nothing how long a fact is."""
_IN_KEY: Final = 0.4
"""What a word counts for in addition where it stands in key, subject or value."""

_TOGETHER: Final = 0.4
"""What two neighbouring words of a query count for, by the lesser of them, where a note has them together."""

_NEAR: Final = 2

_BESIDE: Final = (0.3, 0.5, 0.4, 0.2)
"""What a fact takes of the scores of those two before, one before, one after and two after it."""
_SHORT_WORDS: Final = 36
_LONG_WORDS: Final = 56
"""Up to as many words facts are turns of a chat, from as many on they are notes that stand alone."""
_PAUSE: Final = 6 * 3600 * 1_000_000
"""Microseconds after which what is told is another conversation."""

_MEANT_IN_CHAT: Final = 0.25
_MEANT_IN_NOTES: Final = 0.5
"""What nearness in meaning counts for, against the best score by words."""

_MODELS_IN_CHAT: Final = 3
_MODELS_IN_NOTES: Final = 5
_RELATED: Final = 40
_RELATED_IN_CHAT: Final = 0.2
_RELATED_IN_NOTES: Final = 0.3
_LEAST_SHARED: Final = 2
_LEAST_POOL: Final = 16
"""Of fewer facts neither what they have in common nor what kind of store this is can be told."""

_RECENT_SHARE: Final = 0.02


class Term(NamedTuple):
    """One word of a query: how much it tells, its stems, and the facts that have it, and have it in key or value."""

    word: str
    weight: float
    stems: frozenset[str]
    having: Set[int]
    keyed: Set[int]


class Reading(NamedTuple):
    """A fact that was read: the stems of its text in order, and once each; those of key, subject and value."""

    seq: int
    recorded_at: int
    stems: Sequence[str]
    distinct: frozenset[str]
    named: frozenset[str]
    size: int
    """Characters of the text"""
    beside: tuple[int | None, ...] = ()
    """What was told just before and after it"""


class Ranked(NamedTuple):
    """A fact with its score, and what that is made of."""

    seq: int
    score: float
    words: float = 0.0
    beside: float = 0.0
    related: float = 0.0
    meaning: float = 0.0
    newer_than: int | None = None
    """The fact about the same matter before which this one was put, being newer"""


@dataclass(frozen=True, slots=True)
class Pool:
    """The facts that were read, each with its stems, what its length does to counts, and its neighbours."""

    facts: Sequence[Reading]
    stems: Sequence[frozenset[str]]
    times: Sequence[Mapping[str, int] | None]
    """How often each says a stem; None where it says none of them twice, as most short texts"""
    dampers: Sequence[float]
    beside: Sequence[Sequence[tuple[int, float]]]
    """Places of neighbours, with what a fact takes of their scores"""
    spread: Mapping[str, int]
    """How many of the facts have a stem"""
    common: Collection[str]
    share: float
    """How far the facts are turns of a chat"""
    saturation: float
    together: Sequence[Mapping[int, float]]
    """Which neighbouring words of the query a fact has together, by their places, with what that counts for"""

    @property
    def are_notes(self) -> bool:
        """Whether the facts are longer notes, as far as they are enough to tell."""
        return not self.share and len(self.facts) >= _LEAST_POOL


def weight_of(known: int, having: float) -> float:
    """What a word tells that so many of the known facts have."""
    return log(1 + (max(known - having, 0) + 0.5) / (having + 0.5))


def first_pass(terms: Iterable[Term], candidates: Iterable[int]) -> list[tuple[float, int]]:
    """The candidates as far as the index alone tells, best first, of equals the newest."""
    scores: dict[int, float] = dict.fromkeys(candidates, 0.0)
    for term in terms:
        for seqs, weight in ((term.having, term.weight), (term.keyed, term.weight * _IN_KEY)):
            for seq in scores.keys() & seqs if seqs else ():
                scores[seq] += weight
    order = sorted(scores, reverse=True)
    order.sort(key=scores.__getitem__, reverse=True)
    return [(scores[seq], seq) for seq in order]


def chat_share(facts: Sequence[Reading]) -> float:
    """How far facts like these are turns of a chat, from 0 to 1, by their length; of a few it can't be told."""
    if len(facts) < _LEAST_POOL:
        return 0.0
    sizes = sorted([len(fact.stems) for fact in facts])
    # The median. The module for it takes as long to load as half of a recall's own modules.
    words = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    return min(max((_LONG_WORDS - words) / (_LONG_WORDS - _SHORT_WORDS), 0.0), 1.0)


def second_pass(
    terms: Sequence[Term],
    facts: Sequence[Reading],
    common: Collection[str],
    meaning: Mapping[int, float] = MappingProxyType({}),
    changes: Set[str] = frozenset(),
) -> list[Ranked]:
    """The facts best first, of equals the newest; `common` are the stems that say nothing of what a fact is about.

    `meaning` says of facts how near in meaning they are, which counts for more the less facts are turns of a chat.
    `changes` are stems that say that something is not as it was: what has one is put before what is older.
    Facts whose `beside` is not empty take of the scores of their neighbours, as far as these are among the facts.
    """
    if not facts:
        return []
    pool = _make_pool(terms, facts, common)
    named = _by_words(terms, pool)
    share = pool.share
    unit = (max(named) or 1.0) * _between(share, _MEANT_IN_CHAT, _MEANT_IN_NOTES)
    meant = [unit * meaning.get(fact.seq, 0.0) for fact in facts]
    words = [one + other for one, other in zip(named, meant, strict=True)]
    heard = [one + other for one, other in zip(words, _from_beside(pool, words), strict=True)]
    related = _from_related(terms, pool, heard)
    kept = 1 - _between(share, _RELATED_IN_CHAT, _RELATED_IN_NOTES)
    own = [kept * one for one in words]
    mixed = [one + other for one, other in zip(own, related, strict=True)]
    beside = _from_beside(pool, mixed)
    order = sorted(range(len(facts)), key=lambda place: facts[place].seq)
    ranked = []
    for age, place in enumerate(order):
        score = (mixed[place] + beside[place]) * (1 + _RECENT_SHARE * age / len(facts))
        parts = (kept * named[place], beside[place], related[place], kept * meant[place])
        ranked.append(Ranked(facts[place].seq, score, *parts))
    ranked.sort(key=lambda one: (one.score, one.seq), reverse=True)
    return newer_first(ranked, pool, terms, changes)


def _make_pool(terms: Sequence[Term], facts: Sequence[Reading], common: Collection[str]) -> Pool:
    stems = [fact.distinct for fact in facts]
    times = [None if len(fact.distinct) == len(fact.stems) else Counter(fact.stems) for fact in facts]
    sizes = [max(fact.size, _LEAST_SIZE) for fact in facts]
    average = sum(sizes) / len(facts)
    share = chat_share(facts)
    saturation = _between(share, _SATURATION_IN_CHAT, _SATURATION_IN_NOTES)
    dampers = [saturation * (1 - _LENGTH_SHARE + _LENGTH_SHARE * size / average) for size in sizes]
    spread = Counter(chain.from_iterable(stems))
    are_told = share < 1 and len(facts) >= _LEAST_POOL
    together = _together(terms, facts, stems) if are_told else [{}] * len(facts)
    return Pool(
        facts, stems, times, dampers, _neighbours(facts, share), spread, common, share, saturation, together
    )


def _between(share: float, in_chat: float, in_notes: float) -> float:
    """What holds of facts that are, as far as this share, turns of a chat."""
    return share * in_chat + (1 - share) * in_notes


def _neighbours(facts: Sequence[Reading], share: float) -> list[list[tuple[int, float]]]:
    if not share:
        return [[] for _ in facts]
    places = {fact.seq: place for place, fact in enumerate(facts)}
    beside = []
    for fact in facts:
        found = []
        for seq, part in zip(fact.beside, _BESIDE, strict=False):
            place = places.get(seq) if seq is not None else None
            # What has no neighbours itself stands alone, and gives nothing either.
            if (
                place is not None
                and facts[place].beside
                and abs(facts[place].recorded_at - fact.recorded_at) <= _PAUSE
            ):
                found.append((place, part * share))
        beside.append(found)
    return beside


def _by_words(terms: Sequence[Term], pool: Pool) -> list[float]:
    places = {fact.seq: place for place, fact in enumerate(pool.facts)}
    scores = [0.0] * len(pool.facts)
    for term in terms:
        stems, weight, keyed = term.stems, term.weight, term.keyed
        for seq in term.having & places.keys():
            place = places[seq]
            said = pool.times[place]
            if said is None:
                times = len(stems & pool.stems[place])
            else:
                times = sum([said[stem] for stem in stems if stem in said])
            # Where only key or value has the word, the text has it no time, and its length says nothing.
            part = _saturated(times, pool.dampers[place], pool.saturation) if times else 1.0
            scores[place] += weight * part
            if seq in keyed:
                scores[place] += weight * _IN_KEY
    for place, together in enumerate(pool.together):
        if together:
            scores[place] += (1 - pool.share) * sum(together.values())
    return scores


def _together(
    terms: Sequence[Term], facts: Sequence[Reading], stems: Sequence[frozenset[str]]
) -> list[dict[int, float]]:
    """Of each fact the words that stand together in the query and in it, with at most one other in between.

    A name of two words is one thing, and a note that has both of them apart may be about neither.
    """
    pairs = [
        (place, one.stems, other.stems, _TOGETHER * min(one.weight, other.weight))
        for place, (one, other) in enumerate(pairwise(terms))
        if one.stems.isdisjoint(other.stems)
    ]
    return [
        {
            place: weight
            for place, one, other, weight in pairs
            if not (has.isdisjoint(one) or has.isdisjoint(other)) and _are_near(fact.stems, one, other)
        }
        for fact, has in zip(facts, stems, strict=True)
    ]


def _are_near(stems: Sequence[str], one: Set[str], other: Set[str]) -> bool:
    places = [place for place, stem in enumerate(stems) if stem in one]
    return any(stem in other for place in places for stem in stems[max(place - _NEAR, 0) : place + _NEAR + 1])


def _saturated(times: int, damper: float, saturation: float) -> float:
    return times * (saturation + 1) / (times + damper)


def _from_beside(pool: Pool, scores: Sequence[float]) -> list[float]:
    return [sum([part * scores[place] for place, part in beside]) for beside in pool.beside]


def _from_related(terms: Sequence[Term], pool: Pool, heard: Sequence[float]) -> list[float]:
    """What facts get for the words that the best of them have in common, beside those of the query."""
    count = _MODELS_IN_CHAT if pool.share else _MODELS_IN_NOTES
    models = sorted(range(len(heard)), key=lambda place: -heard[place])[:count]
    total = sum(heard[place] for place in models)
    known = len(pool.facts)
    if known < _LEAST_POOL:
        return [0.0] * known
    telling: defaultdict[str, float] = defaultdict(float)
    for place in models:
        said = pool.times[place]
        for stem in pool.stems[place]:
            if pool.spread[stem] >= _LEAST_SHARED and stem not in pool.common:
                times = 1 if said is None else said[stem]
                weight = log(1 + known / pool.spread[stem]) * times / (times + 1)
                telling[stem] += heard[place] / total * weight if total else 0.0
    best = dict(sorted(telling.items(), key=lambda pair: (-pair[1], pair[0]))[:_RELATED])
    sum_ = sum(best.values())
    if not sum_:
        return [0.0] * len(heard)
    part = _between(pool.share, _RELATED_IN_CHAT, _RELATED_IN_NOTES)
    unit = part * sum(term.weight for term in terms) / sum_
    names, saturation = frozenset(best), pool.saturation
    parts = {stem: unit * weight for stem, weight in best.items()}
    scores = []
    for said, stems, damper in zip(pool.times, pool.stems, pool.dampers, strict=True):
        shared = names & stems
        # Summed exactly, for a set has no order of its own.
        if said is None:
            scores.append(fsum([parts[stem] for stem in shared]) * _saturated(1, damper, saturation))
        else:
            scores.append(fsum([parts[stem] * _saturated(said[stem], damper, saturation) for stem in shared]))
    return scores
