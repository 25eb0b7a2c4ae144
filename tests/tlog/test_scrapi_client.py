"""The SCRAPI client against a simulated service that answers as told, and over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tlog import cose
from tlog.cose import encode_key_set, make_signer
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.merkle import leaf_hash
from tlog.problems import CONCISE_TYPE, Problem, concise_problems
from tlog.receipt import Inclusion, sign_receipt
from tlog.scrapi_client import (
    MAX_BODY_BYTES,
    MAX_PAUSE_SECONDS,
    Pauses,
    Reply,
    ScrapiClient,
    retry_after_seconds,
)
from tlog.statement import sign_statement

ISSUER = "https://issuer.example"
SERVICE = "service.example"


def ed25519_signer(seed: int) -> cose.PrivateKeySigner:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


SIGNER, RECEIPTS, STRANGER = map(ed25519_signer, (1, 2, 3))
ENTRY = sign_statement(SIGNER, ISSUER, "subject", b"\x07" * 32)


def receipt(entry: bytes = ENTRY, signer: cose.PrivateKeySigner = RECEIPTS) -> bytes:
    return sign_receipt(signer, SERVICE, "subject", Inclusion(0, 1, leaf_hash(entry), ()), None)


def problem(status: int, detail: str = "why", **headers: str) -> Reply:
    media_type, body = concise_problems({})(Problem(status, "x", detail))
    return Reply(status, {"content-type": media_type, **headers}, body)


PENDING = Reply(202, {"location": "/entries/abc", "retry-after": "3"})
RUNNING = Reply(204, {"retry-after": "2"})
DONE = Reply(200, {"content-type": "application/cose"}, receipt())


class Service:
    """Answers one after the other, the last for good; remembers what it was asked and how long it waited."""

    def __init__(self, *replies: Reply | Error) -> None:
        self._replies = list(replies)
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.slept: list[float] = []
        self.now = 1000.0

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        self.asked.append((method, path))
        self.bodies.append(body)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, Error):
            raise reply
        return reply

    def client(self) -> ScrapiClient:
        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.now += seconds

        return ScrapiClient(self, (RECEIPTS.key,), Pauses(lambda: self.now, sleep, lambda: 1.0))


def test_registers_at_once() -> None:
    service = Service(Reply(201, {"location": "https://other.example/x/entries/abc"}, receipt()))
    found = service.client().register(ENTRY, 60)
    assert (found.entry, found.entry_id, found.receipt) == (ENTRY, "abc", receipt())
    assert (found.verified.index, found.verified.issuer) == (0, SERVICE)
    assert service.asked == [("POST", "/entries")]
    assert service.bodies == [ENTRY]
    assert service.slept == []


def test_polls_until_it_is_done_and_waits_as_long_as_it_is_asked_to() -> None:
    service = Service(PENDING, RUNNING, RUNNING, DONE)
    assert service.client().register(ENTRY, 60).receipt == receipt()
    assert service.asked == [("POST", "/entries")] + [("GET", "/entries/abc")] * 3
    assert service.slept == [3.0, 2.0, 2.0]


def test_without_an_advice_it_waits_longer_each_time() -> None:
    service = Service(Reply(202, {"location": "/entries/abc"}), *[Reply(204)] * 9, DONE)
    service.client().register(ENTRY, 3600)
    assert service.slept[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert max(service.slept) == MAX_PAUSE_SECONDS


def test_clients_do_not_wait_in_step() -> None:
    drawn = iter((0.0, 0.5, 1.0))
    pauses = Pauses(draw=lambda: next(drawn))
    assert [pauses.backoff(3) for _ in range(3)] == [2.0, 3.0, 4.0]
    assert Pauses().backoff(10**6) <= MAX_PAUSE_SECONDS


def test_a_service_that_says_zero_is_not_polled_without_a_pause() -> None:
    service = Service(
        Reply(202, {"location": "/entries/abc", "retry-after": "0"}), Reply(204, {"retry-after": "0"})
    )
    with pytest.raises(UnavailableError):
        service.client().register(ENTRY, 60)
    assert len(service.asked) < 100


@pytest.mark.parametrize(
    "trouble",
    [
        UnavailableError("no connection", code="unreachable"),
        problem(429, **{"retry-after": "7"}),
        problem(503, **{"retry-after": "7"}),
        Reply(502, {"content-type": "text/html"}, b"<html>bad gateway</html>"),
        Reply(500, {"content-type": CONCISE_TYPE}, b"\xff\xff not cbor"),
        Reply(599),
    ],
)
def test_what_may_pass_is_tried_again(trouble: Reply | Error) -> None:
    service = Service(trouble, PENDING, trouble, DONE)
    assert service.client().register(ENTRY, 60).receipt == receipt()
    assert [method for method, _ in service.asked] == ["POST", "POST", "GET", "GET"]
    waits = [7.0] if isinstance(trouble, Reply) and "retry-after" in trouble.headers else [0.5]
    assert service.slept[:1] == waits


def test_gives_up_at_the_deadline_and_says_what_was_in_the_way() -> None:
    service = Service(problem(503, **{"retry-after": "20"}))
    with pytest.raises(UnavailableError) as caught:
        service.client().register(ENTRY, 50)
    assert (caught.value.code, caught.value.fields["retry_after_seconds"]) == ("late", 20.0)
    assert "503" in caught.value.message
    assert service.slept == [20.0, 20.0]
    assert service.now <= 1050


def test_a_service_cannot_make_it_wait_beyond_the_deadline() -> None:
    service = Service(Reply(202, {"location": "/entries/abc", "retry-after": "9" * 30}))
    with pytest.raises(UnavailableError):
        service.client().register(ENTRY, 60)
    service = Service(Reply(202, {"location": "/entries/abc", "retry-after": "86400"}))
    with pytest.raises(UnavailableError):
        service.client().register(ENTRY, 60)
    assert service.slept == []


def test_a_refusal_carries_the_services_own_words() -> None:
    service = Service(problem(400, "Signed Statement not accepted"))
    with pytest.raises(RefusedError) as caught:
        service.client().register(ENTRY, 60)
    assert caught.value.fields == {
        "status": 400,
        "title": "Bad Request",
        "detail": "Signed Statement not accepted",
    }
    # They may be anything, so the message does not repeat them.
    assert "accepted" not in caught.value.message
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(418),
        Reply(404, {"content-type": "text/html"}, b"<html>"),
        Reply(451, {"content-type": CONCISE_TYPE}, b"\xff\xff not cbor"),
        Reply(400, {"content-type": CONCISE_TYPE}, b"\x80"),
        Reply(499, {"content-type": CONCISE_TYPE + "; charset=utf-8"}, b""),
    ],
)
def test_survives_unknown_statuses_and_bodies(reply: Reply) -> None:
    for service in (Service(reply), Service(PENDING, reply)):
        with pytest.raises(RefusedError) as caught:
            service.client().register(ENTRY, 60)
        assert caught.value.fields == {"status": reply.status, "title": None, "detail": None}


@pytest.mark.parametrize("status", [100, 206, 226, 299, 300, 301, 307, 308, 399, 600, 999])
def test_a_status_that_says_nothing_is_an_error(status: int) -> None:
    reply = Reply(status, {"location": "https://evil.example/entries/abc"}, receipt())
    with pytest.raises(Error):
        Service(reply).client().register(ENTRY, 60)


def test_a_failed_registration_is_final() -> None:
    service = Service(PENDING, RUNNING, problem(404, "Registration failed"))
    with pytest.raises(RefusedError) as caught:
        service.client().register(ENTRY, 60)
    assert caught.value.fields["status"] == 404
    assert len(service.asked) == 3


@pytest.mark.parametrize("status", [302, 303])
def test_the_way_of_older_drafts_is_understood(status: int) -> None:
    first = Reply(status, {"location": "https://service.example/entries/abc?x#y"})
    service = Service(first, Reply(302, {"location": "/entries/abc"}), DONE)
    assert service.client().register(ENTRY, 60).entry_id == "abc"
    assert [path for _, path in service.asked[1:]] == ["/entries/abc"] * 2


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/",
        "/entries/",
        "/entries/a%2fb",
        "/entries/a b",
        "/entries/..",
        "http://[",
        "/entries/" + "x" * 200,
        "\xff",
    ],
)
def test_a_location_that_names_no_entry_is_refused(location: str) -> None:
    for first in (Reply(202, {"location": location}), Reply(201, {"location": location}, receipt())):
        with pytest.raises(VerificationError):
            Service(first).client().register(ENTRY, 60)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not a receipt",
        receipt(signer=STRANGER),
        receipt(entry=sign_statement(SIGNER, ISSUER, "subject", b"\x08" * 32)),
        receipt()[:-1] + bytes([receipt()[-1] ^ 1]),
        receipt() + b"\x00",
        b"x" * (1 << 18),
    ],
)
def test_a_receipt_that_does_not_verify_is_not_returned(body: bytes) -> None:
    for service in (
        Service(Reply(201, {"location": "/entries/abc"}, body)),
        Service(PENDING, Reply(200, {}, body)),
    ):
        with pytest.raises((VerificationError, MalformedError)):
            service.client().register(ENTRY, 60)


def test_what_is_no_statement_is_never_sent() -> None:
    service = Service(DONE)
    with pytest.raises(MalformedError):
        service.client().register(b"not a statement", 60)
    assert service.asked == []


def test_verifies_against_the_entry_and_not_what_was_sent() -> None:
    message = cose.decode_sign1(ENTRY)
    loose = cose.encode_sign1(message.protected, {99: 1}, message.payload, message.signature)
    found = Service(Reply(201, {"location": "/entries/abc"}, receipt())).client().register(loose, 60)
    assert found.entry == ENTRY


def test_shows_the_keys_that_a_service_claims() -> None:
    body = encode_key_set((RECEIPTS.key, STRANGER.key))
    assert Service(Reply(200, {}, body)).client().keys() == (RECEIPTS.key, STRANGER.key)
    with pytest.raises(MalformedError):
        Service(Reply(200, {}, b"<html>")).client().keys()
    with pytest.raises(RefusedError):
        Service(Reply(404)).client().keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None), ("0", 0.0), ("7", 7.0), ("-1", None), ("1.5", None), ("١", None), ("soon", None), ("9" * 30, None),
        ("99999999", 86_400.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("Fri, 01 Jan 2100 00:00:00 GMT", 86_400.0),
        ("Fri, 99 Jan 2100 00:00:00 GMT", None),
    ],
)  # fmt: skip
def test_reads_retry_after(text: str, expected: float | None) -> None:
    assert retry_after_seconds(Reply(503, {"retry-after": text})) == expected


# Over HTTP


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[BaseHTTPRequestHandler], None]], str]]:
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                answer(self)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def reply(status: int, headers: Mapping[str, str], body: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_registers_over_http(serve: Any) -> None:
    url = serve(reply(201, {"Location": "/entries/abc"}, receipt()))
    with ScrapiClient.from_url(url, (RECEIPTS.key,)) as client:
        assert client.register(ENTRY, 10).receipt == receipt()


def test_does_not_follow_redirects_and_bounds_what_it_reads(serve: Any) -> None:
    elsewhere = serve(reply(201, {"Location": "/entries/abc"}, receipt()))
    url = serve(reply(307, {"Location": elsewhere}, b""))
    with ScrapiClient.from_url(url, (RECEIPTS.key,)) as client, pytest.raises(VerificationError):
        client.submit(ENTRY)
    url = serve(reply(200, {"Location": "/entries/abc"}, b"x" * (MAX_BODY_BYTES + 1)))
    with ScrapiClient.from_url(url, (RECEIPTS.key,)) as client, pytest.raises(UnavailableError) as caught:
        client.submit(ENTRY)
    assert caught.value.code == "too_large"


def test_a_service_that_is_not_there_is_unavailable() -> None:
    with (
        ScrapiClient.from_url("http://127.0.0.1:9", (RECEIPTS.key,), 2.0) as client,
        pytest.raises(UnavailableError),
    ):
        client.submit(ENTRY)
    for url in ("ftp://x", "127.0.0.1", ""):
        with pytest.raises(MalformedError):
            ScrapiClient.from_url(url, ())
