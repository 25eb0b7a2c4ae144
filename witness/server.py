"""The HTTP interface of a witness. C2SP tlog-witness."""

from __future__ import annotations

import re
from collections.abc import Callable

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

from tlog import web
from tlog.errors import RefusedError
from witness.decide import Refuse
from witness.service import Witness
from witness.wire import MAX_BODY_BYTES, SIZE_TYPE, format_conflict, format_cosignatures

LIMITS = web.Limits(body_bytes=MAX_BODY_BYTES)
MAX_THREADS = 8

_TEXT = "text/plain; charset=utf-8"
_DIGEST = re.compile("[0-9a-f]{64}")


def make_app(witness: Witness, limits: web.Limits = LIMITS) -> ASGIApp:
    """The application that answers for `witness`; submission and monitoring share one prefix."""
    app = FastAPI(title="Muniment witness", openapi_url=None, redirect_slashes=False)
    # A damaged database is our fault: a 422 would tell the log that it forked.
    web.answer_with_problems(app, {"unknown_origin": 404, "state_lost": 500})
    threads = CapacityLimiter(MAX_THREADS)

    @app.post("/add-checkpoint")
    async def add_checkpoint(request: Request) -> Response:
        body = await request.body()
        answer = await to_thread.run_sync(witness.add_checkpoint, body, limiter=threads)
        if isinstance(answer, Refuse):
            return _refusal(answer)
        return Response(format_cosignatures(answer), media_type=_TEXT)

    @app.get("/{digest}/checkpoint")
    async def checkpoint(digest: str) -> Response:
        note = None
        if _DIGEST.fullmatch(digest):
            note = await to_thread.run_sync(witness.checkpoint, bytes.fromhex(digest), limiter=threads)
        if note is None:
            raise RefusedError("no checkpoint was cosigned for this log", code="unknown_origin")
        return Response(note, media_type=_TEXT)

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type=_TEXT)

    return web.guard_requests(app, limits)


def _refusal(refusal: Refuse) -> Response:
    if refusal.known_size is not None:
        # Exactly this type, without the charset that a text/ type is given by default.
        return Response(format_conflict(refusal.known_size), refusal.status, {"content-type": SIZE_TYPE})
    return web.problem(refusal.status, refusal.code, refusal.detail)


def serve(witness: Witness, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Answer for `witness` until SIGTERM or SIGINT."""
    web.serve(make_app(witness), host, port, LIMITS, announce)
