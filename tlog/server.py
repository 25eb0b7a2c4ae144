"""`muniment log serve`: the files of a log as C2SP tlog-tiles, and SCRAPI, on one address.

    GET  PREFIX/checkpoint                     text/plain, to be cached for seconds
    GET  PREFIX/tile/LEVEL/INDEX[.p/WIDTH]     application/octet-stream, to be cached for good
    GET  PREFIX/tile/entries/INDEX[.p/WIDTH]   likewise
    GET  PREFIX/keys.cose                      the certified key list, where a root has certified one
    GET  PREFIX/erasures/N.cose                deletion manifests
    GET  PREFIX/registration/SHA256.toml       documents of registration policies

with what `scrapi` adds, /openapi.json, /healthz and /readyz. A tile is served if the public checkpoint implies
it, and then it never changes; whatever is not there is a 404. Every error is a concise problem (RFC 9290).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Path, Response

from tlog import web
from tlog.errors import MalformedError, RefusedError, VerificationError
from tlog.metrics import Metrics
from tlog.scrapi import COSE, PROBLEMS, STATUSES, add_scrapi, content, problems
from tlog.service import LogService

if TYPE_CHECKING:
    from starlette.types import ASGIApp

MAX_BODY_BYTES: Final = 72 * 1024  # an entry of 65,535 bytes, and unprotected headers to be dropped
LIMITS: Final = web.Limits(body_bytes=MAX_BODY_BYTES, connections=1024)
RATE: Final = web.Rate(per_second=100.0, burst=1000)
# What a refused statement counts for in requests: to read one of the largest costs as much as many answers.
REFUSAL_COST: Final = 9.0
MAX_THREADS: Final = 8

_TEXT: Final = "text/plain; charset=utf-8"
_BYTES: Final = "application/octet-stream"
_TOML: Final = "application/toml"
_FOR_SECONDS: Final = {"cache-control": "public, max-age=2"}
_FOR_GOOD: Final = {"cache-control": "public, max-age=31536000, immutable"}
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
_TILE: Final = r"^(entries|[0-9]|[1-5][0-9]|6[0-3])/(x[0-9]{3}/)*[0-9]{3}(\.p/[1-9][0-9]{0,2})?$"
# Only described so: whatever else is asked for is not there.
TilePath = Annotated[str, Path(json_schema_extra={"pattern": _TILE})]
ManifestName = Annotated[str, Path(json_schema_extra={"pattern": r"^[1-9][0-9]{0,17}\.cose$"})]
DocumentName = Annotated[str, Path(json_schema_extra={"pattern": r"^[0-9a-f]{64}\.toml$"})]


@dataclass(frozen=True)
class Serving:
    """What the service grants and where its files are; `prefix` is empty or begins with a slash."""

    prefix: str = ""
    limits: web.Limits = LIMITS
    rate: web.Rate = RATE
    client_of: Callable[[Any], str] = field(default=web.peer_of)

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix) or ".." in self.prefix.split("/"):
            raise MalformedError("prefix: expected nothing, or a path such as /log")


def make_app(service: LogService, metrics: Metrics, serving: Serving | None = None) -> ASGIApp:
    """The application that answers for `service`, with its requests bounded, granted and counted."""
    serving = serving or Serving()
    app = make_routes(service, serving.prefix)
    limiter = web.RateLimiter(serving.rate)
    limited = web.limit_rate(app, limiter, serving.client_of, PROBLEMS, (web.HEALTH, web.READY), REFUSAL_COST)
    return web.count_requests(web.guard_requests(web.answer_head(limited), serving.limits, PROBLEMS), metrics)


def make_routes(service: LogService, prefix: str = "") -> FastAPI:
    """The routes alone, with the OpenAPI document that describes them."""
    app = FastAPI(
        title="Muniment log",
        version="1",
        summary="A transparency log: C2SP tlog-tiles, and SCITT reference APIs (SCRAPI)",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    # No client can cause a VerificationError here: the log's own files are not what they must be.
    web.answer_with_problems(app, STATUSES, PROBLEMS, {VerificationError: 500})
    threads = CapacityLimiter(MAX_THREADS)
    _add_files(app, service, prefix, threads)
    add_scrapi(app, service, threads)
    web.add_health(
        app,
        {
            "storage": service.check_storage,
            "keys": service.check_keys,
            "checkpoint": service.check_checkpoint,
            "log": service.check_threads,
        },
    )
    _drop_validation_errors(app)
    return app


def _add_files(app: FastAPI, service: LogService, prefix: str, threads: CapacityLimiter) -> None:
    async def file(read: Callable[[str], bytes | None], path: str, media_type: str) -> Response:
        data = service.cached(path)
        if data is None:
            data = await to_thread.run_sync(read, path, limiter=threads)
        if data is None:
            # A client that asks for a partial tile takes the full one instead; it relies on this status.
            raise RefusedError("the log has no such file", code="file_unknown")
        return Response(data, 200, _FOR_GOOD, media_type=media_type)

    @app.get(
        f"{prefix}/checkpoint",
        response_class=Response,
        operation_id="checkpoint",
        summary="The public checkpoint (C2SP tlog-checkpoint)",
        responses={200: content("text/plain", "a signed note"), **problems(404)},
    )
    async def checkpoint() -> Response:
        note = service.checkpoint()
        if note is None:
            raise RefusedError("the log has no public checkpoint yet", code="file_unknown")
        return Response(note, 200, _FOR_SECONDS, media_type=_TEXT)

    @app.get(
        f"{prefix}/keys.cose",
        response_class=Response,
        operation_id="keyList",
        summary="The certified list of the keys that sign statements, receipts and manifests",
        responses={200: content(COSE, "a COSE_Sign1"), **problems(404)},
    )
    async def key_list() -> Response:
        data = await to_thread.run_sync(service.key_list, limiter=threads)
        if data is None:
            raise RefusedError("no root has certified the keys of this log", code="file_unknown")
        return Response(data, 200, _FOR_SECONDS, media_type=COSE)

    @app.get(
        f"{prefix}/tile/{{path:path}}",
        response_class=Response,
        operation_id="tile",
        summary="A tile of hashes or a bundle of entries (C2SP tlog-tiles)",
        responses={200: content(_BYTES, "the tile"), **problems(404)},
    )
    async def tile(path: TilePath) -> Response:
        return await file(service.tile, f"tile/{path}", _BYTES)

    @app.get(
        f"{prefix}/erasures/{{name}}",
        response_class=Response,
        operation_id="manifest",
        summary="A deletion manifest",
        responses={200: content(COSE, "a COSE_Sign1"), **problems(404)},
    )
    async def manifest(name: ManifestName) -> Response:
        return await file(service.document, f"erasures/{name}", COSE)

    @app.get(
        f"{prefix}/registration/{{name}}",
        response_class=Response,
        operation_id="registrationPolicy",
        summary="The document of a registration policy, named by its SHA-256",
        responses={200: content(_TOML, "TOML"), **problems(404)},
    )
    async def registration(name: DocumentName) -> Response:
        return await file(service.document, f"registration/{name}", _TOML)


def _drop_validation_errors(app: FastAPI) -> None:
    """Takes the 422 out of the OpenAPI document that FastAPI writes there; nothing here answers with it."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        document.pop("components", None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def serve(
    service: LogService,
    metrics: Metrics,
    address: tuple[str, int],
    serving: Serving,
    announce: Callable[[str], None],
    beside: Sequence[web.Server] = (),
) -> None:
    """Answers for `service` until SIGTERM or SIGINT; all that was taken is in the log when it returns."""
    with service.running():
        app = make_app(service, metrics, serving)
        web.serve(app, *address, serving.limits, announce, PROBLEMS, beside)
