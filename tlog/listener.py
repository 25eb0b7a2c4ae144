"""The HTTP server under every service of ours: uvicorn, with the limits and the manners it lacks.

uvicorn does not bound the time that headers take, answers what it refuses itself in plain text, and leaves a
process by signal. A server here is bound to its address before it runs, so that port 0 can be announced.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tlog.errors import MalformedError, UnavailableError
from tlog.problems import Problem, ProblemFormat, json_problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_HEADER_BYTES = 16 * 1024
MAX_PORT = 65535
WARNING_SECONDS = 60.0


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


def _announce_nothing(_: str) -> None:
    return None


def parse_listen(text: str) -> tuple[str, int]:
    """The (host, port) of `HOST:PORT`; an IPv6 address stands in brackets, port 0 lets the system choose."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/\s]+)):(0|[1-9][0-9]{0,4})", text)
    if match is None or int(match[3]) > MAX_PORT:
        raise MalformedError("listen: expected HOST:PORT, such as 127.0.0.1:8080 or [::1]:0")
    return match[1] or match[2], int(match[3])


def is_loopback(host: str) -> bool:
    """Whether every address of this host, as far as it can be found out, is of this machine alone."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_loopback_address(str(address[0])) for *_, address in found)


def _is_loopback_address(address: str) -> bool:
    import ipaddress

    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def serve(
    app: ASGIApp,
    host: str,
    port: int,
    limits: Limits,
    announce: Callable[[str], None] = _announce_nothing,
    problems: ProblemFormat = json_problem,
    beside: Sequence[Server] = (),
) -> None:
    """Answer requests until SIGTERM or SIGINT, finish those under way, then return.

    `announce` is called once with the address, when connections are accepted. The servers `beside`, such as
    that of the metrics, run in threads meanwhile. UnavailableError when the address can't be had.
    """
    server = make_server(app, host, port, limits, announce, problems)

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal again after a clean stop, to end the process by it: then it meets `stop`.
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGTERM, signal.SIGINT) if in_main_thread else ()
    previous = {number: signal.signal(number, stop) for number in signals}
    try:
        with _running(beside):
            server.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _running(servers: Sequence[Server]) -> Iterator[None]:
    threads = [threading.Thread(target=server.run, daemon=True, name="muniment-beside") for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server in servers:
            server.should_exit = True
        for thread in threads:
            thread.join()


def make_server(
    app: ASGIApp,
    host: str,
    port: int,
    limits: Limits,
    announce: Callable[[str], None] = _announce_nothing,
    problems: ProblemFormat = json_problem,
) -> Server:
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
    limited = _ConnectionLimit(app, limits.connections, problems)
    config = uvicorn.Config(
        limited,
        http=type("Protocol", (_Protocol,), {"header_seconds": limits.header_seconds, "problems": problems}),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=limits.stop_seconds,
    )
    server = Server(config, listener, url, announce)
    limited.connections = server.server_state.connections
    limited.is_stopping = lambda: server.should_exit
    return server


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # With the protocol left at 0, as socket.create_server does, asyncio doesn't switch Nagle's algorithm off,
    # and each answer on a kept connection waits for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    return listener


class _ConnectionLimit:
    """The application while no more than so many connections are open and no stop ends it, else a 503.

    uvicorn's own limit does the same in plain text, which no client of ours reads.
    """

    def __init__(self, app: ASGIApp, limit: int, problems: ProblemFormat) -> None:
        self.connections: Sized = ()
        self.is_stopping: Callable[[], bool] = lambda: False
        self._app = app
        self._limit = limit
        self._problems = problems

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif len(self.connections) > self._limit:
            await self._refuse(send, "too many connections are open; try again")
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer; where a stop cuts it short, a 503 if it has not begun, and no traceback."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except asyncio.CancelledError:
            if begun or not self.is_stopping():
                raise
            # uvicorn has waited as long as it was to, and would log each request that it ends with its traceback.
            await self._refuse(send, "the server is stopping; try again")

    async def _refuse(self, send: Send, detail: str) -> None:
        media_type, body = self._problems(Problem(503, UnavailableError.default_code, detail))
        headers = [(b"retry-after", b"1"), (b"cache-control", b"no-store"), *_headers(media_type, body)]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _headers(media_type: str, body: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", media_type.encode("ascii")),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]


class Server(uvicorn.Server):
    """uvicorn on a socket that was bound beforehand, saying when it accepts; `url` is its address."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, url: str, announce: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self.url = url
        self._listener = listener
        self._announce = announce

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with self._listener:
            super().run(sockets=[self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce(self.url)


class _BoundedConnection(h11.Connection):
    """h11's, which bounds headers that are not complete yet, and here those that came whole in one read as well."""

    def next_event(self) -> object:  # type: ignore[override]
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = len(event.method) + len(event.target)
            size += sum(len(name) + len(value) + len(b": \r\n") for name, value in event.headers)
            if size > MAX_HEADER_BYTES:
                raise h11.RemoteProtocolError(f"expected at most {MAX_HEADER_BYTES} bytes of headers")
        return event


class _SeldomSaid(logging.Filter):
    """Lets each of uvicorn's warnings through once a minute: garbage costs its sender nothing, and a log its disk."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._said.get(place, -math.inf) < WARNING_SECONDS:
            return False
        self._said[place] = now
        return True


_SELDOM_SAID = _SeldomSaid()


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 with limits on headers and the time that they take, and problem details for garbage."""

    header_seconds: ClassVar[float]
    problems: ClassVar[ProblemFormat]
    _headers_due: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _BoundedConnection(h11.SERVER, MAX_HEADER_BYTES)
        self.logger.addFilter(_SELDOM_SAID)  # of one filter a logger has only one

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
            detail = "this is not a valid HTTP/1.1 request"
            media_type, body = type(self).problems(Problem(400, MalformedError.default_code, detail))
            response = h11.Response(
                status_code=400, headers=_headers(media_type, body), reason=b"Bad Request"
            )
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
