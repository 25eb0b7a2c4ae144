"""The SQL of collections of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.scope import Scope
    from memory.store_read import Snapshot


def standing_key_tags(view: Snapshot, scope: Scope, subject: str) -> list[bytes]:
    """The keys of which a fact about this subject is served now or disputed, each once."""
    rows = view.rows(
        """SELECT DISTINCT key_tag FROM facts
           WHERE tenant = ? AND subject_tag = ? AND status IN ('active', 'conflict') AND key_tag IS NOT NULL
           ORDER BY key_tag""",
        scope.tenant_id,
        scope.subject_tag(subject),
    )
    return [row[0] for row in rows]


def standing_seqs(view: Snapshot, scope: Scope, limit: int) -> list[int]:
    """The numbers of the newest facts of a scope that are served now or disputed, the newest first."""
    rows = view.rows(
        """SELECT seq FROM facts WHERE tenant = ?1 AND agent_tag = ?2 AND status = 'active'
           UNION ALL SELECT seq FROM facts WHERE tenant = ?1 AND agent_tag = ?2 AND status = 'conflict'
           ORDER BY seq DESC LIMIT ?3""",
        scope.tenant_id,
        scope.agent_tag,
        limit,
    )
    return [row[0] for row in rows]
