"""The SQL of the value ledger: what a key has moved on from, as keyed hashes (memory.ledger says when)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from memory.rows import LedgerHit, LedgerRow
from memory.vault import WORD_TAG_BYTES

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn

_AT_ONCE: Final = 32
_HITS: Final = f"""
    SELECT value_tag, key_tag, name_tags FROM ledger
    WHERE tenant = ? AND (expires_at IS NULL OR expires_at > ?)
    AND value_tag IN ({", ".join("?" * _AT_ONCE)})
"""


def has_moved_on(view: Snapshot, tenant_id: int, key_tag: bytes) -> bool:
    """Whether the ledger holds any value for a key."""
    row = view.one("SELECT 1 FROM ledger WHERE tenant = ? AND key_tag = ? LIMIT 1", tenant_id, key_tag)
    return row is not None


def has_retired(view: Snapshot, tenant_id: int, key_tag: bytes, value_tag: bytes, now: int) -> bool:
    """Whether the ledger holds a value for a key."""
    row = view.one(
        """SELECT 1 FROM ledger WHERE tenant = ? AND key_tag = ? AND value_tag = ?
           AND (expires_at IS NULL OR expires_at > ?)""",
        tenant_id,
        key_tag,
        value_tag,
        now,
    )
    return row is not None


def retired_without_source(view: Snapshot, tenant_id: int, key_tag: bytes, value_tag: bytes) -> bool:
    """Whether a value outlives the erasure of the fact that it was noted for."""
    row = view.one(
        "SELECT 1 FROM ledger WHERE tenant = ? AND key_tag = ? AND value_tag = ? AND source IS NULL",
        tenant_id,
        key_tag,
        value_tag,
    )
    return row is not None


def retired_word_counts(view: Snapshot, tenant_id: int, agent_tag: bytes) -> tuple[int, ...]:
    """The different numbers of words that retired values of a scope have; one look-up for each."""
    counts: list[int] = []
    while True:
        row = view.one(
            """SELECT word_count FROM ledger WHERE tenant = ? AND agent_tag = ? AND word_count > ?
               ORDER BY word_count LIMIT 1""",
            tenant_id,
            agent_tag,
            counts[-1] if counts else -1,
        )
        if row is None:
            return tuple(counts)
        counts.append(row[0])


def ledger_hits(view: Snapshot, tenant_id: int, value_tags: Sequence[bytes], now: int) -> Iterator[LedgerHit]:
    """The keys of a scope that retired one of these values."""
    for start in range(0, len(value_tags), _AT_ONCE):
        tags = tuple(value_tags[start : start + _AT_ONCE])
        # Filled up to one length, so that there is one statement to prepare.
        rows = view.rows(_HITS, tenant_id, now, *tags, *(tags[:1] * (_AT_ONCE - len(tags))))
        for value_tag, key_tag, name_tags in rows:
            yield LedgerHit(value_tag, key_tag, _split(name_tags))


def add_retired(txn: Txn, tenant_id: int, row: LedgerRow) -> None:
    """Notes a retired value; one that is there already takes the newer source and no longer expires."""
    txn.connection.execute(
        """INSERT INTO ledger (tenant, agent_tag, key_tag, subject_tag, value_tag, name_tags, word_count,
                               canon_version, source)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (tenant, key_tag, value_tag) DO UPDATE
           SET source = excluded.source, subject_tag = excluded.subject_tag, expires_at = NULL""",
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
        ),
    )


def drop_retired(txn: Txn, tenant_id: int, key_tag: bytes, value_tag: bytes) -> None:
    """Takes a value out that a reaffirmation made current again."""
    txn.connection.execute(
        "DELETE FROM ledger WHERE tenant = ? AND key_tag = ? AND value_tag = ?",
        (tenant_id, key_tag, value_tag),
    )


def _split(tags: bytes) -> tuple[bytes, ...]:
    return tuple(tags[at : at + WORD_TAG_BYTES] for at in range(0, len(tags), WORD_TAG_BYTES))
