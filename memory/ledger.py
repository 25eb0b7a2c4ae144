"""The value ledger: what a key has moved on from, known by keyed hashes alone.

What a fact says, its value or its text where it has none, enters as the last fact of its key that says it is
retired or retracted. It leaves when a reaffirmation makes it current again. It outlives the fact, so that a stale
copy stays refused after retention and deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory import canon, guard, store_ledger
from memory.key_view import STANDING
from memory.rows import FactRow, LedgerHit, LedgerRow

if TYPE_CHECKING:
    from memory.scope import Scope
    from memory.store_read import Snapshot
    from memory.store_write import Txn


@dataclass(frozen=True)
class Statable:
    """A text, read once, with the tag of everything in it that may be a retired value of a scope."""

    reading: canon.Reading
    word_counts: frozenset[int]
    tags: Mapping[bytes, canon.Canonical]


def said(content: Mapping[str, Any]) -> str:
    """What a fact with this content says: its value, or its text where it has none."""
    value, text = content.get("value"), content.get("text")
    return str(text if value is None else value)


def still_said(facts: Iterable[FactRow], now: int) -> list[str]:
    """What these facts say that stand, save those that have ended by themselves."""
    return [
        said(fact.content)
        for fact in facts
        if fact.status in STANDING and (fact.valid_until is None or fact.valid_until > now)
    ]


def is_retired(view: Snapshot, scope: Scope, key_tag: bytes, said: str, now: int) -> bool:
    """Whether a key has moved on from what a write says."""
    if not store_ledger.has_moved_on(view, scope.tenant_id, key_tag):
        return False
    tags = (scope.value_tag(form) for form in canon.value_forms(said))
    return any(store_ledger.has_retired(view, scope.tenant_id, key_tag, tag, now) for tag in tags)


def outlives_erasure(view: Snapshot, scope: Scope, key_tag: bytes, said: str) -> bool:
    """Whether this is refused though the fact that said it is erased: then nothing of it may be stored again."""
    tags = (scope.value_tag(form) for form in canon.value_forms(said))
    return any(store_ledger.retired_without_source(view, scope.tenant_id, key_tag, tag) for tag in tags)


def word_counts(view: Snapshot, scope: Scope) -> frozenset[int]:
    """The numbers of words that retired values of a scope have; empty where nothing is retired."""
    return frozenset(store_ledger.retired_word_counts(view, scope.tenant_id, scope.agent_tag))


def read_text(scope: Scope, text: str, counts: frozenset[int]) -> Statable:
    """The text, read for retired values of so many words: what takes time, and needs no view of the store."""
    return _tagged(scope, canon.Reading(text), counts)


def names_retired(view: Snapshot, scope: Scope, text: str, seen: Statable | None, now: int) -> bool:
    """Whether a text without a key states a value that something it names has moved on from.

    `seen` is the text as `read_text` read it, if it did; it is read again for what has been retired since.
    """
    counts = word_counts(view, scope)
    if not counts:
        return False
    if seen is None or not counts <= seen.word_counts:
        seen = _tagged(scope, canon.Reading(text) if seen is None else seen.reading, counts)
    hits = store_ledger.ledger_hits(view, scope.tenant_id, tuple(seen.tags), now)
    return any(_is_about(view, scope, seen.reading, seen.tags[hit.value_tag], hit) for hit in hits)


def retire(txn: Txn, scope: Scope, ended: Iterable[FactRow], kept: Collection[str]) -> None:
    """Notes what facts said that a statement ended. `kept` is what the other facts of their key say after it."""
    kept_forms = {form for told in kept for form in canon.value_forms(told)}
    for fact in ended:
        key = fact.content.get("key")
        if key is None or fact.key_tag is None:
            continue
        forms = canon.value_forms(said(fact.content))
        if not kept_forms.isdisjoint(forms):
            continue
        subject = fact.content.get("subject")
        name_tags = tuple(sorted(scope.word_tag(word) for word in canon.key_words(key)))
        for form in forms:
            row = LedgerRow(
                agent_tag=scope.agent_tag,
                key_tag=fact.key_tag,
                subject_tag=None if subject is None else scope.subject_tag(subject),
                value_tag=scope.value_tag(form),
                name_tags=name_tags,
                word_count=canon.word_count(form),
                canon_version=canon.VERSION,
                source_seq=fact.seq,
            )
            store_ledger.add_retired(txn, scope.tenant_id, row)


def unretire(txn: Txn, scope: Scope, key_tag: bytes, said: str) -> None:
    """Takes out again, in every form, what somebody with that right says to hold for a key."""
    for form in canon.value_forms(said):
        store_ledger.drop_retired(txn, scope.tenant_id, key_tag, scope.value_tag(form))


def _tagged(scope: Scope, reading: canon.Reading, counts: frozenset[int]) -> Statable:
    return Statable(reading, counts, {scope.value_tag(span): span for span in canon.spans(reading, counts)})


def _is_about(
    view: Snapshot, scope: Scope, reading: canon.Reading, span: canon.Canonical, hit: LedgerHit
) -> bool:
    standing = view.facts_of_key(scope.tenant_id, hit.key_tag, STANDING)
    if standing:
        words = canon.key_words(standing[0].content["key"])
        told = [(fact.content["text"], fact.content.get("value")) for fact in standing]
        return guard.states(reading, span, words, told)
    # Nothing is left of the key but hashes: the words of the text are hashed and compared.
    beside = canon.words_beside(reading, span)
    hashed = None if beside is None else {scope.word_tag(word) for word in beside}
    return guard.names(hashed, hit.name_tags, ())
