"""Problem details: the one form in which a service says why it did not do what was asked.

JSON (RFC 9457) for services of ours, concise CBOR (RFC 9290) where SCRAPI asks for it. A service chooses one
format and uses it for every error, its framework's and its HTTP server's own ones included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from tlog import cbor
from tlog.errors import MalformedError

JSON_TYPE: Final = "application/problem+json"
CONCISE_TYPE: Final = "application/concise-problem-details+cbor"
MAX_PROBLEM_BYTES: Final = 1 << 16

# RFC 9290, 2: standard problem detail entries.
TITLE: Final = -1
DETAIL: Final = -2
INSTANCE: Final = -3
RESPONSE_CODE: Final = -4
_LANGUAGE_TAGGED: Final = 38


@dataclass(frozen=True)
class Problem:
    """What went wrong: `code` is the short name that clients of ours act on, `detail` a sentence for people."""

    status: int
    code: str
    detail: str
    instance: str | None = None

    @property
    def phrase(self) -> str:
        """The status in words."""
        return HTTPStatus(self.status).phrase


ProblemFormat = Callable[[Problem], tuple[str, bytes]]
"""Returns the media type and the body of a problem."""


def json_problem(problem: Problem) -> tuple[str, bytes]:
    """The problem in JSON (RFC 9457), with its code as an extension member."""
    document = {
        "type": "about:blank",
        "title": problem.phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
    }
    if problem.instance is not None:
        document["instance"] = problem.instance
    return JSON_TYPE, json.dumps(document, ensure_ascii=False).encode()


def concise_problems(titles: Mapping[tuple[int, str], str]) -> ProblemFormat:
    """The format of problems in CBOR (RFC 9290).

    `titles` gives a status and code the title that clients know it by; the title of others is the phrase of
    their status.
    """

    def concise_problem(problem: Problem) -> tuple[str, bytes]:
        members: dict[int, object] = {
            TITLE: titles.get((problem.status, problem.code), problem.phrase),
            DETAIL: problem.detail,
        }
        if problem.instance is not None:
            members[INSTANCE] = problem.instance
        return CONCISE_TYPE, cbor.encode(members)

    return concise_problem


@dataclass(frozen=True)
class ConciseProblem:
    """What a concise problem of any service says, as far as it says it."""

    title: str | None
    detail: str | None


def parse_concise_problem(data: bytes) -> ConciseProblem:
    """Title and detail of a problem in CBOR. Raises MalformedError; what is not known is not looked at."""
    members = cbor.decode(data, max_bytes=MAX_PROBLEM_BYTES)
    if not isinstance(members, dict):
        raise MalformedError("problem details: expected a map")
    title, detail = members.get(TITLE), members.get(DETAIL)
    return ConciseProblem(
        title if isinstance(title, str) else None, detail if isinstance(detail, str) else None
    )
