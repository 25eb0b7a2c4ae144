"""The SQL of grants: which agent may read what another agent of its tenant remembers.

A row only finds the statement; who granted what to whom is what the statement's content says, and it is revoked by
an act on it. So a row that was altered grants nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memory.event import decode_content
from memory.model import fact_id

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn

_GRANT = """
    SELECT g.seq, e.commitment, e.entry_index, c.content FROM grants g
    CROSS JOIN events e ON e.seq = g.seq CROSS JOIN contents c ON c.seq = g.seq
    WHERE g.tenant = ? AND {} AND NOT EXISTS
    (SELECT 1 FROM acts a WHERE a.tenant = g.tenant AND a.target = g.seq AND a.act = 'revokes')
    ORDER BY g.seq
"""


class GrantRow(NamedTuple):
    """A grant in force: `owner` lets `reader` read what it remembers."""

    seq: int
    commitment: bytes
    entry_index: int | None
    owner: str
    reader: str
    recorded_at: int

    @property
    def id(self) -> str:
        """The id people use for this grant."""
        return fact_id(self.commitment)


def add_grant(txn: Txn, tenant_id: int, seq: int, owner_tag: bytes, reader_tag: bytes) -> None:
    """Makes the grant that a statement is findable."""
    txn.connection.execute(
        "INSERT INTO grants (seq, tenant, owner_tag, reader_tag) VALUES (?, ?, ?, ?)",
        (seq, tenant_id, owner_tag, reader_tag),
    )


def granted(view: Snapshot, tenant_id: int, owner_tag: bytes, reader_tag: bytes) -> tuple[GrantRow, ...]:
    """The grants in force of one agent to another."""
    return _rows(view, "g.reader_tag = ? AND g.owner_tag = ?", tenant_id, reader_tag, owner_tag)


def grants_of(view: Snapshot, tenant_id: int, owner_tag: bytes) -> tuple[GrantRow, ...]:
    """The grants in force that an agent has made."""
    return _rows(view, "g.owner_tag = ?", tenant_id, owner_tag)


def grants_to(view: Snapshot, tenant_id: int, reader_tag: bytes) -> tuple[GrantRow, ...]:
    """The grants in force that an agent was given."""
    return _rows(view, "g.reader_tag = ?", tenant_id, reader_tag)


def grant_seqs(view: Snapshot, tenant_id: int, owner_tag: bytes | None) -> tuple[int, ...]:
    """Numbers of the statements of all grants of an agent, or of a tenant, and of what revoked them, in order."""
    chosen, values = ("", ()) if owner_tag is None else (" AND owner_tag = ?", (owner_tag,))
    rows = view.rows(
        f"""SELECT seq FROM grants WHERE tenant = ?{chosen} UNION
            SELECT a.seq FROM acts a WHERE a.tenant = ? AND a.act = 'revokes'
            AND a.target IN (SELECT seq FROM grants WHERE tenant = ?{chosen}) ORDER BY 1""",
        tenant_id,
        *values,
        tenant_id,
        tenant_id,
        *values,
    )
    return tuple(seq for (seq,) in rows)


def _rows(view: Snapshot, chosen: str, *values: object) -> tuple[GrantRow, ...]:
    return tuple(_row(*row) for row in view.rows(_GRANT.format(chosen), *values))


def _row(seq: int, commitment: bytes, entry_index: int | None, encoded: bytes) -> GrantRow:
    content = decode_content(encoded)
    return GrantRow(
        seq,
        commitment,
        entry_index,
        str(content.get("agent")),
        str(content.get("reader")),
        int(content["recorded_at"]),
    )
