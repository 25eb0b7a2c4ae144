"""Retention: what is past its time is erased as any erasure does it, in batches; its retired values stay refused.

Past its time is what the rules of the settings say, what was refused, held or discarded longer ago than the settings
allow, and, where the caller gives a term, what was superseded before that. A hold goes before all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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
_PURGE: Final = "memory:purge"
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
    """How many facts are past their time; with `apply` they are erased, batch after batch.

    They are those of every tenant and agent for whoever may purge, since the rules are those of the home, and of
    the caller's memory else; `covers` says which. `older_than`, in microseconds, is for the caller's memory alone.
    `progress` is told how many are done, of how many. Hashes of retired values whose time is over go, too.
    """
    from memory import erase_backups, store_erase
    from memory.erase_record import alone, clear_pages
    from memory.manifest_text import REASONS, sentences

    require(principal, "memory:forget")
    with parts.store.read() as view:
        now = max(parts.clock(), view.last_recorded_at())
    covers = {"covers": "home" if _PURGE in principal.scopes else "agent"}
    untils: dict[Principal, int | None] = dict.fromkeys(_principals(parts, principal))
    untils[principal] = None if older_than is None else now - older_than
    matched = sum(len(_ended_of(parts, one, until, now)) for one, until in untils.items())
    if not apply:
        return {"matched": matched, "removed": 0, "receipt": None, **covers}
    with parts.store.write_whole() as txn:
        store_erase.drop_expired_ledger(txn, now)
    answers: list[dict[str, Any]] = []
    removed = 0
    for one, until in untils.items():
        for batch in _batches(parts, one, until, now):
            progress(removed, matched)
            answers.append(batch)
            removed += batch["erased"]
    progress(removed, matched)
    if not answers:
        with alone(parts):
            # Hashes that went without a fact: as after any erasure, no page from before may stay in a file. Also
            # where none went now, for a sweep before this one may have been cut short.
            pinned = [why for line in clear_pages(parts) for why in line.get("why", ())]
            erase_backups.sweep(parts)
        unsure = {"state": "inconclusive", "why": sentences(REASONS, pinned)} if pinned else {}
        return {"matched": matched, "removed": 0, "receipt": None, **covers, **unsure}
    unfinished = [one for one in answers if one["state"] != "closed_complete"]
    worst = unfinished[0] if unfinished else answers[-1]
    return {
        "matched": matched,
        "removed": removed,
        "receipt": {"state": "pending", "entry": None},
        "manifest": worst["manifest"],
        "manifests": [one["manifest"] for one in answers],
        "state": worst["state"],
        **covers,
    }


def _principals(parts: Parts, principal: Principal) -> list[Principal]:
    """In whose names a sweep goes: the caller's, and for whoever may purge each that there is a memory of."""
    from memory import store_erase
    from memory.event import decode_content

    if _PURGE not in principal.scopes:
        return [principal]
    with parts.store.read_whole() as view:
        found = store_erase.whose(view)
    named = ((tenant, str(decode_content(content)["agent"])) for tenant, content in found)
    return [principal, *(replace(principal, tenant=tenant, agent=agent) for tenant, agent in named)]


def _batches(parts: Parts, principal: Principal, until: int | None, now: int) -> Iterator[dict[str, Any]]:
    """The answers of the erasures that a sweep of one memory takes."""
    from memory import erase

    def ended(view: Snapshot, scope: Scope) -> tuple[SelectedFact, ...]:
        return _ended(parts, view, scope, until, now)[:BATCH]

    left = len(_ended_of(parts, principal, until, now))
    while left > 0 and (batch := erase.erase_ended(parts, principal, ended)) is not None:
        left -= batch["erased"]
        yield batch


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
