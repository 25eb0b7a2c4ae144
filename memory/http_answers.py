"""What an operation came to, as an HTTP answer: status, headers, and the very JSON of every other surface.

A write that was refused is not a 200, and one that is held is not a 201: who looks at nothing but the status is not
told that something is served which is not.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, Final

from memory.http_auth import challenge
from memory.http_route import Route
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.problems import Problem, json_problem

JSON: Final = "application/json"
OUTCOMES: Final[Mapping[str, int]] = {
    "stored": 201,
    "superseded": 201,
    "history": 201,
    "conflict": 201,
    "agreed": 200,
    "held": 202,
    "refused": 409,
}
STATUSES: Final[Mapping[str, int]] = {
    "unauthorized": 401,
    "forbidden": 403,
    "wrong_host": 421,
    "unknown_id": 404,
    "unknown_tenant": 404,
    "nothing_matched": 404,
    "erased": 410,
    "unsupported_media_type": 415,
    "idempotency_conflict": 422,
    "too_many_requests": 429,
    "pending": 409,
}
_KINDS: Final[tuple[tuple[type[Error], int], ...]] = (
    (MalformedError, 400),
    (RefusedError, 409),
    (UnavailableError, 503),
    (VerificationError, 500),
)
PENDING_SECONDS: Final = 10
# Of this process alone, so that no log that an ETag is found in confirms a guess of what it was made of.
_ETAG_KEY: Final = os.urandom(32)


class HttpAnswer:
    """Status, headers and body; `code` is that of the problem, None for an answer.

    `outcome` is what metrics count it under.
    """

    __slots__ = ("body", "code", "headers", "media_type", "outcome", "status")

    def __init__(
        self,
        status: int,
        body: bytes,
        media_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
        outcome: str = "ok",
    ) -> None:
        self.status = status
        self.body = body
        self.media_type = media_type
        self.headers = dict(headers or {})
        self.code = code
        self.outcome = code or outcome


def answer_of(route: Route, answer: dict[str, Any], if_none_match: str | None) -> HttpAnswer:
    """What a route answers with; 304 without a body if the client has it already."""
    body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    if route.operation == "remember":
        return HttpAnswer(OUTCOMES[answer["outcome"]], body, outcome=answer["outcome"])
    if not route.is_single:
        return HttpAnswer(200, body)
    tag = f'"{hashlib.blake2b(body, key=_ETAG_KEY, digest_size=16).hexdigest()}"'
    if if_none_match is not None and _matches(if_none_match, tag):
        return HttpAnswer(304, b"", JSON, {"etag": tag})
    return HttpAnswer(200, body, JSON, {"etag": tag})


def problem_of(error: Error, metadata_url: str | None) -> HttpAnswer:
    """The problem that says what an error does, with what a client needs to go on."""
    status = status_of(error)
    wait = error.fields.get("retry_after_seconds", 1 if status in (429, 503) else None)
    if error.code == "pending":
        wait = PENDING_SECONDS
    headers = {"retry-after": str(math.ceil(wait))} if isinstance(wait, int | float) else {}
    media_type, body = json_problem(Problem(status, error.code, error.message))
    return HttpAnswer(status, body, media_type, {**headers, **challenge(error, metadata_url)}, error.code)


def status_of(error: Error) -> int:
    """The status of an error: by its code, else by its kind."""
    known = STATUSES.get(error.code)
    if known is not None:
        return known
    return next((status for kind, status in _KINDS if isinstance(error, kind)), 500)


def failure() -> HttpAnswer:
    """The answer to a fault of ours, which says nothing of what was being done."""
    detail = "the service failed; its own log says where. Nothing is known to be stored"
    media_type, body = json_problem(Problem(500, Error.default_code, detail))
    return HttpAnswer(500, body, media_type, code=Error.default_code)


def _matches(header: str, tag: str) -> bool:
    """Whether one of the tags in If-None-Match is this one; weakness does not matter there (RFC 9110, 13.1.2)."""
    given = [one.strip().removeprefix("W/") for one in header.split(",")]
    return tag in given or given == ["*"]
