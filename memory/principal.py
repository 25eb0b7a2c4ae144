"""Who asks, and what they may do: bound by the host, never by an argument of a call.

On stdio and on the command line the environment says it: MUNIMENT_TENANT, MUNIMENT_AGENT, MUNIMENT_CLIENT.
Names are opaque: any characters, compared exactly; only their length and their being text are checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from memory.model import AGENT_SCOPES, DEFAULT_TENANT, MAX_NAME_CHARACTERS, SCOPES, Principal
from tlog.errors import MalformedError, RefusedError

TENANT_VARIABLE: Final = "MUNIMENT_TENANT"
AGENT_VARIABLE: Final = "MUNIMENT_AGENT"
CLIENT_VARIABLE: Final = "MUNIMENT_CLIENT"
DEFAULT_AGENT: Final = "default"
DEFAULT_CLIENT: Final = "cli"


def agent_from_environment(environment: Mapping[str, str] | None = None) -> Principal:
    """The agent that the host bound, in this process's environment if none is given.

    It may read, write and ask to forget. A variable set to the empty text is an error, not a default.
    """
    given = os.environ if environment is None else environment
    return make_principal(
        given.get(TENANT_VARIABLE, DEFAULT_TENANT),
        given.get(AGENT_VARIABLE, DEFAULT_AGENT),
        given.get(CLIENT_VARIABLE, DEFAULT_CLIENT),
    )


def owner_from_environment(environment: Mapping[str, str] | None = None) -> Principal:
    """The same caller with every scope: whoever runs a command on the home owns it."""
    return with_all_scopes(agent_from_environment(environment))


def parse_as(text: str) -> Principal:
    """The caller "tenant/agent/client" with every scope, for the owner who acts for it.

    It is split at the first two slashes, so a client's name may contain some.
    """
    parts = text.split("/", 2) if isinstance(text, str) else []
    if len(parts) != 3:
        raise MalformedError('expected "as" to be tenant/agent/client')
    tenant, agent, client = parts
    return with_all_scopes(make_principal(tenant, agent, client))


def make_principal(
    tenant: str, agent: str, client: str, scopes: frozenset[str] = AGENT_SCOPES, authenticated: bool = False
) -> Principal:
    """A principal whose names are ones that a name may be; MalformedError names the one that is not."""
    check_name("tenant", tenant)
    check_name("agent", agent)
    check_name("client", client)
    unknown = scopes - SCOPES
    if unknown:
        raise MalformedError(f"expected scopes out of {', '.join(sorted(SCOPES))}")
    return Principal(tenant, agent, client, scopes, authenticated)


def with_all_scopes(principal: Principal) -> Principal:
    """The same principal with every scope there is."""
    return replace(principal, scopes=SCOPES)


def narrowed(principal: Principal, scopes: frozenset[str]) -> Principal:
    """The same principal with those of its scopes that are in `scopes`: rights are lost, never gained."""
    return replace(principal, scopes=principal.scopes & scopes)


def require(principal: Principal, scope: str) -> None:
    """Returns if the principal has the scope; RefusedError otherwise."""
    if scope not in principal.scopes:
        raise RefusedError(f"this needs the scope {scope}, which this caller does not have", scope=scope)


def check_name(what: str, name: object) -> str:
    """`name`, if it can be the name of a tenant, agent or client."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARACTERS:
        raise MalformedError(f"expected the {what} to be a name of 1 to {MAX_NAME_CHARACTERS} characters")
    if name == "*":
        raise MalformedError(f'expected the {what} to be a name; "*" stands for none')
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        # An environment that is not UTF-8 arrives as lone surrogates.
        raise MalformedError(f"expected the {what} to be valid Unicode") from None
    return name
