"""What was written ahead begins: a statement says so, before anything else is said in its scope.

A record with a valid_from in the future takes nobody's place when it is written; when its time has come, it takes
that of what the same client said before. Reads tell that from the times alone. What follows from it for statuses and
for the value ledger is stated by the first that writes, reviews or forgets in the scope afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memory import ledger, store_ledger
from memory.key_view import STANDING
from memory.model import own_name

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.parts import Parts
    from memory.rows import FactRow
    from memory.scope import Scope
    from memory.store_write import Txn


def state_begun(parts: Parts, principal: Principal, txn: Txn, scope: Scope, now: int) -> None:
    """Makes a statement of each record of the scope that has begun and takes the place of others."""
    if txn.without_ahead == scope.tenant_id:
        return
    for key_tag in store_ledger.keys_begun(txn.view, scope.tenant_id, scope.agent_tag, now):
        facts = txn.view.facts_of_key(scope.tenant_id, key_tag, STANDING)
        gone: set[int] = set()
        for begun, replaced in _begun(facts, now):
            gone |= {fact.seq for fact in replaced}
            content = {
                "tenant": principal.tenant,
                "agent": principal.agent,
                "client": principal.client,
                "recorded_at": now,
            }
            acts = {"begins": [begun.commitment], "retires": [fact.commitment for fact in replaced]}
            txn.add_event(scope.tenant, "begin", content, sign=parts.sign_entry, acts=acts)
            kept = ledger.still_said((fact for fact in facts if fact.seq not in gone), now)
            kept.append(ledger.said(begun.content))
            ledger.retire(txn, scope, replaced, kept, begun.valid_until)
            ledger.settle(txn, scope, key_tag, kept, begun.valid_until)


def _author(fact: FactRow) -> str:
    return own_name(fact.content["client"], "reported" in fact.content.get("flags", ()))


def _begun(facts: Sequence[FactRow], now: int) -> Iterator[tuple[FactRow, list[FactRow]]]:
    """What was written ahead and has begun, in the order of its times, with what it takes the place of."""
    single = [fact for fact in facts if "many" not in fact.content.get("flags", ())]
    ahead = [fact for fact in single if fact.recorded_at < fact.valid_from <= now]
    gone: set[int] = set()
    for begun in sorted(ahead, key=lambda fact: (fact.valid_from, fact.seq)):
        replaced = [
            fact
            for fact in single
            if _author(fact) == _author(begun)
            and fact.valid_from < begun.valid_from
            and (fact.valid_until is None or fact.valid_until > begun.valid_from)
            and fact.seq not in gone
        ]
        if replaced and begun.seq not in gone:
            gone |= {fact.seq for fact in replaced}
            yield begun, replaced
