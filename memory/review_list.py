"""What is held or was refused and waits for a person, with what it would take the place of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memory import store_ledger
from memory.answers import NOTICE, Answer, Receipts, current_shape, fact_shape, receipts, scope_shape
from memory.key_view import STANDING, key_now
from memory.principal import require
from memory.requests import shown_code
from memory.scope import Scope, open_scope

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.store_read import Snapshot

MAX_REVIEW: Final = 1000


@dataclass(frozen=True)
class _Looking:
    """A look at what waits: one view of the store, one scope, and who looks."""

    view: Snapshot
    scope: Scope
    principal: Principal
    now: int
    states: Receipts


def review(parts: Parts, principal: Principal) -> Answer:
    """What is held or was refused and waits for a person, oldest first, each with the reason code.

    With each comes what its key says now (`current`), and, for who may reaffirm it, the code (`shown`) that stands for
    having seen that. Of more than there is room for, the newest are told, and how many were left out.
    """
    require(principal, "memory:review")
    facts: list[Answer] = []
    omitted = 0
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        if scope is not None:
            now = max(parts.clock(), view.last_recorded_at())
            looking = _Looking(view, scope, principal, now, receipts(parts))
            facts = [
                _told(looking, row) for row in view.waiting(scope.tenant_id, scope.agent_tag, MAX_REVIEW)
            ]
            if len(facts) == MAX_REVIEW:
                omitted = store_ledger.count_waiting(view, scope.tenant_id, scope.agent_tag) - len(facts)
    return {
        "facts": facts,
        "omitted": max(omitted, 0),
        "notice": NOTICE,
        "scope": scope_shape(principal),
    }


def _told(looking: _Looking, row: FactRow) -> Answer:
    view, tenant_id = looking.view, looking.scope.tenant_id
    reason = view.links([row.seq])[row.seq].details.get("reason")
    current = shown = None
    if row.key_tag is not None and "memory:read" in looking.principal.scopes:
        current = current_shape(key_now(view, tenant_id, row.key_tag, looking.now))
    if row.key_tag is not None and reason == "echo" and "memory:reaffirm" in looking.principal.scopes:
        standing = view.facts_of_key(tenant_id, row.key_tag, STANDING)
        shown = shown_code(looking.scope, row.commitment, standing)
    return fact_shape(row, looking.states) | {"reason": reason, "current": current, "shown": shown}
