"""`muniment log serve`: files of the log, health, metrics, and the process as a whole beside other writers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from memory.principal import make_principal, with_all_scopes
from memory.wiring import open_home
from tlog import cbor, cose, server, web
from tlog.ascii import encode_base64
from tlog.client import LogClient
from tlog.cose import make_signer
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.file_cache import FileCache
from tlog.fsck import fsck
from tlog.intake import Accepted
from tlog.keys import make_cose_key, make_log_key
from tlog.log import Log, LogSettings
from tlog.metrics import Metrics
from tlog.note import SignatureType, parse_vkey
from tlog.policy import LogEntry, WitnessEntry, make_policy, parse_policy
from tlog.problems import CONCISE_TYPE
from tlog.publisher import Cadence, Publisher, Turn
from tlog.receipt import verify_receipt
from tlog.receipt_keys import ReceiptKeys
from tlog.registration import Issuer, Registration, document_path, format_registration
from tlog.registration_log import Operator, replay
from tlog.service import Host, LogService, ServiceSettings
from tlog.statement import sign_statement
from tlog.storage import DirectoryStorage
from tlog.tile import Tile, tiles_at

ORIGIN = "log.example/served"
ISSUER = "https://issuer.example"
START_SECONDS = 60.0
REPOSITORY = Path(__file__).resolve().parent.parent.parent


def ed25519_signer(seed: int) -> cose.PrivateKeySigner:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


SIGNER, OPERATOR, RECEIPTS = map(ed25519_signer, (1, 3, 4))
RULES = Registration(1, (Issuer(ISSUER, SIGNER.key),))
NEVER = Cadence(86_400.0, 86_400.0)


def statement(n: int, issuer: str = ISSUER) -> bytes:
    return sign_statement(SIGNER, issuer, "subject", hashlib.sha256(b"%d" % n).digest())


def entry_id(entry: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(entry).digest()).decode().rstrip("=")


def problem(response: httpx.Response, status: int) -> str:
    """The detail of a concise problem."""
    assert (response.status_code, response.headers["content-type"]) == (status, CONCISE_TYPE)
    found = cbor.decode(response.content, max_bytes=1 << 16)
    assert isinstance(found, dict)
    return str(found[-2])


# In this process


@dataclass
class World:
    """A log that is served under a URL, and its parts."""

    url: str
    log: Log
    service: LogService
    metrics: Metrics

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30)

    def publish(self) -> None:
        size = self.log.publish(10).size
        deadline = time.monotonic() + 10
        while size and not self.service.is_published(size - 1):
            assert time.monotonic() < deadline
            time.sleep(0.01)


Serve = Callable[..., contextlib.AbstractContextManager[World]]


@pytest.fixture(scope="module")
def settings_of(seed_signer: Callable[[str, int, int], Any]) -> LogSettings:
    signer = seed_signer(ORIGIN, SignatureType.ED25519, 9)
    policy = make_policy([LogEntry(signer.verifier_key)], [], [], None)
    return LogSettings(ORIGIN, (signer,), policy=policy)


def server_in(folder: Path, settings_of: LogSettings) -> Serve:
    @contextlib.contextmanager
    def serving(
        cadence: Cadence = NEVER,
        prefix: str = "",
        settings: LogSettings = settings_of,
        publish: Callable[[float], object] | None = lambda deadline: None,
        on_fatal: Callable[[], None] = lambda: None,
    ) -> Iterator[World]:
        public, private = DirectoryStorage(folder / "log"), DirectoryStorage(folder / "state")
        log, metrics = Log(public, private, settings), Metrics()
        log.recover()
        keys = ReceiptKeys(public, lambda: RECEIPTS)
        host = Host(ServiceSettings(cadence, wait_seconds=0.0), publish, None, on_fatal)
        service = LogService(log, keys, metrics, host)
        serving = server.Serving(prefix, rate=web.Rate(1e6, 10**6))
        urls: queue.SimpleQueue[str] = queue.SimpleQueue()
        app = server.make_app(service, metrics, serving)
        http = web.make_server(app, "127.0.0.1", 0, server.LIMITS, urls.put, server.PROBLEMS)
        with service.running():
            thread = threading.Thread(target=http.run)
            thread.start()
            try:
                yield World(urls.get(timeout=20), log, service, metrics)
            finally:
                http.should_exit = True
                thread.join()
                log.close()

    return serving


@pytest.fixture
def serve(tmp_path: Path, settings_of: LogSettings) -> Serve:
    return server_in(tmp_path, settings_of)


@pytest.fixture(scope="module")
def of_ten(tmp_path_factory: pytest.TempPathFactory, settings_of: LogSettings) -> Iterator[World]:
    """A log of ten entries, for those who only read."""
    with server_in(tmp_path_factory.mktemp("ten"), settings_of)() as world:
        world.log.append([statement(n) for n in range(10)])
        world.publish()
        yield world


@pytest.fixture
def world(serve: Serve) -> Iterator[World]:
    with serve() as one:
        yield one


def test_the_checkpoint_is_a_text_that_is_kept_for_seconds(world: World) -> None:
    assert "no public checkpoint yet" in problem(world.get("/checkpoint"), 404)
    world.log.append([statement(n) for n in range(3)])
    world.publish()
    response = world.get("/checkpoint")
    assert response.content == world.log.checkpoint()
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["cache-control"] == "public, max-age=2"


@pytest.mark.parametrize("size", [1, 255, 256, 257, 600])
def test_every_tile_of_the_published_size_is_served_and_no_other(world: World, size: int) -> None:
    world.log.append([statement(n) for n in range(size)])
    world.publish()
    expected = {tile.path for tile in tiles_at(size)}
    for path in expected:
        for _ in range(2):  # from the disk, and from memory
            response = world.get(f"/{path}")
            assert response.content == world.log.public.read(path)
            assert response.headers["content-type"] == "application/octet-stream"
            assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    others = {
        Tile(level, index, width).path
        for level in (None, 0, 1)
        for index in range(3)
        for width in (1, 87, 88, 255, 256)
    }
    with httpx.Client() as client:
        for path in others - expected:
            assert "no such file" in problem(client.get(f"{world.url}/{path}"), 404)


def test_a_client_reads_and_verifies_the_whole_log(world: World, settings_of: LogSettings) -> None:
    entries = [statement(n) for n in range(300)]
    world.log.append(entries)
    world.publish()
    assert settings_of.policy is not None
    with LogClient.from_url(world.url, settings_of.policy, ORIGIN) as client:
        assert client.checkpoint().checkpoint.size == 300
        assert list(client.entries(0, 300)) == entries


def test_what_is_integrated_and_not_published_is_not_served(world: World) -> None:
    world.log.append([statement(n) for n in range(10)])
    world.publish()
    world.log.append([statement(n) for n in range(10, 300)])
    world.log.recover()  # writes the tiles, publishes nothing
    ahead = ("tile/0/000", "tile/0/001.p/44", "tile/entries/000", "tile/entries/001.p/44", "tile/1/000.p/1")
    assert all(world.log.public.read(path) is not None for path in ahead)
    assert [world.get(f"/{path}").status_code for path in ahead] == [404] * 5
    assert world.get("/tile/0/000.p/10").status_code == 200
    world.publish()
    assert [world.get(f"/{path}").status_code for path in ahead] == [200] * 5


def test_a_partial_tile_that_was_removed_is_missing_and_the_full_one_is_there(
    world: World, settings_of: LogSettings
) -> None:
    world.log.append([statement(n) for n in range(10)])
    world.publish()
    world.log.append([statement(n) for n in range(10, 256)])
    world.publish()
    problem(world.get("/tile/0/000.p/10"), 404)
    assert len(world.get("/tile/0/000").content) == 8192


TRAVERSALS = (
    "/tile/../checkpoint", "/tile/..%2fcheckpoint", "/tile/%2e%2e/%2e%2e/state/head", "/tile/0/../../../state/head",
    "/tile//etc/passwd", "/tile/entries/../../../state/head", "/erasures/..%2f..%2fstate%2fhead", "/erasures/%2e%2e",
    "/registration/..%2f..%2fstate%2fhead.toml", "/tile/0/000.p/10/../../../../state/head", "/tile/0/000%00",
    "/tile/0/000.p/010", "/tile/0/000.p/0", "/tile/0/000.p/256", "/tile/00/000", "/tile/0/x000/000", "/tile/64/000",
    "/tile/0/000.p/10/", "/tile/0/000.p", "/tile/0", "/tile/", "/tile", "/tile/0/\u0660\u0660\u0660", "/tile/-1/000",
    "/checkpoint/", "//checkpoint", "/state/head", "/.locks/append", "/log/checkpoint", "/tile/0/000.p/10%0a",
    "/scitt-keys/x", "/../state/head", "/tile/0/000.p/10?../..", "/tile/0/x" + "0" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out_of_the_public_files(of_ten: World, path: str) -> None:
    host, port = of_ten.url.removeprefix("http://").split(":")
    # Written out by hand: a client would tidy the path up first.
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    status, body = answer[9:12], answer.partition(b"\r\n\r\n")[2]
    if status == b"200":  # the query is no part of the path
        assert path == "/tile/0/000.p/10?../.."
        assert body == of_ten.log.public.read("tile/0/000.p/10")
    else:
        assert status in (b"404", b"400")
        assert CONCISE_TYPE.encode() in answer


def test_files_may_stand_below_a_prefix(serve: Serve, settings_of: LogSettings) -> None:
    with serve(prefix="/logs/one") as world:
        world.log.append([statement(n) for n in range(3)])
        world.publish()
        assert settings_of.policy is not None
        with LogClient.from_url(f"{world.url}/logs/one", settings_of.policy) as client:
            assert client.entry(2) == statement(2)
        problem(world.get("/checkpoint"), 404)
        assert world.get("/.well-known/scitt-keys").status_code == 200


@pytest.mark.parametrize("prefix", ["log", "/", "/a/", "/..", "/a/../b", "/a b", "/a?b", "/{x}"])
def test_refuses_what_is_no_prefix(prefix: str) -> None:
    with pytest.raises(MalformedError):
        server.Serving(prefix)


def test_documents_are_served_beside_the_tiles(world: World) -> None:
    world.service.registrar.set_policy(RULES, OPERATOR)
    world.log.public.create("erasures/1.cose", b"a manifest")
    (document,) = world.log.public.names("registration/")
    response = world.get(f"/{document}")
    assert (response.text, response.headers["content-type"]) == (
        format_registration(RULES),
        "application/toml",
    )
    response = world.get("/erasures/1.cose")
    assert (response.content, response.headers["content-type"]) == (b"a manifest", "application/cose")
    for path in (
        "/erasures/2.cose",
        "/erasures/01.cose",
        "/erasures/1",
        "/registration/x.toml",
        "/keys.cose",
    ):
        problem(world.get(path), 404)
    world.log.public.replace("keys.cose", b"a list")
    response = world.get("/keys.cose")
    assert (response.content, response.headers["cache-control"]) == (b"a list", "public, max-age=2")


def test_head_is_answered(world: World) -> None:
    world.log.append([statement(1)])
    world.publish()
    response = httpx.head(f"{world.url}/tile/0/000.p/1")
    assert (response.status_code, response.headers["content-length"], response.content) == (200, "32", b"")


# Health


def readiness(world: World) -> httpx.Response:
    time.sleep(web.READY_SECONDS)
    return world.get("/readyz")


def test_ready_is_who_can_write_and_publish(world: World, tmp_path: Path) -> None:
    assert world.get("/healthz").text == "ok\n"
    assert world.get("/readyz").text == "ready\n"
    world.log.append([statement(1)])
    world.publish()
    private = world.service._log.private
    world.service._log.private = DirectoryStorage(
        tmp_path / "state" / "head"
    )  # a file, so nothing goes below it
    detail = problem(readiness(world), 503)
    assert "storage" in detail
    world.service._log.private = private
    (tmp_path / "log" / "checkpoint").write_bytes(b"garbage")
    assert "checkpoint" in problem(readiness(world), 503)
    assert world.get("/healthz").status_code == 200


def test_a_log_that_was_rolled_back_is_not_ready(serve: Serve, settings_of: LogSettings) -> None:
    def publish(deadline: float) -> object:
        raise VerificationError("log: does not extend a head of it that is known", code="rolled_back")

    with serve(publish=publish) as world:
        assert "does not extend" in problem(world.get("/readyz"), 503)
        assert 'muniment_log_publish_failures_total{code="rolled_back"} 1' in world.metrics.text()


def test_witnesses_that_are_away_do_not_take_the_service_down(serve: Serve, settings_of: LogSettings) -> None:
    def publish(deadline: float) -> object:
        raise UnavailableError("log: the policy's witnesses did not cosign", code="witness_quorum_not_met")

    with serve(publish=publish) as world:
        assert world.get("/readyz").status_code == 200
        assert 'publish_failures_total{code="witness_quorum_not_met"} 1' in world.metrics.text()


# Metrics


def test_metrics_say_what_the_operator_wants_to_know(
    serve: Serve, settings_of: LogSettings, seed_signer: Callable[[str, int, int], Any]
) -> None:
    here, away = (seed_signer(f"witness.example/{n}", SignatureType.COSIGNATURE_ED25519, n) for n in (1, 2))
    witnesses = [WitnessEntry("here", here.verifier_key), WitnessEntry("away", away.verifier_key)]
    policy = make_policy([LogEntry(settings_of.note_signers[0].verifier_key)], witnesses, [], "here")

    def cosign(note: bytes, prove: Any, previous: int, deadline: float) -> Any:
        return (here.cosign(note.decode().partition("\n\n")[0] + "\n", 1_790_000_000),)

    settings = replace(settings_of, policy=policy, cosign=cosign)
    with serve(settings=settings, publish=None, cadence=Cadence(0.05, 3600.0)) as world:
        world.service.registrar.set_policy(RULES, OPERATOR)
        world.service._intake.reload()
        httpx.post(f"{world.url}/entries", content=statement(1))
        httpx.post(f"{world.url}/entries", content=b"garbage")
        deadline = time.monotonic() + 20
        while not world.service.is_published(1):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        text = world.metrics.text()
    lines = set(text.splitlines())
    assert {
        "muniment_log_tree_size 2",
        "muniment_log_published_size 2",
        'muniment_log_statements_total{outcome="registered"} 1',
        'muniment_log_statements_total{outcome="bad_input"} 1',
        'muniment_log_witness_cosigned_timestamp_seconds{witness="here"} 1790000000',
        'muniment_http_requests_total{method="POST",status="202"} 1',
        'muniment_http_requests_total{method="POST",status="400"} 1',
    } <= lines
    for name in ("publish_seconds_count", "published_timestamp_seconds"):
        assert f"\nmuniment_log_{name} " in text
    assert 'muniment_log_witness_answers_total{witness="here",outcome="cosigned"}' in text
    assert 'muniment_log_witness_answers_total{witness="away",outcome="missing"}' in text
    assert "muniment_log_witness_round_seconds_count" in text
    # What is submitted, and by whom, is nobody's business here.
    assert ISSUER not in text
    assert "subject" not in text


# The cadence


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_publishes_on_its_grid_and_not_because_something_was_written() -> None:
    turns: list[Turn | None] = []
    published: list[float] = []
    due = threading.Event()
    due.set()
    cadence = Cadence(0.1, 100.0)
    publisher = Publisher(lambda seconds: published.append(seconds), due.is_set, cadence, turns.append)
    began = time.monotonic()
    publisher.start()
    wait_until(lambda: len(published) >= 4)
    assert len(published) <= (time.monotonic() - began) / 0.1 + 2
    due.clear()
    wait_until(lambda: turns[-2:] == [None, None])
    count = len(published)
    wait_until(lambda: turns[-4:] == [None] * 4)
    publisher.stop()
    assert len(published) == count
    assert set(published) == {10.0}  # what witnesses are granted, however short the interval


def test_refreshes_an_old_checkpoint_and_survives_errors() -> None:
    turns: list[Turn | None] = []

    def publish(seconds: float) -> object:
        raise UnavailableError("not now", code="witness_quorum_not_met")

    publisher = Publisher(publish, lambda: False, Cadence(0.05, 0.05), turns.append)
    publisher.start()
    wait_until(lambda: len(turns) >= 3)
    assert publisher.running()
    publisher.stop()
    assert all(turn is not None and turn.error is not None for turn in turns)


@pytest.mark.parametrize(
    ("every", "refresh"), [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (1e6, 1e6), (10.0, 5.0)]
)
def test_refuses_what_is_no_cadence(every: float, refresh: float) -> None:
    with pytest.raises(MalformedError):
        Cadence(every, refresh)


def test_a_storage_that_must_not_go_on_ends_the_process(serve: Serve, settings_of: LogSettings) -> None:
    ended = threading.Event()
    with serve(on_fatal=ended.set) as world:
        world.service.registrar.set_policy(RULES, OPERATOR)
        world.service._intake.reload()
        world.service._log.private._failed = True  # type: ignore[attr-defined]
        response = httpx.post(f"{world.url}/entries", content=statement(1))
        problem(response, 503)
        assert ended.wait(10)
        assert world.service.fatal is not None
        assert world.service.fatal.code == "storage_failed"


def test_a_log_that_another_has_succeeded_ends_the_process(serve: Serve) -> None:
    ended = threading.Event()
    with serve(on_fatal=ended.set) as world:
        world.service.registrar.set_policy(RULES, OPERATOR)
        world.service._intake.reload()
        world.publish()
        world.log.freeze()
        problem(httpx.post(f"{world.url}/entries", content=statement(1)), 503)
        assert ended.wait(10)


def test_a_cache_keeps_what_was_asked_for_last() -> None:
    cache = FileCache(100)
    for n in range(5):
        cache.put(f"f{n}", b"x" * 20)
    assert cache.get("f0") == b"x" * 20
    cache.put("f5", b"x" * 20)
    assert [cache.get(f"f{n}") is not None for n in range(6)] == [True, False, True, True, True, True]
    cache.put("large", b"x" * 26)
    assert cache.get("large") is None
    cache.put("f0", b"y" * 20)
    assert cache.get("f0") == b"y" * 20


# As a process


class Process:
    """`muniment log serve` on a home, and what it announced."""

    def __init__(self, home: Path, *options: str) -> None:
        command = [sys.executable, "-m", "memory.cli", "log", "serve", "--home", str(home), "--json"]
        command += ["--listen", "127.0.0.1:0", "--rate", "100000", "--burst", "100000"]
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            raise AssertionError(f"it did not start: {self.process.communicate()[1]}")
        self.announced: dict[str, str] = json.loads(line)
        self.url = self.announced["listening"]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def starting(home: Path, *options: str) -> Process:
        processes.append(Process(home, *options))
        return processes[-1]

    yield starting
    for one in processes:
        one.process.kill()
        one.process.communicate()


def muniment(home: Path, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments, "--home", str(home), "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return json.loads(done.stdout)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a memory that has remembered something, and a registration policy beside it."""
    found = tmp_path / "home"
    with open_home(found) as opened:
        opened.memory(with_all_scopes(make_principal("default", "default", "cli"))).remember(
            "the sky is blue", key="sky/colour", value="blue"
        )
    rules = Registration(1, (Issuer(ISSUER, SIGNER.key),))
    (tmp_path / "registration.toml").write_text(format_registration(rules))
    return found


def registration(home: Path) -> tuple[str, str]:
    return "--registration", str(home.parent / "registration.toml")


def own_log(home: Path) -> Log:
    """The log of a home as another process of ours opens it, without signing."""
    origin = (home / "log-state" / "head").read_text().partition("\n")[0]
    signer = make_log_key(home / "keys" / "log.key", origin)
    settings = LogSettings(origin, (signer,), policy=parse_policy((home / "policy.txt").read_bytes()))
    return Log(DirectoryStorage(home / "log"), DirectoryStorage(home / "log-state"), settings)


def refused(home: Path) -> list[Any]:
    """The decisions that an honest log has none of."""
    log = own_log(home)
    operator = Operator(log.settings.origin, (make_cose_key(home / "keys" / "registration.key").key,))
    entries = log.read_entries(0, log.head().size)
    read = lambda digest: log.public.read(document_path(digest))  # noqa: E731
    found = [one for one in replay(entries, read, operator) if one.outcome == "refused"]
    log.close()
    return found


def wait_for(url: str, seconds: float = 30.0) -> bytes:
    deadline = time.monotonic() + seconds
    while True:
        response = httpx.get(url, timeout=30)
        if response.status_code == 200:
            return response.content
        assert response.status_code == 204
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_serves_beside_a_memory_that_writes_and_publishes(home: Path, start: Callable[..., Process]) -> None:
    muniment(home, "log", "publish")
    served = start(
        home, *registration(home), "--publish-every", "0.2", "--wait", "5", "--metrics", "127.0.0.1:0"
    )
    key = cose.decode_key_set(httpx.get(f"{served.url}/.well-known/scitt-keys").content)[0]
    remembered: list[Any] = []

    def remember() -> None:
        for n in range(4):
            remembered.append(muniment(home, "remember", f"fact {n}", "--key", f"k/{n}", "--value", str(n)))
            muniment(home, "log", "publish")

    writing = threading.Thread(target=remember)
    writing.start()
    receipts = {}
    for n in range(25):
        response = httpx.post(f"{served.url}/entries", content=statement(n), timeout=30)
        assert response.status_code in (201, 202)
        receipts[n] = response.headers["location"]
    writing.join()
    for n, location in receipts.items():
        verify_receipt(wait_for(location), statement(n), key)
    assert [one["outcome"] for one in remembered] == ["stored"] * 4
    metrics = httpx.get(f"{served.announced['metrics']}/metrics").text
    assert 'muniment_log_statements_total{outcome="registered"} 25\n' in metrics
    assert httpx.get(f"{served.url}/readyz").text == "ready\n"
    vkey = served.announced["vkey"]
    policy = make_policy([LogEntry(parse_vkey(vkey))], [], [], None)
    with LogClient.from_url(served.url, policy) as client:
        size = client.checkpoint().checkpoint.size
        # Five facts of the memory's, one policy, and what was submitted.
        assert size == 5 + 1 + 25
        assert set(map(statement, range(25))) <= set(client.entries(0, size))
    code, errors = served.stop()
    assert (code, errors) == (0, f"listening on {served.url}\n")
    assert refused(home) == []
    assert muniment(home, "log", "fsck")["size"] == size


def test_two_services_of_one_log_take_each_statement_once(home: Path, start: Callable[..., Process]) -> None:
    services = [start(home, *registration(home), "--publish-every", "0.3", "--wait", "0") for _ in range(2)]

    def submit(n: int) -> str:
        # Every statement goes to both, at about the same time.
        response = httpx.post(f"{services[n % 2].url}/entries", content=statement(n // 2), timeout=30)
        assert response.status_code in (201, 202)
        return response.headers["location"].rsplit("/", 1)[1]

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(submit, range(80)))
    assert names[::2] == names[1::2] == [entry_id(statement(n)) for n in range(40)]
    for n, name in enumerate(names):
        wait_for(f"{services[(n + 1) % 2].url}/entries/{name}")
    for one in services:
        assert one.stop()[0] == 0
    log = own_log(home)
    entries = list(log.read_entries(0, log.head().size))
    assert sorted(entries[1:]) == sorted(map(statement, range(40)))
    assert fsck(log.public, log.private).size == 41
    log.close()
    assert refused(home) == []


def test_what_was_acknowledged_survives_a_kill_before_its_publication(
    home: Path, start: Callable[..., Process]
) -> None:
    taken = set()
    for turn in range(3):
        served = start(home, *registration(home), "--publish-every", "3600", "--wait", "0")
        for n in range(turn * 10, turn * 10 + 10):
            response = httpx.post(f"{served.url}/entries", content=statement(n), timeout=30)
            assert response.status_code == 202
            taken.add(response.headers["location"].rsplit("/", 1)[1])
            assert httpx.get(response.headers["location"]).status_code == 204
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.communicate()
    assert taken == {entry_id(statement(n)) for n in range(30)}
    again = start(home, *registration(home), "--publish-every", "0.2", "--wait", "0")
    key = cose.decode_key_set(httpx.get(f"{again.url}/.well-known/scitt-keys").content)[0]
    for n in range(30):
        receipt = wait_for(f"{again.url}/entries/{entry_id(statement(n))}")
        verify_receipt(receipt, statement(n), key)
    # Submitted again, each is the entry it was.
    assert httpx.post(f"{again.url}/entries", content=statement(7), timeout=30).status_code == 201
    assert again.stop()[0] == 0
    log = own_log(home)
    entries = list(log.read_entries(0, log.head().size))
    assert sorted(entries[1:]) == sorted(map(statement, range(30)))
    fsck(log.public, log.private)
    log.close()
    assert refused(home) == []


async def load(url: str, requests: list[bytes], connections: int) -> list[tuple[int, bytes]]:
    """The status and locator of each answer, on so many connections at once."""
    host, port = url.removeprefix("http://").split(":")
    answers: list[tuple[int, bytes]] = []

    async def ask(mine: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for request in mine:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            await reader.readexactly(int(fields.get(b"content-length", b"0")))
            answers.append((int(head[9:12]), head.partition(b"/entries/")[2].partition(b"\r\n")[0]))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(ask(requests[n::connections]) for n in range(connections)))
    return answers


def post(body: bytes) -> bytes:
    return b"POST /entries HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def test_takes_five_hundred_requests_at_once(home: Path, start: Callable[..., Process]) -> None:
    served = start(home, *registration(home), "--publish-every", "1", "--wait", "1")
    statements = [statement(n) for n in range(500)]
    answers = asyncio.run(asyncio.wait_for(load(served.url, [post(one) for one in statements], 500), 60))
    assert {status for status, _ in answers} <= {201, 202}
    assert {name.decode() for _, name in answers} == set(map(entry_id, statements))
    reads = [b"GET /checkpoint HTTP/1.1\r\nhost: x\r\n\r\n"] * 500
    assert {status for status, _ in asyncio.run(load(served.url, reads, 500))} == {200}
    wait_for(f"{served.url}/entries/{entry_id(statements[-1])}")
    assert served.stop()[0] == 0
    log = own_log(home)
    assert sorted(log.read_entries(1, 501)) == sorted(statements)
    log.close()


def test_a_stop_lets_a_registration_under_way_finish(home: Path, start: Callable[..., Process]) -> None:
    served = start(home, *registration(home), "--publish-every", "3600", "--wait", "6")
    log = own_log(home)
    size = log.head().size
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{served.url}/entries", content=statement(1), timeout=30))
    )
    asking.start()
    wait_until(lambda: log.head().size > size)  # until it is durable, and held back for its receipt
    code, _ = served.stop()
    asking.join()
    assert (code, answers[0].status_code) == (0, 202)
    assert log.read_entry(size) == statement(1)
    log.close()


def test_the_outbox_is_published_where_that_is_asked_for(home: Path, start: Callable[..., Process]) -> None:
    served = start(home, "--publish-every", "0.2", "--with-outbox")
    deadline = time.monotonic() + 20
    while httpx.get(f"{served.url}/tile/entries/000.p/1").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert served.stop()[0] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--listen", "0.0.0.0:0"], "not_loopback"),
        (["--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"], "not_loopback"),
        (["--listen", "nonsense"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--registration", "/no/such/file"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--publish-every", "0"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--wait", "1000"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--rate", "0"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--url", "ftp://x"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--prefix", "x"], "bad_input"),
        (["--listen", "127.0.0.1:0", "--max-unpublished", "0"], "bad_input"),
    ],
)
def test_refuses_to_serve_what_was_not_meant(
    tmp_path: Path, options: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from memory.cli import main
    from memory.wiring import init_home

    init_home(tmp_path / "home").close()
    assert main(["log", "serve", *options, "--home", str(tmp_path / "home"), "--json"]) in (1, 2)
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_other_machines_are_served_only_when_that_is_said(tmp_path: Path) -> None:
    from tlog import cli_serve

    assert cli_serve._address("127.0.0.1:80", public=False) == ("127.0.0.1", 80)
    assert cli_serve._address("0.0.0.0:80", public=True) == ("0.0.0.0", 80)
    with pytest.raises(RefusedError):
        cli_serve._address("0.0.0.0:80", public=False)


def test_a_registration_file_with_the_own_issuers_keys_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from memory.cli import main

    with open_home(home) as opened:
        own = opened.config.issuer
    key = encode_base64(SIGNER.key.encode())
    file = home.parent / "own.toml"
    file.write_text(f'version = 1\n[[issuer]]\nname = "{own}"\ncose_key = "{key}"\n')
    arguments = ["log", "serve", "--listen", "127.0.0.1:0", "--registration", str(file), "--home", str(home)]
    assert main([*arguments, "--json"]) == 2
    assert "own issuer" in json.loads(capsys.readouterr().out)["error"]["message"]


# Threads that end


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("place", ["intake", "publisher"])
def test_a_thread_that_dies_of_a_fault_ends_the_process(
    serve: Serve, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def fault(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with serve(cadence=Cadence(0.05, 3600.0), on_fatal=ended.set) as world:
        assert world.get("/readyz").status_code == 200
        if place == "intake":
            monkeypatch.setattr(world.service._intake, "_take", fault)
            waiting: Future[Accepted] = Future()
            world.service._intake._queue.put(cast(Any, SimpleNamespace(accepted=waiting)))
        else:
            monkeypatch.setattr(world.service, "_is_due", fault)
            world.service._publisher._is_due = fault
        assert ended.wait(20)
        assert world.service.fatal is not None
        assert world.service.fatal.code == "thread_ended"
        deadline = time.monotonic() + 20
        while world.get("/readyz").status_code != 503:  # what is ready is looked at once in a while
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_log_that_another_took_the_place_of_is_no_longer_served(serve: Serve) -> None:
    ended = threading.Event()
    with serve(cadence=Cadence(0.05, 3600.0), publish=None, on_fatal=ended.set) as world:
        world.log.append([statement(1)])
        world.publish()
        world.log.freeze()  # by another process, and nothing is left to publish
        assert ended.wait(20)
        assert world.service.fatal is not None
        assert world.service.fatal.code == "frozen"
