"""What a log remembers of its witnesses, and the lies it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tlog.cosignature import verify_cosignature
from tlog.note import add_signatures, format_note, parse_note
from tlog.policy import GroupEntry, LogEntry, WitnessEntry, make_policy
from tlog.storage import DirectoryStorage, MemoryStorage
from witness.client import Answers, Failure, collect_cosignatures, make_cosign
from witness.remembered import Known, Lie, Remembered, find_lie
from witness.wire import format_conflict, format_cosignatures, origin_digest, parse_add_checkpoint

TIME = 1_790_000_000


class World:
    """One witness that does as told, the asking, and what is remembered."""

    def __init__(self, sim: Any, log: Any, serve: Any, storage: Any) -> None:
        self.log = log
        self.cosigner = sim.make_cosigner()
        self.remembered = Remembered(storage)
        self.storage = storage
        self.asked: list[int] = []
        self.size = 0
        self.time = TIME
        self.answer: Any = None
        self.url = serve(self._answer)
        entry = WitnessEntry("w", self.cosigner.verifier_key, self.url + "/")
        self.policy = make_policy(
            [LogEntry(log.signer.verifier_key)], [entry], [GroupEntry("q", 1, ("w",))], "q"
        )

    def _answer(self, handler: Any, body: bytes) -> None:
        request = parse_add_checkpoint(body)
        self.asked.append(request.old_size)
        if self.answer:
            status, reply, media_type = self.answer(request)
        elif request.old_size != self.size:
            status, reply, media_type = 409, format_conflict(self.size), "text/x.tlog.size"
        else:
            self.size = request.checkpoint.size
            status, reply, media_type = 200, self.line(request.note.text), "text/plain"
        handler.send_response(status)
        handler.send_header("content-type", media_type)
        handler.send_header("content-length", str(len(reply)))
        handler.end_headers()
        handler.wfile.write(reply)

    def line(self, text: str) -> bytes:
        return format_cosignatures([self.cosigner.cosign(text, self.time)])

    def ask(self, size: int, previous: int = 0, source: Any = None) -> Answers:
        log = source or self.log
        return collect_cosignatures(
            self.policy,
            format_note(log.note(size)),
            lambda old: log.prove(old, size),
            previous,
            20.0,
            self.remembered,
            lambda: TIME,
        )

    def kinds(self) -> list[str]:
        return [lie["kind"] for lie in self.remembered.lies()]


@pytest.fixture(params=["memory", "directory"])
def world(request: Any, sim: Any, log: Any, serve_peer: Any, tmp_path: Path) -> World:
    storage = MemoryStorage() if request.param == "memory" else DirectoryStorage(tmp_path / "witnesses")
    return World(sim, log, serve_peer, storage)


def test_a_witness_is_asked_from_the_size_it_was_last_heard_at(world: World) -> None:
    world.size = 4
    assert len(world.ask(10, previous=8).cosignatures) == 1
    assert world.asked == [8, 4]
    assert len(world.ask(20, previous=10).cosignatures) == 1
    world.size = 30  # somebody else fed it
    assert world.ask(25, previous=20).failures == (Failure(("w",), "ahead", None, 30),)
    assert len(world.ask(40, previous=20).cosignatures) == 1
    assert world.asked == [8, 4, 10, 20, 30]
    assert world.remembered.lies() == ()


def test_a_hint_above_the_head_is_cut_to_it(world: World) -> None:
    world.size = 30
    world.ask(25)
    assert world.ask(25).failures == (Failure(("w",), "ahead", None, 30),)
    assert world.asked[-1] == 25


def test_without_anything_new_nothing_is_written(world: World, log: Any) -> None:
    world.ask(10)
    written = world.storage.read(f"{origin_digest(log.origin).hex()}.json")
    assert written

    def refuse(path: str, data: bytes) -> None:
        raise AssertionError("written again")

    world.storage.replace = refuse
    world.ask(10, previous=10)
    assert world.storage.read(f"{origin_digest(log.origin).hex()}.json") == written


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version":1,"sizes":{"u":-1},"notes":{}}',
        b'{"version":1,"sizes":{"u":true},"notes":{}}',
        b'{"version":1,"sizes":{},"notes":{"k":"no note"}}',
        b'{"version":2}',
    ],
)
def test_what_cannot_be_read_costs_a_conflict_and_no_more(world: World, log: Any, data: bytes) -> None:
    world.storage.replace(f"{origin_digest(log.origin).hex()}.json", data)
    assert world.remembered.load(log.origin) == Known()
    world.size = 4
    assert len(world.ask(10, previous=8).cosignatures) == 1


# Lies


def test_two_roots_of_one_size_are_kept_and_convict_the_key(world: World, log: Any, sim: Any) -> None:
    fork = log.fork_at(3)
    world.ask(10)
    world.answer = lambda request: (200, world.line(request.note.text), "text/plain")
    answers = world.ask(10, source=fork)
    (lie,) = answers.lies
    assert (lie.kind, lie.proven, lie.names) == ("two_roots", True, ("w",))
    (kept,) = world.remembered.lies()
    for side, source in (("earlier", log), ("later", fork)):
        note = parse_note(kept[side].encode())
        assert note.text == source.note(10).text
        assert any(line.key_id == world.cosigner.verifier_key.key_id for line in note.signatures)
    assert len(answers.cosignatures) == 1


def test_a_smaller_head_cosigned_later_is_kept(world: World) -> None:
    world.ask(20)
    world.answer = lambda request: (200, world.line(request.note.text), "text/plain")
    world.ask(10)  # in the same second it may have been before
    assert world.kinds() == []
    world.time -= 5
    world.ask(9)
    assert world.kinds() == []
    world.time += 10
    world.ask(8)
    assert world.kinds() == ["went_back"]
    world.ask(8)
    assert world.kinds() == ["went_back"]


def test_a_smaller_size_than_was_cosigned_is_kept_though_it_is_unsigned(world: World) -> None:
    world.ask(20)
    world.size = 5
    answers = world.ask(30)
    assert [(lie.kind, lie.proven) for lie in answers.lies] == [("forgot", False)]
    assert len(answers.cosignatures) == 1
    (kept,) = world.remembered.lies()
    assert (kept["kind"], kept["later"]) == ("forgot", "5\n")


def test_a_line_that_does_not_hold_is_kept_as_it_came(world: World, log: Any) -> None:
    world.answer = lambda request: (200, world.line(log.note(9).text), "text/plain")
    answers = world.ask(10)
    assert answers.cosignatures == ()
    assert [(lie.kind, lie.proven) for lie in answers.lies] == [("not_verified", False)]
    assert world.kinds() == ["not_verified"]


def test_what_is_only_unreachable_or_garbage_is_no_lie(world: World) -> None:
    for status, body in ((500, b""), (422, b""), (200, b"garbage"), (409, b"garbage"), (429, b"")):
        world.answer = lambda request, status=status, body=body: (status, body, "text/plain")
        world.ask(10)
    assert world.remembered.lies() == ()


def test_a_note_that_somebody_put_there_convicts_nobody(world: World, log: Any, sim: Any) -> None:
    """What is remembered lies in a file: only the witness's own signature in it counts."""
    forged = log.fork_at(3).note(10)
    vkey = world.cosigner.verifier_key.vkey
    document = {"version": 1, "sizes": {}, "notes": {vkey: format_note(forged).decode()}}
    world.storage.replace(f"{origin_digest(log.origin).hex()}.json", json.dumps(document).encode())
    world.ask(10)
    assert world.kinds() == []


def test_heads_of_two_logs_never_contradict_each_other(log: Any, sim: Any) -> None:
    cosigner = sim.make_cosigner()
    other = sim.Log([b"x%d" % number for number in range(40)], "log.example/other")
    note, now = other.note(20), log.note(20)
    earlier = format_note(add_signatures(note, [cosigner.cosign(note.text, TIME)]))
    line = cosigner.cosign(now.text, TIME + 5)
    cosignature = verify_cosignature(cosigner.verifier_key, line, now.text)
    assert find_lie(earlier, cosignature, now) is None
    own = log.fork_at(3).note(20)
    contradicting = format_note(add_signatures(own, [cosigner.cosign(own.text, TIME)]))
    assert find_lie(contradicting, cosignature, now) is not None


def test_the_log_is_told_of_lies(world: World, log: Any) -> None:
    failures: list[Failure] = []
    cosign = make_cosign(world.policy, failures.append, world.remembered, clock=lambda: TIME)
    world.ask(20)
    world.size = 5
    note = format_note(log.note(30))
    assert len(cosign(note, lambda old: log.prove(old, 30), 0, 20.0)) == 1
    assert failures == [Failure(("w",), "lied")]


def test_evidence_cannot_fill_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("witness.remembered.MAX_LIES", 3)
    for number in range(6):
        world.remembered.keep(Lie("not_verified", ("w",), "u", b"note", b"%d" % number))
    assert len(world.remembered.lies()) == 3
