"""The SQL of legal holds: which are in force, and what they keep.

A hold is a statement that names facts; a release names holds. `facts.on_hold` counts the holds in force, and no
read of `memory.store_read` gives out a fact with any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from memory.event import decode_content
from memory.times import format_time
from tlog.errors import RefusedError

if TYPE_CHECKING:
    from memory.scope import Scope
    from memory.store_read import Snapshot


class HoldRow(NamedTuple):
    """A hold in force. `authority` says by whom, in words that can be erased; times are in microseconds."""

    seq: int
    commitment: bytes
    agent: str
    authority: str
    review_by: int
    recorded_at: int
    facts: int


def open_holds(view: Snapshot, tenant_id: int) -> tuple[HoldRow, ...]:
    """The holds of a tenant that are in force, oldest first."""
    rows = view.rows(
        """SELECT a.seq, e.commitment, c.content, count(*)
           FROM acts a CROSS JOIN events e ON e.seq = a.seq CROSS JOIN contents c ON c.seq = a.seq
           WHERE a.tenant = ? AND a.act = 'holds' AND NOT EXISTS
           (SELECT 1 FROM acts r WHERE r.tenant = a.tenant AND r.target = a.seq AND r.act = 'releases')
           GROUP BY a.seq, e.commitment, c.content ORDER BY a.seq""",
        tenant_id,
    )
    return tuple(_hold(*row) for row in rows)


def holds_of(view: Snapshot, scope: Scope) -> tuple[HoldRow, ...]:
    """The holds that were made in a scope and are in force."""
    return tuple(one for one in open_holds(view, scope.tenant_id) if one.agent == scope.agent)


def summary(view: Snapshot, scope: Scope | None, now: int) -> dict[str, Any]:
    """How many holds are in force in a scope, how many are past their review date, and when the next one is due."""
    dates = [] if scope is None else [one.review_by for one in holds_of(view, scope)]
    coming = min((date for date in dates if date > now), default=None)
    return {
        "open": len(dates),
        "overdue": sum(1 for date in dates if date <= now),
        "next_review": None if coming is None else format_time(coming),
    }


def holds_on(
    view: Snapshot, tenant_id: int, facts: Mapping[int, bytes]
) -> dict[bytes, tuple[tuple[bytes, ...], int]]:
    """By the commitment of each hold that keeps some of these facts, the commitments of those, and its review date.

    `facts` are commitments by number.
    """
    found = {}
    for hold in open_holds(view, tenant_id):
        targets = view.rows("SELECT target FROM acts WHERE seq = ? AND act = 'holds'", hold.seq)
        kept = tuple(facts[target] for (target,) in targets if target in facts)
        if kept:
            found[hold.commitment] = (kept, hold.review_by)
    return found


def is_on_hold(view: Snapshot, tenant_id: int, reference: bytes) -> bool:
    """Whether a commitment, or its first 16 bytes, stands for a fact that a hold keeps."""
    seq = view.seq_of(tenant_id, reference)
    row = None if seq is None else view.one("SELECT on_hold FROM facts WHERE seq = ?", seq)
    return row is not None and row[0] > 0


def refuse_if_held(view: Snapshot, scope: Scope | None, reference: bytes) -> None:
    """Returns unless a hold keeps the fact that this stands for: then nothing is done with it, or told of it."""
    if scope is not None and is_on_hold(view, scope.tenant_id, reference):
        raise RefusedError("this fact is under a legal hold: it is kept, and not used", code="on_hold")


def held_contents(view: Snapshot, tenant_id: int, key_tag: bytes) -> tuple[Mapping[str, Any], ...]:
    """What the facts of a key say that are on hold."""
    rows = view.rows(
        """SELECT c.content FROM facts f CROSS JOIN contents c ON c.seq = f.seq
           WHERE f.tenant = ? AND f.key_tag = ? AND f.on_hold""",
        tenant_id,
        key_tag,
    )
    return tuple(decode_content(content) for (content,) in rows)


def is_disputed(view: Snapshot, tenant_id: int, key_tag: bytes) -> bool:
    """Whether a fact of a key is in conflict, on hold or not."""
    row = view.one(
        "SELECT 1 FROM facts WHERE tenant = ? AND key_tag = ? AND status = 'conflict' LIMIT 1",
        tenant_id,
        key_tag,
    )
    return row is not None


def is_disputed_on_hold(view: Snapshot, tenant_id: int, key_tag: bytes) -> bool:
    """Whether a fact of a key that is in conflict is on hold."""
    row = view.one(
        "SELECT 1 FROM facts WHERE tenant = ? AND key_tag = ? AND status = 'conflict' AND on_hold LIMIT 1",
        tenant_id,
        key_tag,
    )
    return row is not None


def _hold(seq: int, commitment: bytes, encoded: bytes, facts: int) -> HoldRow:
    content = decode_content(encoded)
    return HoldRow(
        seq=seq,
        commitment=commitment,
        agent=content["agent"],
        authority=content["authority"],
        review_by=content["review_by"],
        recorded_at=content["recorded_at"],
        facts=facts,
    )
