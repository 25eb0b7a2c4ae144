"""The work behind one request, in one of few threads: who asks, how often, what is asked for, and what it came to."""

from __future__ import annotations

import math
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from memory.batch import run_operation
from memory.http_answers import HttpAnswer, answer_of, failure, problem_of
from memory.http_guard import parse_body, parse_idempotency_key, parse_query
from memory.http_paging import MAX_PAGE, check_page_limit, page
from memory.mcp_cursor import Place, open_cursor, seal
from memory.principal import narrowed, require
from tlog.errors import Error, MalformedError, UnavailableError

if TYPE_CHECKING:
    from memory.http_auth import Authenticator
    from memory.http_route import Route
    from memory.model import Principal
    from memory.wiring import Home
    from tlog.rate_limit import RateLimiter

MAX_THREADS: Final = 8
DEFAULT_LIMIT: Final = 10
"""Of a list with the best first, as on every surface."""


@dataclass(frozen=True)
class Asked:
    """A request, as far as its answer depends on it. Names of headers are in lower case."""

    route: Route
    headers: Mapping[str, str]
    query: tuple[tuple[str, str], ...]
    body: bytes
    id: str | None
    metadata_url: str | None


@dataclass(frozen=True)
class Work:
    """Answers requests for one home. Any thread may ask it; `pool` bounds how many do at a time."""

    home: Home
    authenticator: Authenticator
    limiter: RateLimiter
    pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="muniment-http")
    )
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: T201
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> HttpAnswer:
        """The answer to a request, whatever happens."""
        try:
            return self._answer(asked)
        except Error as error:
            return problem_of(error, asked.metadata_url)
        except Exception as error:  # noqa: BLE001 -- the outermost loop of a request; its message may be content
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.say(
                f"muniment: internal error: {type(error).__name__} in {place.filename}, line {place.lineno}"
            )
            return failure()

    def _answer(self, asked: Asked) -> HttpAnswer:
        route = asked.route
        principal = self.authenticator.authenticate(asked.headers)
        self.admit(principal)
        require(principal, route.scope)
        arguments = _arguments(asked)
        limit, cursor = arguments.pop("limit", None), arguments.pop("cursor", None)
        if not route.has_pages:
            return self._whole(asked, principal, arguments if limit is None else arguments | {"limit": limit})
        if route.listed_by is None:
            return answer_of(route, self._ranked(route, principal, arguments, limit, cursor), None)
        count = check_page_limit(limit)
        answer = run_operation(self.home.memory(principal), route.operation, arguments)
        assert route.listed is not None
        given, following = page(answer[route.listed], route.listed_by, count, cursor)
        answer = {**answer, route.listed: given, "next": following}
        return answer_of(route, answer, asked.headers.get("if-none-match"))

    def _whole(self, asked: Asked, principal: Principal, arguments: dict[str, Any]) -> HttpAnswer:
        if asked.route.operation == "retention":
            # The rules of a home are for all its tenants; a sweep over all of them is for its owner, at the command.
            principal = narrowed(principal, principal.scopes - {"memory:purge"})
        answer = run_operation(self.home.memory(principal), asked.route.operation, arguments)
        if asked.route.operation != "manifest":
            answer = _with_addresses(answer)
        return answer_of(asked.route, answer, asked.headers.get("if-none-match"))

    def _ranked(
        self, route: Route, principal: Principal, arguments: dict[str, Any], limit: object, cursor: object
    ) -> dict[str, Any]:
        """A page of a list that has the best first, of the state of the memory at the first of its pages."""
        count = DEFAULT_LIMIT if limit is None else check_page_limit(limit)
        tag, caller = self.home.parts().vault.index_tag, (principal.tenant, principal.agent, principal.client)
        place, name = Place(), f"http {route.operation}"
        if cursor is not None:
            place = open_cursor(str(cursor), tag, caller, name, arguments)
        wanted = min(place.first + count, MAX_PAGE)
        times = {"as_of": place.as_of, "as_recorded": place.as_recorded}
        asked = {**arguments, **{key: time for key, time in times.items() if time is not None}}
        answer = run_operation(self.home.memory(principal), route.operation, {**asked, "limit": wanted})
        assert route.listed is not None
        following = None
        if answer["omitted"] and wanted < MAX_PAGE:
            rest = Place(wanted, None, answer["as_of"], answer["as_recorded"])
            following = seal(rest, tag, caller, name, arguments)
        return {**answer, route.listed: answer[route.listed][place.first :], "next": following}

    def admit(self, principal: Principal) -> None:
        """Returns if this caller may ask now; UnavailableError with code `too_many_requests` and a time if not."""
        with self._turn:
            wait = self.limiter.wait_seconds("\0".join((principal.tenant, principal.agent, principal.client)))
        if wait > 0:
            raise UnavailableError(
                "this caller sends more requests than it is granted; wait, then go on",
                code="too_many_requests",
                retry_after_seconds=math.ceil(wait),
            )


def _with_addresses(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with each manifest under its address here: where it lies on the server is nobody's there."""
    if "requests" in answer and "manifests" in answer:
        pairs = zip(answer["requests"], answer["manifests"], strict=True)
        answer = {**answer, "manifests": [_address(*pair) for pair in pairs]}
    if "request" in answer and "manifest" in answer:
        answer = {**answer, "manifest": _address(answer["request"], answer["manifest"])}
    return answer


def _address(request: str, file: str) -> str:
    return f"/v1/requests/{request}/manifest?number={PurePath(file).stem}"


def _arguments(asked: Asked) -> dict[str, Any]:
    """The arguments of the operation, from path, query, body and the one header that is one."""
    route = asked.route
    arguments = parse_query(asked.query, route.query)
    if route.body is None and asked.body:
        raise MalformedError("expected no body with this request")
    if route.body is not None:
        given = parse_body(asked.body, asked.headers.get("content-type", ""))
        unknown = not given.keys() <= route.body["properties"].keys()
        if unknown:
            names = ", ".join(sorted(route.body["properties"])) or "(none)"
            raise MalformedError(f"expected only the arguments {names}", code="unknown_argument")
        missing = [name for name in route.body["required"] if given.get(name) is None]
        if missing:
            raise MalformedError(f"expected the arguments {', '.join(missing)}")
        if any(value is None for value in given.values()):
            raise MalformedError("expected no null: leave out what is not said")
        if isinstance(given.get("limit"), str):
            raise MalformedError(
                "expected limit to be a number"
            )  # texts are for queries, which have nothing else
        arguments |= given
    if route.path_id is not None:
        if re.fullmatch(route.id_pattern, asked.id or "") is None:
            raise MalformedError("expected an id in the path, as an answer gave it")
        arguments[route.path_id] = asked.id
    return _with_key(asked, arguments)


def _with_key(asked: Asked, arguments: dict[str, Any]) -> dict[str, Any]:
    header = asked.headers.get("idempotency-key")
    if header is None:
        return arguments
    if not asked.route.takes_idempotency_key:
        raise MalformedError("expected no Idempotency-Key here: POST /v1/facts alone takes one")
    key = parse_idempotency_key(header)
    if arguments.setdefault("idempotency_key", key) != key:
        raise MalformedError("expected one idempotency key: header and body have different ones")
    return arguments
