"""Tenant and agent of a caller, and the keyed hashes under which the store knows what is theirs.

Everything a caller reads or writes is found by a tag that is made here, under the key of its tenant and with
its agent in it: a tag of one scope matches no row of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from memory import canon
from memory.model import DEFAULT_TENANT, Principal
from memory.vault import WORD_TAG_BYTES
from tlog.errors import MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import TenantRow
    from memory.store_read import Snapshot
    from memory.store_write import Txn
    from memory.vault import Vault

MAKES_TENANTS: Final = "memory:tenant"


class Scope(NamedTuple):
    """One (tenant, agent) of one store; `agent_tag` stands for it in rows."""

    vault: Vault
    tenant: TenantRow
    agent: str
    agent_tag: bytes

    @property
    def tenant_id(self) -> int:
        """The row id of the tenant, which every SQL statement carries."""
        return self.tenant.id

    def key_tag(self, key: str) -> bytes:
        """The tag of a key: one for all its spellings."""
        return self._tag_one("key", canon.canonical_key(key))

    def subject_tag(self, subject: str) -> bytes:
        """The tag of a subject: one for all its spellings."""
        return self._tag_one("subject", canon.canonical_key(subject))

    def text_tag(self, text: str) -> bytes:
        """The tag of a text, by which a verbatim repeat of it is known."""
        return self._tag_one("text", canon.canonical_text(text))

    def value_tag(self, value: canon.Canonical, version: int = canon.VERSION) -> bytes:
        """The tag of one canonical form of a value, by the version of the forms that it is of."""
        return self._tag("value", str(version), value.kind, value.form)

    def word_tag(self, word: str) -> bytes:
        """The short tag of a word that a key is named by."""
        return self._tag_one("word", word)[:WORD_TAG_BYTES]

    def request_tag(self, client: str, idempotency_key: str) -> bytes:
        """The tag of an idempotency key: a client's keys are its own."""
        return self._tag("request", client, idempotency_key)

    def bound_tag(self, purpose: str, *parts: str | bytes) -> bytes:
        """The tag of what a token or an idempotency key is bound to."""
        return self._tag("bound", purpose, *parts)

    def _tag_one(self, domain: str, text: str) -> bytes:
        return self.vault.tag_under(self.tenant.number, domain, self.agent, text)

    def _tag(self, domain: str, *parts: str | bytes) -> bytes:
        return self.vault.tag(self.tenant.number, domain, self.agent, *parts)


def make_scope(vault: Vault, tenant: TenantRow, agent: str) -> Scope:
    """The scope of an agent of a tenant."""
    return Scope(vault, tenant, agent, vault.tag_of_name(tenant.number, "agent", agent))


def open_scope(view: Snapshot, vault: Vault, principal: Principal) -> Scope | None:
    """The scope of a caller; None if the store has no such tenant yet."""
    tenant = view.tenant(vault.tag_of_name(b"", "tenant", principal.tenant))
    require_keys(view, vault, tenant)
    return None if tenant is None else make_scope(vault, tenant, principal.agent)


def open_for_write(parts: Parts, txn: Txn, principal: Principal) -> Scope:
    """The scope of a caller that writes, whose tenant is made if this home makes new ones for this caller."""
    name_tag = parts.vault.tag_of_name(b"", "tenant", principal.tenant)
    known = txn.find_tenant(name_tag)
    require_keys(txn.view, parts.vault, known)
    if known is None:
        _require_may_make(parts.home.config.unknown_tenants, principal)
        known = txn.make_tenant(principal.tenant, name_tag)
    return make_scope(parts.vault, known, principal.agent)


def _require_may_make(unknown_tenants: str, principal: Principal) -> None:
    # The tenant that nobody has to name is there from the first.
    if (
        unknown_tenants == "refuse"
        and principal.tenant != DEFAULT_TENANT
        and MAKES_TENANTS not in principal.scopes
    ):
        raise MalformedError(
            "expected a tenant that this home knows; its owner makes new ones, or sets unknown_tenants to create",
            code="unknown_tenant",
        )


def require_keys(view: Snapshot, vault: Vault, tenant: TenantRow | None) -> None:
    """Returns if the keys are those that the store was written with; looked at once for each tenant.

    Under another key every look-up finds nothing: the memory would seem empty and forget what it refused.
    """
    number = b"" if tenant is None else tenant.number
    if number in vault.confirmed:
        return
    if tenant is None:
        named = view.named_tenant()
        holds = named is None or vault.index_tag("tenant", named[0]) == named[1]
    else:
        known = view.agent_of_a_fact(tenant.id)
        holds = known is None or (
            vault.has_tenant_key(number) and vault.tag(number, "agent", known[0]) == known[1]
        )
    if not holds:
        raise UnavailableError(
            "a key of this home is lost or damaged (keys/index.key or keys/guard): put it back from a backup",
            code="key_mismatch",
        )
    if tenant is not None:
        vault.confirmed.add(number)
