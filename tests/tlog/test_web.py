from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, field_validator
from starlette.types import ASGIApp

from tlog import cbor, listener, web
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.problems import CONCISE_TYPE, concise_problems

LIMITS = web.Limits(
    body_bytes=1000, header_seconds=0.5, body_seconds=0.5, answer_seconds=0.5, idle_seconds=1, stop_seconds=1
)
SECRET = "a value that belongs to somebody"
PROBLEM = "application/problem+json"


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int
    word: str = ""

    @field_validator("word")
    @classmethod
    def short(cls, word: str) -> str:
        if len(word) > 5:
            raise ValueError(f"{word} is too long")
        return word


def make_app() -> ASGIApp:
    app = FastAPI(openapi_url=None)
    web.answer_with_problems(app, {"no_such_thing": 404})
    errors = {
        "malformed": MalformedError("expected better"),
        "refused": RefusedError("no"),
        "missing": RefusedError("not here", code="no_such_thing"),
        "unproved": VerificationError("does not hold"),
        "busy": UnavailableError("later"),
        "busy-for": UnavailableError("later", retry_after_seconds=7),
        "bug": ZeroDivisionError(SECRET),
    }

    @app.get("/raise/{name}")
    async def fail(name: str) -> Response:
        raise errors[name]

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        return Response(await request.body(), media_type="application/octet-stream")

    @app.post("/item")
    async def item(item: Item) -> Response:
        return Response(str(item.number))

    @app.get("/slow/{milliseconds}")
    async def slow(milliseconds: int) -> Response:
        await anyio.sleep(milliseconds / 1000)
        return Response("done")

    @app.get("/cached")
    async def cached() -> Response:
        return Response("tile", headers={"cache-control": "immutable"})

    @app.get("/stream")
    async def stream() -> Response:
        from starlette.responses import StreamingResponse

        async def parts() -> Any:
            for _ in range(4):
                await anyio.sleep(LIMITS.answer_seconds / 2)
                yield b"part"

        return StreamingResponse(parts())

    return web.guard_requests(app, LIMITS)


@contextlib.contextmanager
def running(
    app: ASGIApp, problems: web.ProblemFormat = web.json_problem, limits: web.Limits = LIMITS
) -> Iterator[str]:
    urls: queue.SimpleQueue[str] = queue.SimpleQueue()
    server = web.make_server(app, "127.0.0.1", 0, limits, urls.put, problems)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield urls.get(timeout=20)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(make_app()) as address:
        yield address


def assert_problem(response: httpx.Response, status: int, code: str) -> None:
    assert (response.status_code, response.headers["content-type"]) == (status, PROBLEM)
    document = response.json()
    assert (document["status"], document["code"]) == (status, code)
    assert set(document) == {"type", "title", "status", "code", "detail"}


# Problem details


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("malformed", 400, "bad_input"),
        ("refused", 403, "forbidden"),
        ("missing", 404, "no_such_thing"),
        ("unproved", 422, "not_verified"),
        ("busy", 503, "busy"),
        ("bug", 500, "internal"),
    ],
)
def test_each_error_is_a_problem(url: str, name: str, status: int, code: str) -> None:
    response = httpx.get(f"{url}/raise/{name}")
    assert_problem(response, status, code)
    assert SECRET not in response.text


def test_what_may_be_retried_says_when(url: str) -> None:
    assert httpx.get(f"{url}/raise/busy").headers["retry-after"] == "1"
    assert httpx.get(f"{url}/raise/busy-for").headers["retry-after"] == "7"


def test_unknown_paths_and_methods_are_problems_and_name_the_allowed_ones(url: str) -> None:
    assert_problem(httpx.get(f"{url}/nothing"), 404, "not_found")
    response = httpx.get(f"{url}/echo")
    assert_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"number": SECRET}, "body.number: int_parsing"),
        ({"number": 1, SECRET: 2}, "body: extra_forbidden"),
        ({"number": 1, "word": SECRET}, "body.word: value_error"),
        ({}, "body.number: missing"),
    ],
)
def test_invalid_input_is_described_and_never_repeated(url: str, body: dict[str, Any], where: str) -> None:
    response = httpx.post(f"{url}/item", json=body)
    assert_problem(response, 400, "bad_input")
    assert response.json()["detail"] == where
    assert SECRET not in response.text


def test_garbage_instead_of_http_is_a_problem_too(url: str) -> None:
    answer = talk(url, b"garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 400


# Limits


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def talk(url: str, *parts: bytes, pause: float = 0.0, timeout: float = 5.0) -> bytes:
    """Everything that the server says to these bytes, sent with a pause after each, until it closes."""
    with socket.create_connection(address(url), timeout) as connection:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(65536):
                answer += chunk
        return answer


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_takes_a_body_up_to_the_limit(url: str, size: int) -> None:
    assert httpx.post(f"{url}/echo", content=b"x" * size).content == b"x" * size
    assert httpx.post(f"{url}/echo", content=iter([b"x"] * size)).content == b"x" * size


@pytest.mark.parametrize("size", [1001, 200_000, 3_000_000])
def test_refuses_a_larger_body_declared_or_not(url: str, size: int) -> None:
    assert_problem(httpx.post(f"{url}/echo", content=b"x" * size), 413, "bad_input")
    chunks = (b"x" * min(1000, size - at) for at in range(0, size, 1000))
    assert_problem(httpx.post(f"{url}/echo", content=chunks), 413, "bad_input")


def test_refuses_an_absurd_body_without_reading_it(url: str) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n"
    assert talk(url, head).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_asks_first_is_not_told_to_go_on(url: str) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    assert talk(url, head % 1001).startswith(b"HTTP/1.1 413 ")
    assert talk(url, head % 3 + b"abc", b"").startswith(b"HTTP/1.1 100 ")


def test_a_large_body_is_held_for_those_who_are_admitted() -> None:
    """What comes of the others is read to its end, so that they see their answer, and dropped."""
    limits = dataclasses.replace(LIMITS, body_bytes=300_000, body_seconds=20.0)
    asked: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await web.problem(200, "got", str(len(message["body"])))(scope, receive, send)

    async def admit(scope: Any) -> Any:
        known = (b"authorization", b"me") in scope["headers"]
        asked.append(known)
        return None if known else web.problem(401, "unauthorized", "who are you?")

    def ask(size: int, **headers: str) -> tuple[int, str, int]:
        asked.clear()
        with httpx.Client(trust_env=False, headers=headers) as client:
            answer = client.post(f"{url}/", content=b"x" * size)
            chunks = (b"x" * 10_000 for _ in range(size // 10_000))
            again = client.post(f"{url}/", content=chunks)
        assert (answer.status_code, answer.json()) == (again.status_code, again.json())
        return answer.status_code, answer.json()["detail"], len(asked)

    with running(web.guard_requests(app, limits, admit=admit), limits=limits) as url:
        assert ask(60_000) == (200, "60000", 0)
        assert ask(70_000) == (401, "who are you?", 2)
        assert ask(3_000_000) == (401, "who are you?", 2)
        assert ask(70_000, authorization="me") == (200, "70000", 2)
        assert ask(300_000, authorization="me") == (200, "300000", 2)
        assert ask(310_000, authorization="me")[0] == 413


def test_an_endless_body_ends(url: str) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = talk(url, head, *[chunk] * 100)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 ")
    assert httpx.post(f"{url}/echo", content=b"still there").content == b"still there"


def test_a_body_that_drips_is_a_408(url: str) -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n"
    began = time.monotonic()
    assert talk(url, head, *[b"x"] * 20, pause=0.1).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("parts", [[], [b"GET /echo HT"], [b"GET / HTTP/1.1\r\n", *[b"x: y\r\n"] * 20]])
def test_headers_that_drip_lose_the_connection(url: str, parts: list[bytes]) -> None:
    began = time.monotonic()
    assert talk(url, *parts, pause=0.1) == b""
    assert time.monotonic() - began < 5


def test_headers_of_a_second_request_that_drip_lose_the_connection(url: str) -> None:
    first = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
    answer = talk(url, first, b"GET / HTTP/1.1\r\n", *[b"x: y\r\n"] * 20, pause=0.1)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.endswith(b"hi")


def test_a_path_with_a_line_feed_is_not_the_one_without(url: str) -> None:
    assert_problem(httpx.get(f"{url}/cached%0a"), 404, "not_found")


def test_oversized_headers_are_refused(url: str) -> None:
    answer = talk(url, b"GET / HTTP/1.1\r\nx: " + b"y" * web.MAX_HEADER_BYTES * 2 + b"\r\n\r\n")
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("names", [1, 100])
def test_headers_that_come_whole_in_one_read_are_bounded_all_the_same(url: str, names: int) -> None:
    """A read has up to 256 KiB, so headers can be complete before anybody has counted them."""

    def head(size: int) -> bytes:
        lines = b"".join(b"x%d: %s\r\n" % (n, b"y" * (size // names)) for n in range(names))
        return b"GET /cached HTTP/1.1\r\nhost: x\r\n" + lines + b"connection: close\r\n\r\n"

    assert talk(url, head(web.MAX_HEADER_BYTES // 2)).startswith(b"HTTP/1.1 200 ")
    for size in (web.MAX_HEADER_BYTES, 100_000):
        answer = talk(url, head(size))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
        assert b"200 OK" not in answer


def test_garbage_does_not_fill_the_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    listener._SELDOM_SAID._said.clear()
    for _ in range(20):
        assert talk(url, b"garbage\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    logging.getLogger("uvicorn.error").error("an error is always said")
    assert "an error is always said" in caplog.text


def test_an_answer_that_takes_too_long_is_a_503(url: str) -> None:
    response = httpx.get(f"{url}/slow/3000")
    assert_problem(response, 503, "busy")
    assert response.headers["retry-after"] == "1"
    assert httpx.get(f"{url}/slow/1").text == "done"


def test_a_stream_may_last_longer_than_an_answer_may_take(url: str) -> None:
    assert httpx.get(f"{url}/stream").text == "part" * 4


def test_nothing_is_cached_or_guessed_unless_the_service_says_so(url: str) -> None:
    headers = httpx.post(f"{url}/echo", content=b"hi").headers
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert httpx.get(f"{url}/cached").headers["cache-control"] == "immutable"
    assert "server" not in headers


def test_requests_of_one_connection_do_not_mix(url: str) -> None:
    one = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n"
    answer = talk(url, one + b"one" + one + b"two", pause=0.3)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b"one") < answer.index(b"two")


def test_answers_on_a_kept_connection_do_not_wait_for_acknowledgements(url: str) -> None:
    with httpx.Client() as client:
        seconds = [client.post(f"{url}/echo", content=b"hi").elapsed.total_seconds() for _ in range(20)]
    assert min(seconds[1:]) < 0.03  # a delayed acknowledgement takes 0.04


# Rates


@contextlib.contextmanager
def limited(rate: web.Rate, **options: Any) -> Iterator[str]:
    app = FastAPI(openapi_url=None)
    web.answer_with_problems(app)
    web.add_health(app, {})

    @app.get("/one")
    async def one() -> Response:
        return Response("one")

    @app.post("/refused")
    async def refused(request: Request) -> Response:
        await request.body()
        raise MalformedError("expected better")

    with running(web.guard_requests(web.limit_rate(app, web.RateLimiter(rate), **options), LIMITS)) as url:
        yield url


def test_beyond_its_rate_a_client_is_told_when_to_come_back() -> None:
    with limited(web.Rate(0.5, 3)) as url:
        answers = [httpx.get(f"{url}/one") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert_problem(answers[-1], 429, "too_many_requests")
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 2
        # Whoever watches the service is no client of it, and what is posted is read before it is refused.
        assert httpx.get(f"{url}/healthz").status_code == httpx.get(f"{url}/readyz").status_code == 200
        assert httpx.post(f"{url}/refused", content=b"x" * 1000).status_code == 429


def test_clients_are_told_apart_as_the_service_says() -> None:
    with limited(web.Rate(0.01, 1), client_of=web.forwarded_for) as url:
        by = [
            httpx.get(f"{url}/one", headers={"x-forwarded-for": who}).status_code
            for who in ("192.0.2.1", "192.0.2.2", "192.0.2.1")
        ]
        assert by == [200, 200, 429]


def test_a_refused_post_counts_for_more_where_that_is_asked_for() -> None:
    with limited(web.Rate(0.01, 6), refusal_cost=4.0) as url:
        statuses = [httpx.post(f"{url}/refused").status_code for _ in range(3)]
        assert statuses == [400, 400, 429]
    with limited(web.Rate(0.01, 6)) as url:
        assert [httpx.post(f"{url}/refused").status_code for _ in range(3)] == [400] * 3


# Health and metrics


def test_readiness_names_what_fails_and_says_it_for_a_while() -> None:
    app = FastAPI(openapi_url=None)
    web.answer_with_problems(app)
    failing: list[str] = []
    asked: list[str] = []

    def check(name: str) -> Any:
        def run() -> None:
            asked.append(name)
            if name in failing:
                raise UnavailableError(f"{name} is broken")

        return run

    web.add_health(app, {"disk": check("disk"), "keys": check("keys")})
    with running(web.guard_requests(app, LIMITS)) as url:
        assert httpx.get(f"{url}/readyz").text == "ready\n"
        failing += ["keys"]
        assert httpx.get(f"{url}/readyz").text == "ready\n"  # still what was said just now
        assert asked == ["disk", "keys"]
        time.sleep(web.READY_SECONDS)
        response = httpx.get(f"{url}/readyz")
        assert_problem(response, 503, "not_ready")
        assert response.json()["detail"] == "keys: keys is broken"
        assert httpx.get(f"{url}/healthz").text == "ok\n"


def test_requests_are_counted_by_method_and_status() -> None:
    metrics = web.Metrics()
    with running(web.count_requests(make_app(), metrics)) as url:
        for path in ("cached", "nothing", "raise/bug"):
            httpx.get(f"{url}/{path}")
        httpx.request("MADEUP", f"{url}/cached")
        httpx.post(f"{url}/echo", content=b"x" * 2000)
    text = metrics.text()
    for method, status in (("GET", 200), ("GET", 404), ("GET", 500), ("other", 405), ("POST", 413)):
        assert f'muniment_http_requests_total{{method="{method}",status="{status}"}} 1\n' in text
    assert 'muniment_http_request_seconds_count{method="GET"} 3\n' in text


def test_metrics_have_an_address_of_their_own_and_nothing_else_there() -> None:
    metrics = web.Metrics()
    metrics.counter("a_total", "A.").add()
    server = web.make_metrics_server(metrics, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        response = httpx.get(f"{server.url}/metrics")
        assert response.text.endswith("a_total 1\n")
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert_problem(httpx.get(f"{server.url}/checkpoint"), 404, "not_found")
        assert httpx.post(f"{server.url}/metrics").headers["allow"] == "GET, HEAD"
    finally:
        server.should_exit = True
        thread.join()


def test_head_is_answered_as_get_without_a_body() -> None:
    with running(web.answer_head(make_app())) as url:
        response = httpx.head(f"{url}/cached")
        assert (response.status_code, response.content) == (200, b"")
        assert response.headers["content-length"] == str(len("tile"))
        assert httpx.head(f"{url}/nothing").status_code == 404


# Another form of problems


@pytest.fixture(scope="module")
def concise_url() -> Iterator[str]:
    """An application whose problems are CBOR, those of its framework and its server too."""
    concise = concise_problems({(400, "bad_input"): "Malformed request"})
    app = FastAPI(openapi_url=None)
    web.answer_with_problems(app, problems=concise)

    @app.get("/raise/{name}")
    async def fail(name: str) -> Response:
        raise {"malformed": MalformedError("expected better"), "bug": ZeroDivisionError(SECRET)}[name]

    @app.post("/item")
    async def item(item: Item) -> Response:
        return Response(str(item.number))

    @app.get("/slow")
    async def slow() -> Response:
        await anyio.sleep(3)
        return Response("done")

    with running(web.guard_requests(app, LIMITS, concise), concise) as address:
        yield address


def title_of(body: bytes) -> Any:
    problem = cbor.decode(body, max_bytes=1000)
    assert isinstance(problem, dict)
    assert isinstance(problem[-2], str)
    return problem[-1]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "title"),
    [
        ("GET", "/raise/malformed", b"", 400, "Malformed request"),
        ("GET", "/raise/bug", b"", 500, "Internal Server Error"),
        ("GET", "/nothing", b"", 404, "Not Found"),
        ("DELETE", "/item", b"", 405, "Method Not Allowed"),
        ("POST", "/item", b"{", 400, "Malformed request"),
        ("POST", "/item", b"x" * 2000, 413, None),
        ("GET", "/slow", b"", 503, "Service Unavailable"),
    ],
)
def test_every_problem_has_the_form_that_was_chosen(
    concise_url: str, method: str, path: str, body: bytes, status: int, title: str | None
) -> None:
    response = httpx.request(method, f"{concise_url}{path}", content=body)
    assert (response.status_code, response.headers["content-type"]) == (status, CONCISE_TYPE)
    assert title_of(response.content) == title or title is None


def test_what_the_server_itself_refuses_has_that_form_too(concise_url: str) -> None:
    for head, status in (
        (b"garbage\r\n\r\n", b"400"),
        (b"POST /item HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nx", b"408"),
    ):
        answer = talk(concise_url, head)
        assert answer.startswith(b"HTTP/1.1 " + status)
        headers, _, body = answer.partition(b"\r\n\r\n")
        assert CONCISE_TYPE.encode() in headers
        assert title_of(body)


def test_too_many_connections_are_told_so_in_that_form() -> None:
    concise = concise_problems({})
    limits = dataclasses.replace(LIMITS, connections=2, idle_seconds=20, header_seconds=20)
    with running(make_app(), concise, limits) as url, contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(socket.create_connection(address(url)))
        time.sleep(0.2)
        response = httpx.get(f"{url}/cached")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.headers["content-type"] == CONCISE_TYPE
        assert title_of(response.content) == "Service Unavailable"
    with running(make_app(), concise, limits) as url:
        assert [httpx.get(f"{url}/cached").status_code for _ in range(4)] == [200] * 4


# Addresses


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("203.0.113.7", False),
        ("no-such-host.invalid", False),
        ("", False),
    ],
)
def test_tells_what_other_machines_can_reach(host: str, loopback: bool) -> None:
    assert web.is_loopback(host) == loopback


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:443", ("::1", 443)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_reads_an_address(text: str, expected: tuple[str, int]) -> None:
    assert web.parse_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":", ":80", "host", "host:", "host:080", "host:-1", "host:65536", "host:1_0", "::1:80", "[::1]", "[::1]80",
     "[host]:80", "a b:80", "host:80\n", "http://host:80", "host:\u0668"],
)  # fmt: skip
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(MalformedError):
        web.parse_listen(text)


def test_an_address_in_use_is_unavailable(url: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        web.make_server(make_app(), *address(url), LIMITS)
    assert caught.value.code == "address_unavailable"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_an_address_of_another_machine_is_unavailable(host: str) -> None:
    with pytest.raises(UnavailableError):
        web.make_server(make_app(), host, 0, LIMITS)


# Stopping

SERVE = """
import asyncio, sys
from tlog import web
async def app(scope, receive, send):
    if scope["type"] == "http":
        await asyncio.sleep(float(scope["path"][1:]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
limits = web.Limits(stop_seconds=2)
web.serve(web.guard_requests(app, limits), "127.0.0.1", 0, limits, lambda url: print(url, flush=True))
print("after", flush=True)
"""


@pytest.fixture
def process() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    started = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert started.stdout is not None
    yield started.stdout.readline().strip(), started
    started.kill()
    started.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_request_under_way_finish(process: Any, number: int) -> None:
    url, started = process
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(httpx.get(f"{url}/0.8").text))
    asking.start()
    time.sleep(0.3)
    started.send_signal(number)
    out, errors = started.communicate(timeout=10)
    asking.join()
    assert answers == ["done"]
    assert (started.returncode, out, errors) == (0, "after\n", "")


def test_a_request_that_does_not_finish_does_not_stop_the_stop(process: Any) -> None:
    url, started = process
    statuses: list[int] = []

    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):
            statuses.append(httpx.get(f"{url}/20", timeout=30).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    host, _, port = url.removeprefix("http://").partition(":")
    with contextlib.ExitStack() as unfinished:
        for _ in range(5):
            sender = unfinished.enter_context(socket.create_connection((host, int(port))))
            sender.sendall(b"POST /0 HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\nbegun")
        time.sleep(0.3)
        started.terminate()
        out, errors = started.communicate(timeout=10)
    asking.join()
    # Who waits is told so, and a log that fills with tracebacks tells nothing.
    assert (started.returncode, out, statuses) == (0, "after\n", [503])
    assert len(errors.splitlines()) == 1
