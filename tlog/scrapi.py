"""The HTTP resources of SCITT (draft-ietf-scitt-scrapi-11) over the service of a log.

    POST /entries                          register a signed statement: 201 with its receipt, or 202
    GET  /entries/{entry_id}               200 with a fresh receipt, 204 while it is not public yet
    GET  /entries/{entry_id}/statement     the entry itself (not in the draft; others serve it too)
    GET  /.well-known/scitt-keys[/{kid}]   the keys of all receipts, those in use and the retired ones

What decides on a statement is its bytes: no header of the request is looked at, not its content type either.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

from anyio import CapacityLimiter, to_thread
from fastapi import Path, Request, Response

from tlog.cose_keys import encode_key_set
from tlog.errors import MalformedError, RefusedError
from tlog.locator import ENTRIES, KEYS, LOCATOR_PATTERN, entry_path, is_locator
from tlog.problems import CONCISE_TYPE, concise_problems
from tlog.service import Pending

if TYPE_CHECKING:
    from fastapi import FastAPI

    from tlog.service import LogService

COSE: Final = "application/cose"
CBOR: Final = "application/cbor"
KEYS_SECONDS: Final = 300
_POLL_SECONDS: Final = 0.1
_QUICK_BYTES: Final = 2048  # what is judged sooner than a thread is found for it
_HOST: Final = re.compile(r"[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](?::[0-9]{1,5})?")

_REJECTED: Final = (
    "no_policy",
    "issuer_unknown",
    "key_unknown",
    "signature",
    "payload_kind",
    "reserved_type",
    "too_large",
    "signed_twice",
)
# Errors of a registration are of the request, whatever kind they are inside.
STATUSES: Final = {
    **dict.fromkeys(_REJECTED, 400),
    "algorithm": 400,
    "frozen": 503,
    "entry_unknown": 404,
    "no_such_key": 404,
    "file_unknown": 404,
}
PROBLEMS: Final = concise_problems(
    {
        (400, "bad_input"): "Malformed request",
        (400, "algorithm"): "Bad Signature Algorithm",
        (400, "confirmation_missing"): "Confirmation Missing",
        (400, "payload_missing"): "Payload Missing",
        **{(400, code): "Rejected" for code in _REJECTED},
        (400, "invalid_locator"): "Invalid locator",
        (404, "no_such_key"): "No such key",
    }
)


def content(media_type: str, description: str, **headers: str) -> dict[str, Any]:
    """A response as OpenAPI describes it: a body of this type, with these headers."""
    binary = {"type": "string", "format": "binary"}
    text = {
        name.replace("_", "-"): {"description": what, "schema": {"type": "string"}}
        for name, what in headers.items()
    }
    described: dict[str, Any] = {"description": description}
    if media_type:
        described["content"] = {media_type: {"schema": binary}}
    return {**described, "headers": text} if text else described


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that any request may meet, and these."""
    texts = {400: "not what was expected, or refused", 404: "not here", 413: "too large"}
    found: dict[int | str, dict[str, Any]] = {
        status: content(CONCISE_TYPE, texts[status]) for status in statuses
    }
    wait = {"Retry_After": "seconds to wait at least"}
    common = {429: "more requests than a client is granted", 503: "try again later"}
    return {**found, **{status: content(CONCISE_TYPE, text, **wait) for status, text in common.items()}}


def add_scrapi(app: FastAPI, service: LogService, threads: CapacityLimiter) -> None:
    """Adds the resources to `app`; their work is done in `threads`."""
    _add_registration(app, service, threads)
    _add_entries(app, service, threads)
    _add_keys(app, service)


# Only described so: what does not match is answered by the resource itself.
Locator = Annotated[str, Path(json_schema_extra={"pattern": LOCATOR_PATTERN})]
Kid = Annotated[str, Path(json_schema_extra={"pattern": "^[A-Za-z0-9._~-]+$"})]
_LOCATION = {"Location": "where the receipt is, now or later"}
_RETRY = {"Retry_After": "seconds to wait at least"}


def _add_registration(app: FastAPI, service: LogService, threads: CapacityLimiter) -> None:
    held_back = 0

    async def is_public_in_time(index: int) -> bool:
        nonlocal held_back
        if service.is_published(index):
            return True
        if held_back >= service.settings.max_waiting:
            return False  # a burst of registrations must leave connections for those who read
        deadline = time.monotonic() + service.settings.wait_seconds
        held_back += 1
        try:
            while (left := deadline - time.monotonic()) > 0:
                await asyncio.sleep(min(left, _POLL_SECONDS))
                if service.is_published(index):
                    return True
            return False
        finally:
            held_back -= 1

    @app.post(
        ENTRIES,
        status_code=201,
        response_class=Response,
        operation_id="register",
        summary="Register a signed statement",
        responses={
            201: content(COSE, "registered; the body is its receipt", **_LOCATION),
            202: content("", "taken, durably; its receipt will be at Location", **_LOCATION, **_RETRY),
            **problems(400, 413),
        },
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {COSE: {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def register(request: Request) -> Response:
        body = await request.body()
        if len(body) <= _QUICK_BYTES:
            submitted = service.submit(body)
        else:
            submitted = await to_thread.run_sync(service.submit, body, limiter=threads)
        accepted = await asyncio.wrap_future(submitted)
        location = {"location": _base(request, service) + entry_path(accepted.entry_id)}
        if await is_public_in_time(accepted.index):
            receipt = await to_thread.run_sync(
                service.receipt, accepted.index, accepted.entry, limiter=threads
            )
            if isinstance(receipt, bytes):
                return Response(receipt, 201, location, media_type=COSE)
        return Response(None, 202, {**location, "retry-after": str(service.pending().retry_after_seconds)})


def _add_entries(app: FastAPI, service: LogService, threads: CapacityLimiter) -> None:
    async def answer(entry_id: str, part: str, request: Request) -> Response:
        if not is_locator(entry_id):
            raise MalformedError("Operation locator is not in a valid form", code="invalid_locator")
        read = service.find_receipt if part == "receipt" else service.find_entry
        found = await to_thread.run_sync(read, entry_id, limiter=threads)
        if found is None:
            raise RefusedError(
                f"Receipt with entry ID {entry_id} not known to this Transparency Service",
                code="entry_unknown",
            )
        if isinstance(found, Pending):
            headers = {"retry-after": str(found.retry_after_seconds), "cache-control": "no-store"}
            return Response(None, 204, headers)
        location = {"location": f"{_base(request, service)}{ENTRIES}/{entry_id}"} if part == "receipt" else {}
        return Response(found, 200, location, media_type=COSE)

    pending = content("", "taken, not public yet", **_RETRY, Cache_Control="no-store")

    @app.get(
        f"{ENTRIES}/{{entry_id}}",
        response_class=Response,
        operation_id="resolveReceipt",
        summary="The receipt of an entry, or that it is still to come",
        responses={
            200: content(COSE, "a fresh receipt", Location="where it is"),
            204: pending,
            **problems(400, 404),
        },
    )
    async def receipt(entry_id: Locator, request: Request) -> Response:
        return await answer(entry_id, "receipt", request)

    @app.get(
        f"{ENTRIES}/{{entry_id}}/statement",
        response_class=Response,
        operation_id="resolveStatement",
        summary="The entry itself: the signed statement without unprotected headers",
        responses={200: content(COSE, "the entry"), 204: pending, **problems(400, 404)},
    )
    async def statement(entry_id: Locator, request: Request) -> Response:
        return await answer(entry_id, "statement", request)


def _add_keys(app: FastAPI, service: LogService) -> None:
    headers = {"cache-control": f"public, max-age={KEYS_SECONDS}"}

    @app.get(
        KEYS,
        response_class=Response,
        operation_id="keys",
        summary="The keys of receipts (COSE_KeySet)",
        responses={200: content(CBOR, "an array of COSE_Key"), **problems()},
    )
    async def keys() -> Response:
        return Response(encode_key_set(service.keys.all()), 200, headers, media_type=CBOR)

    @app.get(
        f"{KEYS}/{{kid}}",
        response_class=Response,
        operation_id="key",
        summary="One key of receipts, by its kid in base64url",
        responses={200: content(CBOR, "a COSE_Key"), **problems(404)},
    )
    async def key(kid: Kid) -> Response:
        found = service.keys.find(kid)
        if found is None:
            raise RefusedError("No key could be found for this kid value", code="no_such_key")
        return Response(found.encode(), 200, headers, media_type=CBOR)


def _base(request: Request, service: LogService) -> str:
    """What a locator begins with, so that it is a URL: what the operator says, else what the client asked."""
    if service.settings.url is not None:
        return service.settings.url
    host = request.headers.get("host", "")
    return f"http://{host}" if _HOST.fullmatch(host) else ""


__all__ = ["PROBLEMS", "STATUSES", "add_scrapi", "content", "problems"]
