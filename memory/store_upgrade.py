"""Brings the store of an older version to the schema of this one, its word index and its keyed hashes with it.

Each table is declared afterwards as `schema.sql` has it, to the letter, for an audit compares them; one that was
declared otherwise is made anew with the rows that it had. What is told from contents by rules, as words and keyed
hashes are, is told from them again by the rules of this version. Statements, contents, acts and manifests stay as they
are. All of it is one transaction: it is done, or nothing of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import apsw

from memory import ledger, store_rewrite
from memory.event import decode_content
from memory.rows import LedgerRow, OlderRow
from memory.scope import Scope, make_scope, require_keys
from memory.search import UNINDEXED, make_document, scope_token
from memory.store_write import Txn

if TYPE_CHECKING:
    from memory.sql import Connection
    from memory.vault import Vault

Reached = Callable[[str], None]
"""Told each step once it is taken: a test ends the process there."""
_INDEX: Final = "search"
_OLDER: Final = "of_older_version"
# What FTS5 declares by itself is not declared by us.
_DECLARED: Final = """
    SELECT type, name, sql FROM sqlite_schema
    WHERE sql IS NOT NULL AND (name = 'search' OR substr(name, 1, 7) <> 'search_')
"""
_FACTS: Final = """
    SELECT f.seq, f.tenant, f.agent_tag, f.key_tag, f.status, c.content FROM facts f JOIN contents c ON c.seq = f.seq
    WHERE f.seq > ? ORDER BY f.seq LIMIT ?
"""
_RETIRED: Final = """
    SELECT id, agent_tag, key_tag, subject_tag, value_tag, word_count, canon_version, source, until, expires_at
    FROM ledger WHERE tenant = ? AND source = ? ORDER BY id
"""
_BATCH: Final = 500


def _tell_nobody(step: str) -> None:
    """Nothing."""


def upgrade(
    connection: apsw.Connection,
    vault: Vault,
    is_done: Callable[[], bool],
    version: int,
    reached: Reached = _tell_nobody,
) -> None:
    """Returns once the store is of this version, brought there by this process or by one that was before it.

    It is written anew first: its pages may be older than the file layer that clears what lies between rows.
    """
    store_rewrite.write_anew(connection)
    reached("rewritten")
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA legacy_alter_table = ON")
    try:
        connection.execute("BEGIN IMMEDIATE")
        if not is_done():
            _bring_up(Txn(connection), vault, reached)
            connection.execute(f"PRAGMA user_version = {version}")
            reached("marked")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA legacy_alter_table = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
    reached("committed")


def _bring_up(txn: Txn, vault: Vault, reached: Reached) -> None:
    connection = txn.connection
    for kind, name in list(_declared(connection)):
        if kind == "index":
            connection.execute(f'DROP INDEX "{name}"')
    reached("indexes")
    for kind, name in sorted(_declared(connection).keys() | wanted().keys()):
        if kind == "table" and name != _INDEX:
            _remake_table(txn, name)
    reached("tables")
    for (kind, _), sql in wanted().items():
        if kind == "index":
            connection.execute(sql)
    remake_tags(txn, vault)
    reached("tags")
    # Its rows are deleted by the words they were made of, which an older version may have made otherwise.
    connection.execute(f"DROP TABLE IF EXISTS {_INDEX}")
    connection.execute(wanted()["table", _INDEX])
    connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 1)")
    for seq, _, agent_tag, _, status, content in _facts(txn):
        if status not in UNINDEXED:
            txn.index_fact(seq, make_document(scope_token(agent_tag), decode_content(content)))
    reached("words")


@cache
def wanted() -> Mapping[tuple[str, str], str]:
    """What a store of this version declares: by kind and name, each in the words of `schema.sql`."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(resources.files("memory").joinpath("schema.sql").read_text("utf-8"))
        return _declared(connection)
    finally:
        connection.close()


def _declared(connection: Connection) -> dict[tuple[str, str], str]:
    return {(str(kind), str(name)): str(sql) for kind, name, sql in connection.execute(_DECLARED).fetchall()}


def _remake_table(txn: Txn, name: str) -> None:
    """The table as this version declares it, with the rows that it had."""
    found, sql = _declared(txn.connection).get(("table", name)), wanted().get(("table", name))
    if sql is None or found == sql:
        return
    if found is None:
        txn.connection.execute(sql)
        return
    txn.connection.execute(f"ALTER TABLE {name} RENAME TO {_OLDER}")
    txn.connection.execute(sql)
    had = _columns(txn, _OLDER)
    listed = ", ".join(column for column in _columns(txn, name) if column in had)
    txn.connection.execute(f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {_OLDER} ORDER BY rowid")
    txn.connection.execute(f"DROP TABLE {_OLDER}")


def _columns(txn: Txn, table: str) -> list[str]:
    return [row[1] for row in txn.view.rows(f"PRAGMA table_info({table})")]


def _facts(txn: Txn) -> Iterator[tuple[Any, ...]]:
    after = 0
    while rows := txn.view.rows(_FACTS, after, _BATCH):
        yield from rows
        after = rows[-1][0]


def remake_tags(txn: Txn, vault: Vault) -> None:
    """The keyed hashes of everything that still has its content, by the canonical forms of this version."""
    scopes: dict[tuple[int, str], Scope] = {}
    for seq, tenant_id, _, key_tag, _, encoded in _facts(txn):
        content = decode_content(encoded)
        agent = str(content["agent"])
        if (tenant_id, agent) not in scopes:
            tenant = txn.view.tenant_by_id(tenant_id)
            # Under a key that was lost every hash would be another, and nothing be found again.
            require_keys(txn.view, vault, tenant)
            scopes[tenant_id, agent] = make_scope(vault, tenant, agent)
        _remake_fact(txn, scopes[tenant_id, agent], seq, key_tag, content)


def _remake_fact(txn: Txn, scope: Scope, seq: int, key_tag: bytes | None, content: Mapping[str, Any]) -> None:
    key, subject = content.get("key"), content.get("subject")
    new = None if key is None else scope.key_tag(str(key))
    txn.connection.execute(
        "UPDATE facts SET key_tag = ?, subject_tag = ?, text_tag = ? WHERE seq = ?",
        (
            new,
            None if subject is None else scope.subject_tag(str(subject)),
            scope.text_tag(str(content["text"])),
            seq,
        ),
    )
    if key_tag is None or new is None:
        return
    if key_tag != new:
        # What is left of a key but its facts follows them.
        for table in ("conflicts", "ledger"):
            txn.connection.execute(
                f"UPDATE OR REPLACE {table} SET key_tag = ? WHERE tenant = ? AND key_tag = ?",
                (new, scope.tenant_id, key_tag),
            )
    rows = [
        OlderRow(row[0], LedgerRow._make((*row[1:5], (), *row[5:9])), expires_at=row[9], content=content)
        for row in txn.view.rows(_RETIRED, scope.tenant_id, seq)
    ]
    ledger.make_anew(txn, scope, new, seq, content, rows)
