"""Erasing: first a preview, then, with its token, for good.

    preview → token → `executing` record → one transaction (content, words, hashes; tombstone) → WAL truncated
            → checks and a scan of every file → signed manifest, in the store, in the outbox, beside the tiles

The token is bound to the caller and to a digest of what the preview showed, and the digest is made again inside
the erasing transaction: what somebody confirmed is what goes, or nothing does. One erasure runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memory import erase_token, store_openings
from memory.claim import claim_hash, format_claim, new_claim
from memory.erase_request import Disposition, Request, parse_request
from memory.erase_run import Plan, no_failure, run, scope_of, state_begun
from memory.erase_selection import Mentioned, Selection, complete, mentioned, nothing_matched, select
from memory.model import Principal
from memory.principal import require
from memory.scope import Scope, open_scope
from memory.times import format_time
from memory.vault import new_number

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import SelectedFact
    from memory.store_read import Snapshot
    from memory.store_write import Txn


def preview(parts: Parts, principal: Principal, **selector: Any) -> dict[str, Any]:
    """What an erasure would take, and the token that confirms exactly that; nothing is deleted.

    `selector` is as `erase_request.parse_request` takes it. Raises RefusedError with code `nothing_matched` where it
    would take nothing, and `on_hold` where holds keep all of it.
    """
    now = parts.clock()
    request = parse_request(now, **selector).permitted(principal)
    guard = request.guard or request.default_guard
    state_begun(parts, principal)
    with parts.store.read() as view:
        scope = scope_of(view, parts, principal)
        selection = select(view, scope, request)
        selection.require_something(guard)
        mentions = mentioned(view, scope, request, selection)
        openings = store_openings.recipients_of(view, scope.tenant_id, selection.seqs)
    with parts.store.write() as txn:
        txn.view.enter(scope.tenant_id)
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


def require_token(parts: Parts, principal: Principal, confirm: str, **selector: Any) -> None:
    """Returns if `execute` would take this token for this selection now: what nobody was shown, nobody is asked about.

    The token goes on to hold. Raises RefusedError with code `token_invalid` otherwise.
    """
    request = parse_request(parts.clock(), **selector).permitted(principal)
    token = erase_token.check(confirm)
    with parts.store.read() as view:
        scope = scope_of(view, parts, principal)
        digest = select(view, scope, request).digest()
        erase_token.require(view, scope, principal, token, request, digest, parts.clock())


def execute(
    parts: Parts,
    principal: Principal,
    confirm: str,
    *,
    failpoint: Callable[[str], None] = no_failure,
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

    salt, reference = new_claim(), new_number()
    plan = Plan(
        reference=reference,
        kind=request.kind,
        basis=request.basis,
        select=lambda view, scope: select(view, scope, request),
        admit=admit,
        ledger=request.ledger,
        mentions=lambda view, scope, selection: _mentions(view, scope, request, selection),
        names=request.names,
        claim=claim_hash(salt, reference),
        times=request.times,
    )
    return run(parts, principal, plan, failpoint) | {"claim": format_claim(salt)}


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

    plan = Plan(
        reference=new_number(),
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
    return run(parts, principal, plan)


def _mentions(view: Snapshot, scope: Scope, request: Request, selection: Selection) -> Mentioned | None:
    """Other records that name the subject or repeat the value: what was asked for by that is held there, too."""
    asked = request.subject is not None or request.value is not None
    return mentioned(view, scope, request, selection) if asked else None
