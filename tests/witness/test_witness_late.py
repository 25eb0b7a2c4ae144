"""Answers that come after the quorum: heard all the same, without holding up the publication that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tlog.log_metrics import LogMetrics
from tlog.metrics import Metrics
from tlog.note import format_note
from tlog.policy import GroupEntry, LogEntry, Policy, WitnessEntry, make_policy
from tlog.storage import DirectoryStorage
from witness import go_on
from witness.client import Failure, Heard, ask_witnesses, make_cosign
from witness.remembered import Lie, Remembered
from witness.wire import format_cosignatures, parse_add_checkpoint

TIME = 1_790_000_000
REPOSITORY = Path(__file__).resolve().parent.parent.parent
LONG = 20.0

Said = tuple[int, bytes, str]


class Slow:
    """A policy of which any one makes the quorum: h, who cosigns at once, and f, who answers when let."""

    def __init__(self, sim: Any, log: Any, serve: Any, folder: Path) -> None:
        self.log = log
        self.h, self.f = sim.make_cosigner("h.example", 11), sim.make_cosigner("f.example", 12)
        self.let = threading.Event()
        self.let.set()
        self.says: Callable[[Any], Said] = self.cosigned(self.f)
        self.h_url = serve(self._answer(lambda request: self.cosigned(self.h)(request)))
        self.f_url = serve(self._answer(lambda request: self.f_answer(request)))
        self.remembered = Remembered(DirectoryStorage(folder))
        self.failures: list[Failure] = []
        self.heard: list[Heard] = []

    def cosigned(self, cosigner: Any, time: int = TIME) -> Callable[[Any], Said]:
        def answer(request: Any) -> Said:
            return 200, format_cosignatures([cosigner.cosign(request.note.text, time)]), "text/plain"

        return answer

    def f_answer(self, request: Any) -> Said:
        assert self.let.wait(LONG)
        return self.says(request)

    def _answer(self, says: Callable[[Any], Said]) -> Any:
        def answer(handler: Any, body: bytes) -> None:
            status, said, media_type = says(parse_add_checkpoint(body))
            handler.send_response(status)
            handler.send_header("content-type", media_type)
            handler.send_header("content-length", str(len(said)))
            handler.end_headers()
            handler.wfile.write(said)

        return answer

    def policy(self, threshold: int = 1) -> Policy:
        entries = [
            WitnessEntry("f", self.f.verifier_key, self.f_url),
            WitnessEntry("h", self.h.verifier_key, self.h_url),
        ]
        group = GroupEntry("g", threshold, ("f", "h"))
        return make_policy([LogEntry(self.log.signer.verifier_key)], entries, [group], "g")

    def publish(self, size: int, deadline: float = LONG, threshold: int = 1) -> int:
        """How many cosignatures were had."""
        cosign = make_cosign(
            self.policy(threshold), self.failures.append, self.remembered, self.heard.append, lambda: TIME
        )
        note = format_note(self.log.note(size))
        return len(cosign(note, lambda old: self.log.prove(old, size), 0, deadline))

    def publish_before_f(self, size: int, says: Callable[[Any], Said], deadline: float = LONG) -> None:
        """One publication that f's answer comes too late for."""
        self.says = says
        self.let.clear()
        self.heard.clear()
        assert self.publish(size, deadline) == 1
        assert {(one.name, one.outcome) for one in self.heard} == {("f", "waiting"), ("h", "cosigned")}

    def hear_the_rest(self) -> list[Heard]:
        """What was heard once f may answer, and has been listened to."""
        self.heard.clear()
        self.let.set()
        go_on.await_all(LONG)
        return self.heard

    def kinds(self) -> list[str]:
        return [lie["kind"] for lie in self.remembered.lies()]

    def hint(self) -> int | None:
        return self.remembered.load(self.log.origin).sizes.get(self.f_url)


@pytest.fixture
def slow(sim: Any, log: Any, serve_peer: Any, tmp_path: Path) -> Slow:
    return Slow(sim, log, serve_peer, tmp_path / "witnesses")


def test_a_wrong_signature_after_the_quorum_is_kept_and_told(slow: Slow) -> None:
    other = slow.log.note(9).text
    line = format_cosignatures([slow.f.cosign(other, TIME)])
    slow.publish_before_f(10, lambda request: (200, line, "text/plain"))
    assert slow.kinds() == []
    assert [(one.name, one.outcome) for one in slow.hear_the_rest()] == [("f", "not_verified"), ("f", "lied")]
    assert slow.kinds() == ["not_verified"]
    assert slow.failures == [Failure(("f",), "not_verified"), Failure(("f",), "lied")]


def test_a_size_after_the_quorum_is_remembered_and_what_it_denies_is_kept(slow: Slow) -> None:
    assert slow.publish(10, threshold=2) == 2
    assert slow.hint() == 10
    slow.publish_before_f(20, lambda request: (409, b"0\n", "text/x.tlog.size"))
    assert slow.hint() == 10
    outcomes = {(one.name, one.outcome) for one in slow.hear_the_rest()}
    assert outcomes == {("f", "missing"), ("f", "lied")}
    assert slow.hint() == 0
    (lie,) = slow.remembered.lies()
    assert (lie["kind"], lie["later"], lie["heard_at"]) == ("forgot", "0\n", TIME)


def test_a_cosignature_after_the_quorum_is_heard_of_once_and_remembered(slow: Slow) -> None:
    slow.publish_before_f(10, slow.cosigned(slow.f))
    (one,) = slow.hear_the_rest()
    assert (one.name, one.outcome, one.seconds is not None) == ("f", "cosigned", True)
    assert slow.hint() == 10
    assert slow.f.verifier_key.vkey in slow.remembered.load(slow.log.origin).notes
    assert (slow.kinds(), slow.failures) == ([], [])


def test_who_never_answers_is_late_at_the_deadline_and_the_quorum_did_not_wait(slow: Slow) -> None:
    slow.publish_before_f(10, slow.cosigned(slow.f), deadline=0.5)
    slow.heard.clear()
    go_on.await_all(LONG)
    assert [(one.name, one.outcome) for one in slow.heard] in ([("f", "late")], [("f", "unreachable")])
    slow.let.set()


def test_what_is_heard_late_does_not_undo_what_a_later_round_has_learnt(slow: Slow) -> None:
    slow.publish_before_f(10, slow.cosigned(slow.f))
    late = go_on._working.copy()
    before = slow.remembered.load(slow.log.origin)
    line = slow.f.cosign(slow.log.note(20).text, TIME)
    newer = format_note(type(slow.log.note(20))(slow.log.note(20).text, (line,))).decode()
    after = type(before)(before.sizes, {**before.notes, slow.f.verifier_key.vkey: newer})
    slow.remembered.save(slow.log.origin, before, after)
    assert len(late) == 1
    slow.hear_the_rest()
    assert slow.remembered.load(slow.log.origin).notes[slow.f.verifier_key.vkey] == newer
    assert slow.h.verifier_key.vkey in slow.remembered.load(slow.log.origin).notes


def test_metrics_count_who_was_waiting_once_it_answered(slow: Slow) -> None:
    metrics = Metrics()
    counted = LogMetrics(metrics)
    policy = slow.policy()
    slow.let.clear()
    cosign = make_cosign(
        policy,
        on_heard=lambda one: counted.on_witness(one.name, one.outcome, one.seconds),
        clock=lambda: TIME,
    )
    note = format_note(slow.log.note(10))
    counted.observed(cosign, policy)(note, lambda old: (), 0, LONG)
    assert 'witness="f"' not in metrics.text()
    slow.hear_the_rest()
    assert 'muniment_log_witness_answers_total{witness="f",outcome="cosigned"} 1' in metrics.text()
    assert "missing" not in metrics.text()


COMMAND = """
import json, sys, time
from tlog.policy import parse_policy
from tlog.storage import DirectoryStorage
from witness.client import make_cosign
from witness.remembered import Remembered
policy, note, folder, deadline = sys.argv[1:]
cosign = make_cosign(parse_policy(policy), remembered=Remembered(DirectoryStorage(folder)))
lines = cosign(note.encode(), lambda old: (), 0, float(deadline))
print(len(lines), flush=True)
"""


def run_command(slow: Slow, folder: Path, let: Callable[[], None]) -> tuple[int, float]:
    """A process that publishes and ends: its exit code, and how long it took to end after the quorum."""
    slow.let.clear()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", COMMAND, slow.policy().text),
            *(format_note(slow.log.note(10)).decode(), str(folder), "30"),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    began = time.monotonic()
    let()
    code = process.wait(timeout=20)
    process.stdout.close()
    return code, time.monotonic() - began


def test_a_command_listens_for_a_moment_before_it_ends(slow: Slow, tmp_path: Path, monkeypatch: Any) -> None:
    now = int(time.time())
    monkeypatch.setattr(slow, "cosigned", lambda cosigner: Slow.cosigned(slow, cosigner, now))
    wrong = format_cosignatures([slow.f.cosign(slow.log.note(9).text, now)])
    slow.says = lambda request: (200, wrong, "text/plain")
    code, _ = run_command(slow, tmp_path / "kept", slow.let.set)
    assert code == 0
    (lie,) = Remembered(DirectoryStorage(tmp_path / "kept")).lies()
    assert lie["kind"] == "not_verified"


def test_a_command_ends_though_a_witness_hangs(slow: Slow, tmp_path: Path, monkeypatch: Any) -> None:
    now = int(time.time())
    monkeypatch.setattr(slow, "cosigned", lambda cosigner: Slow.cosigned(slow, cosigner, now))
    code, _ = run_command(
        slow, tmp_path / "kept", lambda: None
    )  # f is let go only when the process has ended
    assert code == 0
    assert not slow.let.is_set()
    slow.let.set()


def test_a_function_of_the_package_asks_by_the_clock_of_the_machine(slow: Slow, monkeypatch: Any) -> None:
    now = int(time.time())
    monkeypatch.setattr(slow, "cosigned", lambda cosigner: Slow.cosigned(slow, cosigner, now))
    note = format_note(slow.log.note(10))
    assert [line.name for line in ask_witnesses(slow.policy(), note, lambda old: (), 0, LONG)] in (
        ["h.example"],
        ["f.example"],
    )


# Times


@pytest.mark.parametrize(("ahead", "taken"), [(300, True), (-300, True), (301, False), (-301, False)])
def test_a_cosignature_counts_if_its_time_is_that_of_the_question(
    slow: Slow, ahead: int, taken: bool
) -> None:
    slow.says = slow.cosigned(slow.f, TIME + ahead)
    had = slow.publish(10, threshold=2)
    if taken:
        assert (had, slow.failures, slow.kinds()) == (2, [], [])
        return
    assert had == 1
    assert slow.failures == [Failure(("f",), "misdated"), Failure(("f",), "lied")]
    (lie,) = slow.remembered.lies()
    assert (lie["kind"], lie["heard_at"], lie["names"]) == ("misdated", TIME, ["f"])
    assert slow.f.verifier_key.vkey not in slow.remembered.load(slow.log.origin).notes


def test_a_wrong_time_does_not_keep_two_roots_from_being_noticed(slow: Slow) -> None:
    assert slow.publish(10, threshold=2) == 2
    slow.log = slow.log.fork_at(3)
    slow.says = slow.cosigned(slow.f, TIME + 10**6)
    slow.publish(10, threshold=2)
    assert sorted(slow.kinds()) == ["misdated", "two_roots", "two_roots"]  # the peer h cosigns anything too


# What is kept


def lie(kind: Any, number: int, url: str = "u") -> Lie:
    return Lie(kind, ("w",), url, b"note", b"%d" % number)


def test_lies_that_cost_nothing_drive_out_no_proof_and_no_other_witness_s(tmp_path: Path) -> None:
    remembered = Remembered(DirectoryStorage(tmp_path))
    remembered.keep(lie("forgot", 1, "other"))
    for number in range(200):
        remembered.keep(lie("not_verified", number))
    remembered.keep(lie("two_roots", 1))
    remembered.keep(lie("went_back", 1))
    for number in range(200, 260):
        remembered.keep(lie("not_verified", number))
    found = remembered.lies()
    kinds = [one["kind"] for one in found]
    assert (kinds.count("two_roots"), kinds.count("went_back"), kinds.count("forgot")) == (1, 1, 1)
    unproven = sorted(int(one["later"]) for one in found if one["kind"] == "not_verified")
    assert unproven == list(range(210, 260))


def test_of_proofs_the_first_are_kept_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("witness.remembered.MAX_LIES", 3)
    remembered = Remembered(DirectoryStorage(tmp_path))
    for number in (0, 1, 1, 2, 3, 4):
        remembered.keep(lie("two_roots", number))
    assert sorted(one["later"] for one in remembered.lies()) == ["0", "1", "2"]


def test_a_lie_that_cannot_be_read_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("witness.remembered.MAX_LIES", 3)
    storage = DirectoryStorage(tmp_path)
    remembered = Remembered(storage)
    for number in range(3):
        remembered.keep(lie("forgot", number))
    (damaged, *_) = [
        name for name in storage.names("lies/") if json.loads(storage.read(name) or b"")["number"] == 3
    ]
    storage.replace(damaged, b"\xff")
    remembered.keep(lie("forgot", 3))
    storage.remove([name for name in storage.names("lies/") if storage.read(name) == b"\xff"])
    assert sorted(one["later"] for one in remembered.lies()) == ["0", "1", "3"]
