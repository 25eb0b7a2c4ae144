"""The MCP server over Streamable HTTP, as an ASGI application: each request says who asks, and nothing is kept.

The protocol of 2026-07-28 has no sessions. Clients of the eras before it get one in name alone: the session id is
sealed and says what the client called itself when it began, so that any server of the home knows it, also after a
restart. It gives no right: who asks is authenticated with each request, before anything else is read of it, and an
id that another caller was given is as good as none.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from memory.http_auth import challenge
from memory.mcp_server import answer_http, limit_body, make_server, refusal_of, reported_name, with_name
from memory.mcp_tools import BY_NAME
from memory.model import Principal
from memory.principal import require
from tlog.errors import Error, RefusedError

if TYPE_CHECKING:
    from memory.wiring import Home

Authenticate = Callable[[Mapping[str, str]], Principal]
Challenge = Callable[[Error], Mapping[str, str]]
"""The headers that tell a client what a refusal wants of it."""

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""A text of the greatest size fits, also with every character escaped."""
LOOPBACK_HOSTS: Final = ("127.0.0.1:*", "localhost:*", "[::1]:*", "127.0.0.1", "localhost", "[::1]")
LOOPBACK_ORIGINS: Final = (
    "http://127.0.0.1:*",
    "http://localhost:*",
    "http://[::1]:*",
    "http://127.0.0.1",
    "http://localhost",
    "http://[::1]",
)
AT_ONCE: Final = 8
_PRINCIPAL: Final = "muniment.principal"
_NAME: Final = "muniment.client_name"
_SESSION: Final = b"mcp-session-id"
_STATUS: Final = {"unauthorized": 401, "forbidden": 403, "busy": 503, "too_many_requests": 429}
_REFUSED: Final = -32001
_SEAL_BYTES: Final = 16
_MAX_NAME: Final = 256
_NO_SESSIONS_SINCE: Final = "2026-07-28"


def make_asgi(
    home: Home,
    authenticate: Authenticate,
    *,
    hosts: tuple[str, ...] = LOOPBACK_HOSTS,
    origins: tuple[str, ...] = LOOPBACK_ORIGINS,
    challenged: Challenge = lambda error: challenge(error, None),
) -> Any:
    """The application. `authenticate` gives the caller from the headers of a request, by lower-case name.

    It is called in a thread, and raises errors of `tlog.errors`: `unauthorized` is answered with 401, `forbidden`
    with 403; the field `www_authenticate` of an error is sent as that header. A call that needs a scope which the
    caller has not is a 403 with the headers that `challenged` makes of the error. `hosts` and `origins` are the
    values that Host and Origin may have, `:*` for any port. The path it is mounted at does not matter, and no
    lifespan has to be run for it.
    """
    server = make_server(home, _binding, AT_ONCE)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        refused = await refusal_of(hosts, origins, request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        headers = _headers(scope)
        try:
            # It may look into a store, or fetch keys.
            principal = await anyio.to_thread.run_sync(authenticate, headers)
        except Error as error:
            await _refuse(error)(scope, receive, send)
            return
        if request.method != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        sessions = _Sessions(home, principal)
        named = {_PRINCIPAL: principal, _NAME: sessions.name_of(headers.get("mcp-session-id"))}
        replay, body = await _read(receive)
        missing = _missing_scope(body, headers, principal)
        if missing is not None:
            await _insufficient(*missing, challenged)(scope, receive, send)
            return
        began = _beginning(body)
        inner = {**scope, **named}
        out = send if began is None else _adding(send, sessions.seal(began))
        await answer_http(server, inner, replay, out, _wants_json(headers))

    limited = limit_body(answer, MAX_BODY_BYTES)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _no_lifespan(receive, send)
        elif scope["type"] == "http":
            await limited(scope, receive, send)

    return application


def admitting(authenticate: Authenticate) -> Callable[[Any], Awaitable[Any]]:
    """What `tlog.web.guard_requests` asks before it holds a large body: None for one of a caller who is known."""

    async def admit(scope: Any) -> Any | None:
        try:
            await anyio.to_thread.run_sync(authenticate, _headers(scope))
        except Error as error:
            return _refuse(error)
        return None

    return admit


def _binding(context: Any) -> Principal:
    """The caller of a request: as authenticated, under the name that the client gives itself unless it is proved."""
    scope = context.request.scope
    principal: Principal = scope[_PRINCIPAL]
    if principal.authenticated or not principal.reported:
        return principal
    name = reported_name(context)
    return with_name(principal, scope[_NAME] if name is None else name)


class _Sessions:
    """Session ids of one caller: the name a client began with, sealed."""

    def __init__(self, home: Home, principal: Principal) -> None:
        self._home = home
        self._principal = principal

    def seal(self, name: str) -> str:
        """The id for a client that begins under this name."""
        body = name.encode("utf-8")
        return base64.urlsafe_b64encode(self._tag(body) + body).decode("ascii").rstrip("=")

    def name_of(self, session: str | None) -> str | None:
        """The name in an id that this caller was given; None for any other id, which then says nothing."""
        if session is None or len(session) > 2 * _MAX_NAME * 4:
            return None
        try:
            data = base64.b64decode(session + "=" * (-len(session) % 4), altchars=b"-_", validate=True)
            body = data[_SEAL_BYTES:]
            if not hmac.compare_digest(data[:_SEAL_BYTES], self._tag(body)):
                return None
            return body.decode("utf-8")
        except ValueError:
            return None

    def _tag(self, body: bytes) -> bytes:
        who = self._principal
        tag = self._home.parts().vault.index_tag
        return tag("mcp session", who.tenant, who.agent, who.client, who.identity, body)[:_SEAL_BYTES]


def _beginning(body: bytes) -> str | None:
    """The name in a request that begins a session as the older protocol has them; None for any other request."""
    if b'"initialize"' not in body:
        return None
    try:
        message = json.loads(body)
        if message["method"] != "initialize":
            return None
        name = message["params"]["clientInfo"]["name"]
        return name[:_MAX_NAME] if isinstance(name, str) and name.encode("utf-8") else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _missing_scope(
    body: bytes, headers: Mapping[str, str], principal: Principal
) -> tuple[object, Error] | None:
    """The id of a call that this caller may not make, and the refusal: told in HTTP, where a client asks for more.

    Whatever is not seen to be such a call here is judged where it is done.
    """
    if not principal.authenticated or b'"tools/call"' not in body:
        return None
    try:
        message = json.loads(body)
        name = message["params"]["name"]
        tool = BY_NAME.get(name) if message["method"] == "tools/call" else None
        if tool is not None and headers.get("mcp-name", name) == name:
            require(principal, tool.scope)
    except RefusedError as error:
        return message.get("id"), error
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None


def _insufficient(id: object, error: Error, challenged: Challenge) -> Response:
    data = {"code": error.code, "scope": error.fields["scope"]}
    body = {
        "jsonrpc": "2.0",
        "id": id if isinstance(id, str | int) else None,
        "error": {"code": _REFUSED, "message": error.message, "data": data},
    }
    headers = {"Cache-Control": "no-store", **challenged(error)}
    return Response(json.dumps(body), 403, headers, "application/json")


def _adding(send: Any, session: str) -> Any:
    """`send`, with the session id in the head of an answer that is none of refusal."""

    async def adding(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] < 300:
            message = {**message, "headers": [*message["headers"], (_SESSION, session.encode("ascii"))]}
        await send(message)

    return adding


async def _read(receive: Any) -> tuple[Any, bytes]:
    """The body, which the limit has gathered already, and a `receive` that gives it again."""
    first = await receive()
    given: list[Any] = [first]

    async def replay() -> Any:
        return given.pop() if given else await receive()

    return replay, first.get("body", b"")


def _refuse(error: Error) -> Response:
    status = _STATUS.get(error.code, 400)
    headers = {"Cache-Control": "no-store"}
    if status in (401, 403):
        headers["WWW-Authenticate"] = str(error.fields.get("www_authenticate", "Bearer"))
    if "retry_after_seconds" in error.fields:
        headers["Retry-After"] = str(error.fields["retry_after_seconds"])
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": _REFUSED, "message": error.message}}
    return Response(json.dumps(body), status, headers, "application/json")


def _wants_json(headers: Mapping[str, str]) -> bool:
    """Whether an answer goes out as one JSON document and no event stream.

    Under the newer protocol a stream begins only where there is something to stream. Under the older one it holds
    every answer, and is for who prefers it.
    """
    accept = headers.get("accept", "")
    stream, document = _quality(accept, "text/event-stream"), _quality(accept, "application/json")
    if headers.get("mcp-protocol-version", "") >= _NO_SESSIONS_SINCE:
        return stream == 0
    return stream <= document


def _quality(accept: str, media_type: str) -> float:
    for one in accept.lower().split(","):
        name, *parameters = (part.strip() for part in one.split(";"))
        if name == media_type:
            given = next((part[2:] for part in parameters if part.startswith("q=")), "1")
            try:
                return float(given)
            except ValueError:
                return 1.0
    return 0.0


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a request by lower-case name. One that was sent twice is as good as none of them."""
    found: dict[str, str] = {}
    twice = set()
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in found:
            twice.add(name)
        found[name] = value.decode("latin-1")
    return {name: value for name, value in found.items() if name != "authorization" or name not in twice}


async def _no_lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
