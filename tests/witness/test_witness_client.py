from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tlog.cosignature import verify_cosignature
from tlog.errors import MalformedError, UnavailableError
from tlog.note import format_note, sign_note
from tlog.policy import GroupEntry, LogEntry, Policy, WitnessEntry, make_policy
from witness.client import (
    MAX_RETRIES,
    Answers,
    Failure,
    collect_cosignatures,
    fetch_heads,
    hear_heads,
    make_cosign,
)
from witness.decide import Refuse
from witness.exchange import Exchanges, Reply
from witness.service import Witness
from witness.wire import format_conflict, format_cosignatures, parse_add_checkpoint

SIZE_TYPE = "text/x.tlog.size"
SHORT = 0.6  # a deadline that a test waits for
LONG = 20.0  # one that no test reaches


class Peers:
    """Witnesses w0, w1 … of one policy, each behaving as its test says, and the asking."""

    def __init__(self, sim: Any, log: Any, serve: Callable[[Any], str]) -> None:
        self.sim, self.log, self.serve = sim, log, serve
        self.entries: list[WitnessEntry] = []
        self.proved: list[int] = []

    def cosigner(self, kind: int = 4) -> Any:
        number = len(self.entries)
        return self.sim.make_cosigner(f"witness.example/{number}", 10 + number, kind)

    def add(self, answer: Any, cosigner: Any = None, url: str | None = None) -> Any:
        """One more witness; gives its cosigner."""
        cosigner = cosigner or self.cosigner()
        entry = WitnessEntry(f"w{len(self.entries)}", cosigner.verifier_key, url or self.serve(answer))
        self.entries.append(entry)
        return cosigner

    def add_honest(self, size: int = 0, kind: int = 4) -> Any:
        """A witness that has cosigned the log at `size` and behaves."""
        cosigner = self.cosigner(kind)
        return self.add(honest(self.log, cosigner, size), cosigner)

    def policy(self, quorum: str = "all") -> Policy:
        names = tuple(entry.name for entry in self.entries)
        thresholds = {"all": len(names), "any": 1}
        threshold = thresholds[quorum] if quorum in thresholds else int(quorum)
        group = GroupEntry("quorum", threshold, names)
        return make_policy([LogEntry(self.log.signer.verifier_key)], self.entries, [group], "quorum")

    def ask(self, size: int = 20, previous: int = 10, deadline: float = LONG, quorum: str = "all") -> Answers:
        def prove(old_size: int) -> tuple[bytes, ...]:
            self.proved.append(old_size)
            return tuple(self.log.prove(old_size, size))

        return collect_cosignatures(
            self.policy(quorum), format_note(self.log.note(size)), prove, previous, deadline, clock=clock
        )


@pytest.fixture
def peers(sim: Any, log: Any, serve_peer: Callable[[Any], str]) -> Peers:
    return Peers(sim, log, serve_peer)


def clock() -> int:
    return 1_790_000_000


def cosign(cosigner: Any, log: Any, size: int, timestamp: int = 1_790_000_000) -> bytes:
    return format_cosignatures([cosigner.cosign(log.note(size).text, timestamp)])


def honest(log: Any, cosigner: Any, size: int) -> Any:
    """What a witness at `size` answers; its judgement is simplified, its sizes and signatures are real."""
    known = [size]

    def answer(handler: Any, body: bytes) -> None:
        request = parse_add_checkpoint(body)
        if request.old_size != known[0]:
            send(handler, 409, format_conflict(known[0]), SIZE_TYPE)
            return
        assert request.proof == tuple(log.prove(known[0], request.checkpoint.size))
        known[0] = request.checkpoint.size
        send(handler, 200, cosign(cosigner, log, known[0]))

    return answer


def send(handler: Any, status: int, body: bytes = b"", content_type: str = "text/plain") -> None:
    handler.send_response(status)
    handler.send_header("content-type", content_type)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def sizes(*bodies: bytes) -> Any:
    """A witness that answers 409 with one body after another, the last one for ever; it counts in `asked`."""
    asked: list[int] = []

    def answer(handler: Any, body: bytes) -> None:
        asked.append(parse_add_checkpoint(body).old_size)
        send(handler, 409, bodies[min(len(asked), len(bodies)) - 1], SIZE_TYPE)

    answer.asked = asked  # type: ignore[attr-defined]
    return answer


def names(answers: Answers) -> set[str]:
    return {cosignature.key.name for cosignature in answers.cosignatures}


# What works


def test_collects_verified_cosignatures_of_all(peers: Peers, log: Any) -> None:
    keys = [peers.add_honest(10).verifier_key for _ in range(3)]
    answers = peers.ask()
    assert answers.failures == ()
    assert {cosignature.key for cosignature in answers.cosignatures} == set(keys)
    for cosignature in answers.cosignatures:
        verify_cosignature(cosignature.key, cosignature.line, log.note(20).text)


def test_takes_mldsa_cosignatures(peers: Peers) -> None:
    key = peers.add_honest(10, kind=6).verifier_key
    assert [cosignature.key for cosignature in peers.ask().cosignatures] == [key]


def test_a_witness_with_two_keys_is_asked_once(peers: Peers, log: Any) -> None:
    first, second = peers.sim.make_cosigner("w.example", 5), peers.sim.make_cosigner("w.example", 5, 6)
    asked = []

    def answer(handler: Any, body: bytes) -> None:
        asked.append(1)
        send(handler, 200, cosign(first, log, 20) + cosign(second, log, 20))

    url = peers.serve(answer)
    peers.add(None, first, url)
    peers.add(None, second, url + "/")
    assert len(peers.ask().cosignatures) == 2
    assert len(asked) == 1


def test_a_real_witness_and_its_client_agree(peers: Peers, log: Any, witness: Witness, cosigner: Any) -> None:
    def answer(handler: Any, body: bytes) -> None:
        said = witness.add_checkpoint(body)
        if isinstance(said, Refuse):
            send(handler, said.status, format_conflict(said.known_size or 0), SIZE_TYPE)
        else:
            send(handler, 200, format_cosignatures(said))

    peers.add(answer, cosigner)
    for size, previous in ((5, 0), (9, 5), (9, 9), (20, 3), (40, 40)):
        assert len(peers.ask(size, previous).cosignatures) == 1
    assert peers.ask(size=39, previous=39).failures == (Failure(("w0",), "ahead", None, 40),)


def test_a_witness_that_is_behind_gets_the_proof_from_its_own_size(peers: Peers) -> None:
    for size in (0, 3, 20):  # never asked, behind, and ahead of what we thought
        peers.add_honest(size)
    answers = peers.ask(size=20, previous=10)
    assert len(answers.cosignatures) == 3
    assert sorted(peers.proved) == [3, 10, 10, 10]


def test_a_refresh_reaches_a_witness_that_missed_the_last_head(peers: Peers) -> None:
    peers.add_honest(7)
    assert len(peers.ask(size=20, previous=20).cosignatures) == 1


def test_without_a_quorum_all_are_asked(peers: Peers) -> None:
    peers.add_honest(10)
    peers.add(peers.sim.reply(404))
    policy = make_policy([LogEntry(peers.log.signer.verifier_key)], peers.entries, [], None)
    note = format_note(peers.log.note(20))
    answers = collect_cosignatures(policy, note, lambda old: peers.log.prove(old, 20), 10, LONG, clock=clock)
    assert len(answers.cosignatures) == len(answers.failures) == 1


def test_the_cosign_function_of_a_log_gives_lines_and_tells_failures(peers: Peers, log: Any) -> None:
    peers.add_honest(10)
    peers.add(peers.sim.reply(500))
    failures: list[Failure] = []
    cosign_function = make_cosign(peers.policy(), failures.append, clock=clock)
    arguments = (format_note(log.note(20)), lambda old: log.prove(old, 20), 10, LONG)
    lines = cosign_function(*arguments)
    assert [line.name for line in lines] == ["witness.example/0"]
    assert failures == [Failure(("w1",), "refused", 500)]


@pytest.mark.parametrize("previous", [-1, 21])
def test_refuses_a_previous_size_outside_the_checkpoint(peers: Peers, previous: int) -> None:
    peers.add_honest()
    with pytest.raises(MalformedError):
        peers.ask(20, previous)


@pytest.mark.parametrize("size", [10, 7])
def test_an_error_of_our_own_log_is_not_hidden(peers: Peers, log: Any, size: int) -> None:
    peers.add_honest(size)

    def prove(old_size: int) -> tuple[bytes, ...]:
        if old_size == size:
            raise MalformedError("no such size")
        return tuple(log.prove(old_size, 20))

    with pytest.raises(MalformedError, match="no such size"):
        collect_cosignatures(peers.policy(), format_note(log.note(20)), prove, 10, LONG)


# What witnesses may do wrong


def one_failure(answers: Answers) -> Failure:
    assert answers.cosignatures == ()
    (failure,) = answers.failures
    return failure


@pytest.mark.parametrize("body", [b" 5\n", b"05\n", b"5", b"5\n\n", b"+5\n", b"", b"5\r\n", b"five\n"])
def test_a_malformed_size_is_final(peers: Peers, body: bytes) -> None:
    answer = sizes(body)
    peers.add(answer)
    assert one_failure(peers.ask()).code == "malformed"
    assert answer.asked == [10]


def test_a_conflict_of_another_type_is_final(peers: Peers) -> None:
    peers.add(peers.sim.reply(409, b"5\n", "text/plain"))
    assert one_failure(peers.ask()).code == "malformed"


@pytest.mark.parametrize("size", [21, 99999999999])
def test_a_size_above_ours_is_final_and_told(peers: Peers, size: int) -> None:
    answer = sizes(b"%d\n" % size)
    peers.add(answer)
    assert one_failure(peers.ask()) == Failure(("w0",), "ahead", None, size)
    assert answer.asked == [10]


def test_endless_conflicts_end(peers: Peers) -> None:
    answer = sizes(b"3\n", b"4\n", b"5\n", b"6\n")
    peers.add(answer)
    assert one_failure(peers.ask()).code == "conflict"
    assert answer.asked == [10, 3, 4]
    assert len(answer.asked) == 1 + MAX_RETRIES


def test_a_conflict_that_names_what_we_sent_is_final(peers: Peers) -> None:
    answer = sizes(b"10\n")
    peers.add(answer)
    assert one_failure(peers.ask()).code == "conflict"
    assert answer.asked == [10]


def test_a_conflict_at_our_own_size_is_a_fork_and_final(peers: Peers) -> None:
    answer = sizes(b"20\n")
    peers.add(answer)
    assert one_failure(peers.ask(size=20, previous=10)) == Failure(("w0",), "fork", 409)
    assert answer.asked == [10, 20]


def test_a_422_is_final_and_at_our_own_size_a_fork(peers: Peers) -> None:
    peers.add(peers.sim.reply(422))
    assert one_failure(peers.ask(size=20, previous=20)) == Failure(("w0",), "fork", 422)
    assert one_failure(peers.ask(size=20, previous=10)) == Failure(("w0",), "refused", 422)


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 400, 403, 404, 429, 500, 503])
def test_other_statuses_are_final(peers: Peers, status: int) -> None:
    peers.add(peers.sim.reply(status))
    assert one_failure(peers.ask()) == Failure(("w0",), "refused", status)


def test_no_redirect_is_followed(peers: Peers, log: Any) -> None:
    other = peers.cosigner()
    target = peers.serve(honest(log, other, 10))

    def answer(handler: Any, _: bytes) -> None:
        handler.send_response(307)
        handler.send_header("location", f"{target}/add-checkpoint")
        handler.send_header("content-length", "0")
        handler.end_headers()

    peers.add(answer, other)
    assert one_failure(peers.ask()).code == "refused"


def bad_lines(peers: Peers, log: Any) -> dict[str, bytes]:
    """Answers that no witness w0 may give."""
    mine, stranger = peers.cosigner(), peers.sim.make_cosigner("stranger.example/x", 77)
    good = cosign(mine, log, 20)
    line = mine.cosign(log.note(20).text, 1_790_000_000)
    turned = type(line)(line.name, line.key_id, bytes((*line.signature[:-1], line.signature[-1] ^ 1)))
    other_key = peers.sim.make_cosigner(mine.verifier_key.name, 99).cosign(log.note(20).text, 5)
    return {
        "another head": cosign(mine, log, 19),
        "a fork": cosign(mine, log.fork_at(3), 20),
        "time 0": format_cosignatures([mine.cosign(log.note(20).text, 0)]),
        "a time that no clock has": format_cosignatures(
            [type(line)(line.name, line.key_id, b"\x80" + line.signature[1:])]
        ),
        "a bit turned": format_cosignatures([turned]),
        "one line that holds and one that fails": good + format_cosignatures([turned]),
        "the same line twice": good * 2,
        "a stranger's line only": cosign(stranger, log, 20),
        "our name with another key": format_cosignatures([other_key]),
        "a byte less": format_cosignatures([type(line)(line.name, line.key_id, line.signature[:-1])]),
        "the log's own line": format_cosignatures(sign_note(log.note(20).text, [log.signer]).signatures),
        "nothing": b"",
        "no final newline": good[:-1],
        "more than signature lines": good + b"\n",
        "a whole note": log.note(20).text.encode() + b"\n" + good,
        "an endless body": good + b"x" * 200_000,
    }


def test_a_line_counts_only_once_it_verifies(peers: Peers, log: Any) -> None:
    for what, body in bad_lines(peers, log).items():
        peers.entries.clear()
        peers.add(peers.sim.reply(200, body))
        assert one_failure(peers.ask()).code in ("malformed", "not_verified"), what


def test_lines_of_unknown_keys_are_passed_over(peers: Peers, log: Any) -> None:
    mine, stranger = peers.cosigner(), peers.sim.make_cosigner("stranger.example/x", 77)
    peers.add(peers.sim.reply(200, cosign(stranger, log, 20) + cosign(mine, log, 20)), mine)
    assert names(peers.ask()) == {"witness.example/0"}


def test_one_bad_witness_spoils_nothing_of_the_others(peers: Peers, log: Any) -> None:
    peers.add(peers.sim.reply(200, b"\x00garbage\xff"))
    peers.add_honest(10)
    answers = peers.ask()
    assert names(answers) == {"witness.example/1"}
    assert answers.failures == (Failure(("w0",), "malformed"),)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1", "ftp://127.0.0.1", "nonsense", "http://no-such-host.invalid"]
)
def test_an_address_that_answers_nothing_is_a_failure(peers: Peers, url: str) -> None:
    peers.add(None, url=url)
    assert one_failure(peers.ask()).code in ("unreachable", "late")


# Time


@pytest.fixture
def raw_peer() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """A TCP peer that does as told with each connection, and gives its URL."""
    ended = threading.Event()
    listeners: list[socket.socket] = []

    def start(behave: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def talk(connection: socket.socket) -> None:
            with connection:
                try:
                    while not ended.is_set():
                        behave(connection)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    ended.set()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def hang(connection: socket.socket) -> None:
    time.sleep(0.02)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-a: ")
    while True:
        connection.sendall(b"a")
        time.sleep(0.02)


def drip_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")
    while True:
        connection.sendall(b"a")
        time.sleep(0.02)


def drip_interim(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.02)


@pytest.mark.parametrize("behave", [hang, drip_headers, drip_body, drip_interim])
def test_a_hung_witness_delays_nobody_beyond_the_deadline(peers: Peers, raw_peer: Any, behave: Any) -> None:
    peers.add_honest(10)
    peers.add(None, url=raw_peer(behave))
    began = time.monotonic()
    answers = peers.ask(deadline=SHORT)
    assert time.monotonic() - began < SHORT + 0.3
    assert names(answers) == {"witness.example/0"}
    assert answers.failures == (Failure(("w1",), "late"),)
    assert_no_exchange_is_left(within_seconds=2 * SHORT)


@pytest.mark.parametrize(
    ("quorum", "expected"),
    [
        ("all", {"w0": "cosigned", "w1": "refused", "w2": "late"}),
        ("any", {"w0": "cosigned", "w2": "waiting"}),
    ],
)
def test_each_witness_is_heard_of_once_with_its_outcome(
    peers: Peers, raw_peer: Any, quorum: str, expected: dict[str, str]
) -> None:
    """Once though the first one is asked twice, for it has an older head than was thought."""
    peers.add_honest(5)
    if "w1" in expected:
        peers.add(peers.sim.reply(500))
    else:
        peers.add_honest(9)
    peers.add(None, url=raw_peer(hang))
    heard = peers.ask(deadline=SHORT if quorum == "all" else LONG, quorum=quorum).heard
    assert len(heard) == len({one.name for one in heard}) == 3
    found = {one.name: one for one in heard}
    assert {name: found[name].outcome for name in expected} in (expected, {**expected, "w0": "waiting"})
    for one in heard:
        assert (one.seconds is None) == (one.outcome == "waiting")


def assert_no_exchange_is_left(within_seconds: float) -> None:
    end = time.monotonic() + within_seconds
    while any(thread.name == "muniment-exchange" for thread in threading.enumerate()):
        assert time.monotonic() < end, "a thread outlives its deadline"
        time.sleep(0.02)


def test_stops_at_the_quorum(peers: Peers, raw_peer: Any) -> None:
    for _ in range(2):
        peers.add_honest(10)
    peers.add(None, url=raw_peer(hang))
    began = time.monotonic()
    answers = peers.ask(deadline=LONG, quorum="2")
    assert time.monotonic() - began < LONG / 4
    assert len(answers.cosignatures) == 2
    assert answers.failures == ()


def test_a_witness_slower_than_the_quorum_still_sees_the_head(peers: Peers, log: Any) -> None:
    seen, slow = threading.Event(), peers.cosigner()

    def answer(handler: Any, body: bytes) -> None:
        time.sleep(0.3)
        send(handler, 200, cosign(slow, log, 20))
        seen.set()

    peers.add(answer, slow)
    peers.add_honest(10)
    assert names(peers.ask(quorum="any")) == {"witness.example/1"}
    assert seen.wait(LONG)


def test_slow_witnesses_are_asked_side_by_side(peers: Peers, log: Any) -> None:
    for _ in range(6):
        cosigner = peers.cosigner()

        def answer(handler: Any, body: bytes, cosigner: Any = cosigner) -> None:
            time.sleep(0.3)
            send(handler, 200, cosign(cosigner, log, 20))

        peers.add(answer, cosigner)
    began = time.monotonic()
    assert len(peers.ask().cosignatures) == 6
    assert time.monotonic() - began < 6 * 0.3


def test_a_deadline_that_has_passed_is_not_waited_for(peers: Peers) -> None:
    peers.add_honest(10)
    began = time.monotonic()
    assert peers.ask(deadline=0).cosignatures == ()
    assert time.monotonic() - began < 0.5


def test_a_reply_is_read_up_to_its_limit(peers: Peers) -> None:
    exchanges: Exchanges[int] = Exchanges(LONG, 10)
    for size in (10, 11):
        exchanges.start(size, "GET", peers.serve(peers.sim.reply(200, b"x" * size)))
    ended = dict(one for one in (exchanges.next(), exchanges.next()) if one)
    assert ended[10] == Reply(200, "text/plain", b"x" * 10)
    assert isinstance(ended[11], UnavailableError)
    assert ended[11].code == "malformed"
    assert exchanges.next() is None


def test_an_exchange_under_way_does_not_keep_the_process(raw_peer: Any) -> None:
    code = (
        "import sys\nfrom witness.exchange import Exchanges\nexchanges = Exchanges(60, 10)\n"
        "exchanges.start(1, 'GET', sys.argv[1])\nexchanges.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code, raw_peer(hang)], env=environment, check=True, timeout=20)


# The heads that witnesses serve


def test_fetches_the_heads_that_witnesses_serve(peers: Peers, log: Any, sim: Any) -> None:
    def serving(source: Any, size: int, cosigner: Any) -> Any:
        note = source.note(size)
        line = cosigner.cosign(note.text, 1_790_000_000)
        return sim.reply(200, format_note(type(note)(note.text, (*note.signatures, line))))

    for size in (7, 30):
        cosigner = peers.cosigner()
        peers.add(serving(log, size, cosigner), cosigner)
    peers.add(sim.reply(404))
    peers.add(sim.reply(200, b"garbage"))
    peers.add(
        sim.reply(200, format_note(log.note(12)))
    )  # without a cosignature: the log signed it all the same
    stranger = sim.make_cosigner("stranger.example/x", 77)
    peers.add(serving(log, 13, stranger))
    other_log = sim.Log(log.entries, seed=9)
    cosigner = peers.cosigner()
    peers.add(serving(other_log, 14, cosigner), cosigner)
    heads = fetch_heads(peers.policy(), log.origin, LONG)
    assert sorted((head.names, head.opened.checkpoint.size) for head in heads) == [
        (("w0",), 7),
        (("w1",), 30),
        (("w4",), 12),
        (("w5",), 13),
    ]
    heard = hear_heads(peers.policy(), log.origin, LONG)
    assert sorted(head.names for head in heard.heads if not head.cosignatures) == [("w4",), ("w5",)]
    # To have no such log is an answer; garbage and another log's head are none.
    assert heard.silent == ("w3", "w6")


def test_a_policy_without_addresses_asks_nobody(sim: Any, log: Any) -> None:
    entry = WitnessEntry("w0", sim.make_cosigner().verifier_key)
    policy = make_policy([LogEntry(log.signer.verifier_key)], [entry], [], "w0")
    note = format_note(log.note(5))
    assert collect_cosignatures(policy, note, lambda old: (), 0, LONG) == Answers((), ())
