"""Tokens of an OAuth identity provider: JWTs of one issuer, for this server alone, as principals (RFC 9068).

The provider says who somebody is, in claims that the owner of the home names; nothing else of a token counts. Which
algorithms are taken is the owner's word, never the token's, and none of them has a shared secret.

    issuer = "https://login.example.com/"          audience = ["https://memory.example.com"]
    jwks = "https://login.example.com/jwks.json"   tenant_claim = "org_id"    agent_claim = "sub"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory.model import SCOPES, Principal
from memory.principal import make_principal
from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    from memory.oauth_keys import KeySet

MAX_FILE_BYTES: Final = 64 * 1024
MAX_TOKEN_CHARACTERS: Final = 8192
MAX_LEEWAY_SECONDS: Final = 300
DEFAULT_LEEWAY_SECONDS: Final = 30
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
GRANTED: Final = frozenset(SCOPES - {"memory:tenant"})
"""What a provider may grant. To make tenants is the owner's alone."""
_TYPES: Final = ("at+jwt", "application/at+jwt", "jwt")
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True)
class OAuthSettings:
    """Whose tokens are taken, and what their claims mean. `jwks` is an address, or the name of a file.

    Either `tenant` is the one tenant of all of them, or `tenant_claim` says which; `tenants`, where it is not empty,
    are the only ones taken. `client_claim` names the program, `azp` where it is not there.
    """

    issuer: str
    jwks: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    tenant: str | None = None
    tenant_claim: str | None = None
    tenants: tuple[str, ...] = ()
    agent_claim: str = "sub"
    client_claim: str = "client_id"
    scope_claim: str = "scope"
    leeway_seconds: int = DEFAULT_LEEWAY_SECONDS


class OAuth:
    """Judges tokens by the settings and the keys of the issuer."""

    def __init__(self, settings: OAuthSettings, keys: KeySet) -> None:
        self.settings = settings
        self._keys = keys

    def verify(self, token: str) -> Principal:
        """The principal that a token is for.

        Raises RefusedError with code `unauthorized` for one that does not hold, and with `forbidden` for one that
        does and opens nothing here.
        """
        if len(token) > MAX_TOKEN_CHARACTERS or not _SHAPE.fullmatch(token):
            raise _refused("it is no JWT")
        return self._principal(self._claims(token))

    def _claims(self, token: str) -> Mapping[str, Any]:
        import jwt

        settings = self.settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in settings.algorithms:
                raise _refused("its algorithm is not one that is taken here")
            if str(header.get("typ", "jwt")).lower() not in _TYPES:
                raise _refused("it is no access token")
            key = self._keys.key(key_id if isinstance(key_id, str) else None, algorithm)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=list(settings.audience),
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise _refused("it has expired") from None
        except jwt.ImmatureSignatureError:
            raise _refused("it does not hold yet") from None
        except jwt.InvalidAudienceError:
            raise _refused("it is for somebody else") from None
        except jwt.InvalidIssuerError:
            raise _refused("it is of another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise _refused("it does not verify") from None
        return claims

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self.settings
        tenant = settings.tenant if settings.tenant_claim is None else claims.get(settings.tenant_claim)
        client = claims.get(settings.client_claim, claims.get("azp"))
        scopes = _scopes(claims, settings.scope_claim)
        if settings.tenants and tenant not in settings.tenants:
            raise RefusedError("this token is of a tenant that is not served here", code="forbidden")
        if not scopes:
            raise RefusedError(
                "this needs a scope that begins with memory:, and the token has none", scope="memory:read"
            )
        try:
            return make_principal(
                _name(tenant), _name(claims.get(settings.agent_claim)), _name(client), scopes, True
            )
        except MalformedError:
            raise _refused("a claim that says who it is for is not there, or no name") from None


def parse_oauth(data: bytes, url: str | None) -> OAuthSettings:
    """The settings in a file. Without an audience it is `url` and what is mounted below it, as clients ask for it."""
    if len(data) > MAX_FILE_BYTES:
        raise MalformedError(f"oauth: expected at most {MAX_FILE_BYTES} bytes")
    try:
        fields = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise MalformedError("oauth: expected a TOML file") from None
    known = OAuthSettings.__dataclass_fields__.keys()
    if not fields.keys() <= known:
        raise MalformedError(f"oauth: expected only the settings {', '.join(sorted(known))}")
    own = () if url is None else (url, f"{url}/mcp")
    settings = OAuthSettings(
        issuer=_text(fields, "issuer"),
        jwks=_text(fields, "jwks"),
        audience=_texts(fields, "audience", own),
        algorithms=_texts(fields, "algorithms", DEFAULT_ALGORITHMS),
        tenant=_text(fields, "tenant") if "tenant" in fields else None,
        tenant_claim=_text(fields, "tenant_claim") if "tenant_claim" in fields else None,
        tenants=_texts(fields, "tenants", ()),
        agent_claim=_text(fields, "agent_claim", "sub"),
        client_claim=_text(fields, "client_claim", "client_id"),
        scope_claim=_text(fields, "scope_claim", "scope"),
        leeway_seconds=_leeway(fields.get("leeway_seconds", DEFAULT_LEEWAY_SECONDS)),
    )
    if not settings.audience:
        raise MalformedError("oauth: expected an audience here, or --url, which is one")
    if not settings.algorithms or not set(settings.algorithms) <= set(ALGORITHMS):
        raise MalformedError(f"oauth: expected algorithms out of {', '.join(ALGORITHMS)}")
    if (settings.tenant is None) == (settings.tenant_claim is None):
        raise MalformedError("oauth: expected one of tenant and tenant_claim, to say whose memory it is")
    return settings


def _refused(why: str) -> RefusedError:
    return RefusedError(f"expected a token that holds: {why}", code="unauthorized")


def _scopes(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """What the provider granted, of what it may grant; other words are for other servers."""
    given = claims.get(claim, claims.get("scp"))
    words = given.split(" ") if isinstance(given, str) else given
    if not isinstance(words, list):
        return frozenset()
    return frozenset(word for word in words if isinstance(word, str)) & GRANTED


def _name(claim: object) -> str:
    if not isinstance(claim, str):
        raise MalformedError("expected a claim to be a text")
    return claim


def _text(fields: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str) or not 1 <= len(value) <= 4096:
        raise MalformedError(f"oauth: expected {name} as a text")
    return value


def _texts(fields: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = fields.get(name, list(default))
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise MalformedError(f"oauth: expected {name} as a text or a list of texts")
    return tuple(values)


def _leeway(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_LEEWAY_SECONDS:
        raise MalformedError(f"oauth: expected leeway_seconds from 0 to {MAX_LEEWAY_SECONDS}")
    return value
