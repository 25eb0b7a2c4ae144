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


def add_openings(
    txn: Txn, given: Iterable[tuple[int, int]], recipient: bytes, given_at: int, kind: str = "evidence"
) -> None:
    """Notes that many statements, each with its tenant, are given to one recipient, and in what."""
    txn.connection.executemany(
        "INSERT INTO openings (tenant, seq, recipient, given_at, kind) VALUES (?, ?, ?, ?, ?)",
        ((tenant_id, seq, recipient, given_at, kind) for tenant_id, seq in given),
    )


def recipients_of(view: Snapshot, tenant_id: int, seqs: Iterable[int]) -> tuple[bytes, ...]:
    """The references of those who were given openings of these statements, each once."""
    return tuple(recipient for recipient, _, _ in recipients(view, tenant_id, seqs))


def recipients(view: Snapshot, tenant_id: int, seqs: Iterable[int]) -> tuple[tuple[bytes, str, int], ...]:
    """Of each who was given some of these statements: the reference, what it was given in, and how many of them."""
    counts: dict[tuple[bytes, str], int] = {}
    for seq in sorted(set(seqs)):
        for row in view.rows(
            "SELECT recipient, kind FROM openings WHERE tenant = ? AND seq = ? ORDER BY id", tenant_id, seq
        ):
            counts[row] = counts.get(row, 0) + 1
    return tuple((recipient, kind, count) for (recipient, kind), count in counts.items())
