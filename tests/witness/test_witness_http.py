"""The witness as a server: the short way and the long one, health, lists, metrics, and those who mean it ill."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tlog.ascii import encode_base64
from tlog.errors import UnavailableError
from tlog.note import sign_note
from tlog.web import make_metrics_server
from witness import hot, server
from witness.answers import HttpAnswer, http_answer
from witness.metrics import WitnessMetrics
from witness.service import Witness
from witness.wire import MAX_BODY_BYTES, format_add_checkpoint, origin_digest

START_SECONDS = 30


@contextlib.contextmanager
def running(made: Any, started: threading.Event) -> Iterator[str]:
    thread = threading.Thread(target=made.run)
    thread.start()
    assert started.wait(START_SECONDS)
    try:
        yield made.url
    finally:
        made.should_exit = True
        thread.join()


@contextlib.contextmanager
def serving(witness: Any, store: Any = None, metrics: Any = None) -> Iterator[str]:
    started = threading.Event()
    made = server.make_server(witness, "127.0.0.1", 0, lambda url: started.set(), store, metrics)
    with running(made, started) as url:
        yield url


@pytest.fixture
def metrics(store: Any, clock: Any) -> WitnessMetrics:
    return WitnessMetrics(store, clock)


@pytest.fixture
def url(witness: Witness, store: Any, metrics: WitnessMetrics) -> Iterator[str]:
    with serving(witness, store, metrics) as address:
        yield address


@pytest.fixture
def address(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies that went the short way."""
    bodies: list[bytes] = []
    ask = hot.HotRoute._ask
    monkeypatch.setattr(hot.HotRoute, "_ask", lambda self, body: (bodies.append(body), ask(self, body))[1])
    return bodies


def plain(body: bytes, *headers: str) -> bytes:
    lines = ["POST /add-checkpoint HTTP/1.1", "Host: w", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join((*lines, "", "")).encode() + body


def talk(address: tuple[str, int], *pieces: bytes, pause: float = 0.0) -> bytes:
    """What the server says until it closes, or says nothing for a while."""
    said = b""
    with socket.create_connection(address, timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            connection.settimeout(0.3)
            while data := connection.recv(65536):
                said += data
    return said


def statuses(said: bytes) -> list[int]:
    return [int(part) for part in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", said)]


# The short way


def test_the_short_way_and_the_long_one_answer_alike(
    address: tuple[str, int], short_way: list[bytes], log: Any, sim: Any, clock: Any
) -> None:
    fork = log.fork_at(3)
    bodies = [
        log.body(0, 5),
        log.body(5, 5),
        log.body(3, 9),
        b"hello\n",
        b"old 5\n\n" + sim.tampered(log.note(5)),
        sim.Log(log.entries, "log.example/unknown").body(0, 5),
        fork.body(5, 5),
        fork.body(5, 9),
        format_add_checkpoint(9, (), log.note(7)),
    ]
    for body in bodies:
        short, long = first_answer(address, plain(body)), first_answer(address, plain(body, "TE: none"))
        first, second = (dict(headers_of(said)) for said in (short, long))
        if b"old 0" in body and b"\n5\n" in body:  # the first time it is cosigned, then it is a conflict
            assert (statuses(short), statuses(long)) in (([200], [409]), ([404], [404]))
        else:
            assert short.partition(b"\r\n\r\n")[2] == long.partition(b"\r\n\r\n")[2]
            assert {k: v for k, v in first.items() if k != "date"} == {
                k: v for k, v in second.items() if k != "date"
            }
    assert short_way == bodies


def headers_of(said: bytes) -> list[tuple[str, str]]:
    lines = said.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return [("status", lines[0]), *((n.lower(), v) for n, _, v in (x.partition(": ") for x in lines[1:]))]


def test_every_answer_says_not_to_keep_or_guess_it(address: tuple[str, int], log: Any) -> None:
    headers = dict(headers_of(talk(address, plain(log.body(0, 5)))))
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert "server" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        ("Transfer-Encoding: chunked",),
        ("transfer-encoding: identity",),
        ("Content-Length: 5",),
        ("Host: other",),
        ("Expect: 100-continue",),
        ("Connection: close",),
        ("Connection: keep-alive, upgrade", "Upgrade: websocket"),
        ("X-Odd: \x01",),
        ("X-Odd: \u00e9",),
        ("X Odd: a",),
        ("X-Odd : a",),
        (" folded: a",),
        ("X-Odd",),
    ],
)
def test_whatever_is_odd_is_left_to_the_parser(log: Any, headers: tuple[str, ...]) -> None:
    assert hot.whole_request(plain(log.body(0, 5), *headers)) is None


def test_only_one_whole_request_in_its_plainest_form_goes_the_short_way(log: Any) -> None:
    body = log.body(0, 5)
    whole = plain(body)
    assert hot.whole_request(whole) == body
    assert (
        hot.whole_request(plain(body, "Connection: Keep-Alive", "Accept: */*", "User-Agent: x/1 (y; z)"))
        == body
    )
    for cut in range(len(whole)):
        assert hot.whole_request(whole[:cut]) is None
    odd = [
        whole + b"x",
        whole + whole,
        b" " + whole,
        b"\r\n" + whole,
        whole.replace(b"POST", b"PUT", 1),
        whole.replace(b"POST ", b"POST  ", 1),
        whole.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
        whole.replace(b"/add-checkpoint", b"/add-checkpoint?x", 1),
        whole.replace(b"/add-checkpoint", b"//add-checkpoint", 1),
        whole.replace(b"Host: w\r\n", b"", 1),
        whole.replace(b"\r\n", b"\n"),
        whole.replace(b"Host: w\r\n", b"Host: w\n", 1),
        whole.replace(b"Host: w\r\n", b"Host: w\r", 1),
        whole.replace(b"Content-Length: ", b"Content-Length: +", 1),
        whole.replace(b"Content-Length: ", b"Content-Length: 0", 1),
        whole.replace(b"Content-Length", b"Content_Length", 1),
        plain(b"x" * (MAX_BODY_BYTES + 1)),
        plain(body, *(f"X-{number}: {'x' * 1000}" for number in range(20))),
    ]
    assert [hot.whole_request(data) for data in odd] == [None] * len(odd)


def test_a_request_in_pieces_is_answered_all_the_same(
    address: tuple[str, int], short_way: list[bytes], log: Any
) -> None:
    whole = plain(log.body(0, 5))
    for cut in (1, 20, len(whole) - len(log.body(0, 5)), len(whole) - 1):
        said = talk(address, whole[:cut], whole[cut:], pause=0.05)
        assert statuses(said) in ([200], [409])
    assert short_way == []


def test_requests_on_one_connection_are_answered_in_order(
    address: tuple[str, int], short_way: list[bytes], log: Any
) -> None:
    pieces = [plain(log.body(size, size + 1)) for size in range(6)]
    said = talk(address, b"GET /healthz HTTP/1.1\r\nhost: w\r\n\r\n", *pieces, pause=0.05)
    assert statuses(said) == [200] * 7
    assert len(short_way) == 6


def test_requests_sent_ahead_are_answered_in_order_and_none_twice(
    address: tuple[str, int], log: Any, store: Any
) -> None:
    pieces = [plain(log.body(size, size + 1)) for size in range(20)]
    health = b"GET /healthz HTTP/1.1\r\nhost: w\r\n\r\n"
    said = talk(address, pieces[0], b"".join(pieces[1:10]) + health + b"".join(pieces[10:]))
    assert statuses(said) == [200] * 21
    assert said.index(b"ok\n") > said.index(b"\xe2\x80\x94")
    assert store.log(log.origin).cosigned.head.size == 20


def test_a_smuggled_second_request_is_no_body(
    address: tuple[str, int], log: Any, short_way: list[bytes]
) -> None:
    """Two lengths, or a length and chunks: whoever stands before us may read another end than we do."""
    body = log.body(0, 5)
    for headers in (("Transfer-Encoding: chunked",), ("Content-Length: 3",)):
        said = talk(address, plain(body, *headers))
        assert 200 not in statuses(said)
    assert short_way == []


def test_a_client_that_goes_away_disturbs_nobody(address: tuple[str, int], log: Any, store: Any) -> None:
    for size in range(5):
        with socket.create_connection(address) as connection:
            connection.sendall(plain(log.body(size, size + 1)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        end = time.monotonic() + 10
        while not (record := store.log(log.origin)).cosigned or record.cosigned.head.size <= size:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert statuses(talk(address, plain(log.body(5, 6)))) == [200]


def test_a_slow_answer_becomes_a_503_and_the_late_one_is_dropped(
    witness: Witness, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    class Slow(Witness):
        def __init__(self) -> None:
            pass

        def add_checkpoints(self, bodies: Any) -> Any:
            go_on.wait(10)
            return witness.add_checkpoints(bodies)

    monkeypatch.setattr(server, "LIMITS", server.web.Limits(body_bytes=MAX_BODY_BYTES, answer_seconds=0.2))
    with serving(Slow()) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(plain(log.body(0, 5)))
            said = connection.recv(65536)
            assert (statuses(said), dict(headers_of(said))["retry-after"]) == ([503], "1")
            go_on.set()
            time.sleep(0.3)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: w\r\n\r\n")
            connection.settimeout(0.5)
            said = b""
            with contextlib.suppress(TimeoutError):
                while data := connection.recv(65536):
                    said += data
            assert statuses(said) == [200]
            assert said.endswith(b"ok\n")


def test_a_connection_that_asks_is_not_dropped_for_its_first_headers(
    witness: Witness, log: Any, monkeypatch: pytest.MonkeyPatch, short_way: list[bytes]
) -> None:
    monkeypatch.setattr(server, "LIMITS", server.web.Limits(body_bytes=MAX_BODY_BYTES, header_seconds=0.2))
    with serving(witness) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        pieces = [plain(log.body(size, size + 1)) for size in range(4)]
        assert statuses(talk(address, *pieces, pause=0.25)) == [200] * 4
    assert len(short_way) == 4


def test_a_stop_waits_for_the_answer_under_way(witness: Witness, log: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Witness):
        def __init__(self) -> None:
            pass

        def add_checkpoints(self, bodies: Any) -> Any:
            begun.set()
            go_on.wait(10)
            return witness.add_checkpoints(bodies)

    started = threading.Event()
    made = server.make_server(Slow(), "127.0.0.1", 0, lambda url: started.set())
    with running(made, started) as address:
        connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=10)
        connection.sendall(plain(log.body(0, 5)))
        assert begun.wait(10)
        made.should_exit = True
        time.sleep(0.3)
        go_on.set()
        said = b""
        while data := connection.recv(65536):
            said += data
        connection.close()
    assert statuses(said) == [200]
    assert b"connection: close" in said


def test_a_limited_log_gets_429_with_retry_after(store: Any, log: Any, sim: Any, clock: Any) -> None:
    from witness.limits import DailyLimit

    witness = Witness(store, [sim.make_cosigner()], clock, limit=DailyLimit(1, lambda: 0.0))
    grown = sim.Log([b"%d" % number for number in range(62)])
    with serving(witness) as address, httpx.Client() as client:
        for size in range(60):
            assert (
                client.post(f"{address}/add-checkpoint", content=grown.body(size, size + 1)).status_code
                == 200
            )
        refused = client.post(f"{address}/add-checkpoint", content=grown.body(60, 61))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "86400")
        assert refused.json()["code"] == "too_many_requests"
        port = int(address.rpartition(":")[2])
        said = talk(("127.0.0.1", port), plain(grown.body(60, 61)))
        assert (statuses(said), dict(headers_of(said))["retry-after"]) == ([429], "86400")


def test_every_kind_of_answer_has_its_status() -> None:
    found = [
        http_answer(UnavailableError("x", retry_after_seconds=7)),
        http_answer(UnavailableError("x")),
    ]
    assert [(one.status, dict(one.headers)) for one in found] == [
        (503, {b"retry-after": b"7"}),
        (503, {b"retry-after": b"1"}),
    ]
    assert isinstance(found[0], HttpAnswer)


# What else it serves


def test_readiness_is_that_of_the_store(url: str, store: Any, state: Any) -> None:
    assert httpx.get(f"{url}/readyz").status_code == 200


def test_it_is_not_ready_while_the_store_cannot_be_written(witness: Witness, store: Any, state: Any) -> None:
    from witness.store import open_store

    blocker = open_store(state)
    store._connection.set_busy_timeout(10)
    blocker._connection.execute("BEGIN IMMEDIATE")
    with serving(witness, store) as address:
        answer = httpx.get(f"{address}/readyz")
        assert answer.status_code == 503
        assert "store" in answer.json()["detail"]
        assert httpx.get(f"{address}/healthz").status_code == 200
    blocker._connection.execute("ROLLBACK")
    blocker.close()


def test_it_lists_its_logs(url: str, witness: Witness, store: Any, log: Any, sim: Any) -> None:
    witness.add_checkpoint(log.body(0, 5))
    removed = sim.make_log_signer("log.example/removed", 7).verifier_key
    store.add_log(removed.name, removed)
    store.remove_log(removed.name)
    answer = httpx.get(f"{url}/logs").json()
    assert answer["name"] == "witness.example/w"
    (one,) = answer["logs"]
    assert (one["origin"], one["size"], one["time"]) == (log.origin, 5, sim.TIME)
    assert one["vkeys"] == [log.signer.verifier_key.vkey]
    assert httpx.get(f"{url}/{one['digest']}/checkpoint").status_code == 200


def test_sign_subtree_is_offered_with_a_key_for_it(
    store: Any, log: Any, clock: Any, sim: Any, url: str
) -> None:
    from tlog import merkle
    from tlog.note import add_signatures
    from witness.subtree import format_sign_subtree

    both = Witness(store, [sim.make_cosigner(), sim.make_cosigner(kind=6)], clock)
    lines = both.add_checkpoint(log.body(0, 21))
    note = add_signatures(log.note(21), lines)  # type: ignore[arg-type]
    proof = merkle.prove_subtree(8, 12, 21, log._read)
    body = format_sign_subtree(8, 12, merkle.subtree_root(8, 12, log._read), proof, note)
    assert httpx.post(f"{url}/sign-subtree", content=body).status_code == 404
    with serving(both) as address:
        answer = httpx.post(f"{address}/sign-subtree", content=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
        assert answer.content.startswith("— witness.example/w ".encode())
        for wrong, status in ((body[:-1], 400), (b"x", 400), (body.replace(b"8 12", b"8 9"), 422)):
            assert httpx.post(f"{address}/sign-subtree", content=wrong).status_code == status


def test_metrics_stand_on_a_listener_of_their_own(
    url: str, metrics: WitnessMetrics, witness: Witness, log: Any, sim: Any, clock: Any
) -> None:
    with httpx.Client() as client:
        port = int(url.rpartition(":")[2])
        assert statuses(talk(("127.0.0.1", port), plain(log.body(0, 5)))) == [200]
        client.post(f"{url}/add-checkpoint", content=log.body(3, 9))
        client.post(f"{url}/add-checkpoint", content=log.fork_at(3).body(5, 5))
        client.get(f"{url}/{origin_digest(log.origin).hex()}/checkpoint")
        client.get(f"{url}/metrics")
        # No conflict with anything: a head of size 0 with a root that no empty tree has.
        text = log.note(0).text.replace(encode_base64(log.checkpoint(0).root), encode_base64(b"\1" * 32))
        empty = format_add_checkpoint(0, (), sign_note(text, [log.signer]))
        assert client.post(f"{url}/add-checkpoint", content=empty).json()["code"] == "empty_root"
        clock.now += 30
        started = threading.Event()
        listener = make_metrics_server(metrics, "127.0.0.1", 0, lambda url: started.set())
        with running(listener, started) as address:
            text = client.get(f"{address}/metrics").text
            assert client.get(f"{address}/add-checkpoint").status_code == 404
    for line in (
        'muniment_witness_answers_total{call="add-checkpoint",status="200"} 1',
        'muniment_witness_answers_total{call="add-checkpoint",status="409"} 1',
        'muniment_witness_answers_total{call="add-checkpoint",status="422"} 2',
        'muniment_witness_answers_total{call="checkpoint",status="200"} 1',
        'muniment_witness_answers_total{call="other",status="404"} 1',
        'muniment_witness_conflicts_total{code="fork"} 1',
        'muniment_witness_conflicts_total{code="old_size"} 1',
        'muniment_witness_answer_seconds_count{call="add-checkpoint"} 4',
        f'muniment_witness_log_size{{origin="{log.origin}"}} 5',
        f'muniment_witness_log_age_seconds{{origin="{log.origin}"}} 30',
        'muniment_witness_evidence{kind="fork"} 1',
        "muniment_witness_logs 1",
    ):
        assert line in text.split("\n"), line
    assert text.count("muniment_witness_conflicts_total{") == 2


def test_an_origin_cannot_forge_a_metric(store: Any, sim: Any, clock: Any, log: Any) -> None:
    origin = 'log"} 1 \\ x'
    store.add_log(origin, log.signer.verifier_key)
    forged = sim.Log(log.entries)
    forged.origin = origin
    Witness(store, [sim.make_cosigner()], clock).add_checkpoint(forged.body(0, 3))
    text = WitnessMetrics(store, clock).text()
    assert 'muniment_witness_log_size{origin="log\\"} 1 \\\\ x"} 3' in text


# Attacks


def test_bodies_of_ten_megabytes_are_refused(address: tuple[str, int], log: Any) -> None:
    said = talk(address, plain(b"old 0\n" + b"x" * 10_000_000))
    assert statuses(said) in ([413], [])  # whoever still sends when the connection ends may miss the answer
    head = b"POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: 10000000\r\n\r\n"
    assert statuses(talk(address, head)) == [413]
    assert statuses(talk(address, plain(log.body(0, 5)))) == [200]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"old 9223372036854775808\n\n", 400),
        (b"old 18446744073709551616\n\n", 400),
        (b"old 0\n" + b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n" * 64 + b"\n", 400),
        (b"old 0\n" + b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n" * 63 + b"\n", 422),
        (b"old 9223372036854775807\n\n", 400),
    ],
)
def test_extreme_requests_have_their_status(
    address: tuple[str, int], log: Any, body: bytes, status: int
) -> None:
    from tlog.note import format_note

    assert statuses(talk(address, plain(body + format_note(log.note(5))))) == [status]


@pytest.mark.parametrize("size", [2**63, 2**64])
def test_a_size_that_no_log_can_have_is_400(address: tuple[str, int], log: Any, sim: Any, size: int) -> None:
    from tlog.note import format_note, sign_note

    text = log.note(5).text.replace("\n5\n", f"\n{size}\n")
    note = format_note(sign_note(text, [log.signer]))
    assert statuses(talk(address, plain(b"old 0\n\n" + note))) == [400]


def test_slow_senders_are_dropped_and_hold_nobody_up(
    witness: Witness, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = server.web.Limits(body_bytes=MAX_BODY_BYTES, header_seconds=0.5, body_seconds=0.5)
    monkeypatch.setattr(server, "LIMITS", limits)
    with serving(witness) as url, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        slow = [stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(200)]
        start = plain(log.body(0, 5))
        for number, connection in enumerate(slow):
            connection.sendall(start[: 10 if number % 2 else len(start) - 5])
        latest = 0.0
        for size in range(20):
            began = time.monotonic()
            assert statuses(first_answer(address, plain(log.body(size, size + 1)))) == [200]
            latest = max(latest, time.monotonic() - began)
            for number, connection in enumerate(slow[:50]):
                with contextlib.suppress(OSError):  # it was dropped already
                    connection.sendall(start[10 + size : 11 + size] if number % 2 else b"")
        assert latest < 3
        time.sleep(0.8)
        for connection in slow:
            with contextlib.suppress(ConnectionResetError):
                said = connection.recv(4096)
                assert said == b"" or statuses(said) == [408]


def first_answer(address: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(request)
        said = b""
        while True:
            said += connection.recv(65536)
            head, separator, body = said.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: ([0-9]+)", head)
            if separator and length and len(body) >= int(length[1]):
                return said


def test_thousands_of_idle_connections_keep_no_log_out(address: tuple[str, int], log: Any) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(2000, (hard - 200) // 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count + 200), hard))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(socket.create_connection(address, timeout=10))
            began = time.monotonic()
            for size in range(10):
                assert statuses(first_answer(address, plain(log.body(size, size + 1)))) == [200]
            assert time.monotonic() - began < 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert json.loads(httpx.get(f"http://{address[0]}:{address[1]}/logs").content)["logs"][0]["size"] == 10
