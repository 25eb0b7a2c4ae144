"""What is found by words: facts that are served at the asked times, the best first.

What says the same save for case, spaces and marks between words is folded into the newest of it. Facts of one key
that clients disagree about stand together, each of them, whichever was found.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from memory import edge, store_ledger, store_search
from memory.allow import TOLD, may_tell
from memory.answers import NOTICE, Answer, receipts_of
from memory.grants import open_reading
from memory.key_view import STANDING, KeyView, state_of_fact
from memory.model import MAX_TEXT_BYTES
from memory.principal import require
from memory.rank_matches import Found, find
from memory.reads import Asked, ReadAt, served, times_of
from memory.recall_key import key_first
from memory.timeline import FactState, seen_at
from memory.times import format_time
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts
    from memory.rank import Ranked, Term
    from memory.rows import FactRow
    from memory.scope import Scope
    from memory.store_read import Snapshot

_MAX_CANDIDATES: Final = 4096
_LEAST_READ: Final = 4
_MARKS: Final = ".,;:!?\u2026\u3002\uff0c\u3001\"'()[]\u201c\u201d\u2018\u2019"
_DIGITS: Final = 4


@dataclass(frozen=True)
class _Hit:
    """A fact that is served, how it ranks, and the older ones that say the same."""

    fact: FactRow
    state: FactState
    ranked: Ranked
    folded: list[FactRow] = field(default_factory=list)


def recall(
    parts: Parts,
    principal: Principal,
    query: object,
    asked: Asked,
    *,
    limit: object,
    include_history: object,
    explain: object,
) -> Answer:
    """The facts that fit the words of a query best, and how many more there are; with `explain` why each of them."""
    require(principal, "memory:read")
    count = edge.check_limit(limit)
    past = edge.check_flag(include_history, "include_history")
    told = edge.check_flag(explain, "explain")
    words = _check_query(query)
    if parts.home.config.semantic != "off":
        _catch_up(parts, principal, asked)
    with parts.store.read() as view:
        times = times_of(parts, view, asked)
        reading = open_reading(view, parts, principal, asked.owner)
        scope = reading.scope
        hits: list[_Hit] = []
        found, omitted = Found(), 0
        lifted: frozenset[int] = frozenset()
        if scope is not None:
            read = ReadAt(view, scope, times)
            statuses = STANDING if times.is_now and not past else TOLD
            near = {} if parts.home.config.semantic == "off" else _meaning(parts, view, scope, words)
            found = find(view, scope.tenant_id, scope.agent_tag, words, statuses, count, near)
            # Asked for the past, too, what a key says now comes first.
            found = key_first(found, view, scope, words, STANDING if past else statuses, count)
            hits, omitted = _served_of(found, _Judge(read, found.keys, past), count)
            lifted = store_ledger.reaffirmed(view, scope.tenant_id, [hit.fact for hit in hits])
    states = receipts_of(parts, [hit.fact for hit in hits])
    best = max((hit.ranked.score for hit in hits), default=0.0)
    facts = []
    for hit in hits:
        shape = served(hit.fact, hit.state, states, lifted, _share(hit.ranked.score, best))
        if hit.folded:
            shape["folded"] = [fact.id for fact in hit.folded]
        facts.append(shape | ({"why": _why(hit.ranked, found.terms, best)} if told else {}))
    return {
        "facts": facts,
        "omitted": omitted,
        "as_of": format_time(times.as_of),
        "as_recorded": format_time(times.as_recorded),
        "notice": NOTICE,
        "scope": reading.shape(),
    }


def _catch_up(parts: Parts, principal: Principal, asked: Asked) -> None:
    from memory.semantic_index import catch_up_recent

    with parts.store.read() as view:
        scope = open_reading(view, parts, principal, asked.owner).scope
    if scope is not None:
        catch_up_recent(parts, scope)


def _meaning(parts: Parts, view: Snapshot, scope: Scope, query: str) -> Mapping[int, float]:
    from memory.semantic_index import meaning

    return meaning(parts, view, scope, query)


def _served_of(found: Found, judge: _Judge, count: int) -> tuple[list[_Hit], int]:
    """The best `count` matches that are served, and how many come after them, rivals that did not fit among these."""
    hits: list[_Hit] = []
    forms: dict[tuple[object, ...], _Hit] = {}
    taken: set[int] = set()
    rivals: set[int] = set()
    size = len(found.ranked) + len(found.rest)
    for place, one in enumerate(_read_ahead(found, judge, hits, count), start=1):
        for fact, state in () if one.seq in taken else judge.with_rivals(one.seq):
            taken.add(fact.seq)
            if fact.seq != one.seq:
                rivals.add(fact.seq)
            form = _form(fact, state)
            same = forms.get(form)
            if same is not None:
                same.folded.append(fact)
            else:
                forms[form] = hit = _Hit(fact, state, one)
                hits.append(hit)
        if len(hits) >= count:
            return hits[:count], size - place - _coming(found, place, rivals) + len(hits) - count
    return hits[:count], max(size - _MAX_CANDIDATES, 0)


def _coming(found: Found, place: int, rivals: Set[int]) -> int:
    """How many of the rivals that stood beside a match would come again as matches of their own."""
    if not rivals:
        return 0
    return sum(one.seq in rivals for one in islice(chain(found.ranked, found.rest), place, None))


def _read_ahead(found: Found, judge: _Judge, hits: Sequence[_Hit], count: int) -> Iterator[Ranked]:
    """The matches in order, read as many at once as there are answers still to be found."""
    matches = islice(chain(found.ranked, found.rest), _MAX_CANDIDATES)
    while some := list(islice(matches, max(count - len(hits), _LEAST_READ))):
        judge.read([one.seq for one in some])
        yield from some


def _form(fact: FactRow, state: FactState) -> tuple[object, ...]:
    """What a fact says, save for case, spaces and the marks at the ends of its words."""
    text = unicodedata.normalize("NFKC", str(fact.content.get("text"))).casefold()
    words = tuple(word.strip(_MARKS) or word for word in text.split())
    return fact.key_tag, fact.content.get("value"), fact.content.get("subject"), state.status, words


class _Judge:
    """Says of a match whether it may be served. What a key says is asked once for all matches of the key."""

    def __init__(self, read: ReadAt, keys: Mapping[int, bytes | None], past: bool) -> None:
        self._read = read
        self._known = keys
        self._past = past
        self._facts: dict[int, FactRow] = {}
        self._tags: dict[int, bytes] = {}
        self._keys: dict[bytes, KeyView] = {}

    def read(self, seqs: Sequence[int]) -> None:
        """Reads matches that `with_rivals` will be asked for, all at once."""
        view, scope = self._read.view, self._read.scope
        known = self._known
        if unknown := [seq for seq in seqs if seq not in known]:
            known = {**known, **store_search.keys_of(view, scope.tenant_id, scope.agent_tag, unknown)}
        tags = [(seq, known[seq]) for seq in seqs if seq in known]
        if not self._past:
            self._tags.update((seq, tag) for seq, tag in tags if tag is not None)
            unread = {tag: None for _, tag in tags if tag is not None and tag not in self._keys}
            self._keys |= self._read.keys(list(unread)) if unread else {}
        alone = [seq for seq, _ in tags if seq not in self._tags]
        facts = view.facts_by_seq(scope.tenant_id, scope.agent_tag, alone)
        self._facts = {fact.seq: fact for fact in facts}

    def with_rivals(self, seq: int) -> Iterable[tuple[FactRow, FactState]]:
        """A match that may be served, and after it the facts of its key that disagree with it."""
        if self._past:
            fact = self._facts.get(seq)
            state = None if fact is None else self._in_past(fact)
            return () if fact is None or state is None else ((fact, state),)
        standing = self._standing(seq)
        own = [(row, state) for row, state in standing if row.seq == seq]
        if not own or own[0][1].status != "conflict":
            return own
        rivals = [(row, state) for row, state in standing if state.status == "conflict" and row.seq != seq]
        return own + rivals

    def _standing(self, seq: int) -> Sequence[tuple[FactRow, FactState]]:
        tag, fact = self._tags.get(seq), self._facts.get(seq)
        if tag is not None:
            return self._keys[tag].facts
        return () if fact is None else self._read.fact(fact).facts

    def _in_past(self, fact: FactRow) -> FactState | None:
        times = self._read.times
        state = state_of_fact(self._read.view, fact, times.as_recorded)
        if state is None or not may_tell(state.status, frozenset(), state.end_erased):
            return None
        state = seen_at(state, min(times.as_recorded, times.now))
        return state if state.valid_from <= max(times.as_of, times.now) else None


def _why(ranked: Ranked, terms: Sequence[Term], best: float) -> Answer:
    """Why a fact stands where it does: which words of the query it has, and what its score is made of."""
    return {
        "words": [
            {
                "word": term.word,
                "weight": round(term.weight, _DIGITS),
                "in_key": ranked.seq in term.keyed,
            }
            for term in terms
            if ranked.seq in term.having
        ],
        "from_words": _share(ranked.words, best),
        "from_facts_beside": _share(ranked.beside, best),
        "from_words_in_common": _share(ranked.related, best),
        "from_meaning": _share(ranked.meaning, best),
        "put_before_older": ranked.newer_than is not None,
    }


def _share(score: float, best: float) -> float:
    """A part of a score, against the best."""
    return round(score / best, _DIGITS) if best else 0.0


def _check_query(query: object) -> str:
    if not isinstance(query, str):
        raise MalformedError("expected query to be a text")
    try:
        size = len(query.encode("utf-8"))
    except UnicodeEncodeError:
        raise MalformedError("expected query to be valid Unicode, without lone surrogates") from None
    if size > MAX_TEXT_BYTES:
        raise MalformedError(f"expected query to have at most {MAX_TEXT_BYTES} bytes, it has {size}")
    return query
