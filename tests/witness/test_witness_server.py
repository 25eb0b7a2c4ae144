from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tlog import web
from tlog.cosignature import verify_cosignature
from tlog.errors import UnavailableError, VerificationError
from tlog.keys import make_cosigner_key
from tlog.note import open_note, parse_note
from witness.decide import Refuse
from witness.server import make_app
from witness.service import Witness
from witness.store import open_store
from witness.wire import (
    MAX_BODY_BYTES,
    format_add_checkpoint,
    origin_digest,
    parse_cosignatures,
)

ROUNDS = 100
START_SECONDS = 30


def times(witness_lines: Any, text: str, *keys: Any) -> list[int]:
    """The times of the lines, each of which must be of one of the keys and hold."""
    by_id = {key.key_id: key for key in keys}
    return [verify_cosignature(by_id[line.key_id], line, text).timestamp for line in witness_lines]


# Without HTTP


def test_cosigns_and_cosigns_again_with_a_fresh_time(
    witness: Witness, log: Any, clock: Any, cosigner: Any
) -> None:
    first = witness.add_checkpoint(log.body(0, 5))
    clock.now += 60
    second = witness.add_checkpoint(log.body(5, 5))
    clock.now += 60
    third = witness.add_checkpoint(log.body(5, 20))
    key = cosigner.verifier_key
    found = times(first, log.note(5).text, key) + times(second, log.note(5).text, key)
    assert found + times(third, log.note(20).text, key) == [clock.now - 120, clock.now - 60, clock.now]


def test_the_same_head_in_one_second_is_signed_and_stored_once(
    store: Any, log: Any, clock: Any, sim: Any
) -> None:
    steps: list[str] = []
    witness = Witness(store, [sim.make_cosigner()], clock, steps.append)
    assert witness.add_checkpoint(log.body(0, 5)) == witness.add_checkpoint(log.body(5, 5))
    assert steps == ["signed", "stored"]


def test_a_clock_that_steps_back_does_not_turn_times_back(
    witness: Witness, log: Any, clock: Any, cosigner: Any
) -> None:
    witness.add_checkpoint(log.body(0, 5))
    clock.now -= 60
    lines = witness.add_checkpoint(log.body(5, 6))
    assert times(lines, log.note(6).text, cosigner.verifier_key) == [clock.now + 60]
    clock.now -= 3600
    with pytest.raises(UnavailableError):
        witness.add_checkpoint(log.body(6, 7))
    clock.now = 0
    with pytest.raises(UnavailableError):
        witness.add_checkpoint(log.body(6, 7))


def test_serves_what_it_answered(witness: Witness, log: Any, sim: Any) -> None:
    digest = origin_digest(log.origin)
    assert witness.checkpoint(digest) is None
    lines = witness.add_checkpoint(log.body(0, 5))
    served = parse_note(witness.checkpoint(digest) or b"")
    assert served.text == log.note(5).text
    assert served.signatures == (*log.note(5).signatures, *lines)  # type: ignore[misc]


def test_serves_no_line_that_it_did_not_verify(witness: Witness, log: Any, sim: Any) -> None:
    stranger = sim.make_log_signer("stranger.example/x", 9).sign(log.note(5).text)
    body = log.body(0, 5) + stranger.line.encode()
    assert not isinstance(witness.add_checkpoint(body), Refuse)
    assert b"stranger" not in (witness.checkpoint(origin_digest(log.origin)) or b"")


def test_answers_with_one_line_for_each_key(store: Any, clock: Any, log: Any, sim: Any) -> None:
    cosigners = [sim.make_cosigner(), sim.make_cosigner(kind=6)]
    witness = Witness(store, cosigners, clock)
    lines = witness.add_checkpoint(log.body(0, 5))
    assert times(lines, log.note(5).text, *(one.verifier_key for one in cosigners)) == [clock.now] * 2
    served = witness.checkpoint(origin_digest(log.origin))
    assert served is not None
    assert len(parse_note(served).signatures) == 3


def test_keeps_both_notes_of_a_refused_fork(witness: Witness, store: Any, log: Any) -> None:
    fork = log.fork_at(3)
    witness.add_checkpoint(log.body(0, 5))
    refused = witness.add_checkpoint(fork.body(5, 5))
    assert isinstance(refused, Refuse)
    (one,) = store.evidence()
    for note in (one.note, one.known_note):
        assert open_note(parse_note(note), [log.signer.verifier_key])
    assert parse_note(one.note).text == fork.note(5).text
    assert parse_note(one.known_note).text == log.note(5).text


def test_a_head_stored_in_between_wins_and_the_signature_is_dropped(
    store: Any, log: Any, clock: Any, sim: Any
) -> None:
    """The race of the specification: both requests are judged, one is stored, then the other one arrives."""
    fork = log.fork_at(5)
    other = Witness(store, [sim.make_cosigner()], clock)
    raced = []

    def store_another(name: str) -> None:
        if name == "signed" and not raced:
            raced.append(other.add_checkpoint(fork.body(5, 9)))

    witness = Witness(store, [sim.make_cosigner()], clock, store_another)
    other.add_checkpoint(log.body(0, 5))
    answer = witness.add_checkpoint(log.body(5, 8))
    assert isinstance(answer, Refuse)
    assert (answer.status, answer.known_size) == (409, 9)
    record = store.log(log.origin)
    assert record.cosigned.head.root == fork.checkpoint(9).root


def test_a_failed_write_releases_no_signature(
    store: Any, log: Any, clock: Any, sim: Any, state: Path
) -> None:
    witness = Witness(store, [sim.make_cosigner()], clock)
    blocker = open_store(state)
    store._connection.set_busy_timeout(10)
    blocker._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError):
        witness.add_checkpoint(log.body(0, 5))
    blocker._connection.execute("ROLLBACK")
    blocker.close()
    assert not isinstance(witness.add_checkpoint(log.fork_at(3).body(0, 5)), Refuse)


# Over HTTP


@contextlib.contextmanager
def running(app: Any, limits: web.Limits | None = None) -> Iterator[str]:
    """The URL of an application served by a thread of this process."""
    started = threading.Event()
    urls: list[str] = []

    def announce(url: str) -> None:
        urls.append(url)
        started.set()

    server = web.make_server(app, "127.0.0.1", 0, limits or web.Limits(), announce)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(START_SECONDS)
    try:
        yield urls[0]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def url(witness: Witness) -> Iterator[str]:
    with running(make_app(witness)) as address:
        yield address


def test_statuses_and_bodies_are_those_of_the_protocol(url: str, log: Any, sim: Any, cosigner: Any) -> None:
    fork = log.fork_at(3)
    stranger = sim.Log(log.entries, "log.example/unknown")

    def post(body: bytes) -> httpx.Response:
        return httpx.post(f"{url}/add-checkpoint", content=body)

    first = post(log.body(0, 5))
    assert (first.status_code, first.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert times(parse_cosignatures(first.content), log.note(5).text, cosigner.verifier_key)
    conflict = post(log.body(3, 9))
    assert (conflict.status_code, conflict.content) == (409, b"5\n")
    assert conflict.headers["content-type"] == "text/x.tlog.size"
    body = format_add_checkpoint(5, (), log.note(9))
    cases = {
        400: [b"", b"hello\n", format_add_checkpoint(9, (), log.note(7)), log.body(5, 9)[:-1]],
        403: [b"old 5\n\n" + sim.tampered(log.note(5))],
        404: [stranger.body(0, 5)],
        422: [body, fork.body(5, 5), fork.body(5, 9), format_add_checkpoint(5, (b"\1" * 32,), log.note(5))],
        200: [log.body(5, 5), log.body(5, 9), log.body(9, 9)],
        413: [b"old 5\n\n" + b"x" * MAX_BODY_BYTES],
    }
    for status, bodies in cases.items():
        for body in bodies:
            response = post(body)
            assert response.status_code == status, (status, body)
            if status != 200:
                assert response.headers["content-type"] == "application/problem+json"


def test_first_contact_with_another_old_size_names_size_0(url: str, log: Any) -> None:
    response = httpx.post(f"{url}/add-checkpoint", content=log.body(5, 9))
    assert (response.status_code, response.content) == (409, b"0\n")


def test_monitors_get_the_cosigned_checkpoint(url: str, log: Any) -> None:
    path = f"{url}/{origin_digest(log.origin).hex()}/checkpoint"
    assert httpx.get(path).status_code == 404
    answer = httpx.post(f"{url}/add-checkpoint", content=log.body(0, 5))
    served = httpx.get(path)
    assert served.status_code == 200
    assert served.content.endswith(answer.content)
    assert open_note(parse_note(served.content), [log.signer.verifier_key])
    for other in ("0" * 64, "0" * 63, "A" * 64, origin_digest(log.origin).hex().upper()):
        assert httpx.get(f"{url}/{other}/checkpoint").status_code == 404


def test_other_paths_and_methods_are_refused(url: str) -> None:
    assert httpx.get(f"{url}/healthz").text == "ok\n"
    wrong = httpx.get(f"{url}/add-checkpoint")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    for path in ("/", "/docs", "/openapi.json", "/add-checkpoint/"):
        assert httpx.get(url + path).status_code == 404


def test_a_damaged_database_is_not_held_against_the_log(store: Any, log: Any, sim: Any) -> None:
    class Damaged(Witness):
        def add_checkpoints(self, bodies: Any) -> Any:
            return [VerificationError("witness: the database is damaged", code="state_lost") for _ in bodies]

    with running(make_app(Damaged(store, [sim.make_cosigner()]))) as address:
        assert httpx.post(f"{address}/add-checkpoint", content=log.body(0, 5)).status_code == 500


def test_a_connection_is_kept_for_more_requests(url: str, log: Any) -> None:
    connections = set()

    def trace(event: str, info: Any) -> None:
        if event.endswith("connect_tcp.complete"):
            connections.add(info["return_value"])

    with httpx.Client() as client:
        for size in range(1, 5):
            response = client.post(
                f"{url}/add-checkpoint", content=log.body(size - 1, size), extensions={"trace": trace}
            )
            assert response.status_code == 200
    assert len(connections) == 1


# Processes

SERVE = """
import os, signal, sys, time
from pathlib import Path
from tlog.keys import load_cosigner_key
from witness.server import serve
from witness.service import Witness
from witness.store import open_store
state, kill_at = Path(sys.argv[1]), sys.argv[2]
def failpoint(name):
    if name == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
witness = Witness(open_store(state), [load_cosigner_key(state / "key")], failpoint=failpoint)
serve(witness, "127.0.0.1", 0, lambda url: print(url, flush=True))
"""


@pytest.fixture
def start(state: Path) -> Iterator[Callable[..., tuple[str, subprocess.Popen[str]]]]:
    """Starts a witness process on the shared state; gives its URL."""
    make_cosigner_key(state / "key", "witness.example/w")
    processes: list[subprocess.Popen[str]] = []

    def run(kill_at: str = "") -> tuple[str, subprocess.Popen[str]]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(state), kill_at],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip(), process

    yield run
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_two_processes_never_cosign_two_forks(start: Any, state: Path, sim: Any) -> None:
    """Each round both forks of the last head are sent to both processes at once, and nothing limits their rate.

    A tenth of the 1,000 rounds that `tests/soak_witness.py` goes through, with processes killed meanwhile.
    """
    urls = [start()[0], start()[0]]
    key = make_cosigner_key(state / "key", "witness.example/w").verifier_key
    entries: tuple[bytes, ...] = ()
    winners = {"even": 0, "odd": 0}
    with ThreadPoolExecutor(4) as pool, httpx.Client() as client:

        def post(url: str, fork: Any, size: int) -> tuple[int, bytes, Any]:
            response = client.post(f"{url}/add-checkpoint", content=fork.body(size - 1, size), timeout=30)
            return response.status_code, response.content, fork

        for size in range(1, ROUNDS + 1):
            forks = {name: sim.Log((*entries, name.encode())) for name in winners}
            tries = list(itertools.product(urls, forks.values()))
            answers = list(pool.map(lambda one, size=size: post(*one, size), tries))  # type: ignore[misc]
            cosigned = {fork.entries for status, _, fork in answers if status == 200}
            assert len(cosigned) == 1, [status for status, _, _ in answers]
            # The loser of a race is told the new size, or that its root is another one: nothing else.
            assert {status for status, _, _ in answers} <= {200, 409, 422}
            for status, body, fork in answers:
                if status == 200:
                    times(parse_cosignatures(body), fork.note(size).text, key)
            (entries,) = cosigned
            winners[entries[-1].decode()] += 1
    store = open_store(state)
    record = store.log(sim.ORIGIN)
    assert record is not None
    assert record.cosigned is not None
    assert record.cosigned.head.size == ROUNDS
    assert record.cosigned.head.root == sim.Log(entries).checkpoint(ROUNDS).root
    kinds = [one.kind for one in store.evidence()]
    assert kinds == ["fork"] * ROUNDS
    store.close()


def test_killed_before_it_is_stored_nothing_was_cosigned(start: Any, log: Any) -> None:
    fork = log.fork_at(3)
    url, process = start("signed")
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{url}/add-checkpoint", content=fork.body(0, 5))
    assert process.wait(10) == -signal.SIGKILL
    url, _ = start()
    assert httpx.post(f"{url}/add-checkpoint", content=log.body(0, 5)).status_code == 200


def test_killed_between_storing_and_answering_loses_nothing(start: Any, log: Any, state: Path) -> None:
    fork = log.fork_at(3)
    url, process = start("stored")
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{url}/add-checkpoint", content=log.body(0, 5))
    assert process.wait(10) == -signal.SIGKILL
    url, _ = start()
    # Whoever didn't get the answer learns the size and gets it again; a fork gets nothing.
    again = httpx.post(f"{url}/add-checkpoint", content=log.body(0, 5))
    assert (again.status_code, again.content) == (409, b"5\n")
    assert httpx.post(f"{url}/add-checkpoint", content=fork.body(5, 5)).status_code == 422
    assert httpx.post(f"{url}/add-checkpoint", content=log.body(5, 5)).status_code == 200
    assert httpx.get(f"{url}/{origin_digest(log.origin).hex()}/checkpoint").status_code == 200


def test_killed_at_any_moment_it_forgets_no_answer(start: Any, log: Any, state: Path) -> None:
    size = 0
    for delay in (0.02, 0.05, 0.09):
        url, process = start()
        threading.Timer(delay, process.kill).start()
        try:
            while size < log.size:
                response = httpx.post(f"{url}/add-checkpoint", content=log.body(size, size + 1))
                assert response.status_code == 200
                size += 1
        except httpx.TransportError:
            pass
        process.wait(10)
        store = open_store(state)
        record = store.log(log.origin)
        store.close()
        assert record is not None
        stored = record.cosigned.head.size if record.cosigned else 0
        assert stored in (size, size + 1)  # at most the one request whose answer never left
        size = stored


def test_sigterm_ends_it_cleanly(start: Any, log: Any) -> None:
    url, process = start()
    with httpx.Client() as client:  # an idle connection must not hold it up
        client.get(f"{url}/healthz")
        process.terminate()
        assert process.wait(10) == 0
