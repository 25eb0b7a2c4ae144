"""The SQL of openings: which statements were opened to whom, by random references."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn


def add_opening(txn: Txn, tenant_id: int, seq: int, recipient: bytes, given_at: int) -> None:
    """Notes that the opening of a statement is given to somebody."""
    txn.connection.execute(
        "INSERT INTO openings (tenant, seq, recipient, given_at) VALUES (?, ?, ?, ?)",
        (tenant_id, seq, recipient, given_at),
    )


def recipients_of(view: Snapshot, tenant_id: int, seqs: Iterable[int]) -> tuple[bytes, ...]:
    """The references of those who were given openings of these statements, one for each opening."""
    return tuple(
        row[0]
        for seq in sorted(set(seqs))
        for row in view.rows(
            "SELECT recipient FROM openings WHERE tenant = ? AND seq = ? ORDER BY id", tenant_id, seq
        )
    )
