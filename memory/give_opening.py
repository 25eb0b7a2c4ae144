"""Gives out the opening of a fact, and notes that somebody has it: under a random reference, before it is given.

Whoever has an opening can prove that content for ever. An erasure of the fact lists the references in its
manifest, so whoever gave the opening away can tell whom to ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.allow import may_tell
from memory.model import Principal, parse_fact_id
from memory.opening import format_opening
from memory.principal import require
from memory.scope import open_scope
from memory.store_holds import refuse_if_held
from memory.store_openings import add_opening
from memory.times import whole_hour
from memory.vault import new_number
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import EventRow
    from memory.scope import Scope
    from memory.store_read import Snapshot


@dataclass(frozen=True)
class Given:
    """An opening as a file, and the reference that its recipient is noted under."""

    file: bytes
    recipient: str


def give_opening(parts: Parts, principal: Principal, reference: str) -> Given:
    """What proves the content of a fact's entry to whoever holds it, also after an erasure; durably noted."""
    require(principal, "memory:read")
    commitment = parse_fact_id(reference)
    recipient = new_number()
    with parts.store.write() as txn:
        scope = open_scope(txn.view, parts.vault, principal)
        if scope is None:
            raise _unknown()
        row = _opened(txn.view, scope, principal, commitment)
        add_opening(txn, scope.tenant_id, row.seq, recipient, whole_hour(parts.clock()))
    assert row.content is not None and row.content_salt is not None
    fields = {
        "commitment": row.commitment,
        "link": row.link,
        "link_salt": row.link_salt,
        "content": row.content,
        "content_salt": row.content_salt,
    }
    return Given(format_opening(fields), recipient.hex())


def _opened(view: Snapshot, scope: Scope, principal: Principal, commitment: bytes) -> EventRow:
    fact = view.fact(scope.tenant_id, scope.agent_tag, commitment)
    if fact is None:
        refuse_if_held(view, scope, commitment)
    row = None if fact is None else view.event_by_seq(fact.seq)
    if fact is None or row is None or row.content is None or row.content_salt is None:
        raise _unknown()
    if not may_tell(fact.status, principal.scopes, fact.end_erased):
        raise RefusedError("this fact is withheld from this caller", code="forbidden")
    return row


def _unknown() -> MalformedError:
    return MalformedError("expected the id of a fact in this scope", code="unknown_id")
