"""The HTTP interface of a witness. C2SP tlog-witness.

add-checkpoint, which is nearly all that a witness is asked, goes by `witness.hot` where it comes in its usual
form, else by a plain ASGI callable; the rest is FastAPI's.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, Lock, to_thread
from fastapi import FastAPI, Request, Response

from tlog import web
from tlog.ascii import encode_base64
from tlog.errors import RefusedError
from witness import hot
from witness.answers import STATUSES, TEXT, HttpAnswer, bug_answer, http_answer
from witness.commit import GroupCommit
from witness.metrics import WitnessMetrics
from witness.service import Answer, Witness
from witness.store import Store
from witness.wire import MAX_BODY_BYTES, origin_digest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tlog.listener import Server

# Idle connections cost little, and must not keep a log out; whoever sends nothing is dropped soon.
LIMITS = web.Limits(body_bytes=MAX_BODY_BYTES, header_seconds=5.0, connections=12_000)
MAX_THREADS = 8
LIST_SECONDS = 10.0  # how long one list of logs stands, so that asking for it costs nothing

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class WitnessApp:
    """The application of a witness, and the batches that its add-checkpoint requests share."""

    app: ASGIApp
    commit: GroupCommit[HttpAnswer]


def make_app(witness: Witness, limits: web.Limits = LIMITS) -> ASGIApp:
    """The application that answers for `witness`; submission and monitoring share one prefix."""
    return make_witness_app(witness, limits).app


def make_witness_app(
    witness: Witness,
    limits: web.Limits = LIMITS,
    store: Store | None = None,
    metrics: WitnessMetrics | None = None,
) -> WitnessApp:
    """The application; with `store` it lists the logs, and is ready only while the store can be written."""
    app = FastAPI(title="Muniment witness", openapi_url=None, redirect_slashes=False)
    web.answer_with_problems(app, STATUSES)
    web.add_health(app, {"store": store.check_writable} if store else {})
    _add_calls(app, witness)
    if store:
        _add_list(app, store)

    def run(bodies: Sequence[bytes]) -> Sequence[HttpAnswer]:
        return [http_answer(answer) for answer in witness.add_checkpoints(bodies)]

    commit = GroupCommit(metrics.measured(run) if metrics else run, bug_answer())
    return WitnessApp(web.guard_requests(_route(app, commit), limits), commit)


def _route(app: ASGIApp, commit: GroupCommit[HttpAnswer]) -> ASGIApp:
    """add-checkpoint, where it did not go the short way; everything else is for `app`."""

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != hot.PATH or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        message = await receive()  # whole, as the guard around this holds it
        answer = await commit.submit(message["body"])
        start = {"type": "http.response.start", "status": answer.status, "headers": answer.all_headers()}
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})

    return route


def _add_calls(app: FastAPI, witness: Witness) -> None:
    threads = CapacityLimiter(MAX_THREADS)

    @app.post(hot.PATH)
    async def add_checkpoint(request: Request) -> Response:
        # Never reached, for the route around this takes each POST: it makes another method a 405.
        raise RefusedError("expected a POST")

    @app.post("/sign-subtree")
    async def sign_subtree(request: Request) -> Response:
        body = await request.body()
        answer: Answer = await to_thread.run_sync(witness.sign_subtree, body, limiter=threads)
        parts = http_answer(answer)
        return Response(parts.body, parts.status, media_type=parts.media_type)

    @app.get("/{digest}/checkpoint")
    async def checkpoint(digest: str) -> Response:
        note = None
        if _DIGEST.fullmatch(digest):
            note = await to_thread.run_sync(witness.checkpoint, bytes.fromhex(digest), limiter=threads)
        if note is None:
            raise RefusedError("no checkpoint was cosigned for this log", code="unknown_origin")
        return Response(note, media_type=TEXT)


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


def make_server(
    witness: Witness,
    host: str,
    port: int,
    announce: Callable[[str], None],
    store: Store | None = None,
    metrics: WitnessMetrics | None = None,
) -> Server:
    """A server bound to its address: `run()` blocks until `should_exit` is set."""
    made = make_witness_app(witness, LIMITS, store, metrics)
    app = metrics.count_requests(made.app) if metrics else made.app
    server = web.make_server(app, host, port, LIMITS, announce)
    put = hot.counted(made.commit.put, metrics.count_hot) if metrics else made.commit.put
    server.config.http = hot.lay_over(server.config.http, put, LIMITS)
    return server


def serve(witness: Witness, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Answer for `witness` until SIGTERM or SIGINT."""
    run(make_server(witness, host, port, announce))


def run(server: Server, beside: Sequence[Server] = ()) -> None:
    """Answer until SIGTERM or SIGINT, with the servers `beside` in threads meanwhile."""

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal again after a clean stop, to end the process by it: then it meets `stop`.
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGTERM, signal.SIGINT) if in_main_thread else ()
    previous = {number: signal.signal(number, stop) for number in signals}
    threads = [threading.Thread(target=one.run, daemon=True, name="muniment-beside") for one in beside]
    try:
        for thread in threads:
            thread.start()
        server.run()
    finally:
        for one in beside:
            one.should_exit = True
        for thread in threads:
            thread.join()
        for number, handler in previous.items():
            signal.signal(number, handler)
