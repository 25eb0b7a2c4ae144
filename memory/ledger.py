"""The value ledger: what a key has moved on from, known by keyed hashes alone.

What a fact says, its value or its text where it has none, enters as the last fact of its key that says it is
retired or retracted. It leaves when a reaffirmation makes it current for good; what is reaffirmed for a time, or
from a later time on, stays. It outlives the fact, so that a stale copy stays refused after retention and deletion.
What was replaced by a record that says itself how long it holds is refused that long, and for good once another
record is.

Rows are found under every version of the canonical forms that a key or a scope has rows of, and made anew under the
current one, key by key, as keys move on; rows whose fact is erased stay under theirs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import canon, canon_versions, denial, naming, store_ledger
from memory.canon_versions import Rules
from memory.key_view import STANDING
from memory.rows import FactRow, LedgerHit, LedgerRow, OlderRow
from memory.scope import open_scope
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts
    from memory.scope import Scope
    from memory.store_read import Snapshot
    from memory.store_write import Txn


MAX_BLIND_REFUSALS: Final = 30
BLIND_SECONDS: Final = 3600
BLIND_PURPOSE: Final = "blind"
WordCounts = frozenset[tuple[int, int]]
"""Pairs of a version of the canonical forms and a number of words."""


@dataclass(frozen=True)
class Statable:
    """A text, read once, with the tag of everything in it that may be a retired value of a scope.

    A tag stands for a form, and the rules that it is a form by.
    """

    reading: canon.Reading
    word_counts: WordCounts
    tags: Mapping[bytes, tuple[canon.Canonical, Rules]]


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
    return any(
        store_ledger.has_retired(view, scope.tenant_id, key_tag, version, tag, now)
        for version, tag in _tags(view, scope, key_tag, said)
    )


def outlives_erasure(view: Snapshot, scope: Scope, key_tag: bytes, said: str) -> bool:
    """Whether this is refused though the fact that said it is erased: then nothing of it may be stored again."""
    return any(
        store_ledger.retired_without_source(view, scope.tenant_id, key_tag, version, tag)
        for version, tag in _tags(view, scope, key_tag, said)
    )


def count_blind_refusal(txn: Txn, scope: Scope, now: int) -> None:
    """Notes that an agent is refused what was erased; UnavailableError if it is to wait before it is once more.

    Each such refusal confirms a guess of something erased, so there are MAX_BLIND_REFUSALS in BLIND_SECONDS. Each is a
    token that nobody has, for that long: what is counted does not go with the refusals when these are forgotten.
    """
    txn.drop_expired_tokens(now)
    bound = scope.bound_tag(BLIND_PURPOSE)
    if store_ledger.count_tokens(txn.view, scope.tenant_id, BLIND_PURPOSE, bound, now) >= MAX_BLIND_REFUSALS:
        raise UnavailableError(
            f"refused as an echo {MAX_BLIND_REFUSALS} times within {BLIND_SECONDS} seconds, of records that were "
            "erased: wait before writing this again",
            code="busy",
        )
    txn.add_token(scope.tenant_id, os.urandom(32), BLIND_PURPOSE, bound, now + BLIND_SECONDS * 1_000_000)


def word_counts(view: Snapshot, scope: Scope) -> WordCounts:
    """The numbers of words that retired values of a scope have; empty where nothing is retired."""
    return frozenset(store_ledger.retired_word_counts(view, scope.tenant_id, scope.agent_tag))


def read_text(scope: Scope, text: str, counts: WordCounts) -> Statable:
    """The text, read for retired values of so many words: what takes time, and needs no view of the store."""
    return _tagged(scope, canon.Reading(text), counts)


def read_ahead(parts: Parts, principal: Principal, text: str) -> Statable | None:
    """A text that may state what is retired, read before the lock is taken: a long one takes its time."""
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        counts = frozenset() if scope is None else word_counts(view, scope)
    return read_text(scope, text, counts) if scope is not None and counts else None


def names_retired(
    view: Snapshot, scope: Scope, text: str, seen: Statable | None, now: int
) -> tuple[LedgerHit, ...]:
    """What a text without a key states that something it names has moved on from.

    `seen` is the text as `read_text` read it, if it did; it is read again for what has been retired since.
    """
    seen, hits = _hits(view, scope, text, seen, now)
    if seen is None:
        return ()
    tags, reading = seen.tags, seen.reading
    return tuple(hit for hit in hits if _is_about(view, scope, reading, tags[hit.value_tag], hit, now))


def key_states_retired(
    view: Snapshot, scope: Scope, key_tag: bytes, text: str, seen: Statable | None, now: int
) -> tuple[LedgerHit, ...]:
    """What a text for a key, that comes without a value, states of which the key has moved on.

    What the records of the key that stand say in their own texts, too, is not told from them again.
    """
    seen, hits = _hits(view, scope, text, seen, now)
    of_key = [hit for hit in hits if hit.key_tag == key_tag]
    if seen is None or not of_key:
        return ()
    standing = view.facts_of_key(scope.tenant_id, key_tag, STANDING)
    return tuple(hit for hit in of_key if not _is_told(standing, seen.tags[hit.value_tag], now))


def _hits(
    view: Snapshot, scope: Scope, text: str, seen: Statable | None, now: int
) -> tuple[Statable | None, list[LedgerHit]]:
    """The retired values of a scope that a text states, and the text as it was read; None where none can be."""
    counts = word_counts(view, scope)
    if not counts:
        return None, []
    if seen is None or not counts <= seen.word_counts:
        seen = _tagged(scope, canon.Reading(text) if seen is None else seen.reading, counts)
    return seen, list(store_ledger.ledger_hits(view, scope.tenant_id, tuple(seen.tags), now))


def retire(
    txn: Txn, scope: Scope, ended: Iterable[FactRow], kept: Collection[str], until: int | None = None
) -> None:
    """Notes what facts said that a statement ended. `kept` is what the other facts of their key say after it.

    `until` is when what replaced them ends by itself.
    """
    rules = canon_versions.current()
    kept_forms = {form for told in kept for form in rules.value_forms(told)}
    for fact in ended:
        if fact.content.get("key") is None or fact.key_tag is None:
            continue
        if not kept_forms.isdisjoint(rules.value_forms(said(fact.content))):
            continue
        for row in _rows(scope, rules, fact.key_tag, fact.seq, fact.content, until):
            store_ledger.add_retired(txn, scope.tenant_id, row)
        _rotate(txn, scope, rules, fact.key_tag)


def settle(txn: Txn, scope: Scope, key_tag: bytes, kept: Collection[str], until: int | None) -> None:
    """What was retired for a time is so for good, or as long as the new record holds, save what stands now."""
    # What this write itself retires for a time is so until then already.
    if txn.without_passing == scope.tenant_id:
        return
    if not store_ledger.has_passing(txn.view, scope.tenant_id, key_tag):
        return
    tags = [tag for told in kept for _, tag in _tags(txn.view, scope, key_tag, told)]
    store_ledger.settle(txn, scope.tenant_id, key_tag, tags, until)


def unretire(txn: Txn, scope: Scope, key_tag: bytes, said: str) -> None:
    """Takes out again, in every form, what somebody with that right says to hold for a key."""
    for version, tag in _tags(txn.view, scope, key_tag, said):
        store_ledger.drop_retired(txn, scope.tenant_id, key_tag, version, tag)


def make_anew(
    txn: Txn, scope: Scope, key_tag: bytes, seq: int, content: Mapping[str, Any], rows: Iterable[OlderRow]
) -> None:
    """Puts what the rules of this version make of a retired fact in the place of the rows that an older one made."""
    for older in rows:
        made = _rows(scope, canon_versions.current(), key_tag, seq, content, older.row.until)
        store_ledger.replace_row(txn, scope.tenant_id, older, made)


def _tags(view: Snapshot, scope: Scope, key_tag: bytes, said: str) -> Iterator[tuple[int, bytes]]:
    """The tags of what is said, under every version that the ledger has rows of for the key."""
    newest = canon_versions.current().version
    for version in store_ledger.versions_of_key(view, scope.tenant_id, key_tag, newest):
        for form in canon_versions.rules_of(version).value_forms(said):
            yield version, scope.value_tag(form, version)


def _rows(
    scope: Scope, rules: Rules, key_tag: bytes, seq: int, content: Mapping[str, Any], until: int | None
) -> Iterator[LedgerRow]:
    """What the ledger keeps of a fact with this content: a row for each form."""
    subject = content.get("subject")
    name_tags = tuple(sorted(scope.word_tag(word) for word in canon.key_words(str(content["key"]))))
    for form in rules.value_forms(said(content)):
        yield LedgerRow(
            agent_tag=scope.agent_tag,
            key_tag=key_tag,
            subject_tag=None if subject is None else scope.subject_tag(subject),
            value_tag=scope.value_tag(form, rules.version),
            name_tags=name_tags,
            word_count=rules.word_count(form),
            canon_version=rules.version,
            source_seq=seq,
            until=until,
        )


def _rotate(txn: Txn, scope: Scope, rules: Rules, key_tag: bytes) -> None:
    """Makes rows of a key anew that stand under older rules, some at a time."""
    for older in store_ledger.rows_under_older_rules(txn.view, scope.tenant_id, key_tag, rules.version):
        seq = older.row.source_seq
        assert seq is not None
        rows = _rows(scope, rules, key_tag, seq, older.content, older.row.until)
        store_ledger.replace_row(txn, scope.tenant_id, older, rows)


def _tagged(scope: Scope, reading: canon.Reading, counts: WordCounts) -> Statable:
    tags: dict[bytes, tuple[canon.Canonical, Rules]] = {}
    for version in {version for version, _ in counts}:
        rules = canon_versions.rules_of(version)
        of_version = {count for other, count in counts if other == version}
        for span in rules.spans(reading, of_version):
            tags[scope.value_tag(span, version)] = span, rules
    return Statable(reading, counts, tags)


def _is_said(standing: Iterable[FactRow], seen: tuple[canon.Canonical, Rules], now: int) -> bool:
    """Whether a record that holds now says it: reaffirmed for a time, it is not retired as long as that."""
    span, rules = seen
    return any(
        fact.valid_from <= now
        and (fact.valid_until is None or fact.valid_until > now)
        and span in rules.value_forms(said(fact.content))
        for fact in standing
    )


def _is_told(standing: Sequence[FactRow], seen: tuple[canon.Canonical, Rules], now: int) -> bool:
    """Whether a record that stands says it or has it in its text, as one that tells of a move does."""
    span, rules = seen
    return _is_said(standing, seen, now) or any(
        rules.words_beside(str(fact.content["text"]), span, ()) is not None
        for fact in standing
        if span not in rules.value_forms(said(fact.content))
    )


def _is_about(
    view: Snapshot,
    scope: Scope,
    reading: canon.Reading,
    seen: tuple[canon.Canonical, Rules],
    hit: LedgerHit,
    now: int,
) -> bool:
    span, rules = seen
    standing = view.facts_of_key(scope.tenant_id, hit.key_tag, STANDING)
    if standing:
        if _is_said(standing, seen, now):
            return False
        key = str(standing[0].content["key"])
        told = [
            (fact.content["text"], fact.content.get("value"))
            for fact in standing
            if span not in rules.value_forms(said(fact.content))
        ]
        return naming.states(reading, span, key, told, rules.words_beside)
    # Nothing is left of the key but hashes: the words of the text are hashed and compared.
    beside = rules.words_beside(reading, span, ())
    tags = {word: scope.word_tag(word) for word in beside or ()}
    if not naming.names(tags.values(), hit.name_tags, ()):
        return False
    named = frozenset(word for word, tag in tags.items() if tag in hit.name_tags)
    return not denial.denies(reading, span, denial.Subject(named))
