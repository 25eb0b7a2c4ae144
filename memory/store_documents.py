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
