"""The body of a request, read whole within bounds; of whom nobody knows, no more is held than a service can spare.

A body is held until it is complete, so that no application waits for a slow client. What many clients may have held at
a time is the service's memory: a caller whose token has not been looked at yet gets little of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope

    from tlog.listener import Limits

FREE_BYTES: Final = 64 * 1024
"""What is held of a body before it is asked whose it is."""
NOTHING_HERE: Final = "there is nothing at this path"
# A body over the limit is read on, and dropped, up to here: whoever still sends when the connection closes
# sees a reset instead of the 413.
_DISCARDED_BYTES: Final = 4 * 1024 * 1024

Admit = Callable[["Scope"], Awaitable["ASGIApp | None"]]
"""Whether a large body of this request is worth holding: None if it is, else what answers the request instead."""


class NotAdmittedError(Exception):
    """The request is from nobody whose large bodies are held; its body was read to the end, and dropped."""

    def __init__(self, answer: ASGIApp) -> None:
        super().__init__()
        self.answer = answer


async def read_body(
    scope: Scope, receive: Receive, limits: Limits, admit: Admit | None = None
) -> bytes | None:
    """The complete body, or None when the client has gone.

    HTTPException where the request is refused; NotAdmittedError where `admit` gave an answer.
    """
    if "\n" in scope["path"]:
        # Routes are expressions that end in $, which would take this for the path without it.
        raise HTTPException(404, NOTHING_HERE)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _gather(scope, receive, limits.body_bytes, admit)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limits.body_seconds:g} seconds") from None


async def _gather(scope: Scope, receive: Receive, limit: int, admit: Admit | None) -> bytes | None:
    too_large = HTTPException(413, f"the body may have at most {limit} bytes")
    most = limit + _DISCARDED_BYTES
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length", b"0")
    size = int(declared) if declared.isdigit() else 0
    if size > most or (size > limit and b"expect" in headers):
        raise too_large
    free, refusal = limit if admit is None else FREE_BYTES, None
    body, size = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > free and admit is not None:
            free, refusal = limit, await admit(scope)
            if refusal is not None:
                free, body = 0, bytearray()
                admit = None
        if size <= free:
            body += chunk
        complete = not message.get("more_body", False)
        if size > most or (complete and size > limit and refusal is None):
            raise too_large
        if complete:
            if refusal is not None:
                raise NotAdmittedError(refusal)
            return bytes(body)
