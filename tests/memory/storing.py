"""A store in a folder, whichever engine keeps it, and what the tests of stores do with one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postgres_server import Server

from memory import store_erase
from memory.rank_matches import find
from memory.rows import EventRow, FactRow, TenantRow
from memory.search import make_document, scope_token
from memory.store import Store, open_store
from memory.store_write import NewFact, Txn
from memory.vault import Vault

NOW = 1_900_000_000_000_000
AGENT = b"\x0a" * 32
OTHER_AGENT = b"\x0b" * 32


def sign(commitment: bytes) -> bytes:
    return b"signed:" + commitment


def make_store(folder: Path) -> Store:
    keys = folder / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    return open_store(folder / "store.db", Vault(keys))


def tenant_of(txn: Txn, name: str = "acme") -> TenantRow:
    return txn.make_tenant(name, name.encode().ljust(32, b"\0"))


def key_tag(key: str) -> bytes:
    return b"k:" + key.encode()


def add(
    txn: Txn,
    text: str,
    *,
    key: str | None = None,
    value: str | None = None,
    acts: dict[str, tuple[bytes, ...]] | None = None,
    outcome: str = "stored",
    status: Any = "active",
    agent: bytes = AGENT,
    tenant: str = "acme",
    now: int = NOW,
) -> EventRow:
    row = tenant_of(txn, tenant)
    recorded_at = txn.stamp(now)
    content = {
        "tenant": tenant,
        "agent": "ops",
        "client": "desk",
        "key": key,
        "value": value,
        "text": text,
        "valid_from": recorded_at,
        "recorded_at": recorded_at,
        "flags": [],
    }
    made = txn.add_event(row, "write", content, sign=sign, acts=acts, details={"outcome": outcome})
    txn.add_fact(
        made,
        NewFact(
            agent_tag=agent,
            key_tag=None if key is None else key_tag(key),
            subject_tag=None,
            text_tag=b"t:" + text.encode(),
            status=status,
            valid_from=recorded_at,
            declared=False,
            valid_until=None,
            recorded_at=recorded_at,
        ),
    )
    txn.index_fact(made.seq, make_document(scope_token(agent), content))
    return made


def stored(store: Store, text: str, **options: Any) -> EventRow:
    with store.write() as txn:
        return add(txn, text, **options)


def facts_of(store: Store, key: str) -> tuple[FactRow, ...]:
    with store.read_whole() as view:
        return view.facts_of_key(1, key_tag(key))


def found(store: Store, query: str, agent: bytes = AGENT) -> list[int]:
    with store.read_whole() as view:
        acme = view.tenant(b"acme".ljust(32, b"\0"))
        known = find(view, acme.id, agent, query, ("active",)).ranked if acme is not None else ()
    return [one.seq for one in known]


def erase(store: Store, *seqs: int) -> int:
    with store.write() as txn:
        txn.view.enter(1)
        targets = tuple(txn.view.commitments(seqs).values())
        content = {"recorded_at": txn.stamp(NOW)}
        tombstone = txn.add_event(
            tenant_of(txn), "erase", content, sign=sign, acts={"erases": targets}, details={"number": 1}
        )
        return store_erase.erase_contents(txn, 1, seqs, tombstone.seq)


def replaced_by(store: Store, seq: int) -> int | None:
    """The statement that the row of a fact says ended it."""
    with store.read_whole() as view:
        row = view.one("SELECT replaced_by FROM facts WHERE seq = ?", seq)
    return None if row is None else row[0]


def make_pg_store(folder: Path) -> Store:
    from memory.pg_store import open_pg_store

    keys = folder / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    dsn = folder / "dsn"
    if not dsn.exists():
        dsn.write_text(SERVERS[0].new_database())
    return open_pg_store(dsn.read_text(), keys)


SERVERS: list[Server] = []
"""The server of this run, where the tests are run on PostgreSQL."""

# Another engine is one line more: a function from an empty folder to an open store.
ENGINES: dict[str, Callable[[Path], Store]] = (
    {"postgres": make_pg_store}
    if os.environ.get("MUNIMENT_TEST_ENGINE") == "postgres"
    else {"sqlite": make_store}
)
