"""Brings the words of an older database to the rules of this version, in one transaction: all of them, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from memory.event import decode_content
from memory.pg_schema import VERSION, without_samples
from memory.pg_txn import PgTxn
from memory.search import UNINDEXED, make_document, scope_token

if TYPE_CHECKING:
    from memory.pg_store import PgStore

_PATIENT: Final = "SET LOCAL statement_timeout = 0"
_FACTS: Final = """
    SELECT f.seq, f.agent_tag, f.status, c.content FROM facts f CROSS JOIN contents c ON c.seq = f.seq
    WHERE f.tenant = ? AND f.seq > ? ORDER BY f.seq LIMIT ?
"""
_BATCH: Final = 500


def bring_up(store: PgStore) -> None:
    """Returns once each fact in the database is found by the words of this version, whoever has brought it there."""
    # Nobody writes meanwhile: a fact would be found by older words for ever.
    with store.write_alone() as txn:
        assert isinstance(txn, PgTxn)
        txn.pg.run(_PATIENT)
        row = txn.pg.run("SELECT max(version) FROM schema_version").fetchone()
        if row is not None and row[0] == VERSION:
            return
        for (tenant_id,) in txn.pg.run("SELECT id FROM tenants ORDER BY id").fetchall():
            _index_again(txn, tenant_id)
        txn.pg.run("UPDATE schema_version SET version = %s", (VERSION,))
        # The tables are the node's own.
        txn.pg.run("RESET ROLE")
        for statement in without_samples():
            txn.pg.run(statement)


def _index_again(txn: PgTxn, tenant_id: int) -> None:
    txn.view.enter(tenant_id)
    txn.pg.run("DELETE FROM words WHERE tenant = %s", (tenant_id,))
    after = 0
    while rows := txn.view.rows(_FACTS, tenant_id, after, _BATCH):
        for seq, agent_tag, status, content in rows:
            if status not in UNINDEXED:
                txn.index_fact(seq, make_document(scope_token(agent_tag), decode_content(content)))
        after = rows[-1][0]
