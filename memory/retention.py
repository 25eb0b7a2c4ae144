"""Retention: what is past its time is erased as any erasure does it, in batches; its retired values stay refused.

Past its time is what the rules of the settings say, what was refused, held or discarded longer ago than the settings
allow, and, where the caller gives a term, what was superseded before that. A hold goes before all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from memory.answers import Answer
from memory.model import Principal
from memory.principal import require
from memory.retention_rules import WITHHELD, rules_of
from memory.scope import open_scope

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import SelectedFact
    from memory.scope import Scope
    from memory.store_read import Snapshot

BATCH: Final = 1000
Progress = Callable[[int, int], None]


def _silent(_: int, __: int) -> None:
    return None


def retention(
    parts: Parts,
    principal: Principal,
    older_than: int | None,
    apply: bool,
    progress: Progress = _silent,
) -> Answer:
    """How many facts of the caller's scope are past their time; with `apply` they are erased, batch after batch.

    `older_than` is in microseconds. `progress` is told how many are done, of how many. Hashes of retired values
    whose time is over go, too.
    """
    from memory import erase, erase_backups, store_erase
    from memory.erase_record import LOCK, truncate_wal
    from memory.manifest_text import REASONS, sentences

    require(principal, "memory:forget")
    with parts.store.read() as view:
        now = max(parts.clock(), view.last_recorded_at())
    until = None if older_than is None else now - older_than
    matched = len(_ended_of(parts, principal, until, now))
    if not apply:
        return {"matched": matched, "removed": 0, "receipt": None}
    with parts.store.write() as txn:
        dropped = store_erase.drop_expired_ledger(txn, now)
    answers: list[dict[str, Any]] = []
    removed = 0
    while removed < matched:
        progress(removed, matched)
        batch = erase.erase_ended(
            parts, principal, lambda view, scope: _ended(parts, view, scope, until, now)[:BATCH]
        )
        if batch is None:
            break
        answers.append(batch)
        removed += batch["erased"]
    progress(removed, matched)
    if not answers:
        with parts.home.files.lock(LOCK):
            # Hashes that went without a fact: as after any erasure, no page from before may stay in a file. Also
            # where none went now, for a sweep before this one may have been cut short.
            pinned = truncate_wal(parts).get("why", ())
            if dropped:
                erase_backups.sweep(parts)
        unsure = {"state": "inconclusive", "why": sentences(REASONS, pinned)} if pinned else {}
        return {"matched": matched, "removed": 0, "receipt": None, **unsure}
    unfinished = [one for one in answers if one["state"] != "closed_complete"]
    worst = unfinished[0] if unfinished else answers[-1]
    return {
        "matched": matched,
        "removed": removed,
        "receipt": {"state": "pending", "entry": None},
        "manifest": worst["manifest"],
        "manifests": [one["manifest"] for one in answers],
        "state": worst["state"],
    }


def _ended_of(
    parts: Parts, principal: Principal, superseded_until: int | None, now: int
) -> tuple[SelectedFact, ...]:
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        return () if scope is None else _ended(parts, view, scope, superseded_until, now)


def _ended(
    parts: Parts, view: Snapshot, scope: Scope, superseded_until: int | None, now: int
) -> tuple[SelectedFact, ...]:
    """The facts of a scope that are past their time and under no hold, in order."""
    from memory import store_erase

    rules = rules_of(parts.home.config)
    found: dict[int, SelectedFact] = {}
    if superseded_until is not None:
        old = store_erase.select_superseded(view, scope.tenant_id, scope.agent_tag, superseded_until)
        found |= {fact.seq: fact for fact in old}
    if rules.rules:
        looked_at = store_erase.select_everything(view, scope.tenant_id, scope.agent_tag)
    else:
        looked_at = store_erase.select_withheld(view, scope.tenant_id, scope.agent_tag, WITHHELD)
    for fact in looked_at:
        if not fact.on_hold and rules.has_ended(fact.status, fact.content, now):
            found[fact.seq] = fact
    return tuple(found[seq] for seq in sorted(found))
