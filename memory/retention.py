"""Retention: facts that were superseded long ago are erased; their values stay refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.answers import Answer
from memory.model import Principal
from memory.principal import require

if TYPE_CHECKING:
    from memory.parts import Parts


def retention(parts: Parts, principal: Principal, older_than: int, apply: bool) -> Answer:
    """How many facts of the caller's scope were superseded at least `older_than` microseconds ago.

    With `apply` they are erased as any erasure, with tombstone and manifest; and hashes of retired values whose
    time is over go.
    """
    from memory import erase, store_erase

    require(principal, "memory:forget")
    with parts.store.read() as view:
        now = max(parts.clock(), view.last_recorded_at())
    if apply:
        with parts.store.write() as txn:
            store_erase.drop_expired_ledger(txn, now)
    matched = erase.count_superseded(parts, principal, now - older_than)
    done = erase.erase_superseded(parts, principal, now - older_than) if apply and matched else None
    if done is None:
        return {"matched": matched, "removed": 0, "receipt": None}
    receipt = {"state": "pending", "entry": None}
    return {
        "matched": matched,
        "removed": done["erased"],
        "receipt": receipt,
        "manifest": done["manifest"],
        "state": done["state"],
    }
