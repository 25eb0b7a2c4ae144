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
_OF_TENANT: Final = """
    SELECT c.content FROM contents c CROSS JOIN events e ON e.seq = c.seq WHERE e.tenant = ? ORDER BY c.seq
"""
_FACT: Final = """
    SELECT e.commitment, f.status, f.on_hold, f.agent_tag
    FROM facts f CROSS JOIN events e ON e.seq = f.seq WHERE f.seq = ? AND f.tenant = ?
"""
# What statements about statements, such as the release of a hold, are about in the end.
_ABOUT: Final = """
    WITH RECURSIVE about (seq) AS (
      SELECT target FROM acts WHERE seq = ?1 AND tenant = ?2
      UNION SELECT a.target FROM about b CROSS JOIN acts a ON a.seq = b.seq AND a.tenant = ?2
      WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.seq = b.seq)
    )
    SELECT f.seq, c.content FROM about b CROSS JOIN facts f ON f.seq = b.seq AND f.tenant = ?2
    CROSS JOIN contents c ON c.seq = f.seq ORDER BY f.seq
"""


@dataclass(frozen=True)
class Found:
    """Facts of a scope that mention a name, in order, and how many of other scopes of its tenant do."""

    own: tuple[SelectedFact, ...]
    others: int


def mentioning(
    view: Snapshot, tenant_id: int, agent_tag: bytes, mentions: Mentions, exclude: Collection[int] = ()
) -> Found:
    """What mentions one of the names in a tenant, but for the excluded facts.

    What was said about facts, as where somebody else has one from, or by whose order it is kept, is a mention in each
    of them, and goes with them; what is about none counts as of others.
    """
    own: dict[int, SelectedFact] = {}
    others: set[int] = set()
    # Along the table and not by its facts: one pass over its pages, whosever they are.
    for seq, encoded in view.connection.execute(_ALL):
        if seq in exclude or not mentions.may_be_in(encoded):
            continue
        content = _decoded(view, tenant_id, seq, encoded)
        if content is None or not mentions(content):
            continue
        about = [(seq, content)] if _fact(view, tenant_id, seq) else _about(view, tenant_id, seq)
        for one, told in about or [(seq, content)]:
            row = None if one in exclude else _fact(view, tenant_id, one)
            if row is not None and row[3] == agent_tag:
                own[one] = SelectedFact(one, row[0], row[1], told, row[2])
            elif one not in exclude:
                others.add(one)
    return Found(tuple(own[seq] for seq in sorted(own)), len(others))


def _about(view: Snapshot, tenant_id: int, seq: int) -> list[tuple[int, dict[str, Any]]]:
    """The facts that a statement is about, those alone that are there, with what they say."""
    return [(one, decode_content(told)) for one, told in view.rows(_ABOUT, seq, tenant_id)]


def contents(view: Snapshot, tenant_id: int) -> Iterator[dict[str, Any]]:
    """What every statement of a tenant says whose content is there, in order."""
    return (decode_content(encoded) for (encoded,) in view.connection.execute(_OF_TENANT, (tenant_id,)))


def tenants(view: Snapshot) -> list[int]:
    """The rows of all tenants."""
    return [row[0] for row in view.rows("SELECT id FROM tenants ORDER BY id")]


def _decoded(view: Snapshot, tenant_id: int, seq: int, encoded: bytes) -> dict[str, Any] | None:
    try:
        content = decode_content(encoded)
    except Error:
        # What another tenant's content is like is nothing that this one has to suffer from.
        if not _is_of(view, tenant_id, seq):
            return None
        raise
    return content if _is_of(view, tenant_id, seq) else None


def _is_of(view: Snapshot, tenant_id: int, seq: int) -> bool:
    return view.one("SELECT 1 FROM events WHERE seq = ? AND tenant = ?", seq, tenant_id) is not None


def _fact(view: Snapshot, tenant_id: int, seq: int) -> tuple[bytes, Status, int, bytes] | None:
    rows = view.rows(_FACT, seq, tenant_id)
    return rows[0] if rows else None
