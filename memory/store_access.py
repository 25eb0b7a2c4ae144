"""The SQL of access tokens: found by their number, gone with their tenant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn

_COLUMNS = "a.number, a.token_hash, a.sealed, a.scopes, a.made_at, a.expires_at"


@dataclass(frozen=True, slots=True)
class AccessRow:
    """An access token as the store has it. `tenant` is its name where the store has that, else None."""

    number: bytes
    token_hash: bytes
    sealed: bytes
    scopes: int
    made_at: int
    expires_at: int | None
    tenant: str | None = None


def add_access(txn: Txn, row: AccessRow, tenant_tag: bytes) -> None:
    """Notes a token for a tenant that is found by this tag."""
    txn.connection.execute(
        "INSERT INTO access (number, token_hash, tenant_tag, sealed, scopes, made_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row.number, row.token_hash, tenant_tag, row.sealed, row.scopes, row.made_at, row.expires_at),
    )


def find_access(view: Snapshot, number: bytes) -> AccessRow | None:
    """The token of this number."""
    row = view.one(f"SELECT {_COLUMNS} FROM access a WHERE a.number = ?", number)
    return None if row is None else AccessRow(*row)


def all_access(view: Snapshot) -> tuple[AccessRow, ...]:
    """Every token, the oldest first, with the name of its tenant where there is one."""
    rows = view.rows(
        f"""SELECT {_COLUMNS}, t.number, t.name
            FROM access a LEFT JOIN tenants t ON t.name_tag = a.tenant_tag ORDER BY a.id"""
    )
    found = []
    for row in rows:
        number, name = row[-2:]
        known = AccessRow(*row[:-2])
        found.append(known if name is None else replace(known, tenant=view.open_name(number, name)))
    return tuple(found)


def has_access(view: Snapshot, now: int) -> bool:
    """Whether there is a token that has not expired."""
    sql = "SELECT 1 FROM access WHERE expires_at IS NULL OR expires_at > ? LIMIT 1"
    return view.one(sql, now) is not None


def drop_access(txn: Txn, number: bytes) -> bool:
    """Whether there was a token of this number: it is gone once the transaction commits."""
    txn.connection.execute("DELETE FROM access WHERE number = ?", (number,))
    return txn.connection.changes() == 1


def drop_access_of(txn: Txn, tenant_tag: bytes) -> int:
    """How many tokens a tenant had, which are gone once the transaction commits."""
    txn.connection.execute("DELETE FROM access WHERE tenant_tag = ?", (tenant_tag,))
    return txn.connection.changes()


def drop_expired_access(txn: Txn, before: int) -> int:
    """How many tokens expired before a time and are gone."""
    txn.connection.execute("DELETE FROM access WHERE expires_at <= ?", (before,))
    return txn.connection.changes()


def drop_all_access(txn: Txn) -> None:
    """No access token holds any more: which of them were revoked since, a store that was put back does not know."""
    txn.connection.execute("DELETE FROM access")


def drop_access_of_tenant(txn: Txn, tenant_id: int) -> int:
    """The same, of a tenant by the number of its row."""
    row = txn.view.one("SELECT name_tag FROM tenants WHERE id = ?", tenant_id)
    return 0 if row is None else drop_access_of(txn, row[0])
