"""Access tokens for those without an identity provider: made, shown once, listed, revoked, and checked at each request.

    mun_<32 hexadecimal digits>_<43 characters of base64url>

The first part is a random number, by which a token is listed and revoked; the second is 32 random bytes. Of these the
store keeps a hash, and who the token is for it keeps sealed under them: only whoever presents the token can have it
read. So a copy of the store with all its keys gives nobody access and names nobody, and what an erasure has to destroy
is the row alone. A row is looked up at each request, so what is revoked is refused by every process at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from typing import TYPE_CHECKING, Any, Final

from memory import store_access
from memory.model import SCOPES, Principal
from memory.principal import make_principal
from memory.recovery import LAST_MANIFEST
from memory.store_access import AccessRow
from memory.times import HOUR, format_optional, format_time, whole_hour
from memory.vault import new_number
from tlog import cbor
from tlog.errors import Error, MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.wiring import Home

Answer = dict[str, Any]
PREFIX: Final = "mun_"
MAX_CHARACTERS: Final = 128
SECRET_BYTES: Final = 32
SCOPE_BITS: Final = (
    "memory:read",
    "memory:write",
    "memory:forget",
    "memory:purge",
    "memory:reaffirm",
    "memory:review",
    "memory:grant",
    "memory:tenant",
)
"""Which bit stands for which scope. A new scope comes at the end."""
_TOKEN: Final = re.compile(r"mun_([0-9a-f]{32})_([A-Za-z0-9_-]{43})", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NONCE_BYTES: Final = 12
_BLOCK: Final = 256
_MAX_OPENED: Final = 1024
_OPENED: Final[dict[AccessRow, Principal]] = {}
"""Rows as somebody who knew the secret opened them: the same row says the same again, and another one is not known."""
_ERASED: Final[dict[str, int | bytes | str | None]] = {}
"""Of each home the last erasure as it was when rows were opened: after another one none of them stays known."""
_KEPT: Final = 24 * 30 * HOUR
"""For how long a list shows a token that has expired."""


def create(home: Home, principal: Principal, expires_at: int | None) -> Answer:
    """A new token for a principal, with the one text of it that there will ever be.

    Its scopes are those of the principal. None as `expires_at`, in microseconds, is never.
    """
    parts = home.parts()
    now = parts.clock()
    if expires_at is not None and expires_at <= now:
        raise MalformedError("expected the token to expire in the future")
    if not principal.scopes:
        raise MalformedError("expected one scope or more: a token without any opens nothing")
    number, secret = new_number(), os.urandom(SECRET_BYTES)
    scopes = sum(1 << SCOPE_BITS.index(scope) for scope in principal.scopes)
    sealed = _seal(secret, principal, _bound(number, scopes, expires_at))
    row = AccessRow(number, _hash(secret), sealed, scopes, whole_hour(now), expires_at)
    with parts.store.write() as txn:
        store_access.drop_expired_access(txn, now - _KEPT)
        store_access.add_access(txn, row, parts.vault.tag_of_name(b"", "tenant", principal.tenant))
    return {
        "token": f"{PREFIX}{number.hex()}_{_text(secret)}",
        **_shape(row, principal.tenant),
        "agent": principal.agent,
        "client": principal.client,
    }


def list_tokens(home: Home) -> Answer:
    """The tokens there are, without their secret parts. The tenant is told once it has remembered something."""
    now = home.parts().clock()
    with home.parts().store.read() as view:
        rows = store_access.all_access(view)
    return {
        "tokens": [
            _shape(row, row.tenant) | {"expired": row.expires_at is not None and row.expires_at <= now}
            for row in rows
        ]
    }


def revoke(home: Home, number: str) -> Answer:
    """The end of a token, by its number or by the whole token; it opens nothing from now on."""
    found = _TOKEN.fullmatch(number)
    wanted = found[1] if found else number
    if not _NUMBER.fullmatch(wanted):
        raise MalformedError("expected the id of a token, 32 hexadecimal digits, as `token list` shows it")
    with home.parts().store.write() as txn:
        if not store_access.drop_access(txn, bytes.fromhex(wanted)):
            raise MalformedError("expected the id of a token of this home", code="unknown_id")
    return {"id": wanted, "status": "revoked"}


def revoke_tenant(home: Home, tenant: str) -> Answer:
    """The end of all tokens of a tenant, and how many there were."""
    parts = home.parts()
    with parts.store.write() as txn:
        count = store_access.drop_access_of(txn, parts.vault.tag_of_name(b"", "tenant", tenant))
    return {"revoked": count, "status": "revoked"}


def has_any(home: Home) -> bool:
    """Whether the home has a token that would be taken now."""
    parts = home.parts()
    with parts.store.read() as view:
        return store_access.has_access(view, parts.clock())


def verify(home: Home, token: str) -> Principal:
    """The principal that a token is for, authenticated.

    Raises RefusedError with code `unauthorized`, in one sentence for whatever is wrong with it.
    """
    match = _TOKEN.fullmatch(token) if len(token) <= MAX_CHARACTERS else None
    if match is None:
        raise refused()
    parts = home.parts()
    number = bytes.fromhex(match[1])
    secret = base64.urlsafe_b64decode(match[2] + "=")
    if _text(secret) != match[2]:
        raise refused()  # the last character has two bits to spare, and a token is written in one way
    with parts.store.read() as view:
        row = store_access.find_access(view, number)
        erased = view.meta(LAST_MANIFEST)
    if _ERASED.get(str(home.path)) != erased:
        _OPENED.clear()
        _ERASED[str(home.path)] = erased
    if row is None or not hmac.compare_digest(row.token_hash, _hash(secret)):
        raise refused()
    if row.expires_at is not None and row.expires_at <= parts.clock():
        raise refused()
    known = _OPENED.get(row)
    if known is None:
        known = _open(secret, row)
        if len(_OPENED) >= _MAX_OPENED:
            _OPENED.clear()
        _OPENED[row] = known
    return known


def refused() -> RefusedError:
    """The answer to a token that does not hold."""
    return RefusedError(
        "expected a token that holds: this one is unknown, revoked, expired or of another home",
        code="unauthorized",
    )


def scopes_of(bits: int) -> frozenset[str]:
    """The scopes that bits stand for."""
    return frozenset(scope for place, scope in enumerate(SCOPE_BITS) if bits >> place & 1)


def parse_scopes(text: str) -> frozenset[str]:
    """Scopes separated by commas or spaces, with or without their `memory:`."""
    words = [word for word in re.split(r"[,\s]+", text) if word]
    found = frozenset(word if word.startswith("memory:") else f"memory:{word}" for word in words)
    if not found or not found <= SCOPES:
        raise MalformedError(f"expected scopes out of {', '.join(SCOPE_BITS)}")
    return found


def _shape(row: AccessRow, tenant: str | None) -> Answer:
    return {
        "id": row.number.hex(),
        "tenant": tenant,
        "scopes": [scope for scope in SCOPE_BITS if scope in scopes_of(row.scopes)],
        "made_at": format_time(row.made_at),
        "expires_at": format_optional(row.expires_at),
    }


def _text(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode("ascii").rstrip("=")


def _hash(secret: bytes) -> bytes:
    return hashlib.sha256(b"muniment token\0" + secret).digest()


def _bound(number: bytes, scopes: int, expires_at: int | None) -> bytes:
    """What is authenticated with the names: whoever can write to the store cannot make a token mean more."""
    return cbor.encode(["access", number, scopes, -1 if expires_at is None else expires_at])


def _key(secret: bytes) -> bytes:
    return hmac.digest(secret, b"muniment token names", "sha256")


def _seal(secret: bytes, principal: Principal, bound: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    names = cbor.encode([principal.tenant, principal.agent, principal.client])
    names = len(names).to_bytes(2, "big") + names
    names += bytes(-len(names) % _BLOCK)
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(_key(secret)).encrypt(nonce, names, bound)


def _open(secret: bytes, row: AccessRow) -> Principal:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce, sealed = row.sealed[:_NONCE_BYTES], row.sealed[_NONCE_BYTES:]
    try:
        names = AESGCM(_key(secret)).decrypt(nonce, sealed, _bound(row.number, row.scopes, row.expires_at))
        tenant, agent, client = _names(names)
        return make_principal(tenant, agent, client, scopes_of(row.scopes), authenticated=True)
    except (InvalidTag, ValueError, Error):
        raise refused() from None


def _names(padded: bytes) -> tuple[str, str, str]:
    size = int.from_bytes(padded[:2], "big")
    names = cbor.decode(padded[2 : 2 + size], max_bytes=len(padded))
    if not isinstance(names, list) or len(names) != 3:
        raise MalformedError("expected three names")
    tenant, agent, client = map(str, names)
    return tenant, agent, client
