"""The SQL of the value ledger: what a key has moved on from, as keyed hashes (memory.ledger says when)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from memory.event import decode_content
from memory.rows import FactRow, LedgerHit, LedgerRow, OlderRow
from memory.vault import WORD_TAG_BYTES

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn

_AT_ONCE: Final = 32
_ROTATED_AT_ONCE: Final = 64
# What a row says holds until it expires, and until what replaced the value has ended by itself.
_HOLDS: Final = "(expires_at IS NULL OR expires_at > ?) AND (until IS NULL OR until > ?)"
_HITS: Final = f"""
    SELECT value_tag, key_tag, name_tags, source IS NULL FROM ledger
    WHERE tenant = ? AND {_HOLDS}
    AND value_tag IN ({", ".join("?" * _AT_ONCE)})
"""


def knows_key(view: Snapshot, tenant_id: int, key_tag: bytes) -> bool:
    """Whether there is a fact of a key, whatever its status, or a value that the key has retired."""
    found = view.rows(
        """SELECT EXISTS (SELECT 1 FROM facts WHERE tenant = ?1 AND key_tag = ?2)
               OR EXISTS (SELECT 1 FROM ledger WHERE tenant = ?1 AND key_tag = ?2)""",
        tenant_id,
        key_tag,
    )
    return bool(found[0][0])


def versions_of_key(view: Snapshot, tenant_id: int, key_tag: bytes, newest: int) -> tuple[int, ...]:
    """The versions of the canonical forms that the ledger has rows of for a key, up to `newest`."""
    versions: list[int] = []
    while not versions or versions[-1] < newest:
        row = view.one(
            """SELECT canon_version FROM ledger WHERE tenant = ? AND key_tag = ? AND canon_version > ?
               ORDER BY canon_version LIMIT 1""",
            tenant_id,
            key_tag,
            versions[-1] if versions else -1,
        )
        if row is None:
            break
        versions.append(row[0])
    return tuple(versions)


def has_retired(
    view: Snapshot, tenant_id: int, key_tag: bytes, version: int, value_tag: bytes, now: int
) -> bool:
    """Whether the ledger holds a value for a key."""
    row = view.one(
        f"""SELECT 1 FROM ledger WHERE tenant = ? AND key_tag = ? AND canon_version = ? AND value_tag = ?
            AND {_HOLDS}""",
        tenant_id,
        key_tag,
        version,
        value_tag,
        now,
        now,
    )
    return row is not None


def retired_without_source(
    view: Snapshot, tenant_id: int, key_tag: bytes, version: int, value_tag: bytes
) -> bool:
    """Whether a value outlives the erasure of the fact that it was noted for."""
    row = view.one(
        """SELECT 1 FROM ledger WHERE tenant = ? AND key_tag = ? AND canon_version = ? AND value_tag = ?
           AND source IS NULL""",
        tenant_id,
        key_tag,
        version,
        value_tag,
    )
    return row is not None


def retired_word_counts(view: Snapshot, tenant_id: int, agent_tag: bytes) -> tuple[tuple[int, int], ...]:
    """By version, the different numbers of words that retired values of a scope have; one look-up for each."""
    counts: list[tuple[int, int]] = []
    while True:
        row = view.one(
            """SELECT canon_version, word_count FROM ledger
               WHERE tenant = ? AND agent_tag = ? AND (canon_version, word_count) > (?, ?)
               ORDER BY canon_version, word_count LIMIT 1""",
            tenant_id,
            agent_tag,
            *(counts[-1] if counts else (-1, -1)),
        )
        if row is None:
            return tuple(counts)
        counts.append((row[0], row[1]))


def ledger_hits(view: Snapshot, tenant_id: int, value_tags: Sequence[bytes], now: int) -> Iterator[LedgerHit]:
    """The keys of a scope that retired one of these values."""
    for start in range(0, len(value_tags), _AT_ONCE):
        tags = tuple(value_tags[start : start + _AT_ONCE])
        # Filled up to one length, so that there is one statement to prepare.
        rows = view.rows(_HITS, tenant_id, now, now, *tags, *(tags[:1] * (_AT_ONCE - len(tags))))
        for value_tag, key_tag, name_tags, blind in rows:
            yield LedgerHit(value_tag, key_tag, _split(name_tags), bool(blind))


def keys_begun(view: Snapshot, tenant_id: int, agent_tag: bytes, now: int) -> tuple[bytes, ...]:
    """The keys of a scope that have a record which was written ahead and has begun, beside an older one."""
    rows = view.rows(
        """SELECT DISTINCT p.key_tag FROM facts p INDEXED BY facts_ahead
           WHERE p.tenant = ? AND p.agent_tag = ? AND p.valid_from > p.recorded_at AND p.valid_from <= ?
           AND p.status IN ('active', 'conflict') AND p.key_tag IS NOT NULL
           AND EXISTS (SELECT 1 FROM facts o WHERE o.tenant = p.tenant AND o.key_tag = p.key_tag
                       AND o.status IN ('active', 'conflict') AND o.valid_from < p.valid_from)""",
        tenant_id,
        agent_tag,
        now,
    )
    return tuple(row[0] for row in rows)


def add_retired(txn: Txn, tenant_id: int, row: LedgerRow) -> None:
    """Notes a retired value; one that is there already takes the newer source and no longer expires.

    What is retired for good stays so, and what is retired for a time is so for the longer one.
    """
    _insert(txn, tenant_id, row, None)


def rows_under_older_rules(
    view: Snapshot, tenant_id: int, key_tag: bytes, version: int
) -> tuple[OlderRow, ...]:
    """Some of the rows of a key that can be made anew: those whose fact still has its content."""
    rows = view.rows(
        """SELECT l.id, l.agent_tag, l.key_tag, l.subject_tag, l.value_tag, l.name_tags, l.word_count,
                  l.canon_version, l.source, l.until, l.expires_at, c.content
           FROM ledger l JOIN contents c ON c.seq = l.source
           WHERE l.tenant = ? AND l.key_tag = ? AND l.canon_version < ? LIMIT ?""",
        tenant_id,
        key_tag,
        version,
        _ROTATED_AT_ONCE,
    )
    return tuple(
        OlderRow(
            row[0],
            LedgerRow._make((*row[1:5], _split(row[5]), *row[6:10])),
            expires_at=row[10],
            content=decode_content(row[11]),
        )
        for row in rows
    )


def replace_row(txn: Txn, tenant_id: int, older: OlderRow, rows: Iterable[LedgerRow]) -> None:
    """Puts rows under newer rules in the place of one under older ones."""
    txn.connection.execute("DELETE FROM ledger WHERE tenant = ? AND id = ?", (tenant_id, older.id))
    for row in rows:
        _insert(txn, tenant_id, row, older.expires_at)


def has_passing(view: Snapshot, tenant_id: int, key_tag: bytes) -> bool:
    """Whether a key has values that are retired for a time."""
    row = view.one(
        "SELECT 1 FROM ledger WHERE tenant = ? AND key_tag = ? AND until IS NOT NULL LIMIT 1",
        tenant_id,
        key_tag,
    )
    return row is not None


def settle(txn: Txn, tenant_id: int, key_tag: bytes, kept: Collection[bytes], until: int | None) -> None:
    """What was retired for a time is so as long as the new record holds, save the tags of what stands."""
    txn.connection.execute(
        f"""UPDATE ledger SET until = CASE WHEN ? IS NULL THEN NULL ELSE max(until, ?) END
            WHERE tenant = ? AND key_tag = ? AND until IS NOT NULL
            AND value_tag NOT IN ({", ".join("?" * len(kept))})""",
        (until, until, tenant_id, key_tag, *kept),
    )


def drop_retired(txn: Txn, tenant_id: int, key_tag: bytes, version: int, value_tag: bytes) -> None:
    """Takes a value out that a reaffirmation made current again."""
    txn.connection.execute(
        "DELETE FROM ledger WHERE tenant = ? AND key_tag = ? AND canon_version = ? AND value_tag = ?",
        (tenant_id, key_tag, version, value_tag),
    )


def count_waiting(view: Snapshot, tenant_id: int, agent_tag: bytes) -> int:
    """How many facts of a scope are held, or refused and not lifted since."""
    row = view.one(
        """SELECT count(*) FROM facts f
           WHERE f.tenant = ? AND f.agent_tag = ? AND f.status IN ('held', 'refused') AND f.on_hold = 0
           AND NOT EXISTS (SELECT 1 FROM acts a
                           WHERE a.tenant = f.tenant AND a.target = f.seq AND a.act = 'lifts')""",
        tenant_id,
        agent_tag,
    )
    return 0 if row is None else int(row[0])


def was_erased(view: Snapshot, tenant_id: int, commitment: bytes, time: int) -> bool:
    """Whether a statement was erased by a time."""
    seq = view.seq_of(tenant_id, commitment)
    return seq is not None and any(
        act.act == "erases" and act.recorded_at is not None and act.recorded_at <= time
        for act in view.acts_on(tenant_id, seq)
    )


def reaffirmed(view: Snapshot, tenant_id: int, facts: Collection[FactRow]) -> frozenset[int]:
    """Which of these facts were refused and let through by a reaffirmation of a person, by number."""
    seqs = [fact.seq for fact in facts if fact.status not in ("refused", "discarded")]
    rows = view.rows(
        """SELECT DISTINCT a.target FROM json_each(?) j
           CROSS JOIN acts a ON a.tenant = ? AND a.target = j.value WHERE a.act = 'lifts'""",
        json.dumps(seqs),
        tenant_id,
    )
    return frozenset(seq for (seq,) in rows)


def count_tokens(view: Snapshot, tenant_id: int, purpose: str, bound: bytes, now: int) -> int:
    """How many tokens there are of a purpose that are bound to one thing and have not expired."""
    row = view.one(
        "SELECT count(*) FROM tokens WHERE tenant = ? AND purpose = ? AND bound = ? AND expires_at > ?",
        tenant_id,
        purpose,
        bound,
        now,
    )
    return 0 if row is None else int(row[0])


def _insert(txn: Txn, tenant_id: int, row: LedgerRow, expires_at: int | None) -> None:
    txn.connection.execute(
        """INSERT INTO ledger (tenant, agent_tag, key_tag, subject_tag, value_tag, name_tags, word_count,
                               canon_version, source, until, expires_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (tenant, key_tag, canon_version, value_tag) DO UPDATE
           SET source = excluded.source, subject_tag = excluded.subject_tag, expires_at = NULL,
               until = CASE WHEN ledger.until IS NULL OR excluded.until IS NULL THEN NULL
                            ELSE max(ledger.until, excluded.until) END""",
        (
            tenant_id,
            row.agent_tag,
            row.key_tag,
            row.subject_tag,
            row.value_tag,
            b"".join(row.name_tags),
            row.word_count,
            row.canon_version,
            row.source_seq,
            row.until,
            expires_at,
        ),
    )
    if row.until is not None:
        txn.look_again()


def _split(tags: bytes) -> tuple[bytes, ...]:
    return tuple(tags[at : at + WORD_TAG_BYTES] for at in range(0, len(tags), WORD_TAG_BYTES))
