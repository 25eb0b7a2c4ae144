"""The SQL of requests: the erasures that answer one, and how many of them are still open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from memory.event import decode_content
from memory.rows import ErasureRow, SelectedFact, TokenRow
from memory.times import format_time
from tlog import cbor

if TYPE_CHECKING:
    from memory.scope import Scope
    from memory.store_read import Snapshot

OPEN: Final = ("executing", "inconclusive", "failed", "awaiting_backups", "awaiting_recipients")
_MAX_DETAIL_BYTES: Final = 4 << 20


def of_request(view: Snapshot, request: bytes) -> tuple[ErasureRow, ...]:
    """The erasures of a request, oldest first."""
    rows = view.rows(
        """SELECT number, tenant, request, state, tombstone, detail, manifest FROM erasures
           WHERE request = ? ORDER BY number""",
        request,
    )
    return tuple(ErasureRow(*row) for row in rows)


def facts_left(
    view: Snapshot, tenant_id: int, agent_tag: bytes | None, commitments: Iterable[bytes]
) -> tuple[SelectedFact, ...]:
    """The facts with these commitments that have their content, in order: of an agent, or of every one for None."""
    seqs = {seq for one in commitments if (seq := view.seq_of(tenant_id, one)) is not None}
    found = (
        view.one(
            """SELECT f.seq, e.commitment, f.status, c.content, f.on_hold
               FROM facts f CROSS JOIN events e ON e.seq = f.seq CROSS JOIN contents c ON c.seq = f.seq
               WHERE f.seq = ? AND f.tenant = ? AND coalesce(f.agent_tag = ?, 1 = 1)""",
            seq,
            tenant_id,
            agent_tag,
        )
        for seq in sorted(seqs)
    )
    return tuple(
        SelectedFact(row[0], row[1], row[2], decode_content(row[3]), row[4])
        for row in found
        if row is not None
    )


def summary(view: Snapshot, scope: Scope | None, now: int) -> dict[str, Any]:
    """How many requests of a tenant are open, how many of these are overdue, and when the next one is due."""
    marks = ", ".join("?" * len(OPEN))
    rows = (
        []
        if scope is None
        else view.rows(
            f"SELECT detail FROM erasures WHERE tenant = ? AND state IN ({marks})", scope.tenant_id, *OPEN
        )
    )
    due = [_due_at(detail) for (detail,) in rows]
    coming = min((at for at in due if at is not None and at > now), default=None)
    return {
        "open": len(due),
        "overdue": sum(1 for at in due if at is not None and at <= now),
        "next_due": None if coming is None else format_time(coming),
    }


def _due_at(detail: bytes) -> int | None:
    noted = cbor.decode(detail, max_bytes=_MAX_DETAIL_BYTES)
    at = noted.get("due_at") if isinstance(noted, dict) else None
    return at if type(at) is int else None


def find_token(view: Snapshot, tenant_id: int, token_hash: bytes, purpose: str, now: int) -> TokenRow | None:
    """The token with this hash, if it can be redeemed now."""
    row = view.one(
        """SELECT bound, target, expires_at FROM tokens
           WHERE tenant = ? AND token_hash = ? AND purpose = ? AND expires_at > ?""",
        tenant_id,
        token_hash,
        purpose,
        now,
    )
    return None if row is None else TokenRow(*row)
