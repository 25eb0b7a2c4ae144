"""The newest facts that are served now: what a session begins with, before anybody has asked anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from memory import edge
from memory.answers import NOTICE, Answer, fact_shape, receipts, scope_shape
from memory.key_view import fact_now, key_now
from memory.principal import require
from memory.scope import open_scope
from memory.store_documents import standing_seqs

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.store_read import Snapshot

_LOOKED_AT: Final = 4
"""So many times as many rows are looked at as facts are asked for: some are documents, or hold no more."""


def recent(parts: Parts, principal: Principal, limit: object = 10) -> Answer:
    """The facts that hold now and were recorded last, newest first; documents of adapters are none."""
    require(principal, "memory:read")
    count = edge.check_limit(limit)
    found: list[FactRow] = []
    with parts.store.read() as view:
        now = max(parts.clock(), view.last_recorded_at())
        scope = open_scope(view, parts.vault, principal)
        seqs = () if scope is None else standing_seqs(view, scope, count * _LOOKED_AT)
        for seq in seqs:
            assert scope is not None
            for fact in view.facts_by_seq(scope.tenant_id, scope.agent_tag, (seq,)):
                if "unguarded" not in fact.content.get("flags", ()) and _is_served(view, fact, now):
                    found.append(fact)
            if len(found) == count:
                break
    states = receipts(parts)
    return {
        "facts": [fact_shape(fact, states) for fact in found],
        "notice": NOTICE,
        "scope": scope_shape(principal),
    }


def _is_served(view: Snapshot, fact: FactRow, now: int) -> bool:
    if fact.key_tag is None:
        served = fact_now(fact, now).facts
    else:
        served = key_now(view, fact.tenant_id, fact.key_tag, now).facts
    return any(one.commitment == fact.commitment for one, _ in served)
