"""The token that a preview gives: it confirms, once, by the same caller, exactly what the preview showed.

It is kept as its hash, with a keyed hash of what it is bound to. The token goes into that one too: whoever has the
store and its keys, but not the token, could otherwise test who had asked.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final

from memory.erase_request import Disposition, Request
from memory.model import Principal
from memory.store_requests import find_token
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.rows import TokenRow
    from memory.scope import Scope
    from memory.store_read import Snapshot
    from memory.store_write import Txn

TOKEN_SECONDS: Final = 120
_PURPOSE: Final = "forget"
_TOKEN_BYTES: Final = 32
_MAX_CHARACTERS: Final = 128


def issue(
    txn: Txn, scope: Scope, principal: Principal, request: Request, digest: bytes, now: int
) -> tuple[str, int]:
    """A token for this selection, and when it ends to hold."""
    token = secrets.token_hex(_TOKEN_BYTES)
    expires_at = now + TOKEN_SECONDS * 1_000_000
    bound = _bound(scope, principal, token, request, request.guard or request.default_guard, digest)
    txn.add_token(scope.tenant_id, _hash(token), _PURPOSE, bound, expires_at)
    return token, expires_at


def check(token: object) -> str:
    """`token`, if it can be one."""
    if not isinstance(token, str) or not 1 <= len(token) <= _MAX_CHARACTERS:
        raise MalformedError("expected confirm to be the token of a preview")
    return token


def redeem(
    txn: Txn, scope: Scope, principal: Principal, token: str, request: Request, digest: bytes, now: int
) -> Disposition:
    """What becomes of the ledger, as the preview showed it. The token is used up.

    Raises RefusedError with code `token_invalid` if it does not hold for this caller and selection, or for what the
    confirmation says of the ledger. One that says nothing of it is for what was shown.
    """
    return _held(
        txn.take_token(scope.tenant_id, _hash(token), _PURPOSE, now), scope, principal, token, request, digest
    )


def require(
    view: Snapshot, scope: Scope, principal: Principal, token: str, request: Request, digest: bytes, now: int
) -> None:
    """Returns if `redeem` would take the token now; it goes on to hold."""
    found = find_token(view, scope.tenant_id, _hash(token), _PURPOSE, now)
    _held(found, scope, principal, token, request, digest)


def _held(
    taken: TokenRow | None, scope: Scope, principal: Principal, token: str, request: Request, digest: bytes
) -> Disposition:
    candidates = [request.guard] if request.guard else [Disposition("keep"), Disposition("erase")]
    for guard in candidates:
        bound = _bound(scope, principal, token, request, guard, digest)
        if taken is not None and secrets.compare_digest(taken.bound, bound):
            return guard
    raise invalid()


def invalid() -> RefusedError:
    """The answer to a token that does not hold."""
    return RefusedError(
        "the token does not hold: it is unknown, used, older than 120 seconds or for another selection, or the"
        " records have changed since; nothing was erased, preview again",
        code="token_invalid",
    )


def _bound(
    scope: Scope, principal: Principal, token: str, request: Request, guard: Disposition, digest: bytes
) -> bytes:
    parts: tuple[str | bytes, ...] = (request.kind, guard.name, str(guard.expires_at or ""), digest)
    parts = (*parts, *request.identifiers)
    return scope.bound_tag(_PURPOSE, token, principal.client, *parts)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
