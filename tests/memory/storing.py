"""A store in a folder, whichever engine keeps it, and what the tests of stores do with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    row = tenant_of(txn, tenant)
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
    with store.read() as view:
        return view.facts_of_key(1, key_tag(key))


def found(store: Store, query: str, agent: bytes = AGENT) -> list[int]:
    with store.read() as view:
        return [one.seq for one in find(view, 1, agent, query, ("active",)).ranked]


def erase(store: Store, *seqs: int) -> int:
    with store.write() as txn:
        targets = tuple(txn.view.commitments(seqs).values())
        content = {"recorded_at": txn.stamp(NOW)}
        tombstone = txn.add_event(
            tenant_of(txn), "erase", content, sign=sign, acts={"erases": targets}, details={"number": 1}
        )
        return store_erase.erase_contents(txn, 1, seqs, tombstone.seq)


def replaced_by(store: Store, seq: int) -> int | None:
    """The statement that the row of a fact says ended it."""
    with store.read() as view:
        row = view.one("SELECT replaced_by FROM facts WHERE seq = ?", seq)
    return None if row is None else row[0]


# Another engine is one line more: a function from an empty folder to an open store.
ENGINES: dict[str, Callable[[Path], Store]] = {"sqlite": make_store}
