"""What a query finds by a key: where nothing is asked for but a key, what the key says comes first.

A key of everyday words (`city`) would be one of thousands of facts that say the word, and what they say of it is often
longer and newer. A key is found by its keyed hash, which costs as much in a million facts as in ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memory.rank import Ranked
from memory.rank_matches import Found
from memory.search import query_words
from memory.store_search import newest_of_keys

if TYPE_CHECKING:
    from memory.model import Status
    from memory.rank import Term
    from memory.scope import Scope
    from memory.store_read import Snapshot

_MAX_CHARACTERS: Final = 256
_AROUND: Final = " \t\r\n.,;:!?\u00bf\u00a1\uff1f\u3002"


def key_first(
    found: Found, view: Snapshot, scope: Scope, query: str, statuses: Sequence[Status], count: int
) -> Found:
    """What was found, with the facts of the key that the query is nothing but before the others, the newest first."""
    tags = {scope.key_tag(form) for form in _forms(query)}
    seqs = newest_of_keys(view, scope.tenant_id, sorted(tags), statuses, count) if tags else []
    if not seqs:
        return found
    known = {one.seq: one for one in found.ranked}
    best = max((one.score for one in found.ranked), default=0.0) or 1.0
    first = [known.get(seq, Ranked(seq, best, best))._replace(score=best) for seq in seqs]
    named = set(seqs)
    # What was not read comes after all that was, and is looked through only if one of these is there.
    rest = found.rest if named <= known.keys() else [one for one in found.rest if one.seq not in named]
    return Found(
        [*first, *(one for one in found.ranked if one.seq not in named)],
        rest,
        [_with(term, named) for term in found.terms],
        found.keys,
    )


def _forms(query: str) -> list[str]:
    """The keys that a query may be: as it is written, and without the words that every question has."""
    if len(query) > _MAX_CHARACTERS:
        return []
    return [form for form in (query.strip(_AROUND), " ".join(query_words(query))) if form]


def _with(term: Term, named: set[int]) -> Term:
    return term._replace(having={*term.having, *named}, keyed={*term.keyed, *named})
