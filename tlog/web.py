"""What every HTTP service of ours shares: bounded requests, problem details, health, metrics, a clean stop.

Each service here wraps its application once, and gives its metrics an address of their own:

    app = FastAPI(...); answer_with_problems(app); add_health(app, {"storage": check})
    limited = limit_rate(app, RateLimiter(Rate(50, 100)))
    counted = count_requests(guard_requests(limited, limits), metrics)
    serve(counted, host, port, limits, announce, beside=[make_metrics_server(metrics, *parse_listen(address))])
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tlog.bodies import NOTHING_HERE, Admit, NotAdmittedError, read_body
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.listener import (
    MAX_HEADER_BYTES,
    Limits,
    Server,
    is_loopback,
    make_server,
    parse_listen,
    serve,
)
from tlog.metrics import CONTENT_TYPE, Metrics
from tlog.problems import Problem, ProblemFormat, json_problem
from tlog.rate_limit import ClientOf, Rate, RateLimiter, forwarded_for, peer_of

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    # Listening.
    "MAX_HEADER_BYTES",
    "Limits",
    "Server",
    "parse_listen",
    "is_loopback",
    "make_server",
    "serve",
    # Errors.
    "Problem",
    "ProblemFormat",
    "json_problem",
    "problem",
    "answer_with_problems",
    # Requests.
    "Admit",
    "guard_requests",
    "Rate",
    "RateLimiter",
    "limit_rate",
    "answer_head",
    "peer_of",
    "forwarded_for",
    # Health and metrics.
    "Check",
    "add_health",
    "Metrics",
    "count_requests",
    "make_metrics_server",
]

HEALTH: Final = "/healthz"
READY: Final = "/readyz"
METRICS: Final = "/metrics"
READY_SECONDS: Final = 2.0  # how long one answer about readiness stands, so that asking costs nothing

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_TEXT: Final = "text/plain; charset=utf-8"

_DETAILS: Final = {
    404: NOTHING_HERE,
    405: "what is at this path does not take this method",
}
_STATUS: Final[Mapping[type[Error], int]] = {
    MalformedError: 400,
    RefusedError: 403,
    VerificationError: 422,
    UnavailableError: 503,
}

Check = Callable[[], None]
"""Returns if a part of the service works; raises an error of `tlog.errors` that says what does not."""


# Problems


def problem(
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    problems: ProblemFormat = json_problem,
) -> Response:
    """A problem details response; `code` is the short name that clients act on."""
    media_type, body = problems(Problem(status, code, detail))
    return Response(body, status, dict(headers or {}), media_type=media_type)


def answer_with_problems(
    app: FastAPI,
    statuses: Mapping[str, int] | None = None,
    problems: ProblemFormat = json_problem,
    kinds: Mapping[type[Error], int] | None = None,
) -> None:
    """Make `app` answer every error in problem details.

    `statuses` gives error codes another status, `kinds` the errors of a kind.
    """
    from fastapi.exceptions import RequestValidationError

    by_code, by_kind = dict(statuses or {}), {**_STATUS, **(kinds or {})}

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, Error)
        status = by_code.get(error.code) or next(s for kind, s in by_kind.items() if isinstance(error, kind))
        wait = error.fields.get("retry_after_seconds", 1 if status in (429, 503) else None)
        headers = {"retry-after": str(wait)} if isinstance(wait, int) else {}
        instance = error.fields.get("instance")
        media_type, body = problems(
            Problem(status, error.code, error.message, instance if isinstance(instance, str) else None)
        )
        return Response(body, status, headers, media_type=media_type)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = HTTPStatus(error.status_code).name.lower()
        detail = _DETAILS.get(error.status_code, str(error.detail))
        # The headers travel on: a 405 without its Allow breaks RFC 9110, 15.5.6.
        return problem(error.status_code, code, detail, error.headers, problems)

    async def on_validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        detail = "; ".join(map(_describe_invalid, error.errors()))
        return problem(400, MalformedError.default_code, detail, None, problems)

    async def on_bug(request: Request, error: Exception) -> Response:
        detail = "the service failed; its own log says why"
        return problem(500, Error.default_code, detail, None, problems)

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


# Requests


def guard_requests(
    app: ASGIApp, limits: Limits, problems: ProblemFormat = json_problem, admit: Admit | None = None
) -> ASGIApp:
    """`app`, reached only by requests whose whole body arrived in time and within the limit.

    The body is held until it is complete, so `app` never waits for a slow client; `limits.connections` times
    `limits.body_bytes` bounds the memory, or times FREE_BYTES where `admit` says whose larger bodies are held.
    An answer that does not begin in time becomes a 503.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, limits, admit)
        except NotAdmittedError as refused:
            await _answered(refused.answer, b"", limits.answer_seconds, scope, receive, send)
            return
        except HTTPException as refusal:
            # What remains of the body must not be read as the next request.
            headers = {"connection": "close", "cache-control": "no-store"}
            code = "not_found" if refusal.status_code == 404 else "bad_input"
            response = problem(refusal.status_code, code, refusal.detail, headers, problems)
            await response(scope, receive, send)
            return
        if body is not None and not await _answered(app, body, limits.answer_seconds, scope, receive, send):
            detail = "no answer in time; try again"
            late = problem(503, UnavailableError.default_code, detail, {"retry-after": "1"}, problems)
            await late(scope, receive, send)

    return guarded


async def _answered(
    app: ASGIApp, body: bytes, answer_seconds: float, scope: Scope, receive: Receive, send: Send
) -> bool:
    """Whether `app` began to answer in time."""
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
        return False
    return True


def limit_rate(
    app: ASGIApp,
    limiter: RateLimiter,
    client_of: ClientOf = peer_of,
    problems: ProblemFormat = json_problem,
    exempt: Collection[str] = (HEALTH, READY),
    refusal_cost: float = 0.0,
) -> ASGIApp:
    """`app`, reached by each client as often as `limiter` grants; 429 with Retry-After beyond that.

    Wrap it in `guard_requests`, which reads what the client still sends: an answer given before that is lost
    to a reset connection. The paths `exempt` are for whoever watches the service. `refusal_cost` is what a
    POST that is answered with 400 counts for besides: it cost us work and its sender nothing.
    """

    def charging(send: Send, client: str) -> Send:
        async def charge(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 400:
                limiter.charge(client, refusal_cost)
            await send(message)

        return charge

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in exempt:
            client = client_of(scope)
            wait_seconds = limiter.wait_seconds(client)
            if wait_seconds > 0:
                headers = {"retry-after": str(math.ceil(wait_seconds))}
                detail = "this client sends more requests than it is granted; wait, then go on"
                response = problem(429, "too_many_requests", detail, headers, problems)
                await response(scope, receive, send)
                return
            if refusal_cost and scope["method"] == "POST":
                send = charging(send, client)
        await app(scope, receive, send)

    return limited


def answer_head(app: ASGIApp) -> ASGIApp:
    """`app`, with HEAD answered as GET; the server sends no body then (RFC 9110, 9.3.2)."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await app(scope, receive, send)

    return answered


# Health and metrics


def add_health(app: FastAPI, checks: Mapping[str, Check]) -> None:
    """Adds /healthz, 200 while the process answers at all, and /readyz, 200 while every check passes.

    The checks run one after the other in a thread. What they say stands for READY_SECONDS, so that nobody can
    make the service busy by asking. A 503 names the parts that fail and why.
    """
    from anyio import Lock, to_thread

    mutex = Lock()
    said: tuple[float, tuple[str, ...]] | None = None

    @app.get(HEALTH, include_in_schema=False)
    async def healthz() -> Response:
        return Response("ok\n", media_type=_TEXT)

    @app.get(READY, include_in_schema=False)
    async def readyz() -> Response:
        nonlocal said
        async with mutex:
            if said is None or time.monotonic() - said[0] >= READY_SECONDS:
                failing = await to_thread.run_sync(_failing, checks)
                said = (time.monotonic(), failing)
        if said[1]:
            raise UnavailableError("; ".join(said[1]), code="not_ready")
        return Response("ready\n", media_type=_TEXT)


def _failing(checks: Mapping[str, Check]) -> tuple[str, ...]:
    failing = []
    for name, check in checks.items():
        try:
            check()
        except Error as error:
            failing.append(f"{name}: {error.message}")
    return tuple(failing)


def count_requests(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """`app`, with its answers counted by method and status, and timed, in `metrics`."""
    answered = metrics.counter("muniment_http_requests_total", "Requests answered.", ("method", "status"))
    seconds = metrics.histogram("muniment_http_request_seconds", "Time from request to answer.", ("method",))

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began = time.monotonic()
        method = scope["method"] if scope["method"] in _METHODS else "other"

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.add(method, str(message["status"]))
                seconds.observe(time.monotonic() - began, method)
            await send(message)

        await app(scope, receive, note)

    return counted


def make_metrics_server(
    metrics: Metrics, host: str, port: int, announce: Callable[[str], None] = lambda url: None
) -> Server:
    """A server that answers GET /metrics and nothing else, bound to an address of its own.

    Give it to `serve` as one of those `beside`; metrics are for the operator and not for clients.
    """
    from anyio import to_thread

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] != METRICS:
            response = problem(404, "not_found", "there are only metrics here, at /metrics")
        elif scope["method"] not in ("GET", "HEAD"):
            response = problem(405, "method_not_allowed", "metrics are read with GET", {"allow": "GET, HEAD"})
        else:
            # In a thread: what is read for it may wait for a disk.
            text = await to_thread.run_sync(metrics.text)
            response = Response(text, media_type=CONTENT_TYPE)
        await response(scope, receive, send)

    limits = Limits(body_bytes=1024, connections=16)
    return make_server(guard_requests(app, limits), host, port, limits, announce)
