"""The rows of a database as the store of an evidence bundle: a file of SQLite, as any auditor reads one.

All of it is of one view. What is not to be handed out is never written: no byte of the file is of anything else.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from memory import store_backup, vfs
from memory.event import decode_content
from memory.search import UNINDEXED, make_document, scope_token
from memory.store import APPLICATION_ID, SCHEMA_VERSION
from memory.store_write import Txn

if TYPE_CHECKING:
    from memory.store_read import Snapshot

# Tables whose rows are of a tenant each, and go with it.
_OF_TENANTS: Final = (
    "acts",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "openings",
    "grants",
    "erasures",
    "vectors",
)
_TAG_BYTES: Final = 32
Whose = Callable[[int], bool]
"""Whether more than the links of a tenant is handed out."""


def copy_rows(view: Snapshot, scope: str, tenant_id: int | None, target: Path) -> None:
    """Returns once `target`, an empty file, has all links, and of contents those of all, of one tenant, or none."""
    of_all = scope == "all"

    def whose(tenant: int) -> bool:
        return of_all or tenant == tenant_id

    with _filling(target) as txn:
        _copy_tenants(view, txn, whose)
        _copy_statements(view, txn, whose, of_all)
        for table in _OF_TENANTS:
            for row in store_backup.whole_rows(view, table):
                if whose(row["tenant"]):
                    store_backup.insert(txn, table, row)
        if of_all:
            for row in store_backup.whole_rows(view, "backups"):
                store_backup.insert(txn, "backups", row)
            for name, value in store_backup.meta(view):
                txn.set_meta(name, value)


@contextmanager
def _filling(target: Path) -> Iterator[Txn]:
    """A transaction in a new store, which has no journal beside it in the end."""
    connection = apsw.Connection(str(target), vfs=vfs.register())
    try:
        for setting in ("journal_mode = MEMORY", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(resources.files("memory").joinpath("schema.sql").read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        yield Txn(connection)
        connection.execute("COMMIT")
        # Pages as they are split while rows come in keep bytes of them.
        connection.execute("VACUUM")
    finally:
        connection.close(True)


def _copy_tenants(view: Snapshot, txn: Txn, whose: Whose) -> None:
    tags = dict(view.rows("SELECT id, name_tag FROM tenants"))
    for row_id, number, name, last_seq in store_backup.tenants(view):
        row: tuple[Any, ...] = (row_id, number, name, last_seq)
        if whose(row_id):
            txn.put_tenant(row, tags[row_id], None)
        else:
            txn.put_tenant((row_id, number, "", last_seq), secrets.token_bytes(_TAG_BYTES), None)


def _copy_statements(view: Snapshot, txn: Txn, whose: Whose, indexed: bool) -> None:
    """Links of all, and contents, facts and, where all are handed out, words."""
    for record in store_backup.records(view):
        store_backup.insert_event(txn, record.event)
        if record.secret is None or not whose(record.event[1]):
            continue
        content, salt, fact = record.secret
        store_backup.insert(txn, "contents", {"seq": record.seq, "content": content, "salt": salt})
        if fact is None:
            continue
        store_backup.insert(txn, "facts", fact)
        if indexed and fact["status"] not in UNINDEXED:
            # Words of all tenants stand in one index, and an audit of one tenant does not look at it.
            txn.index_fact(record.seq, make_document(scope_token(fact["agent_tag"]), decode_content(content)))
