"""The HTTP interface of a witness. C2SP tlog-witness.

add-checkpoint, which is nearly all that a witness is asked, is a plain ASGI callable; the rest is FastAPI's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, Lock, to_thread
from fastapi import FastAPI, Request, Response

from tlog import web
from tlog.ascii import encode_base64
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError
from witness.commit import GroupCommit
from witness.decide import Refuse
from witness.metrics import WitnessMetrics
from witness.service import Answer, Witness
from witness.store import Store
from witness.wire import MAX_BODY_BYTES, SIZE_TYPE, format_conflict, format_cosignatures, origin_digest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tlog.listener import Server

# Idle connections cost little, and must not keep a log out; whoever sends nothing is dropped soon.
LIMITS = web.Limits(body_bytes=MAX_BODY_BYTES, header_seconds=5.0, connections=12_000)
MAX_THREADS = 8
LIST_SECONDS = 10.0  # how long one list of logs stands, so that asking for it costs nothing
ADD_CHECKPOINT = "/add-checkpoint"

_TEXT = "text/plain; charset=utf-8"
_DIGEST = re.compile("[0-9a-f]{64}")
# A damaged database is our fault: a 422 would tell the log that it forked.
_STATUSES = {"unknown_origin": 404, "not_offered": 404, "too_many_requests": 429, "state_lost": 500}


def make_app(
    witness: Witness,
    limits: web.Limits = LIMITS,
    store: Store | None = None,
    metrics: WitnessMetrics | None = None,
) -> ASGIApp:
    """The application that answers for `witness`; submission and monitoring share one prefix.

    With `store` it lists the logs, and is ready only while the store can be written.
    """
    app = FastAPI(title="Muniment witness", openapi_url=None, redirect_slashes=False)
    web.answer_with_problems(app, _STATUSES)
    web.add_health(app, {"store": store.check_writable} if store else {})
    _add_calls(app, witness, metrics)
    if store:
        _add_list(app, store)
    run = metrics.timed(witness.add_checkpoints) if metrics else witness.add_checkpoints
    hot = _hot_route(app, GroupCommit(run), metrics)
    return web.guard_requests(hot, limits)


def _hot_route(app: ASGIApp, commit: GroupCommit[Answer | Error], metrics: WitnessMetrics | None) -> ASGIApp:
    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != ADD_CHECKPOINT or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        message = await receive()  # whole, as the guard around this holds it
        answer = await commit.submit(message["body"])
        status, code, media_type, body, headers = _answered(answer)
        if metrics:
            metrics.answered("add-checkpoint", status, code)
        start: list[tuple[bytes, bytes]] = [
            (b"content-type", media_type.encode("ascii")),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ]
        await send({"type": "http.response.start", "status": status, "headers": start})
        await send({"type": "http.response.body", "body": body})

    return route


_Parts = tuple[int, str, str, bytes, Sequence[tuple[bytes, bytes]]]


def _answered(answer: Answer | Error) -> _Parts:
    """Status, code, media type, body and further headers of an answer."""
    if isinstance(answer, tuple):
        return 200, "", _TEXT, format_cosignatures(answer), ()
    if isinstance(answer, Refuse):
        if answer.known_size is not None:
            # Exactly this type, without the charset that a text/ type is given by default.
            return answer.status, answer.code, SIZE_TYPE, format_conflict(answer.known_size), ()
        return _problem(answer.status, answer.code, answer.detail)
    kinds = ((MalformedError, 400), (RefusedError, 403), (UnavailableError, 503))
    status = _STATUSES.get(answer.code) or next((s for kind, s in kinds if isinstance(answer, kind)), 500)
    wait = answer.fields.get("retry_after_seconds", 1)
    headers = [(b"retry-after", b"%d" % wait)] if status in (429, 503) and isinstance(wait, int) else []
    return _problem(status, answer.code, answer.message, headers)


def _problem(status: int, code: str, detail: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> _Parts:
    media_type, body = web.json_problem(web.Problem(status, code, detail))
    return status, code, media_type, body, headers


def _response(answer: Answer) -> Response:
    status, _, media_type, body, _ = _answered(answer)
    return Response(body, status, {"content-type": media_type})


def _add_calls(app: FastAPI, witness: Witness, metrics: WitnessMetrics | None) -> None:
    threads = CapacityLimiter(MAX_THREADS)

    # Never reached by a POST, which the route above takes; it makes other methods a 405.
    @app.post(ADD_CHECKPOINT)
    async def add_checkpoint(request: Request) -> Response:
        return _response(await to_thread.run_sync(witness.add_checkpoint, await request.body()))

    @app.post("/sign-subtree")
    async def sign_subtree(request: Request) -> Response:
        body = await request.body()
        answer = await to_thread.run_sync(witness.sign_subtree, body, limiter=threads)
        if metrics:
            refused = isinstance(answer, Refuse)
            metrics.answered("sign-subtree", answer.status if refused else 200)  # type: ignore[union-attr]
        return _response(answer)

    @app.get("/{digest}/checkpoint")
    async def checkpoint(digest: str) -> Response:
        note = None
        if _DIGEST.fullmatch(digest):
            note = await to_thread.run_sync(witness.checkpoint, bytes.fromhex(digest), limiter=threads)
        if note is None:
            raise RefusedError("no checkpoint was cosigned for this log", code="unknown_origin")
        return Response(note, media_type=_TEXT)


def _add_list(app: FastAPI, store: Store) -> None:
    mutex = Lock()
    said: tuple[float, bytes] | None = None

    @app.get("/logs")
    async def logs() -> Response:
        nonlocal said
        async with mutex:
            if said is None or time.monotonic() - said[0] >= LIST_SECONDS:
                said = (time.monotonic(), await to_thread.run_sync(_describe_logs, store))
        return Response(said[1], media_type="application/json")


def _describe_logs(store: Store) -> bytes:
    logs: list[dict[str, Any]] = []
    for log in store.logs():
        if log.keys:
            head = log.cosigned.head if log.cosigned else None
            logs.append(
                {
                    "origin": log.origin,
                    "digest": origin_digest(log.origin).hex(),
                    "vkeys": [key.vkey for key in log.keys],
                    "size": head.size if head else None,
                    "root": encode_base64(head.root) if head else None,
                    "time": log.cosigned.time if log.cosigned else None,
                }
            )
    document = {"name": store.marker.name, "vkeys": store.marker.vkeys, "logs": logs}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def serve(
    witness: Witness,
    host: str,
    port: int,
    announce: Callable[[str], None],
    store: Store | None = None,
    metrics: WitnessMetrics | None = None,
    beside: Sequence[Server] = (),
) -> None:
    """Answer for `witness` until SIGTERM or SIGINT."""
    app = make_app(witness, LIMITS, store, metrics)
    if metrics:
        app = web.count_requests(app, metrics)
    web.serve(app, host, port, LIMITS, announce, beside=beside)
