"""The SQL of who else names somebody: every content is read once, and few of them are decoded.

There is no index of names. The index of words lacks what was withheld, knows no parts of words in scripts without
spaces, and would be one more thing to keep in step with how texts are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from memory.erase_mentions import Mentions
from memory.event import decode_content
from memory.model import Status
from memory.rows import SelectedFact
from memory.store_read import Snapshot
from tlog.errors import Error

_ALL: Final = "SELECT seq, content FROM contents ORDER BY seq"
_FACT: Final = """
    SELECT e.commitment, f.status, f.on_hold, f.agent_tag
    FROM facts f CROSS JOIN events e ON e.seq = f.seq WHERE f.seq = ? AND f.tenant = ?
"""


@dataclass(frozen=True)
class Found:
    """Facts of a scope that mention a name, in order, and how many of other scopes of its tenant do."""

    own: tuple[SelectedFact, ...]
    others: int


def mentioning(
    view: Snapshot, tenant_id: int, agent_tag: bytes, mentions: Mentions, exclude: Collection[int] = ()
) -> Found:
    """What mentions one of the names in a tenant, but for the excluded facts."""
    own: list[SelectedFact] = []
    others = 0
    # Along the table and not by its facts: one pass over its pages, whosever they are.
    for seq, encoded in view.connection.execute(_ALL):
        if seq in exclude or not mentions.may_be_in(encoded):
            continue
        content = _decoded(view, tenant_id, seq, encoded)
        if content is None or not mentions(content):
            continue
        row = _fact(view, tenant_id, seq)
        if row is None:
            continue
        commitment, status, on_hold, agent = row
        if agent == agent_tag:
            own.append(SelectedFact(seq, commitment, status, content, on_hold))
        else:
            others += 1
    return Found(tuple(own), others)


def contents(view: Snapshot) -> Iterator[dict[str, Any]]:
    """What every statement says whose content is there, in order, of all tenants."""
    return (decode_content(encoded) for _, encoded in view.connection.execute(_ALL))


def tenant_names(view: Snapshot) -> list[str]:
    """The names of the tenants of which something is left."""
    return [row[0] for row in view.rows("SELECT name FROM tenants WHERE name <> ''")]


def _decoded(view: Snapshot, tenant_id: int, seq: int, encoded: bytes) -> dict[str, Any] | None:
    try:
        return decode_content(encoded)
    except Error:
        # What another tenant's content is like is nothing that this one has to suffer from.
        if _fact(view, tenant_id, seq) is None:
            return None
        raise


def _fact(view: Snapshot, tenant_id: int, seq: int) -> tuple[bytes, Status, int, bytes] | None:
    rows = view.rows(_FACT, seq, tenant_id)
    return rows[0] if rows else None
