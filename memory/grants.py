"""Reading rights between the agents of a tenant: each is a statement, made by whose memory it is, and revocable.

A grant lets another agent read and nothing else, and only what is told to everybody who may read: what is held or
refused stays with the owner. Whoever uses it says whose memory is meant; without that word a read is of the caller's
own. It is looked for in the same view of the store that the read uses, so that a revocation counts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import store_grants
from memory.answers import Answer, receipts, scope_shape
from memory.model import Principal, parse_fact_id
from memory.principal import check_name, narrowed, require
from memory.scope import Scope, make_scope, open_for_write, open_scope
from memory.times import format_time
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.store_grants import GrantRow
    from memory.store_read import Snapshot
    from memory.store_write import Txn

RIGHT: Final = "memory:grant"
_READING: Final = frozenset({"memory:read"})


@dataclass(frozen=True)
class Reading:
    """Whose memory a read is of. `principal` has the rights that hold there; `grant` is by which it may be read."""

    principal: Principal
    scope: Scope | None
    grant: GrantRow | None = None

    def shape(self) -> Answer:
        """Which scope an answer is about, and by which grant it was read."""
        if self.grant is None:
            return scope_shape(self.principal)
        return {"tenant": self.principal.tenant, "agent": self.grant.owner, "grant": self.grant.id}


def open_reading(view: Snapshot, parts: Parts, principal: Principal, owner: object) -> Reading:
    """The caller's own memory, or that of the agent `owner` where a grant in force lets the caller read it.

    RefusedError with code `forbidden` without a grant, whether there is such an agent or not.
    """
    own = open_scope(view, parts.vault, principal)
    if owner is None:
        return Reading(principal, own)
    name = check_name("owner", owner)
    if name == principal.agent:
        return Reading(principal, own)
    if own is not None:
        scope = make_scope(parts.vault, own.tenant, name)
        for grant in store_grants.granted(view, own.tenant_id, scope.agent_tag, own.agent_tag):
            if (grant.owner, grant.reader) == (name, principal.agent):
                return Reading(narrowed(principal, _READING), scope, grant)
    raise RefusedError("no grant lets this caller read the memory of that agent", code="forbidden")


def grant(parts: Parts, principal: Principal, reader: object) -> Answer:
    """The grant by which the agent `reader` may read what the caller's agent remembers, from now on."""
    require(principal, RIGHT)
    name = check_name("reader", reader)
    if name == principal.agent:
        raise MalformedError("expected another agent: each reads its own memory without a grant")
    with parts.store.write() as txn:
        scope = open_for_write(parts, txn, principal)
        other = make_scope(parts.vault, scope.tenant, name)
        known = store_grants.granted(txn.view, scope.tenant_id, scope.agent_tag, other.agent_tag)
        if known:
            return _answer(parts, known[0].id, "granted", known[0].entry_index)
        made = txn.add_event(
            scope.tenant, "grant", {**_said_by(parts, principal, txn), "reader": name}, sign=parts.sign_entry
        )
        store_grants.add_grant(txn, scope.tenant_id, made.seq, scope.agent_tag, other.agent_tag)
    return _answer(parts, made.id, "granted", made.entry_index)


def revoke(parts: Parts, principal: Principal, reference: object) -> Answer:
    """The end of a grant that the caller's agent made."""
    require(principal, RIGHT)
    if not isinstance(reference, str):
        raise MalformedError("expected the id of a grant")
    wanted = parse_fact_id(reference.strip())
    with parts.store.write() as txn:
        scope = open_scope(txn.view, parts.vault, principal)
        found = () if scope is None else store_grants.grants_of(txn.view, scope.tenant_id, scope.agent_tag)
        ended = next((one for one in found if one.commitment[:16] == wanted), None)
        if scope is None or ended is None:
            raise MalformedError(
                "expected the id of a grant of this agent that is in force", code="unknown_id"
            )
        made = txn.add_event(
            scope.tenant,
            "revoke",
            _said_by(parts, principal, txn),
            sign=parts.sign_entry,
            acts={"revokes": [ended.commitment]},
        )
    return _answer(parts, ended.id, "revoked", made.entry_index)


def grants(parts: Parts, principal: Principal) -> Answer:
    """The grants in force: those that the caller's agent made, and those it was given."""
    require(principal, "memory:read")
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        made: tuple[GrantRow, ...] = ()
        given: tuple[GrantRow, ...] = ()
        if scope is not None:
            made = store_grants.grants_of(view, scope.tenant_id, scope.agent_tag)
            given = store_grants.grants_to(view, scope.tenant_id, scope.agent_tag)
    return {
        "made": [_described(one) for one in made],
        "given": [_described(one) for one in given],
        "scope": scope_shape(principal),
    }


def _described(one: GrantRow) -> Answer:
    return {"id": one.id, "owner": one.owner, "reader": one.reader, "since": format_time(one.recorded_at)}


def _said_by(parts: Parts, principal: Principal, txn: Txn) -> dict[str, Any]:
    return {
        "tenant": principal.tenant,
        "agent": principal.agent,
        "client": principal.client,
        "recorded_at": txn.stamp(parts.clock()),
        "flags": ["authenticated"] if principal.authenticated else None,
    }


def _answer(parts: Parts, id: str, status: str, entry_index: int | None) -> Answer:
    return {"id": id, "status": status, "receipt": receipts(parts).shape(entry_index)}
