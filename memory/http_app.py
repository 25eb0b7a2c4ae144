"""The HTTP API: the table of routes as a FastAPI application with its document, health, metrics and MCP beside it.

An ASGI application in layers, the outermost first: requests are counted, read whole within bounds, answered also to
HEAD, refused unless they are meant for this server, and then go to MCP or to the routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from memory.http_answers import HttpAnswer, problem_of
from memory.http_auth import METADATA, metadata, metadata_url
from memory.http_document import describe
from memory.http_guard import Reached, guard_hosts
from memory.http_route import Route
from memory.http_routes import ROUTES
from memory.http_spans import request_span
from memory.http_work import Asked, Work
from tlog import web
from tlog.errors import Error, VerificationError

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tlog.metrics import Counter, Metrics

MCP: Final = "/mcp"
LIMITS: Final = web.Limits(body_bytes=2 * 1024 * 1024, answer_seconds=60.0, connections=1024, stop_seconds=10)


@dataclass
class Address:
    """By what the server is reached, known once it is bound. `url` is what clients are told."""

    reached: Reached = Reached(frozenset(), frozenset())  # noqa: RUF009 -- frozen itself
    url: str = ""


@dataclass(frozen=True)
class Service:
    """What the application is made of. `mcp` is the application that answers below /mcp, None for none."""

    work: Work
    address: Address
    metrics: Metrics
    tracer: Tracer
    checks: Mapping[str, web.Check]
    issuer: str | None = None
    mcp: ASGIApp | None = None
    limits: web.Limits = LIMITS

    def metadata_url(self, path: str) -> str | None:
        """Where a client finds where its tokens come from; None where they are built in."""
        return metadata_url(self.address.url, self.issuer, MCP if _is_mcp(path) else "")


def make_app(service: Service) -> ASGIApp:
    """The application, in all its layers."""
    routes = make_routes(service)

    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        if service.mcp is not None and scope["type"] == "http" and _is_mcp(scope["path"]):
            await service.mcp(scope, receive, send)
        else:
            await routes(scope, receive, send)

    guarded = guard_hosts(
        chosen,
        lambda: service.address.reached,
        lambda error, path: _response(problem_of(error, service.metadata_url(path))),
    )
    bounded = web.guard_requests(web.answer_head(guarded), service.limits, admit=_admitting(service))
    return web.count_requests(bounded, service.metrics)


def _admitting(service: Service) -> web.Admit:
    """Large bodies are held for those alone whose token holds; it is judged again, with the whole request."""

    async def admit(scope: Scope) -> Response | None:
        loop, headers = asyncio.get_running_loop(), Headers(scope=scope)
        try:
            await loop.run_in_executor(service.work.pool, service.work.authenticator.authenticate, headers)
        except Error as error:
            return _response(problem_of(error, service.metadata_url(scope["path"])))
        return None

    return admit


def make_routes(service: Service) -> FastAPI:
    """The routes alone, with the document that describes them."""
    app = FastAPI(
        title="Muniment",
        version="1",
        summary="Agent memory that can prove what it kept, what it corrected and what it erased",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan_of(service.mcp),
    )
    web.answer_with_problems(app, kinds={VerificationError: 500})
    counter = service.metrics.counter(
        "muniment_operations_total", "Operations asked for, by what came of them.", ("operation", "outcome")
    )
    for route in ROUTES:
        app.add_api_route(
            route.path,
            _endpoint(service, route, counter),
            methods=[route.method],
            operation_id=route.name,
            response_class=Response,
        )
    _add_metadata(app, service)
    web.add_health(app, service.checks)
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(describe(needs_token=service.work.authenticator.nobody is None))
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _endpoint(service: Service, route: Route, counter: Counter) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        asked = Asked(
            route,
            request.headers,
            tuple(request.query_params.multi_items()),
            body,
            request.path_params.get("id"),
            service.metadata_url(route.path),
        )
        with request_span(service.tracer, route.method, route.path, request.headers) as span:
            # One hop to a thread for all of it; a request whose time is over before its turn came does nothing.
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(service.work.pool, service.work.answer, asked)
            span.answered(answer.status, answer.code)
        counter.add(route.name, answer.outcome)
        return _response(answer)

    return endpoint


def _response(answer: HttpAnswer) -> Response:
    return Response(answer.body, answer.status, answer.headers, media_type=answer.media_type)


def _add_metadata(app: FastAPI, service: Service) -> None:
    """Adds what RFC 9728 has a client look for, for the API and for MCP; 404 without an identity provider."""
    issuer = service.issuer
    if issuer is None:
        return

    @app.get(METADATA, include_in_schema=False)
    async def of_api() -> Response:
        return JSONResponse(metadata(service.address.url, issuer))

    @app.get(METADATA + MCP, include_in_schema=False)
    async def of_mcp() -> Response:
        return JSONResponse(metadata(service.address.url + MCP, issuer))


def _lifespan_of(mcp: Any) -> Callable[[FastAPI], Any]:
    """Runs what the application below runs while it is served: its sessions."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            router = getattr(mcp, "router", None)
            if router is not None:
                await stack.enter_async_context(router.lifespan_context(mcp))
            yield

    return lifespan


def _is_mcp(path: str) -> bool:
    return path == MCP or path.startswith(f"{MCP}/")
