"""Which of two facts about one matter comes first: the newer. Pure, from the words that both have.

A fact without a key is superseded by nothing, and the older is often in the words of the question, while the newer says
what changed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from memory.rank import Pool, Ranked, Term

_TELLING_SHARE: Final = 0.75
_RARE: Final = 3
_NEAR_SCORE: Final = 0.6
_LONG: Final = 36
"""Words that a longer note has at least: fewer than that are said of one thing."""
_KINDRED_SCORE: Final = 0.5
_KINDRED: Final = 4
_KINDRED_HAS: Final = 0.5
"""So many words that few facts have two notes share of which the newer goes on from the older, and what it has at least
of the weight of the words of the query that the older has."""
_COMPARED: Final = 10
_BESIDE_A_CHANGE: Final = 6
_SAME_IN_CHAT: Final = 2
_SAME_IN_NOTES: Final = 3
"""So many words of the query two facts share of which the newer tells of a change: a name alone says little."""


def newer_first(ranked: list[Ranked], pool: Pool, terms: Sequence[Term], changes: Set[str]) -> list[Ranked]:
    """The ranking in which, of two facts about the same matter with scores that are near, the newer comes first."""
    matters = _Matters(pool, terms, changes)
    order: list[Ranked] = []
    for one in ranked[:_COMPARED]:
        place = len(order)
        for above, other in enumerate(order):
            if one.seq > other.seq and matters.comes_before(one, other):
                place = above
                break
        order.insert(place, one if place == len(order) else _lifted(one, order[place]))
    return order + ranked[_COMPARED:]


class _Matters:
    """Says of two facts whether they are about the same matter.

    That they have a word of the query in common says little, for all have one: they must have the words that tell
    most. Beside these the newer must have all words of the query that the older has, and tell of a change or, in notes,
    have together what that has together; or both have a word beside the query that hardly any other fact has. Of two
    longer notes it is enough that they share several words, those of the query among them, that hardly any other has:
    who goes on about a matter says the rest of it again, and what changed in other words.
    """

    def __init__(self, pool: Pool, terms: Sequence[Term], changes: Set[str]) -> None:
        self._pool = pool
        self._changes = frozenset(changes).difference(*(term.stems for term in terms))
        least = _TELLING_SHARE * max(term.weight for term in terms) if terms else 0.0
        self._telling = [term.stems for term in terms if term.weight >= least]
        self._untold = frozenset(pool.common).union(*(term.stems for term in terms))
        self._asked = terms
        self._places = {fact.seq: place for place, fact in enumerate(pool.facts)}

    def comes_before(self, one: Ranked, other: Ranked) -> bool:
        """Whether a fact is to be put before an older one that ranks above it."""
        if one.score >= _NEAR_SCORE * other.score and self.are_same(one.seq, other.seq):
            return True
        return one.score >= _KINDRED_SCORE * other.score and self._goes_on(one.seq, other.seq)

    def are_same(self, one: int, other: int) -> bool:
        """Whether two facts of the pool are, of which the second is the older."""
        newer, older = self._places[one], self._places[other]
        one_has, other_has = self._pool.stems[newer], self._pool.stems[older]
        if not self._telling or any(
            told.isdisjoint(one_has) or told.isdisjoint(other_has) for told in self._telling
        ):
            return False
        had = [term for term in self._asked if other in term.having]
        if all(one in term.having for term in had):
            least = _SAME_IN_NOTES if self._pool.are_notes else _SAME_IN_CHAT
            if len(had) >= least and self._tells_of_a_change(newer):
                return True
            together = self._pool.together
            if self._pool.are_notes and together[newer].keys() >= together[older].keys():
                return True
        spread, untold = self._pool.spread, self._untold
        return any(spread[stem] <= _RARE and stem not in untold for stem in one_has & other_has)

    def _goes_on(self, one: int, other: int) -> bool:
        """Whether a longer note goes on about what an older one tells, so far as that is what the query asks for."""
        facts, spread, common = self._pool.facts, self._pool.spread, self._pool.common
        newer, older = facts[self._places[one]], facts[self._places[other]]
        if min(len(newer.stems), len(older.stems)) < _LONG:
            return False
        shared = newer.distinct & older.distinct
        had = [term for term in self._asked if other in term.having]
        has = sum(term.weight for term in had if one in term.having)
        if has < _KINDRED_HAS * sum(term.weight for term in had):
            return False
        return sum(spread[stem] <= _RARE and stem not in common for stem in shared) >= _KINDRED

    def _tells_of_a_change(self, place: int) -> bool:
        """Whether a fact says beside a word that tells most that something is not as it was.

        A note is about much: what changed may be something else.
        """
        if self._changes.isdisjoint(self._pool.stems[place]):
            return False
        said = self._pool.facts[place].stems
        told = [at for at, stem in enumerate(said) if any(stem in one for one in self._telling)]
        beside = (said[max(at - _BESIDE_A_CHANGE, 0) : at + _BESIDE_A_CHANGE + 1] for at in told)
        return any(not self._changes.isdisjoint(some) for some in beside)


def _lifted(one: Ranked, over: Ranked) -> Ranked:
    return one._replace(score=over.score, newer_than=over.seq)
