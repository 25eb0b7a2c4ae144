"""The value ledger: which values a key has moved on from, known by keyed hashes alone.

A value enters as its fact is retired or retracted and leaves when a reaffirmation makes it current again. It
outlives the fact, so that a stale copy stays refused after retention and deletion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from memory import canon, guard, store_ledger
from memory.key_view import STANDING
from memory.rows import FactRow, LedgerHit, LedgerRow

if TYPE_CHECKING:
    from memory.scope import Scope
    from memory.store_read import Snapshot
    from memory.store_write import Txn


def is_retired(view: Snapshot, scope: Scope, key_tag: bytes, value: str | None, now: int) -> bool:
    """Whether a key has moved on from a value."""
    if value is None:
        return False
    tags = (scope.value_tag(form) for form in canon.value_forms(value))
    return any(store_ledger.has_retired(view, scope.tenant_id, key_tag, tag, now) for tag in tags)


def outlives_erasure(view: Snapshot, scope: Scope, key_tag: bytes, value: str | None) -> bool:
    """Whether a value is refused though the fact that had it is erased: then nothing of it may be stored again."""
    if value is None:
        return False
    tags = (scope.value_tag(form) for form in canon.value_forms(value))
    return any(store_ledger.retired_without_source(view, scope.tenant_id, key_tag, tag) for tag in tags)


def names_retired(view: Snapshot, scope: Scope, text: str, now: int) -> bool:
    """Whether a text without a key states a value that something it names has moved on from."""
    counts = store_ledger.retired_word_counts(view, scope.tenant_id, scope.agent_tag)
    if not counts:
        return False
    return any(
        _is_about(view, scope, text, span, hit)
        for span in canon.spans(text, counts)
        for hit in store_ledger.ledger_hits(view, scope.tenant_id, scope.value_tag(span), now)
    )


def retire(txn: Txn, scope: Scope, facts: Iterable[FactRow], kept_value: str | None) -> None:
    """Notes the values of facts that a statement ended; `kept_value` is the one that now holds."""
    for fact in facts:
        key, value = fact.content.get("key"), fact.content.get("value")
        if key is None or value is None or fact.key_tag is None:
            continue
        if kept_value is not None and canon.same_value(value, kept_value):
            continue
        subject = fact.content.get("subject")
        name_tags = tuple(sorted(scope.word_tag(word) for word in canon.key_words(key)))
        for form in canon.value_forms(value):
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


def unretire(txn: Txn, scope: Scope, key_tag: bytes, value: str | None) -> None:
    """Takes a value out again that was reaffirmed for its key."""
    for form in () if value is None else canon.value_forms(value):
        store_ledger.drop_retired(txn, scope.tenant_id, key_tag, scope.value_tag(form))


def _is_about(view: Snapshot, scope: Scope, text: str, span: canon.Canonical, hit: LedgerHit) -> bool:
    standing = view.facts_of_key(scope.tenant_id, hit.key_tag, STANDING)
    if standing:
        words = canon.key_words(standing[0].content["key"])
        told = [(fact.content["text"], fact.content.get("value")) for fact in standing]
        return guard.states(text, span, words, told)
    # Nothing is left of the key but hashes: the words of the text are hashed and compared.
    beside = canon.words_beside(text, span)
    hashed = None if beside is None else {scope.word_tag(word) for word in beside}
    return guard.names(hashed, hit.name_tags, ())
