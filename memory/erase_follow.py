"""What becomes of a request after its first manifest: looked at, gone on with, told to recipients, denied, withdrawn.

Each step is a further manifest of the same request reference, chained like any other, and each is by somebody's word.
What a hold kept is erased once it is released, after a preview and with its token as at first; that makes a tombstone
of its own. All other steps change nothing in the store but what is known of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memory import erase_record as record
from memory import erase_token, store_requests
from memory.claim import claim_hash, format_claim, new_claim
from memory.erase_answer import describe
from memory.erase_document import WITHDRAWN, closed_now, decode_detail
from memory.erase_found import document_of, rows_of
from memory.erase_request import Disposition, Request, parse_request
from memory.erase_run import Plan, no_failure, run, scope_of
from memory.erase_selection import Mentioned, Selection, complete, mentioned, select
from memory.manifest_fields import DENIALS, MAX_KEPT
from memory.manifest_text import REASONS, STATES, sentences
from memory.model import Principal
from memory.principal import require
from memory.times import format_optional, format_time, whole_hour
from memory.vault import new_number
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.rows import ErasureRow
    from memory.scope import Scope
    from memory.store_read import Snapshot
    from memory.store_write import Txn

_RIGHT: Final = "memory:forget"
_DENYING: Final = "memory:purge"
_MAY_BE_WITHDRAWN: Final = frozenset({*store_requests.OPEN, "closed_partial"})


def show_request(parts: Parts, principal: Principal, reference: object) -> dict[str, Any]:
    """How a request stands: its state, when it is due, who is to be told, what is left of it, and what may go now.

    Where something may go, with the token that confirms exactly that.
    """
    require(principal, _RIGHT)
    now = parts.clock()
    with parts.store.read_whole() as view:
        rows = rows_of(view, parts, principal, reference)
        left = _left(view, parts, principal, rows)
    documents = [document_of(row) for row in rows]
    last, due_at = documents[-1], _due_at(rows)
    state = _state_of(documents)
    answer = {
        "request": last["request"].hex(),
        "state": state,
        "message": STATES[state],
        "why": sentences(REASONS, sorted(_reasons_of(documents))),
        "manifests": [one["number"] for one in documents],
        "received_at": format_optional(decode_detail(rows[0].detail).get("received_at")),
        "due_at": format_optional(due_at),
        "overdue": state in store_requests.OPEN and due_at is not None and due_at <= now,
        "recipients": _recipients(documents),
        "left": {"ids": [fact.id for fact in left.facts], "held": len(left.held)},
    }
    if left.facts:
        request = _request_of(rows)
        with parts.store.write() as txn:
            scope = scope_of(txn.view, parts, principal)
            token, expires_at = erase_token.issue(txn, scope, principal, request, left.digest(), now)
        answer |= {"confirm": token, "expires_at": format_time(expires_at)}
    return answer


def go_on(
    parts: Parts,
    principal: Principal,
    reference: object,
    confirm: str,
    *,
    identifiers: Sequence[str] = (),
    failpoint: Callable[[str], None] = no_failure,
) -> dict[str, Any]:
    """What was erased of what a hold had kept; `confirm` is the token of `show_request`, which holds once."""
    require(principal, _RIGHT)
    token = erase_token.check(confirm)
    with parts.store.read_whole() as view:
        rows = rows_of(view, parts, principal, reference)
    first, request = document_of(rows[0]), _request_of(rows)

    def admit(txn: Txn, scope: Scope, selection: Selection) -> Disposition:
        return erase_token.redeem(txn, scope, principal, token, request, selection.digest(), parts.clock())

    def look(view: Snapshot, scope: Scope, selection: Selection) -> Mentioned | None:
        subjects = {str(one.content["subject"]) for one in selection.facts if one.content.get("subject")}
        if first["scope"]["kind"] != "subject" or not subjects:
            return None
        asked = Request(kind="subject", subject=min(subjects), identifiers=tuple(identifiers))
        return mentioned(view, scope, asked, selection)

    detail = decode_detail(rows[0].detail)
    plan = Plan(
        reference=first["request"],
        kind=first["scope"]["kind"],
        basis=first["basis"],
        select=lambda view, scope: _left(view, parts, principal, rows),
        admit=admit,
        ledger=lambda scope: {},
        mentions=look,
        claim=first.get("claim", b""),
        times={name: detail[name] for name in ("received_at", "due_at") if name in detail},
    )
    return run(parts, principal, plan, failpoint)


def tell(parts: Parts, principal: Principal, reference: object, recipients: Sequence[str]) -> dict[str, Any]:
    """The request once it is noted that these recipients were told that what they have was erased."""
    require(principal, _RIGHT)
    wanted = {_number(one) for one in recipients}

    def told(document: Mapping[str, Any]) -> dict[str, Any] | None:
        lines = document.get("recipients", ())
        if not any(one["recipient"] in wanted and not one["told"] for one in lines):
            return None
        at = whole_hour(parts.clock())
        return {
            "recipients": [
                {**one, "told": True, "told_at": at}
                if one["recipient"] in wanted and not one["told"]
                else one
                for one in lines
            ]
        }

    with parts.store.read_whole() as view:
        documents = [document_of(row) for row in rows_of(view, parts, principal, reference)]
    known = {one["recipient"] for document in documents for one in document.get("recipients", ())}
    if not wanted <= known:
        raise MalformedError("expected recipients that a manifest of the request lists", code="unknown_id")
    return _follow(parts, principal, reference, told)


def deny_rest(parts: Parts, principal: Principal, reference: object, code: object) -> dict[str, Any]:
    """The request once what a hold has kept of it is denied, for a reason of the list."""
    require(principal, _DENYING)
    reason = _check_denial(code)

    def denied(document: Mapping[str, Any]) -> dict[str, Any] | None:
        kept = [one for one in document.get("exceptions", ()) if one["why"] == "legal_hold"]
        if not kept:
            return None
        items = list(dict.fromkeys(item for one in kept for item in one.get("items", ())))
        line = {"why": reason, "count": len(items) or 1, "items": items}
        others = [one for one in document["exceptions"] if one not in kept]
        return {"exceptions": [*others, line]}

    return _follow(parts, principal, reference, denied)


def withdraw(parts: Parts, principal: Principal, reference: object) -> dict[str, Any]:
    """The request once it is withdrawn by whoever asked; what was erased stays erased."""
    require(principal, _RIGHT)
    return _follow(
        parts,
        principal,
        reference,
        lambda document: {} if document["state"] in _MAY_BE_WITHDRAWN else None,
        WITHDRAWN,
    )


def deny(parts: Parts, principal: Principal, code: object, **selector: Any) -> dict[str, Any]:
    """A request that is denied as a whole: nothing is erased, and a manifest says so to whoever asked.

    Its tombstone has no target.
    """
    require(principal, _DENYING)
    reason = _check_denial(code)
    now = parts.clock()
    request = parse_request(now, **selector)
    salt, reference = new_claim(), new_number()
    with record.alone(parts):
        record.recover(parts)
        with parts.store.write() as txn:
            scope = scope_of(txn.view, parts, principal)
            selection = select(txn.view, scope, request)
            items = [fact.commitment for fact in (*selection.facts, *selection.held)][:MAX_KEPT]
            detail = {
                "basis": request.basis,
                "scope": {"kind": request.kind, "count": 0, "derived": 0},
                "guard": {"disposition": "keep", "entries": 0},
                "started_at": now,
                "erased": {"contents": 0, "facts": 0},
                "claim": claim_hash(salt, reference),
                "exceptions": [{"why": reason, "count": max(len(items), 1), "items": items}],
                **request.times,
            }
            number, _ = record.add_tombstone(parts, txn, scope.tenant_id, (), record.Draft(reference, detail))
            record.mark_executing(txn, record.Draft(reference, detail))
        finished = record.close_denied(parts, number)
    return describe(parts, finished, Mentioned()) | {"claim": format_claim(salt)}


# What is left of a request


def _left(view: Snapshot, parts: Parts, principal: Principal, rows: Sequence[ErasureRow]) -> Selection:
    """What holds kept of a request and still keep, and what of that may go since: of the caller, unless it may purge.

    A request is known to whoever reads its manifest, so to know it gives no right to what it is about.
    """
    scope = scope_of(view, parts, principal)
    whose = None if _DENYING in principal.scopes else scope.agent_tag
    kept = {
        item
        for row in rows
        for one in document_of(row).get("exceptions", ())
        if one["why"] == "legal_hold"
        for item in one.get("items", ())
    }
    return complete(view, scope, store_requests.facts_left(view, rows[0].tenant_id, whose, kept), {})


def _request_of(rows: Sequence[ErasureRow]) -> Request:
    """The request as its token is bound to it: the same decision about the ledger as at first."""
    document = document_of(rows[0])
    guard = document["guard"]
    return Request(
        kind=f"rest of {document['request'].hex()}",
        guard=Disposition(guard["disposition"], guard.get("expires_at")),
    )


def _state_of(documents: Sequence[Mapping[str, Any]]) -> str:
    """The state of the request: that of its last erasure, unless one before it is still open."""
    waiting = (one["state"] for one in documents if one["state"] in store_requests.OPEN)
    return str(next(waiting, documents[-1]["state"]))


def _reasons_of(documents: Sequence[Mapping[str, Any]]) -> set[str]:
    """Why it is no more than that: what a hold kept at first, and is gone since, is no reason any more."""
    counting = [one for one in documents[:-1] if one["state"] in store_requests.OPEN]
    return {code for one in (*counting, documents[-1]) for code in one["why"]}


def _due_at(rows: Sequence[ErasureRow]) -> int | None:
    at = decode_detail(rows[0].detail).get("due_at")
    return at if type(at) is int else None


def _recipients(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "recipient": one["recipient"].hex(),
            "kind": one.get("kind"),
            "count": one.get("count"),
            "told": one["told"],
            "told_at": format_optional(one.get("told_at")),
        }
        for document in documents
        for one in document.get("recipients", ())
    ]


# Further manifests


def _follow(
    parts: Parts,
    principal: Principal,
    reference: object,
    change: Callable[[Mapping[str, Any]], dict[str, Any] | None],
    state: str | None = None,
) -> dict[str, Any]:
    """A further manifest of each erasure of the request that the change changes; it must change one."""
    with record.alone(parts):
        record.recover(parts)
        with parts.store.read_whole() as view:
            rows = rows_of(view, parts, principal, reference)
        changes = [(row, document, change(document)) for row in rows for document in (document_of(row),)]
        wanted = [(row, document, changed) for row, document, changed in changes if changed is not None]
        if not wanted:
            raise RefusedError("this request has nothing of the kind left to do", code="wrong_status")
        for row, document, changed in wanted:
            noted = None
            if "exceptions" in changed:
                noted = {**decode_detail(row.detail), "exceptions": changed["exceptions"]}
            # One after the other: each names the manifest before it.
            finished = record.close(parts, row, closed_now(parts, {**document, **changed}, state), noted)
    return describe(parts, finished, Mentioned())


def _check_denial(code: object) -> str:
    if not isinstance(code, str) or code not in DENIALS:
        raise MalformedError(f"expected the reason of a denial to be one of {', '.join(sorted(DENIALS))}")
    return code


def _number(text: object) -> bytes:
    try:
        number = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        number = b""
    if len(number) != 16:
        raise MalformedError("expected a recipient as 32 hexadecimal digits, as manifests list them")
    return number
