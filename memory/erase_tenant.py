"""What becomes of a tenant of which an erasure has left nothing: its name goes, and the key of its hashes.

A tenant is found by a keyed hash of its name. Once no fact, no content, no retired value and no request of it is
left, the hash and the name are all that still speaks of it, so both go with its access tokens, and its key is
destroyed: whoever uses the name next is a new tenant. Its statements stay, under its random number. The tenant that
nobody named has no name to lose, and what was erased of it can still be asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory import store_access, store_erase
from memory.event import decode_content
from memory.model import DEFAULT_TENANT
from memory.vault import new_salt

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import TenantRow
    from memory.store_write import Txn


def forget_if_empty(txn: Txn, tenant: TenantRow) -> bool:
    """Whether nothing was left of the tenant, so that its name is gone once the transaction commits."""
    if tenant.name == DEFAULT_TENANT or store_erase.holds_anything(txn.view, tenant.id):
        return False
    if any("tenant" in decode_content(content) for content in store_erase.contents_of(txn.view, tenant.id)):
        return False
    store_access.drop_access_of_tenant(txn, tenant.id)
    store_erase.forget_tenant(txn, tenant.id, new_salt())
    return True


def destroy_key(parts: Parts, tenant_id: int) -> tuple[dict[str, Any], ...]:
    """The key of a tenant without a name as a manifest tells of it, destroyed; nothing for any other tenant."""
    with parts.store.read() as view:
        tenant = view.tenant_by_id(tenant_id)
    if tenant.name:
        return ()
    return ({"key": tenant.number, "destroyed": parts.vault.destroy_tenant_key(tenant.number)},)
