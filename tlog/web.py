"""What every HTTP service of ours shares: bounded requests, problem details, a process that stops cleanly.

uvicorn bounds neither the size of a body nor the time a client takes over its headers and body, answers some
errors in its own format and leaves a process by signal. Each service here wraps its application once:

    app = FastAPI(...); answer_with_problems(app)
    serve(guard_requests(app, limits), host, port, limits, announce=print)
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import h11
import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_HEADER_BYTES = 16 * 1024
MAX_PORT = 65535

# A body over the limit is read on, and dropped, up to here: whoever still sends when the connection closes
# sees a reset instead of the 413.
_DISCARDED_BYTES = 4 * 1024 * 1024

_STATUS: Mapping[type[Error], int] = {
    MalformedError: 400,
    RefusedError: 403,
    VerificationError: 422,
    UnavailableError: 503,
}


@dataclass(frozen=True)
class Limits:
    """What one service grants a client. A client that keeps to them never notices one."""

    body_bytes: int = 1024 * 1024
    header_seconds: float = 10.0  # to send a request's line and headers
    body_seconds: float = 10.0  # to send the whole body after them
    answer_seconds: float = 30.0  # until our answer begins; a stream may last longer
    idle_seconds: int = 60  # between two requests of a connection
    connections: int = 512
    stop_seconds: int = 5  # what a stop grants the requests under way


def problem(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """A problem details response (RFC 9457); `code` is the short name that clients act on."""
    body = _problem_body(status, code, detail)
    return Response(body, status, dict(headers or {}), media_type="application/problem+json")


def _problem_body(status: int, code: str, detail: str) -> bytes:
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
    }
    return json.dumps(document, ensure_ascii=False).encode()


def answer_with_problems(app: FastAPI, statuses: Mapping[str, int] | None = None) -> None:
    """Make `app` answer every error in problem details; `statuses` gives error codes another status."""
    from fastapi.exceptions import RequestValidationError

    by_code = dict(statuses or {})

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, Error)
        status = by_code.get(error.code) or next(s for kind, s in _STATUS.items() if isinstance(error, kind))
        wait = error.fields.get("retry_after_seconds", 1 if status == 503 else None)
        headers = {"retry-after": str(wait)} if isinstance(wait, int) else {}
        return problem(status, error.code, error.message, headers)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = HTTPStatus(error.status_code).name.lower()
        # The headers travel on: a 405 without its Allow breaks RFC 9110, 15.5.6.
        return problem(error.status_code, code, str(error.detail), error.headers)

    async def on_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(400, MalformedError.default_code, "; ".join(map(_describe_invalid, error.errors())))

    async def on_bug(request: Request, error: Exception) -> Response:
        return problem(500, Error.default_code, "the service failed; its own log says why")

    app.add_exception_handler(Error, on_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(Exception, on_bug)


def _describe_invalid(finding: Mapping[str, Any]) -> str:
    """Where and what, never the input: a value that failed is still somebody's content."""
    where = list(finding["loc"])
    if finding["type"] == "extra_forbidden":
        where = where[:-1]  # its last part is a name that the client made up
    return f"{'.'.join(map(str, where))}: {finding['type']}"


def guard_requests(app: ASGIApp, limits: Limits) -> ASGIApp:
    """`app`, reached only by requests whose whole body arrived in time and within the limit.

    The body is held until it is complete, so `app` never waits for a slow client; `limits.connections` times
    `limits.body_bytes` bounds the memory. An answer that does not begin in time becomes a 503.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        try:
            body = await _read_body(scope, receive, limits)
        except HTTPException as refusal:
            # What remains of the body must not be read as the next request.
            response = problem(
                refusal.status_code,
                "bad_input",
                refusal.detail,
                {"connection": "close", "cache-control": "no-store"},
            )
            await response(scope, receive, send)
            return
        if body is not None:
            await _answer(app, body, limits.answer_seconds, scope, receive, send)

    return guarded


async def _read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes | None:
    """The complete body, or None when the client has gone; HTTPException 413 or 408 where it is refused."""
    too_large = HTTPException(413, f"the body may have at most {limits.body_bytes} bytes")
    most = limits.body_bytes + _DISCARDED_BYTES
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length", b"0")
    size = int(declared) if declared.isdigit() else 0
    if size > most or (size > limits.body_bytes and b"expect" in headers):
        raise too_large
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                chunk = message.get("body", b"")
                size += len(chunk)
                if size <= limits.body_bytes:
                    body += chunk
                complete = not message.get("more_body", False)
                if size > most or (complete and size > limits.body_bytes):
                    raise too_large
                if complete:
                    return bytes(body)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limits.body_seconds:g} seconds") from None


async def _answer(
    app: ASGIApp, body: bytes, answer_seconds: float, scope: Scope, receive: Receive, send: Send
) -> None:
    pending: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replay() -> Message:
        nonlocal pending
        message, pending = pending, None
        return message if message is not None else await receive()

    async def send_in_time(message: Message) -> None:
        if message["type"] == "http.response.start":
            deadline.reschedule(None)
            headers = MutableHeaders(scope=message)
            headers.setdefault("x-content-type-options", "nosniff")
            headers.setdefault("cache-control", "no-store")
        await send(message)

    try:
        async with asyncio.timeout(answer_seconds) as deadline:
            await app(scope, replay, send_in_time)
    except TimeoutError:
        if not deadline.expired():
            raise
        late = problem(
            503, UnavailableError.default_code, "no answer in time; try again", {"retry-after": "1"}
        )
        await late(scope, receive, send)


def parse_listen(text: str) -> tuple[str, int]:
    """The (host, port) of `HOST:PORT`; an IPv6 address stands in brackets, port 0 lets the system choose."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/\s]+)):(0|[1-9][0-9]{0,4})", text)
    if match is None or int(match[3]) > MAX_PORT:
        raise MalformedError("listen: expected HOST:PORT, such as 127.0.0.1:8080 or [::1]:0")
    return match[1] or match[2], int(match[3])


def serve(
    app: ASGIApp, host: str, port: int, limits: Limits, announce: Callable[[str], None] = lambda url: None
) -> None:
    """Answer requests until SIGTERM or SIGINT, finish those under way, then return.

    `announce` is called once with the address, when connections are accepted. UnavailableError when the
    address can't be had.
    """
    server = make_server(app, host, port, limits, announce)

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal again after a clean stop, to end the process by it: then it meets `stop`.
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGTERM, signal.SIGINT) if in_main_thread else ()
    previous = {number: signal.signal(number, stop) for number in signals}
    try:
        server.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def make_server(
    app: ASGIApp, host: str, port: int, limits: Limits, announce: Callable[[str], None] = lambda url: None
) -> uvicorn.Server:
    """A server bound to its address: `run()` blocks until `should_exit` is set."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = _bind(family, host, port)
    except OSError as error:
        reason = error.strerror or "the name is not known"
        raise UnavailableError(
            f"listen: this address can't be had: {reason}", code="address_unavailable"
        ) from None
    name = f"[{host}]" if family == socket.AF_INET6 else host
    url = f"http://{name}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), {"header_seconds": limits.header_seconds}),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=limits.stop_seconds,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    return _Server(config, listener, lambda: announce(url))


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # With the protocol left at 0, as socket.create_server does, asyncio doesn't switch Nagle's algorithm off,
    # and each answer on a kept connection waits for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """uvicorn on a socket that was bound beforehand, saying when it accepts."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._listener = listener
        self._announce = announce

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with self._listener:
            super().run(sockets=[self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 with a limit on the time that headers take, and problem details for garbage."""

    header_seconds: ClassVar[float]
    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_headers_due()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._expect_headers()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_headers_due()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer was begun already
            body = _problem_body(400, MalformedError.default_code, "this is not a valid HTTP/1.1 request")
            headers = [
                (b"content-type", b"application/problem+json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect_headers(self) -> None:
        # One drop a second keeps an idle timer from ever firing; this one counts from the first byte.
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self.header_seconds, self.transport.close)

    def _cancel_headers_due(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None
