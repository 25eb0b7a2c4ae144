"""`muniment mcp --http`: MCP over HTTP on this machine, for the caller that the environment names.

Whoever has the secret of the environment is that caller. It is for one user and other programs of the same machine:
an address that others can reach is refused, and so is a start without a secret.
"""

from __future__ import annotations

import hmac
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memory.mcp_http import MAX_BODY_BYTES, Authenticate, admitting, make_asgi
from memory.model import Principal
from memory.principal import CLIENT_VARIABLE
from tlog.errors import Error, MalformedError, RefusedError
from tlog.web import Limits, guard_requests, is_loopback, parse_listen, serve

if TYPE_CHECKING:
    from memory.wiring import Home

SECRET_VARIABLE: Final = "MUNIMENT_MCP_SECRET"
MIN_SECRET_CHARACTERS: Final = 16
PUBLISH_SECONDS: Final = 10.0
_LIMITS: Final = Limits(body_bytes=MAX_BODY_BYTES, answer_seconds=120.0)
_PATH: Final = "/mcp"
_BEARER: Final = "bearer "


def serve_http(home: Home, principal: Principal, listen: str, environment: Mapping[str, str]) -> None:
    """Serves until SIGTERM or SIGINT; publishes meanwhile. RefusedError for an address of other machines."""
    host, port = parse_listen(listen)
    if not is_loopback(host):
        raise RefusedError(
            "expected an address of this machine alone: others would reach it with one secret for all, and in the"
            " clear; muniment serve has tokens, and belongs behind a proxy with TLS",
            code="not_loopback",
        )
    named = CLIENT_VARIABLE in environment
    authenticate = with_secret(replace(principal, reported=not named), environment.get(SECRET_VARIABLE, ""))
    stop = threading.Event()
    publishing = threading.Thread(target=_publish, args=(home, stop), daemon=True, name="muniment-publish")
    publishing.start()
    try:
        # A body that never comes to its end keeps neither a connection nor a stop waiting.
        app = guard_requests(
            _at_its_path(make_asgi(home, authenticate)), _LIMITS, admit=admitting(authenticate)
        )
        serve(app, host, port, _LIMITS, _announce)
    finally:
        stop.set()
        publishing.join()


def with_secret(principal: Principal, secret: str) -> Authenticate:
    """Takes whoever sends the secret for this principal; MalformedError if it is no secret to speak of."""
    if len(secret) < MIN_SECRET_CHARACTERS:
        raise MalformedError(
            f"expected {SECRET_VARIABLE} in the environment, of at least {MIN_SECRET_CHARACTERS} characters: clients"
            " send it as Authorization: Bearer"
        )
    expected = secret.encode("utf-8", "surrogateescape")

    def authenticate(headers: Mapping[str, str]) -> Principal:
        given = headers.get("authorization", "")
        token = given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else ""
        # Headers arrive as latin-1, which gives back the bytes that were sent.
        if not hmac.compare_digest(token.encode("latin-1", "replace"), expected):
            raise RefusedError(
                "expected Authorization: Bearer and the secret of this server", code="unauthorized"
            )
        return principal

    return authenticate


def _at_its_path(app: Any) -> Any:
    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") != _PATH:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return served


def _announce(url: str) -> None:
    print(f"muniment: MCP on {url}{_PATH}", file=sys.stderr, flush=True)  # noqa: T201 -- what a person waits for


def _publish(home: Home, stop: threading.Event) -> None:
    while not stop.wait(PUBLISH_SECONDS):
        try:
            home.publish_if_needed()
        except Error as error:
            print(f"muniment: publishing: {error.message}", file=sys.stderr)  # noqa: T201
