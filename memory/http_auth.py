"""Who a request is from: a built-in token, or one of the identity provider, and what a refusal tells the client.

`Authenticator.authenticate` takes headers and gives a principal; nothing else of a request says who it is from. The
answers to what does not hold are those of RFC 6750, with the metadata of RFC 9728 that tells a client where to go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory import tokens
from memory.model import Principal
from memory.scope import MAKES_TENANTS
from tlog.errors import Error, RefusedError

if TYPE_CHECKING:
    from memory.oauth import OAuth
    from memory.wiring import Home

METADATA: Final = "/.well-known/oauth-protected-resource"
SCOPES_SUPPORTED: Final = tuple(scope for scope in tokens.SCOPE_BITS if scope != MAKES_TENANTS)
_BEARER: Final = re.compile(r"bearer +([!-~]{1,8192})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Authenticator:
    """Judges who asks. `nobody` is who a request without a token is from; None where a token is needed."""

    home: Home
    oauth: OAuth | None = None
    nobody: Principal | None = None

    def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """The principal of a request with these headers, whose names are in lower case.

        Raises RefusedError with code `unauthorized` (no token, or one that does not hold) or `forbidden`.
        """
        given = headers.get("authorization")
        if given is None:
            if self.nobody is not None:
                return self.nobody
            raise RefusedError(
                "this needs a token: Authorization: Bearer …", code="unauthorized", absent=True
            )
        match = _BEARER.fullmatch(given.strip())
        if match is None:
            raise RefusedError("expected Authorization: Bearer and one token", code="unauthorized")
        if self.oauth is None or match[1].startswith(tokens.PREFIX):
            return tokens.verify(self.home, match[1])
        return self.oauth.verify(match[1])


def challenge(error: Error, metadata_url: str | None) -> dict[str, str]:
    """The headers of a 401 or 403 (RFC 6750, 3; RFC 9728, 5.1); none for another error."""
    if error.code not in ("unauthorized", "forbidden"):
        return {}
    parameters = ['realm="muniment"']
    scope = error.fields.get("scope")
    if error.code == "forbidden":
        if not isinstance(scope, str):
            return {}
        parameters.append('error="insufficient_scope"')
    elif not error.fields.get("absent"):
        parameters.append('error="invalid_token"')
    parameters.append(f'scope="{scope if isinstance(scope, str) else "memory:read"}"')
    if metadata_url is not None:
        parameters.append(f'resource_metadata="{metadata_url}"')
    return {"www-authenticate": f"Bearer {', '.join(parameters)}"}


def metadata_url(url: str, issuer: str | None, path: str) -> str | None:
    """Where a client finds who gives tokens for what is at this path; None where they are built in."""
    return None if issuer is None else f"{url}{METADATA}{path}"


def metadata(resource: str, issuer: str) -> dict[str, Any]:
    """What a client reads to know where its tokens come from (RFC 9728, 2)."""
    return {
        "resource": resource,
        "authorization_servers": [issuer],
        "scopes_supported": list(SCOPES_SUPPORTED),
        "bearer_methods_supported": ["header"],
        "resource_name": "Muniment",
    }
