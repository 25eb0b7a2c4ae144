"""Erasing: first a preview, then, with its token, for good.

    preview → token → `executing` record → one transaction (content, words, hashes; tombstone) → WAL truncated
            → checks and a scan of every file → signed manifest, in the store, in the outbox, beside the tiles

The token is bound to the caller and to a digest of what the preview showed, and the digest is made again inside
the erasing transaction: what somebody confirmed is what goes, or nothing does. One erasure runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory import (
    beginning,
    erase_backups,
    erase_systems,
    erase_tenant,
    erase_token,
    sealed,
    store_erase,
    store_holds,
    store_ledger,
    store_openings,
)
from memory import erase_record as record
from memory.claim import claim_hash, format_claim, new_claim
from memory.erase_answer import describe
from memory.erase_checks import (
    Bystander,
    check_bystanders,
    check_free_space,
    check_residue,
    check_structure,
    cover,
    watch_bystanders,
)
from memory.erase_needles import Needles, new_canary, take_needles
from memory.erase_request import Disposition, Request, parse_request
from memory.erase_selection import Mentioned, Selection, complete, mentioned, nothing_matched, select
from memory.manifest_fields import MAX_ITEMS
from memory.model import Principal
from memory.principal import require
from memory.scope import Scope, open_scope
from memory.times import format_time, whole_hour
from memory.vault import new_number
from tlog.errors import Error

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import SelectedFact
    from memory.store_read import Snapshot
    from memory.store_write import Txn


def _no_failure(_: str) -> None:
    return None


@dataclass(frozen=True)
class _Plan:
    """An erasure that is decided on: what it takes, and how it is recorded.

    `names` are what the caller called it by: the scan looks for them, too. `mentions` is None where nobody is
    looked for elsewhere. `claim` is what the requester gets to show that the manifest is theirs; empty for nobody.
    """

    kind: str
    basis: str
    select: Callable[[Snapshot, Scope], Selection]
    admit: Callable[[Txn, Scope, Selection], Disposition]
    ledger: Callable[[Scope], dict[str, Any]]
    mentions: Callable[[Snapshot, Scope, Selection], Mentioned | None]
    names: tuple[str, ...] = ()
    claim: bytes = b""


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


def preview(parts: Parts, principal: Principal, **selector: Any) -> dict[str, Any]:
    """What an erasure would take, and the token that confirms exactly that; nothing is deleted.

    `selector` is as `erase_request.parse_request` takes it. Raises RefusedError with code `nothing_matched` where it
    would take nothing, and `on_hold` where holds keep all of it.
    """
    now = parts.clock()
    request = parse_request(now, **selector).permitted(principal)
    guard = request.guard or request.default_guard
    _state_begun(parts, principal)
    with parts.store.read() as view:
        scope = _scope(view, parts, principal)
        selection = select(view, scope, request)
        selection.require_something(guard)
        mentions = mentioned(view, scope, request, selection)
        openings = store_openings.recipients_of(view, scope.tenant_id, selection.seqs)
    with parts.store.write() as txn:
        token, expires_at = erase_token.issue(txn, scope, principal, request, selection.digest(), now)
    return {
        "preview": {
            "count": len(selection.facts),
            "ids": [fact.id for fact in selection.facts],
            "by_status": selection.by_status(),
            "derived": selection.derived,
            "held": len(selection.held),
            **mentions.shape(),
            "guard": guard.name,
            "ledger": len(selection.entries),
            "openings": len(openings),
        },
        "confirm": token,
        "expires_at": format_time(expires_at),
    }


def execute(
    parts: Parts,
    principal: Principal,
    confirm: str,
    *,
    failpoint: Callable[[str], None] = _no_failure,
    **selector: Any,
) -> dict[str, Any]:
    """What was erased, the manifest of it, and how far it is verified.

    `confirm` is the token of a preview of the same selector by the same caller, at most 120 seconds old; it
    holds once. Raises RefusedError with code `token_invalid` if it does not hold, or if what it confirmed has
    changed since; then nothing was deleted. `failpoint` is called with the name of each step done, for tests.
    """
    request = parse_request(parts.clock(), **selector).permitted(principal)
    token = erase_token.check(confirm)

    def admit(txn: Txn, scope: Scope, selection: Selection) -> Disposition:
        return erase_token.redeem(txn, scope, principal, token, request, selection.digest(), parts.clock())

    plan = _Plan(
        kind=request.kind,
        basis=request.basis,
        select=lambda view, scope: select(view, scope, request),
        admit=admit,
        ledger=request.ledger,
        mentions=lambda view, scope, selection: _mentions(view, scope, request, selection),
        names=request.names,
        claim=new_claim(),
    )
    return _run(parts, principal, plan, failpoint) | {"claim": format_claim(plan.claim)}


def erase_ended(
    parts: Parts, principal: Principal, ended: Callable[[Snapshot, Scope], tuple[SelectedFact, ...]]
) -> dict[str, Any] | None:
    """What `execute` answers, for the facts that are past their retention; None if there are none.

    Their values stay refused.
    """
    require(principal, "memory:forget")

    def select_ended(view: Snapshot, scope: Scope) -> Selection:
        facts = ended(view, scope)
        if not facts:
            raise nothing_matched()
        return complete(view, scope, facts, {})

    plan = _Plan(
        kind="retention",
        basis="retention",
        select=select_ended,
        admit=lambda txn, scope, selection: Disposition("keep"),
        ledger=lambda scope: {},
        mentions=lambda view, scope, selection: None,
    )
    with parts.store.read() as view:
        scope = open_scope(view, parts.vault, principal)
        if scope is None or not ended(view, scope):
            return None
    return _run(parts, principal, plan, _no_failure)


# The steps


def _run(parts: Parts, principal: Principal, plan: _Plan, failpoint: Callable[[str], None]) -> dict[str, Any]:
    with parts.home.files.lock(record.LOCK):
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


def _start(parts: Parts, principal: Principal, plan: _Plan) -> _Started:
    """The erasure durably executing, the token redeemed, and in memory what is needed to check afterwards."""
    _state_begun(parts, principal)
    with parts.store.read() as view:
        scope = _scope(view, parts, principal)
        mentions = plan.mentions(view, scope, plan.select(view, scope))
    with parts.store.write() as txn:
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
        exceptions = _exceptions(txn.view, scope, selection)
        request = new_number()
        expiry = {} if guard.expires_at is None else {"expires_at": guard.expires_at}
        detail = {
            "basis": plan.basis,
            "scope": scope_said,
            "guard": {"disposition": guard.name, "entries": 0, **expiry},
            "started_at": parts.clock(),
            "erased": {},
            **({"claim": claim_hash(plan.claim, request)} if plan.claim else {}),
            **({"exceptions": exceptions} if exceptions else {}),
        }
        draft, canary = record.Draft(request, detail), new_canary()
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
            elsewhere=erase_systems.make_order(request, selection, plan.names),
        )


def _erase(parts: Parts, plan: _Plan, started: _Started) -> _Erased:
    """What went, in one transaction with the tombstone that says so."""
    scope, detail, guard = started.scope, started.draft.detail, started.guard
    with parts.store.write() as txn:
        selection = plan.select(txn.view, scope)
        if selection.digest() != started.digest:
            raise erase_token.invalid()
        seqs = selection.seqs
        number, tombstone = record.add_tombstone(
            parts, txn, scope.tenant_id, selection.commitments, started.draft
        )
        requests = store_erase.requests_of(txn.view, scope.tenant_id, seqs)
        _dispose(txn, selection.entries, requests, guard)
        store_erase.drop_expired_ledger(txn, parts.clock())
        kept = () if guard.name == "erase" else selection.entries
        sealed.seal_erased(parts.home, parts.vault, txn, tombstone, seqs, kept)
        contents = store_erase.erase_contents(txn, scope.tenant_id, seqs, tombstone.seq)
        erase_tenant.forget_if_empty(txn, txn.view.tenant_by_id(scope.tenant_id))
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
    return _Erased(number, seqs, contents, len(selection.entries))


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


def _verify(parts: Parts, plan: _Plan, started: _Started, erased: _Erased) -> record.Outcome:
    wal = record.truncate_wal(parts)
    with parts.store.read() as view:
        structure = check_structure(view, erased.seqs)
        bystanders = check_bystanders(view, started.bystanders)
        scope = started.scope
        left = store_erase.ledger_of(view, scope.tenant_id, seqs=erased.seqs, **plan.ledger(scope))
    keys = erase_tenant.destroy_key(parts, scope.tenant_id)
    residue = check_residue(parts.home, parts.store, started.needles, started.canary)
    free_space = check_free_space(parts.home)
    backups = erase_backups.destroy_keys(parts, scope.tenant_id, erased.seqs)
    systems = [record.store_system(len(erased.seqs), erased.contents, structure), wal, *backups]
    if started.guard.name == "erase":
        result = {"result": "failed", "why": ["content_present"]} if left else {"result": "verified"}
        systems.append({"kind": "ledger", "method": "delete", "erased": erased.ledger_entries} | result)
    elsewhere, counted = erase_systems.erase_elsewhere(parts.home, started.elsewhere)
    systems += elsewhere
    checks = (structure, bystanders, cover(residue, free_space), free_space, *counted)
    return record.Outcome(tuple(systems), checks, keys)


# Who may, and what with


def _state_begun(parts: Parts, principal: Principal) -> None:
    """What was written ahead and has begun is stated as that before it is counted, or goes."""
    with parts.store.read() as view:
        scope = _scope(view, parts, principal)
        ahead = store_ledger.keys_begun(view, scope.tenant_id, scope.agent_tag, parts.clock())
    if ahead:
        with parts.store.write() as txn:
            beginning.state_begun(parts, principal, txn, scope, txn.stamp(parts.clock()))


def _scope(view: Snapshot, parts: Parts, principal: Principal) -> Scope:
    scope = open_scope(view, parts.vault, principal)
    if scope is None:
        raise nothing_matched()
    return scope


def _mentions(view: Snapshot, scope: Scope, request: Request, selection: Selection) -> Mentioned | None:
    """Other records that name the subject or repeat the value: what was asked for by that is held there, too."""
    asked = request.subject is not None or request.value is not None
    return mentioned(view, scope, request, selection) if asked else None


def _exceptions(view: Snapshot, scope: Scope, selection: Selection) -> list[dict[str, Any]]:
    """What holds keep of the selection, a line for each hold, with its review date to the hour."""
    if not selection.held:
        return []
    kept = store_holds.holds_on(view, scope.tenant_id, (fact.seq for fact in selection.held))
    return [
        {
            "why": "legal_hold",
            "count": count,
            "review_at": whole_hour(max(review_by, 0)),
            "statements": [hold],
        }
        for hold, (count, review_by) in list(kept.items())[:MAX_ITEMS]
    ]
