"""SCRAPI over HTTP: what draft-ietf-scitt-scrapi-11 asks for, request by request."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from tlog import cbor, cose, server, web
from tlog.cose import CoseKey, decode_key, decode_key_set, make_signer, sign1, sign1_detached
from tlog.dedup import FileIndex
from tlog.log import Log, open_log
from tlog.metrics import Metrics
from tlog.note import SignatureType
from tlog.problems import CONCISE_TYPE
from tlog.publisher import Cadence
from tlog.receipt import Inclusion, make_transparent, parse_receipt, sign_receipt, verify_receipt
from tlog.receipt_keys import ReceiptKeys
from tlog.registration import Issuer, Registration
from tlog.service import Host, LogService, ServiceSettings
from tlog.staging import Head
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage

ORIGIN = "log.example/scrapi"
ISSUER = "https://issuer.example"
OWN = "urn:uuid:00000000-0000-4000-8000-000000000001"
HEADERS = {cose.CWT_CLAIMS: {cose.CWT_ISS: ISSUER, cose.CWT_SUB: "subject"}}


def ed25519_signer(seed: int) -> cose.PrivateKeySigner:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


SIGNER, STRANGER, OPERATOR, RECEIPTS, RETIRED = map(ed25519_signer, range(1, 6))
P256 = make_signer(ec.derive_private_key(7, ec.SECP256R1()))
RULES = Registration(1, (Issuer(ISSUER, SIGNER.key), Issuer(ISSUER, P256.key)), payload="any", own_issuer=OWN)
NEVER = Cadence(86_400.0, 86_400.0)
FAST = Cadence(0.05, 3600.0)
RATE = web.Rate(1e6, 10**6)


def statement(n: int, signer: cose.PrivateKeySigner = SIGNER) -> bytes:
    return sign_statement(signer, ISSUER, f"subject-{n}", hashlib.sha256(b"%d" % n).digest())


def entry_id(entry: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(entry).digest()).decode().rstrip("=")


@dataclass
class World:
    """A log that is served, and what a test does to it from elsewhere."""

    url: str
    folder: Path
    service: LogService
    open_log: Callable[[], Log]

    def post(self, body: bytes, **headers: str) -> httpx.Response:
        return httpx.post(f"{self.url}/entries", content=body, headers=headers, timeout=30)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=30)

    def publish(self) -> None:
        """Publishes as another process would, until the service sees it."""
        size = self.open_log().publish(10).size
        deadline = time.monotonic() + 10
        while not self.service.is_published(size - 1):
            assert time.monotonic() < deadline
            time.sleep(0.01)


Serve = Callable[..., contextlib.AbstractContextManager[World]]


@pytest.fixture
def serve(tmp_path: Path, seed_signer: Callable[[str, int, int], Any]) -> Serve:
    """Serves the log of the test's folder; several at once, and one after the other, serve the same log."""
    log_signer = seed_signer(ORIGIN, SignatureType.ED25519, 9)

    def open_one() -> Log:
        public, private = DirectoryStorage(tmp_path / "log"), DirectoryStorage(tmp_path / "state")
        return open_log(public, private, ORIGIN, (log_signer,))

    @contextlib.contextmanager
    def serving(
        rules: Registration | None = RULES,
        cadence: Cadence = NEVER,
        rate: web.Rate = RATE,
        signer: cose.PrivateKeySigner = RECEIPTS,
        retired: tuple[CoseKey, ...] = (),
        **settings: Any,
    ) -> Iterator[World]:
        log, metrics = open_one(), Metrics()
        settings = {"wait_seconds": 0.0, **settings}
        keys = ReceiptKeys(log.public, lambda: signer, retired)
        service = LogService(log, keys, metrics, Host(ServiceSettings(cadence, **settings)))
        if rules is not None:
            service.registrar.set_policy(rules, OPERATOR)
        app = server.make_app(service, metrics, server.Serving(rate=rate))
        urls: queue.SimpleQueue[str] = queue.SimpleQueue()
        http = web.make_server(app, "127.0.0.1", 0, server.LIMITS, urls.put, server.PROBLEMS)
        with service.running():
            thread = threading.Thread(target=http.run)
            thread.start()
            try:
                yield World(urls.get(timeout=20), tmp_path, service, open_one)
            finally:
                http.should_exit = True
                thread.join()

    return serving


@pytest.fixture
def world(serve: Serve) -> Iterator[World]:
    with serve() as one:
        yield one


def problem(response: httpx.Response, status: int, title: str | None = None) -> dict[Any, Any]:
    """The problem in a response, in the one form that SCRAPI knows."""
    assert (response.status_code, response.headers["content-type"]) == (status, CONCISE_TYPE)
    found = cbor.decode(response.content, max_bytes=1 << 16)
    assert isinstance(found, dict)
    assert isinstance(found[-1], str)
    assert isinstance(found[-2], str)
    assert title is None or found[-1] == title
    assert b"urn:ietf:params:scitt:error" not in response.content
    return found


# Registration


def test_registration_answers_at_once_and_the_receipt_follows(world: World) -> None:
    entry = statement(1)
    taken = world.post(entry)
    assert (taken.status_code, taken.content) == (202, b"")
    assert int(taken.headers["retry-after"]) >= 1
    location = taken.headers["location"]
    assert location == f"{world.url}/entries/{entry_id(entry)}"
    running = httpx.get(location)
    assert (running.status_code, running.content) == (204, b"")
    assert running.headers["cache-control"] == "no-store"
    assert int(running.headers["retry-after"]) >= 1
    world.publish()
    for _ in range(3):
        done = httpx.get(location)
        assert (done.status_code, done.headers["content-type"]) == (200, "application/cose")
        assert done.headers["location"] == location
        verified = verify_receipt(done.content, entry, RECEIPTS.key)
        assert (verified.issuer, verified.subject, verified.index) == (ORIGIN, "subject-1", 1)
        assert verified.checkpoint == world.open_log().checkpoint()


def test_registration_in_time_answers_with_the_receipt(serve: Serve) -> None:
    entry = statement(1)
    with serve(cadence=FAST, wait_seconds=10.0) as world:
        done = world.post(entry)
        assert (done.status_code, done.headers["content-type"]) == (201, "application/cose")
        assert done.headers["location"] == f"{world.url}/entries/{entry_id(entry)}"
        assert verify_receipt(done.content, entry, RECEIPTS.key).index == 1
        assert httpx.get(done.headers["location"]).content == done.content


def test_both_ways_name_the_entry_alike(serve: Serve) -> None:
    names = []
    for number, options in enumerate(({}, {"cadence": FAST, "wait_seconds": 10.0})):
        with serve(**options) as world:
            response = world.post(statement(5))
            assert response.status_code == (202, 201)[number]
            names.append(response.headers["location"].rsplit("/", 1)[1])
    assert names[0] == names[1] == entry_id(statement(5))


def test_a_statement_again_is_the_same_entry(world: World) -> None:
    first = world.post(statement(1))
    again = world.post(statement(1))
    assert again.headers["location"] == first.headers["location"]
    world.publish()
    done = world.post(statement(1))
    assert (done.status_code, done.headers["location"]) == (201, first.headers["location"])
    assert world.open_log().head().size == 2


def test_unprotected_headers_are_stripped(world: World) -> None:
    entry = statement(1)
    message = cose.decode_sign1(entry)
    receipt = sign_receipt(STRANGER, "other.example", "x", Inclusion(0, 1, b"\x00" * 32, ()), None)
    loose = cose.encode_sign1(message.protected, {99: ["anything"]}, message.payload, message.signature)
    locations = {
        world.post(body).headers["location"] for body in (loose, make_transparent(entry, [receipt]), entry)
    }
    assert locations == {f"{world.url}/entries/{entry_id(entry)}"}
    assert list(world.open_log().read_entries(1, 2)) == [entry]
    assert world.open_log().head().size == 2


def test_headers_of_http_decide_nothing(world: World) -> None:
    for n, headers in enumerate(
        ({}, {"content-type": "text/html"}, {"accept": "image/png", "content-type": "a/b;c=d"})
    ):
        assert world.post(statement(n), **headers).status_code == 202


def test_a_receipt_is_fresh(world: World) -> None:
    location = world.post(statement(1)).headers["location"]
    sizes = []
    for n in (2, 3):
        world.publish()
        receipt = httpx.get(location).content
        sizes.append(parse_receipt(receipt).size)
        assert verify_receipt(receipt, statement(1), RECEIPTS.key).size_signed
        world.post(statement(n))
    assert sizes == [2, 3]


@pytest.mark.parametrize(
    ("body", "title"),
    [
        (b"", "Malformed request"),
        (b"not a COSE message", "Malformed request"),
        (statement(1) + b"\x00", "Malformed request"),
        (statement(1)[:-1], "Malformed request"),
        (sign1_detached(SIGNER, HEADERS, b"payload"), "Payload Missing"),
        (sign1(SIGNER, {}, b"no claims"), "Confirmation Missing"),
        (statement(1, STRANGER), "Rejected"),
        (sign_statement(SIGNER, "https://stranger.example", "s", b"x" * 32), "Rejected"),
        (sign_statement(SIGNER, OWN, "s", b"x" * 32), "Rejected"),
        (statement(1)[:-1] + bytes([statement(1)[-1] ^ 1]), "Rejected"),
        (
            sign1(SIGNER, {**HEADERS, cose.TYP: "application/vnd.muniment.registration+cose"}, b"x"),
            "Rejected",
        ),
    ],
)
def test_each_refusal_has_the_title_that_clients_know(world: World, body: bytes, title: str) -> None:
    problem(world.post(body), 400, title)
    assert world.open_log().head().size == 1


def test_algorithm_and_kind_of_payload_are_the_policys(serve: Serve) -> None:
    with serve(replace(RULES, algorithms=(cose.ES256,), payload="hash")) as world:
        problem(world.post(statement(1)), 400, "Bad Signature Algorithm")
        problem(world.post(sign1(P256, HEADERS, b"free text")), 400, "Rejected")
        assert world.post(statement(1, P256)).status_code == 202


def test_hostile_messages_are_refused(world: World, vectors: Path) -> None:
    cases = json.loads((vectors / "cose" / "hostile.json").read_text())["cases"]
    titles = {problem(world.post(bytes.fromhex(case["hex"])), 400)[-1] for case in cases}
    assert titles == {"Malformed request", "Rejected", "Payload Missing", "Confirmation Missing"}
    assert len(cases) > 40
    assert world.open_log().head().size == 1


def test_a_second_signature_is_refused_and_pointed_to_the_first(world: World) -> None:
    first, second = statement(1, P256), statement(1, P256)
    location = world.post(first).headers["location"]
    found = problem(world.post(second), 400, "Rejected")
    assert world.url + found[-3] == location
    problem(world.get(f"/entries/{entry_id(second)}"), 404, "Not Found")


def test_a_log_without_a_policy_takes_nothing(serve: Serve) -> None:
    with serve(rules=None) as world:
        found = problem(world.post(statement(1)), 400, "Rejected")
        assert "no statements" in found[-2]


def test_a_large_body_is_refused(world: World) -> None:
    problem(world.post(b"x" * (server.MAX_BODY_BYTES + 1)), 413)
    large = sign1(SIGNER, HEADERS, b"x" * 65_300)
    assert world.post(large).status_code == 202
    problem(world.post(sign1(SIGNER, HEADERS, b"x" * 65_500)), 400, "Rejected")


def test_pushes_back_when_too_much_is_unpublished(serve: Serve) -> None:
    with serve(max_unpublished=3) as world:
        world.publish()
        world.service._intake.reload()
        answers = [world.post(statement(n)) for n in range(4)]
        assert [answer.status_code for answer in answers] == [202, 202, 202, 503]
        problem(answers[-1], 503)
        assert int(answers[-1].headers["retry-after"]) >= 1
        world.publish()
        world.service._intake.reload()
        assert world.post(statement(9)).status_code == 202


def test_no_more_are_held_back_than_is_granted(serve: Serve) -> None:
    with serve(wait_seconds=20.0, max_waiting=0) as world:
        began = time.monotonic()
        assert world.post(statement(1)).status_code == 202
        assert time.monotonic() - began < 10


# Entries


@pytest.mark.parametrize("name", ["does-not-exist", "x", "A" * 43, "-", "_" * 128])
def test_an_unknown_entry_is_named_in_the_problem(world: World, name: str) -> None:
    assert name in problem(world.get(f"/entries/{name}"), 404, "Not Found")[-2]
    problem(world.get(f"/entries/{name}/statement"), 404, "Not Found")


@pytest.mark.parametrize("name", ["x" * 300, "x" * 129, "a.b", "a%20b", "a%00", "%C3%A9", "a=", "%2e%2e"])
def test_what_is_no_locator_is_said_to_be_none(world: World, name: str) -> None:
    found = problem(world.get(f"/entries/{name}"), 400, "Invalid locator")
    assert found[-2] == "Operation locator is not in a valid form"


def test_an_id_has_one_spelling(world: World) -> None:
    name = entry_id(statement(1))
    world.post(statement(1))
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".index(name[-1])
    other = name[:-1] + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last ^ 1]
    assert world.get(f"/entries/{name}").status_code == 204
    problem(world.get(f"/entries/{other}"), 404)


def test_the_entry_itself_is_served_once_it_is_public(world: World) -> None:
    path = f"/entries/{entry_id(statement(1))}/statement"
    world.post(statement(1))
    assert world.get(path).status_code == 204
    world.publish()
    response = world.get(path)
    assert (response.content, response.headers["content-type"]) == (statement(1), "application/cose")


def test_entries_of_other_writers_are_found_too(world: World) -> None:
    other = sign_statement(STRANGER, OWN, "s", b"y" * 32)
    world.open_log().append([other])
    world.publish()
    response = world.get(f"/entries/{entry_id(other)}")
    assert verify_receipt(response.content, other, RECEIPTS.key).index == 1


def test_the_cache_of_ids_may_be_lost_or_damaged(serve: Serve) -> None:
    with serve() as world:
        world.post(statement(1))
        world.publish()
    for data in (None, b"garbage", b""):
        for file in (world.folder / "state").glob("entry-ids.sqlite*"):
            file.unlink()
        if data is not None:
            (world.folder / "state" / "entry-ids.sqlite").write_bytes(data)
        with serve() as world:
            assert world.get(f"/entries/{entry_id(statement(1))}").status_code == 200


def test_the_cache_of_ids_may_be_another_logs(serve: Serve) -> None:
    with serve() as world:
        for n in range(3):
            world.post(statement(n))
        world.publish()
    for file in (world.folder / "state").glob("entry-ids.sqlite*"):
        file.unlink()
    ids = [hashlib.sha256(statement(n)).digest() for n in range(10)]
    # Of another log; of one with the same last entry, and others before it in another order.
    for order, last in (((9, 8, 7, 6), ids[6]), ((9, 1, 0, 2), ids[2]), ((9, 8), ids[8]), ((9,) * 9, ids[9])):
        wrong = FileIndex(world.folder / "state" / "entry-ids.sqlite")
        wrong.clear()
        wrong.add([ids[n] for n in order], Head(len(order), last))
        wrong.close()
        with serve() as world:
            for n in range(3):
                receipt = world.get(f"/entries/{entry_id(statement(n))}").content
                assert verify_receipt(receipt, statement(n), RECEIPTS.key).index == n + 1
            problem(world.get(f"/entries/{entry_id(statement(9))}"), 404)


# Locations


def test_a_location_is_what_the_operator_says_or_the_client_asked(serve: Serve) -> None:
    with serve() as world:
        asked = {
            "log.example": "http://log.example",
            "[::1]:80": "http://[::1]:80",
            "a b": "",
            "x/../y": "",
            "": "",
        }
        for n, (host, base) in enumerate(asked.items()):
            location = world.post(statement(n), host=host).headers["location"]
            assert location == f"{base}/entries/{entry_id(statement(n))}"
    with serve(url="https://log.example/scitt") as world:
        location = world.post(statement(0), host="evil.example").headers["location"]
        assert location == f"https://log.example/scitt/entries/{entry_id(statement(0))}"


# Keys


def test_keys_are_a_set_and_each_has_its_thumbprint(world: World) -> None:
    response = world.get("/.well-known/scitt-keys", accept="application/cbor")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/cbor")
    assert decode_key_set(response.content) == (RECEIPTS.key,)
    members = cbor.decode(response.content, max_bytes=10_000)
    assert isinstance(members, list)
    assert members[0][2] == RECEIPTS.key.thumbprint()


def test_one_key_is_the_same_as_in_the_set(world: World) -> None:
    name = urlsafe_b64encode(RECEIPTS.kid).decode().rstrip("=")
    response = world.get(f"/.well-known/scitt-keys/{name}")
    assert response.headers["content-type"] == "application/cbor"
    assert decode_key(response.content) == RECEIPTS.key
    (members,) = cbor.decode(world.get("/.well-known/scitt-keys").content, max_bytes=10_000)  # type: ignore[misc]
    assert cbor.decode(response.content, max_bytes=10_000) == members


@pytest.mark.parametrize("name", ["bm8gc3VjaCBrZXk", "x", "=", "a.b", "%00", RECEIPTS.kid.hex()])
def test_an_unknown_key_is_none(world: World, name: str) -> None:
    found = problem(world.get(f"/.well-known/scitt-keys/{name}"), 404, "No such key")
    assert found[-2] == "No key could be found for this kid value"


def test_retired_keys_are_still_served(serve: Serve) -> None:
    named = replace(STRANGER.key, kid=b"key-1.old~")
    with serve(signer=RETIRED) as world:
        world.post(statement(1))
        world.publish()
        old = world.get(f"/entries/{entry_id(statement(1))}").content
    with serve(signer=RECEIPTS, retired=(named,)) as world:
        keys = decode_key_set(world.get("/.well-known/scitt-keys").content)
        assert keys[0] == RECEIPTS.key
        assert set(keys[1:]) == {RETIRED.key, named}
        name = urlsafe_b64encode(parse_receipt(old).kid).decode().rstrip("=")
        key = decode_key(world.get(f"/.well-known/scitt-keys/{name}").content)
        assert verify_receipt(old, statement(1), key).index == 1
        # A kid that is safe in a path is taken as it is, too.
        for name in ("key-1.old~", urlsafe_b64encode(b"key-1.old~").decode().rstrip("=")):
            assert decode_key(world.get(f"/.well-known/scitt-keys/{name}").content) == named


def test_a_key_that_is_rotated_under_way_is_served_before_it_signs(world: World) -> None:
    world.post(statement(1))
    world.publish()
    world.service.keys._load_signer = lambda: RETIRED
    world.service.keys._keys = replace(world.service.keys._keys, loaded_at=0.0)
    receipt = world.get(f"/entries/{entry_id(statement(1))}").content
    assert verify_receipt(receipt, statement(1), RETIRED.key).kid == RETIRED.kid
    assert decode_key_set(world.get("/.well-known/scitt-keys").content) == (RETIRED.key, RECEIPTS.key)


# Whatever else is asked


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/no-such-resource", 404),
        ("GET", "/entries/", 404),
        ("GET", "/entries", 405),
        ("DELETE", "/entries", 405),
        ("PUT", "/entries/x", 405),
        ("POST", "/checkpoint", 405),
        ("GET", "/.well-known/scitt-keys/", 404),
        ("GET", "/.well-known/", 404),
        ("GET", "/docs", 404),
        ("OPTIONS", "/entries", 405),
    ],
)
def test_every_other_request_is_a_problem_too(world: World, method: str, path: str, status: int) -> None:
    response = httpx.request(method, f"{world.url}{path}")
    problem(response, status)
    assert ("allow" in response.headers) == (status == 405)


def test_beyond_the_rate_is_a_429(serve: Serve) -> None:
    with serve(rate=web.Rate(0.5, 2)) as world:
        answers = [world.get("/.well-known/scitt-keys") for _ in range(3)]
        problem(answers[-1], 429, "Too Many Requests")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert world.get("/healthz").status_code == 200


def test_refused_statements_cost_their_sender_more(serve: Serve) -> None:
    with serve(rate=web.Rate(0.01, 25)) as world:
        statuses = [world.post(b"garbage").status_code for _ in range(4)]
        assert statuses == [400, 400, 400, 429]


def test_a_checkpoint_that_is_not_accepted_is_not_the_clients_fault(world: World) -> None:
    world.post(statement(1))
    world.publish()
    checkpoint = world.folder / "log" / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"scrapi", b"scrapy"))
    time.sleep(0.1)
    for path in (f"/entries/{entry_id(statement(1))}", "/checkpoint", "/tile/0/000.p/2"):
        response = world.get(path)
        problem(response, 503)
        assert "retry-after" in response.headers


def test_a_damaged_tile_becomes_no_receipt(serve: Serve) -> None:
    with serve() as world:
        for n in range(3):
            world.post(statement(n))
        world.publish()
        tile = next((world.folder / "log" / "tile" / "0").rglob("4"))
        tile.write_bytes(tile.read_bytes()[:96] + bytes(32))
        response = world.get(f"/entries/{entry_id(statement(1))}")
        problem(response, 500)


# The document


def test_the_document_describes_every_resource(world: World) -> None:
    document = world.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/checkpoint", "/tile/{path}", "/erasures/{name}", "/registration/{name}", "/keys.cose", "/entries",
        "/entries/{entry_id}", "/entries/{entry_id}/statement", "/.well-known/scitt-keys",
        "/.well-known/scitt-keys/{kid}",
    }  # fmt: skip
    for operations in document["paths"].values():
        for operation in operations.values():
            types = {
                media_type
                for status, response in operation["responses"].items()
                if status >= "400"
                for media_type in response["content"]
            }
            assert types == {CONCISE_TYPE}
            assert "422" not in operation["responses"]


# Of each operation, right and wrong.
EXAMPLES = 60 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 6


def test_the_document_holds_against_generated_requests(serve: Serve) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    schemathesis.openapi.media_type("application/cose", st.integers(0, 10**9).map(statement))
    schemathesis.serializer("application/cose")(lambda context, body: body)
    modes = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    with serve() as world:
        world.post(statement(1))
        world.publish()
        schema = schemathesis.openapi.from_url(f"{world.url}/openapi.json")
        asked = {
            (operation.ok().label, mode.value): ask_generated(operation.ok(), mode)
            for operation in schema.get_all_operations()
            for mode in modes
        }
        assert {label for (label, mode), count in asked.items() if count} == {label for label, _ in asked}
        assert world.open_log().head().size > EXAMPLES


def ask_generated(operation: Any, mode: Any) -> int:
    """How many generated requests were answered as the document says."""
    count = 0

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        nonlocal count
        case.call_and_validate()
        count += 1

    # An operation that nothing wrong can be asked of has no negative cases.
    with contextlib.suppress(Unsatisfiable):
        holds()
    return count
