"""The SQL of vectors: a cache of contents, made after the write and erased with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from memory.event import decode_content
from memory.key_view import STANDING

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn


def scopes(view: Snapshot) -> list[tuple[int, bytes]]:
    """Tenant and agent of every scope that has facts."""
    return [(row[0], row[1]) for row in view.rows("SELECT DISTINCT tenant, agent_tag FROM facts")]


def lacking(
    view: Snapshot,
    tenant_id: int,
    agent_tag: bytes,
    model: tuple[str, int | None],
    limit: int,
    after: int = 0,
) -> list[tuple[int, str]]:
    """Facts of a scope that stand and have no vector of a model, with their texts: in order, after a number.

    A model is known by its name and, once it has answered, by how many numbers its vectors have.
    """
    name, width = model
    wide = "" if width is None else "AND length(v.vector) = ?"
    rows = view.rows(
        f"""SELECT f.seq, c.content FROM facts f CROSS JOIN contents c ON c.seq = f.seq
            WHERE f.tenant = ? AND f.agent_tag = ? AND f.status IN ({", ".join("?" * len(STANDING))})
            AND f.seq > ? AND f.on_hold = 0
            AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.seq = f.seq AND v.model = ? {wide})
            ORDER BY f.seq LIMIT ?""",
        tenant_id,
        agent_tag,
        *STANDING,
        after,
        name,
        *(() if width is None else (width,)),
        limit,
    )
    return [(seq, _told(content)) for seq, content in rows]


def last_with_vector(view: Snapshot, tenant_id: int, agent_tag: bytes, model: str) -> int:
    """The newest fact of a scope that has a vector of a model; 0 if none has."""
    row = view.one(
        "SELECT seq FROM vectors WHERE tenant = ? AND agent_tag = ? AND model = ? ORDER BY seq DESC LIMIT 1",
        tenant_id,
        agent_tag,
        model,
    )
    return 0 if row is None else int(row[0])


def newest_model(view: Snapshot, tenant_id: int, agent_tag: bytes) -> str | None:
    """What made the vector of the newest fact of a scope that has one; None if none has."""
    row = view.one(
        "SELECT model FROM vectors WHERE tenant = ? AND agent_tag = ? ORDER BY seq DESC LIMIT 1",
        tenant_id,
        agent_tag,
    )
    return None if row is None else str(row[0])


def add(txn: Txn, tenant_id: int, agent_tag: bytes, model: str, vectors: Iterable[tuple[int, bytes]]) -> None:
    """Keeps vectors of facts, in place of those of another model; what was erased meanwhile gets none."""
    txn.connection.executemany(
        """INSERT OR REPLACE INTO vectors (seq, tenant, agent_tag, model, vector)
           SELECT f.seq, f.tenant, f.agent_tag, ?, ? FROM facts f
           WHERE f.seq = ? AND f.tenant = ? AND f.agent_tag = ?""",
        [(model, vector, seq, tenant_id, agent_tag) for seq, vector in vectors],
    )


def of_scope(view: Snapshot, tenant_id: int, agent_tag: bytes, model: str) -> list[tuple[int, bytes]]:
    """The vectors of a scope, of one model."""
    rows = view.rows(
        "SELECT seq, vector FROM vectors WHERE tenant = ? AND agent_tag = ? AND model = ?",
        tenant_id,
        agent_tag,
        model,
    )
    return [(seq, vector) for seq, vector in rows]


def _told(data: bytes) -> str:
    content = decode_content(data)
    named = (content.get(name) for name in ("key", "value", "text"))
    return " ".join(str(one) for one in named if one)
