"""The steps of an erasure that is decided on, whoever decided it: what `memory.erase` runs, and what follows one.

    `executing` record → one transaction (content, words, hashes; tombstone) → WAL truncated
            → checks and a scan of every file → signed manifest, in the store, in the outbox, beside the tiles

What the plan selects is selected again inside the erasing transaction: what somebody confirmed is what goes, or nothing
does. One erasure runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memory import (
    beginning,
    erase_backups,
    erase_systems,
    erase_tenant,
    erase_token,
    sealed,
    store_access,
    store_erase,
    store_holds,
    store_ledger,
    store_openings,
)
from memory import erase_record as record
from memory.erase_answer import describe
from memory.erase_checks import (
    Bystander,
    check_bystanders,
    check_residue,
    check_structure,
    cover,
    watch_bystanders,
)
from memory.erase_document import Outcome
from memory.erase_look import Traces, look_at_store, take_traces
from memory.erase_needles import Needles, new_canary, take_needles
from memory.erase_request import Disposition
from memory.erase_selection import Mentioned, Selection, nothing_matched
from memory.layout import CHECKPOINT
from memory.manifest_fields import MAX_ITEMS, MAX_KEPT
from memory.model import Principal
from memory.scope import Scope, open_scope
from memory.times import whole_hour
from tlog.errors import Error

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.store_read import Snapshot
    from memory.store_write import Txn


def no_failure(_: str) -> None:
    """A failpoint at which nothing fails."""


@dataclass(frozen=True)
class Plan:
    """An erasure that is decided on: what it takes, and how it is recorded.

    `names` are what the caller called it by: the scan looks for them, too. `mentions` is None where nobody is
    looked for elsewhere. `reference` is the random one of the request, and `claim` the hash of what its requester gets
    to show that the manifest is theirs; empty for nobody. `times` are when it was received, and is due.
    """

    kind: str
    basis: str
    select: Callable[[Snapshot, Scope], Selection]
    admit: Callable[[Txn, Scope, Selection], Disposition]
    ledger: Callable[[Scope], dict[str, Any]]
    mentions: Callable[[Snapshot, Scope, Selection], Mentioned | None]
    reference: bytes
    names: tuple[str, ...] = ()
    claim: bytes = b""
    times: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Started:
    """What an erasure that is executing holds in memory until its manifest is written."""

    scope: Scope
    digest: bytes
    guard: Disposition
    draft: record.Draft
    needles: Needles
    canary: str
    bystanders: tuple[Bystander, ...]
    mentions: Mentioned
    elsewhere: erase_systems.Order


@dataclass(frozen=True)
class _Erased:
    """What the erasing transaction took."""

    number: int
    seqs: tuple[int, ...]
    contents: int
    ledger_entries: int
    traces: Traces


def run(
    parts: Parts, principal: Principal, plan: Plan, failpoint: Callable[[str], None] = no_failure
) -> dict[str, Any]:
    """What was erased, the manifest of it, and how far it is verified."""
    with record.alone(parts):
        record.recover(parts)
        parts.store.require_promises()
        started = _start(parts, principal, plan)
        failpoint("started")
        try:
            erased = _erase(parts, plan, started)
        except Error:
            with parts.store.write() as txn:
                record.abandon(txn)
            raise
        failpoint("erased")
        outcome = _verify(parts, plan, started, erased)
        failpoint("verified")
        finished = record.finish(parts, erased.number, outcome)
        failpoint("finished")
    return describe(parts, finished, started.mentions)


def _start(parts: Parts, principal: Principal, plan: Plan) -> _Started:
    """The erasure durably executing, the token redeemed, and in memory what is needed to check afterwards."""
    state_begun(parts, principal)
    with parts.store.read() as view:
        scope = scope_of(view, parts, principal)
        mentions = plan.mentions(view, scope, plan.select(view, scope))
    with parts.store.write() as txn:
        txn.view.enter(scope.tenant_id)
        selection = plan.select(txn.view, scope)
        guard = plan.admit(txn, scope, selection)
        selection.require_something(guard)
        openings = len(store_openings.recipients_of(txn.view, scope.tenant_id, selection.seqs))
        scope_said = {
            "kind": plan.kind,
            "count": len(selection.facts),
            "derived": selection.derived,
            "by_status": selection.by_status(),
            **({} if mentions is None else {"mentions": len(mentions)}),
            **({"openings": openings} if openings else {}),
            **({"held": len(selection.held)} if selection.held else {}),
        }
        before = parts.home.public_storage().read(CHECKPOINT)
        exceptions = _exceptions(txn.view, scope, selection)
        expiry = {} if guard.expires_at is None else {"expires_at": guard.expires_at}
        detail = {
            "basis": plan.basis,
            "scope": scope_said,
            "guard": {"disposition": guard.name, "entries": 0, **expiry},
            "started_at": parts.clock(),
            "erased": {},
            **plan.times,
            **({} if before is None else {"before": before}),
            **({"claim": plan.claim} if plan.claim else {}),
            **({"exceptions": exceptions} if exceptions else {}),
        }
        draft, canary = record.Draft(plan.reference, detail), new_canary()
        record.start(txn, draft, canary)
        return _Started(
            scope=scope,
            digest=selection.digest(),
            guard=guard,
            draft=draft,
            needles=take_needles(txn.view, selection, plan.names),
            canary=canary,
            bystanders=watch_bystanders(txn.view, selection.seqs),
            mentions=mentions or Mentioned(),
            elsewhere=erase_systems.make_order(plan.reference, selection, plan.names),
        )


def _erase(parts: Parts, plan: Plan, started: _Started) -> _Erased:
    """What went, in one transaction with the tombstone that says so."""
    scope, detail, guard = started.scope, started.draft.detail, started.guard
    with parts.store.write() as txn:
        txn.view.enter(scope.tenant_id)
        selection = plan.select(txn.view, scope)
        if selection.digest() != started.digest:
            raise erase_token.invalid()
        seqs = selection.seqs
        number, tombstone = record.add_tombstone(
            parts, txn, scope.tenant_id, selection.commitments, started.draft
        )
        if plan.kind == "tenant" and guard.name == "erase":
            requests = store_erase.requests_of_tenant(txn.view, scope.tenant_id)
        else:
            requests = store_erase.requests_of(txn.view, scope.tenant_id, seqs)
        gone = selection.entries if guard.name == "erase" else ()
        traces = take_traces(parts, txn.view, scope.tenant_id, seqs=seqs, ledger=gone, requests=requests)
        _dispose(txn, selection.entries, requests, guard)
        store_erase.drop_expired_ledger(txn, parts.clock())
        kept = () if guard.name == "erase" else selection.entries
        sealed.seal_erased(parts.home, parts.vault, txn, tombstone, seqs, kept)
        contents = store_erase.erase_contents(txn, scope.tenant_id, seqs, tombstone.seq)
        erase_tenant.forget_if_empty(txn, txn.view.tenant_by_id(scope.tenant_id))
        if plan.kind == "tenant":
            # Its access ends also where values stay refused, so that its name stays.
            store_access.drop_access_of_tenant(txn, scope.tenant_id)
        concerned = {"requests": len(requests)} if requests else {}
        facts = len(selection.facts) + len(selection.copies)
        record.set_detail(
            txn,
            number,
            {
                **detail,
                "guard": {**detail["guard"], "entries": len(selection.entries), **concerned},
                "erased": {"contents": contents, "facts": facts},
            },
        )
    return _Erased(number, seqs, contents, len(selection.entries), traces)


def _dispose(txn: Txn, entries: tuple[int, ...], requests: tuple[int, ...], guard: Disposition) -> None:
    """What was decided about the hashes of retired values, and about those of the requests that brought them."""
    if guard.name == "keep":
        store_erase.keep_ledger(txn, entries)
        store_erase.keep_requests(txn, requests)
        return
    store_erase.erase_requests(txn, requests)
    if guard.expires_at is None:
        store_erase.erase_ledger(txn, entries)
    else:
        store_erase.expire_ledger(txn, entries, guard.expires_at)


def _verify(parts: Parts, plan: Plan, started: _Started, erased: _Erased) -> Outcome:
    scope = started.scope
    cleared = record.clear_pages(parts, scope.tenant_id)
    with parts.store.read() as view:
        view.enter(scope.tenant_id)
        structure = check_structure(view, erased.seqs)
        bystanders = check_bystanders(view, started.bystanders)
        left = store_erase.ledger_of(view, scope.tenant_id, seqs=erased.seqs, **plan.ledger(scope))
    keys = erase_tenant.destroy_key(parts, scope.tenant_id)
    residue = check_residue(parts.home, parts.store, started.needles, started.canary, scope.tenant_id)
    looked = look_at_store(parts, cleared, erased.traces)
    backups = erase_backups.destroy_keys(parts, scope.tenant_id, erased.seqs)
    systems = [record.store_system(len(erased.seqs), erased.contents, structure), *looked.systems, *backups]
    if started.guard.name == "erase":
        result = {"result": "failed", "why": ["content_present"]} if left else {"result": "verified"}
        systems.append({"kind": "ledger", "method": "delete", "erased": erased.ledger_entries} | result)
    elsewhere, counted = erase_systems.erase_elsewhere(parts.home, started.elsewhere)
    systems += elsewhere
    free_space = looked.free_space
    checks = (structure, *looked.others, bystanders, cover(residue, free_space), free_space, *counted)
    return Outcome(tuple(systems), checks, keys)


def state_begun(parts: Parts, principal: Principal) -> None:
    """What was written ahead and has begun is stated as that before it is counted, or goes."""
    with parts.store.read() as view:
        scope = scope_of(view, parts, principal)
        ahead = store_ledger.keys_begun(view, scope.tenant_id, scope.agent_tag, parts.clock())
    if ahead:
        with parts.store.write() as txn:
            txn.view.enter(scope.tenant_id)
            beginning.state_begun(parts, principal, txn, scope, txn.stamp(parts.clock()))


def scope_of(view: Snapshot, parts: Parts, principal: Principal) -> Scope:
    """The caller's scope; RefusedError if there is nothing of it."""
    scope = open_scope(view, parts.vault, principal)
    if scope is None:
        raise nothing_matched()
    return scope


def _exceptions(view: Snapshot, scope: Scope, selection: Selection) -> list[dict[str, Any]]:
    """What holds keep of the selection, a line for each hold: which records, and its review date to the hour."""
    if not selection.held:
        return []
    kept = store_holds.holds_on(view, scope.tenant_id, {fact.seq: fact.commitment for fact in selection.held})
    return [
        {
            "why": "legal_hold",
            "count": len(records),
            "items": list(records[:MAX_KEPT]),
            "review_at": whole_hour(max(review_by, 0)),
            "statements": [hold],
        }
        for hold, (records, review_by) in list(kept.items())[:MAX_ITEMS]
    ]
