"""What a request may be bound to: an idempotency key to its body, a reaffirmation token to one refusal.

Both are kept as keyed hashes. A token holds once, for the caller whose write was refused, for that key and
value, and only as long as the records that the refusal protects are the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import canon
from memory.answers import Answer
from memory.model import Principal, Proposal, own_name
from memory.principal import require
from tlog import cbor
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.rows import EventRow, FactRow
    from memory.scope import Scope
    from memory.store_read import Snapshot
    from memory.store_write import Txn

TOKEN_PURPOSE: Final = "reaffirm"
TOKEN_SECONDS: Final = 900
MAX_TOKEN_CHARACTERS: Final = 256
_TOKEN_BYTES: Final = 32
_SHOWN_BYTES: Final = 10
# The arguments that make two requests under one idempotency key the same, as the caller gave them: "now" is
# another time at each try.
_BODY: Final = (
    "text",
    "key",
    "value",
    "subject",
    "valid_from",
    "valid_until",
    "provisional",
    "many",
    "restatement",
    "source",
    "reaffirm",
    "reason",
)
_KEPT: Final = ("outcome", "reason", "message", "id", "retired", "conflict_with")


@dataclass(frozen=True)
class Request:
    """An idempotency key with the body it was sent with, as keyed hashes."""

    request_tag: bytes
    body_tag: bytes


def make_request(
    scope: Scope, principal: Principal, idempotency_key: str, arguments: Mapping[str, Any]
) -> Request:
    """The request of a caller: its idempotency keys are its own."""
    given = ((name, arguments.get(name)) for name in _BODY)
    # By identity: the start of 1970 is a time, and 0 equals False.
    body = {name: value for name, value in given if value is not None and value is not False}
    return Request(
        scope.request_tag(principal.client, idempotency_key), scope.bound_tag("body", cbor.encode(body))
    )


def replay(view: Snapshot, scope: Scope, request: Request) -> tuple[Answer, EventRow] | None:
    """What the same request came to before, with the statement it made; None if it is new.

    Raises RefusedError for another body under the key, and where what it made has been erased.
    """
    row = view.idempotency(scope.tenant_id, request.request_tag)
    if row is None:
        return None
    made = view.event_by_seq(row.seq)
    if not row.body_tag or made is None or made.content is None:
        raise RefusedError("what this request made has been erased", code="erased")
    if not hmac.compare_digest(row.body_tag, request.body_tag):
        raise RefusedError(
            "this idempotency key was used with another body; use a new key for another write",
            code="idempotency_conflict",
        )
    return json.loads(row.answer), made


def note(txn: Txn, scope: Scope, request: Request, answer: Answer, seq: int) -> None:
    """Keeps what a request came to, free of content."""
    kept = {name: answer[name] for name in _KEPT}
    txn.add_idempotency(scope.tenant_id, request.request_tag, request.body_tag, seq, json.dumps(kept))


def check_reaffirm(principal: Principal, arguments: Mapping[str, Any]) -> None:
    """Returns if a write has no reaffirmation, or one that can be one; errors say what is missing."""
    token, reason = arguments.get("reaffirm"), arguments.get("reason")
    if token is None:
        if reason is not None:
            raise MalformedError("expected a reason only with reaffirm, which it explains")
        return
    require(principal, "memory:reaffirm")
    if not isinstance(token, str) or not 1 <= len(token) <= MAX_TOKEN_CHARACTERS:
        raise MalformedError("expected reaffirm to be the token that a refused write answered with")
    if reason is None:
        raise MalformedError("expected a reason with reaffirm: why the refused value holds again")
    if arguments.get("key") is None:
        raise MalformedError(
            "expected with reaffirm the key and the value of the refused write, or its text if it had no value"
        )


def issue_token(
    txn: Txn,
    scope: Scope,
    principal: Principal,
    refusal: EventRow,
    proposal: Proposal,
    standing: Sequence[FactRow],
    now: int,
) -> str:
    """A token that lifts this refusal, once, within TOKEN_SECONDS."""
    token = os.urandom(_TOKEN_BYTES).hex()
    bound = _bound(scope, principal, refusal.commitment, proposal, standing)
    txn.drop_expired_tokens(now)
    txn.add_token(
        scope.tenant_id, _hash(token), TOKEN_PURPOSE, bound, now + TOKEN_SECONDS * 1_000_000, refusal.seq
    )
    return token


def redeem_token(
    txn: Txn,
    scope: Scope,
    principal: Principal,
    token: str,
    proposal: Proposal,
    standing: Sequence[FactRow],
    now: int,
) -> bytes:
    """The commitment of the refusal that a token lifts; it is used up once the transaction commits.

    Raises RefusedError with code `token_invalid` if it is not for this caller, key, value and record.
    """
    taken = txn.take_token(scope.tenant_id, _hash(token), TOKEN_PURPOSE, now)
    target = () if taken is None or taken.target is None else (taken.target,)
    refusal = next(iter(txn.view.facts_by_seq(scope.tenant_id, scope.agent_tag, target)), None)
    # What a reviewer has discarded, or lifted already, waits for nobody any more.
    if taken is None or refusal is None or refusal.status != "refused":
        raise _invalid()
    bound = _bound(scope, principal, refusal.commitment, proposal, standing)
    if not hmac.compare_digest(taken.bound, bound):
        raise _invalid()
    return refusal.commitment


def shown_code(scope: Scope, refusal: bytes, standing: Sequence[FactRow]) -> str:
    """What stands for a refusal as `review` shows it: beside the records that its key has then."""
    records = b"".join(sorted(fact.commitment for fact in standing))
    return scope.bound_tag("shown", refusal, records)[:_SHOWN_BYTES].hex()


def _bound(
    scope: Scope, principal: Principal, refusal: bytes, proposal: Proposal, standing: Sequence[FactRow]
) -> bytes:
    key = canon.canonical_key(proposal.key or "")
    value = canon.canonical_value(proposal.text if proposal.value is None else proposal.value)
    records = b"".join(sorted(fact.commitment for fact in standing))
    caller = own_name(principal.client, principal.reported)
    return scope.bound_tag(TOKEN_PURPOSE, caller, refusal, key, value.kind, value.form, records)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _invalid() -> RefusedError:
    return RefusedError(
        "the reaffirm token does not hold: it is unknown, used, too old, or for another key, value or caller, or "
        "the record has changed since; nothing was stored. Write again without it to get a new one",
        code="token_invalid",
    )
