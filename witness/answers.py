"""What a witness answers, as the parts of an HTTP response. C2SP tlog-witness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tlog.errors import Error, MalformedError, RefusedError, UnavailableError
from tlog.problems import Problem, json_problem
from witness.decide import Refuse
from witness.service import Answer
from witness.wire import SIZE_TYPE, format_conflict, format_cosignatures

TEXT: Final = "text/plain; charset=utf-8"

# A damaged database is our fault: a 422 would tell the log that it forked.
STATUSES: Final = {"unknown_origin": 404, "not_offered": 404, "too_many_requests": 429, "state_lost": 500}

_KINDS: Final = ((MalformedError, 400), (RefusedError, 403), (UnavailableError, 503))

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class HttpAnswer:
    """A response; `code` is the short name of a refusal."""

    status: int
    code: str
    media_type: str
    body: bytes
    headers: Headers = ()

    def all_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers, those that every answer has included."""
        return [
            (b"content-type", self.media_type.encode("ascii")),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]


def http_answer(answer: Answer | Error) -> HttpAnswer:
    """The response for what a witness returned or raised."""
    if isinstance(answer, tuple):
        return HttpAnswer(200, "", TEXT, format_cosignatures(answer))
    if isinstance(answer, Refuse):
        if answer.known_size is not None:
            # Exactly this type, without the charset that a text/ type is given by default.
            return HttpAnswer(answer.status, answer.code, SIZE_TYPE, format_conflict(answer.known_size))
        return problem_answer(answer.status, answer.code, answer.detail)
    status = STATUSES.get(answer.code) or next((s for kind, s in _KINDS if isinstance(answer, kind)), 500)
    wait = answer.fields.get("retry_after_seconds", 1)
    headers = [(b"retry-after", b"%d" % wait)] if status in (429, 503) and isinstance(wait, int) else []
    return problem_answer(status, answer.code, answer.message, headers)


def problem_answer(status: int, code: str, detail: str, headers: Headers = ()) -> HttpAnswer:
    """Problem details (RFC 9457)."""
    media_type, body = json_problem(Problem(status, code, detail))
    return HttpAnswer(status, code, media_type, body, headers)


def bug_answer() -> HttpAnswer:
    """The response where we failed; why stands in the service's own log."""
    return problem_answer(500, Error.default_code, "the service failed; its own log says why")
