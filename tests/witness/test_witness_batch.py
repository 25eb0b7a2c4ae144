"""Requests that arrive together: one commit, and nothing told before it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlog.cosignature import verify_cosignature
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.merkle import verify_consistency
from witness.commit import GroupCommit
from witness.decide import Refuse
from witness.limits import DailyLimit
from witness.records import LogRecord, Terms
from witness.service import Witness
from witness.store import create_store, open_store


@pytest.fixture
def commits(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many heads went into each commit."""
    sizes: list[int] = []
    advance_all = store.advance_all

    def counted(steps: Any) -> Any:
        sizes.append(len(steps))
        return advance_all(steps)

    monkeypatch.setattr(store, "advance_all", counted)
    return sizes


def cosigned(answers: Any) -> list[bool]:
    return [isinstance(answer, tuple) for answer in answers]


def test_requests_of_many_logs_share_one_commit(
    witness: Witness, store: Any, sim: Any, log: Any, commits: list[int]
) -> None:
    others = [sim.Log(log.entries[:9], f"log.example/{number}") for number in range(10)]
    for other in others:
        store.add_log(other.origin, other.signer.verifier_key)
    answers = witness.add_checkpoints([one.body(0, 9) for one in (*others, log)])
    assert cosigned(answers) == [True] * 11
    assert commits == [11]
    for one in others:
        assert store.log(one.origin).cosigned.head.root == one.checkpoint(9).root


def test_heads_of_one_log_that_overtook_each_other_share_one_commit(
    witness: Witness, store: Any, log: Any, commits: list[int], cosigner: Any
) -> None:
    sizes = [3, 0, 2, 1]
    answers = witness.add_checkpoints([log.body(size, size + 1) for size in sizes])
    assert cosigned(answers) == [True] * 4
    assert commits == [4]
    for size, lines in zip(sizes, answers, strict=True):
        verify_cosignature(cosigner.verifier_key, lines[0], log.note(size + 1).text)  # type: ignore[index]
    assert store.log(log.origin).cosigned.head.size == 4


def test_of_two_forks_in_one_batch_one_is_cosigned(witness: Witness, store: Any, log: Any) -> None:
    fork = log.fork_at(3)
    witness.add_checkpoint(log.body(0, 3))
    answers = witness.add_checkpoints([log.body(3, 5), fork.body(3, 5), log.body(3, 5)])
    assert sum(cosigned(answers)) == 1
    assert all(isinstance(one, tuple) or (one.status, one.known_size) == (409, 5) for one in answers)
    (evidence,) = store.evidence()
    assert evidence.known_note != evidence.note
    assert evidence.head.size == evidence.known.size == 5


def test_a_bad_request_spoils_nothing_of_the_others(witness: Witness, log: Any, sim: Any) -> None:
    stranger = sim.Log(log.entries, "log.example/unknown")
    forged = b"old 0\n\n" + sim.tampered(log.note(5))
    garbage, unknown, refused, good = witness.add_checkpoints(
        [b"garbage", stranger.body(0, 5), forged, log.body(0, 5)]
    )
    assert isinstance(garbage, MalformedError)
    assert isinstance(unknown, Refuse)
    assert isinstance(refused, Refuse)
    assert (unknown.status, refused.status) == (404, 403)
    assert isinstance(good, tuple)


def test_no_answer_rests_on_a_head_that_is_not_stored(
    store: Any, sim: Any, log: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that fails takes with it what was judged upon its heads: signatures, sizes, evidence."""
    witness = Witness(store, [sim.make_cosigner()], clock)
    witness.add_checkpoint(log.body(0, 3))
    clock.now += 1

    def fail(steps: Any) -> Any:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "advance_all", fail)
        fork = log.fork_at(3)
        answers = witness.add_checkpoints(
            [log.body(3, 5), log.body(5, 7), fork.body(3, 5), log.body(3, 4), log.body(5, 5)]
        )
    assert not any(cosigned(answers))
    for answer in answers:
        # 5 was never stored, so nobody may hear of it; 3 is what is there.
        assert isinstance(answer, UnavailableError) or answer.known_size == 3
    assert store.log(log.origin).cosigned.head.size == 3
    assert store.evidence() == ()


def test_a_repeat_in_the_same_batch_waits_for_the_commit_of_the_first(
    witness: Witness, log: Any, cosigner: Any, commits: list[int]
) -> None:
    first, again = witness.add_checkpoints([log.body(0, 5), log.body(5, 5)])
    assert first == again
    assert commits == [1]
    (line,) = again  # type: ignore[misc]
    verify_cosignature(cosigner.verifier_key, line, log.note(5).text)


def test_what_another_process_took_is_judged_anew(
    store: Any, state: Any, sim: Any, log: Any, clock: Any
) -> None:
    other_store = open_store(state)
    other = Witness(other_store, [sim.make_cosigner()], clock)
    fork = log.fork_at(3)
    raced = []

    def race(name: str) -> None:
        if name == "signed" and not raced:
            raced.append(other.add_checkpoint(fork.body(3, 6)))

    witness = Witness(store, [sim.make_cosigner()], clock, race)
    witness._failpoint = lambda name: None
    witness.add_checkpoint(log.body(0, 3))
    witness._failpoint = race
    answers = witness.add_checkpoints([log.body(3, 5), log.body(5, 7)])
    assert isinstance(raced[0], tuple)
    assert [(one.status, one.known_size) for one in answers] == [(409, 6)] * 2  # type: ignore[union-attr]
    assert store.log(log.origin).cosigned.head.root == fork.checkpoint(6).root
    other_store.close()


def test_a_key_that_cannot_sign_refuses_and_stores_nothing(
    store: Any, log: Any, sim: Any, clock: Any
) -> None:
    good = sim.make_cosigner()

    class Failing:
        verifier_key = good.verifier_key
        fails = True

        def cosign(self, text: str, timestamp: int) -> Any:
            if self.fails and "\n5\n" in text:
                raise UnavailableError("the KMS is away")
            return good.cosign(text, timestamp)

    failing = Failing()
    witness = Witness(store, [failing], clock)
    first, second, third = witness.add_checkpoints([log.body(0, 3), log.body(3, 5), log.body(5, 7)])
    assert isinstance(first, tuple)
    assert isinstance(second, UnavailableError)
    # The third built upon a head that could not be signed.
    assert isinstance(third, Refuse)
    assert third.known_size == 3
    failing.fails = False
    assert cosigned(witness.add_checkpoints([log.body(3, 5), log.body(5, 7)])) == [True, True]


def test_slow_keys_sign_side_by_side(store: Any, log: Any, sim: Any, clock: Any) -> None:
    good, count, most = sim.make_cosigner(), [0], [0]
    mutex = threading.Lock()

    class Slow:
        verifier_key = good.verifier_key
        waits = True

        def cosign(self, text: str, timestamp: int) -> Any:
            with mutex:
                count[0] += 1
                most[0] = max(most[0], count[0])
            time.sleep(0.05)
            with mutex:
                count[0] -= 1
            return good.cosign(text, timestamp)

    witness = Witness(store, [Slow()], clock)
    assert all(cosigned(witness.add_checkpoints([log.body(size, size + 1) for size in range(8)])))
    assert most[0] > 1


batches = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 20)), max_size=12), max_size=5
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches)
def test_whatever_arrives_together_no_two_cosigned_heads_contradict(
    tmp_path_factory: Any, log: Any, sim: Any, attempts: list[list[tuple[bool, int, int]]]
) -> None:
    fork = log.fork_at(2)
    folder = tmp_path_factory.mktemp("batch")
    create_store(folder, "witness.example/w", [])
    store = open_store(folder)
    store.add_log(log.origin, log.signer.verifier_key)
    witness = Witness(store, [sim.make_cosigner()], lambda: sim.TIME)
    heads = []
    for attempt in attempts:
        chosen = [(fork if forked else log, min(a, b), max(a, b)) for forked, a, b in attempt]
        answers = witness.add_checkpoints([source.body(old, size) for source, old, size in chosen])
        heads += [
            (source, size)
            for (source, _, size), answer in zip(chosen, answers, strict=True)
            if isinstance(answer, tuple)
        ]
        last = store.log(log.origin).cosigned
        stored = last.head.size if last else 0
        assert all(size <= stored for _, size in heads)
        for answer in answers:
            if isinstance(answer, Refuse) and answer.known_size is not None:
                assert answer.known_size <= stored
    store.close()
    for first, small in heads:
        for second, large in heads:
            if 0 < small <= large:
                roots = (first.checkpoint(small).root, second.checkpoint(large).root)
                verify_consistency(small, large, *roots, second.prove(small, large))


# Batches


def test_what_arrives_during_a_batch_makes_the_next_one() -> None:
    batches: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def run(bodies: Any) -> Any:
        batches.append(len(bodies))
        begun.set()
        go_on.wait(10)
        return [body.upper() for body in bodies]

    async def scenario() -> list[bytes]:
        commit: GroupCommit[bytes] = GroupCommit(run, b"failed", max_batch=4)
        first = asyncio.ensure_future(commit.submit(b"a"))
        await asyncio.to_thread(begun.wait, 10)
        others = [asyncio.ensure_future(commit.submit(b"%d" % number)) for number in range(6)]
        await asyncio.sleep(0.05)
        go_on.set()
        return list(await asyncio.gather(first, *others))

    assert asyncio.run(scenario()) == [b"A", *(b"%d" % number for number in range(6))]
    assert batches == [1, 4, 2]


def test_a_bug_reaches_those_who_wait_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def run(bodies: Any) -> Any:
        if bodies[0] == b"bug":
            raise ZeroDivisionError
        return bodies

    async def scenario() -> list[bytes]:
        commit: GroupCommit[bytes] = GroupCommit(run, b"failed")
        return [await commit.submit(b"bug"), await commit.submit(b"fine")]

    assert asyncio.run(scenario()) == [b"failed", b"fine"]
    assert "ZeroDivisionError" in capsys.readouterr().err


# Limits


class Ticks:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_log_has_its_burst_then_its_rate(log: Any) -> None:
    ticks = Ticks()
    limit = DailyLimit(86_400, ticks)
    slow = LogRecord("log.example/slow", (), None, Terms(8640, "nobody"))
    fast = LogRecord(log.origin, (), None)
    for _ in range(60):
        limit.charge(slow)
        limit.charge(fast)
    for record, seconds in ((slow, 10), (fast, 1)):
        with pytest.raises(RefusedError) as caught:
            limit.charge(record)
        assert caught.value.code == "too_many_requests"
        assert caught.value.fields["retry_after_seconds"] == seconds
    ticks.now += 1.01
    limit.charge(fast)
    with pytest.raises(RefusedError):
        limit.charge(slow)


def test_only_new_heads_of_the_log_itself_are_charged(store: Any, log: Any, sim: Any, clock: Any) -> None:
    charged: list[str] = []

    class Counting:
        def charge(self, record: LogRecord) -> None:
            charged.append(record.origin)

    witness = Witness(store, [sim.make_cosigner()], clock, limit=Counting())
    witness.add_checkpoint(log.body(0, 5))
    clock.now += 10
    assert len(charged) == 1
    witness.add_checkpoint(log.body(5, 5))  # the same head again, by whoever has seen it
    witness.add_checkpoint(log.body(3, 9))
    witness.add_checkpoint(log.fork_at(3).body(5, 9))
    witness.add_checkpoint(b"old 5\n\n" + sim.tampered(log.note(9)))
    assert charged == [log.origin]


def test_a_log_over_its_limit_is_refused_and_nothing_is_signed(
    store: Any, log: Any, sim: Any, clock: Any
) -> None:
    signed: list[str] = []
    witness = Witness(store, [sim.make_cosigner()], clock, signed.append, DailyLimit(1, Ticks()))
    for size in range(20):
        for again in range(3):
            witness.add_checkpoints([log.body(size, size + 1)] * (again + 1))
    assert store.log(log.origin).cosigned.head.size == 20
    grown = sim.Log([b"%d" % number for number in range(100)])
    store.add_log("log.example/other", grown.signer.verifier_key)
    grown.origin = "log.example/other"
    for size in range(60):
        assert isinstance(witness.add_checkpoint(grown.body(size, size + 1)), tuple)
    before = len(signed)
    with pytest.raises(RefusedError) as caught:
        witness.add_checkpoint(grown.body(60, 61))
    assert caught.value.code == "too_many_requests"
    assert len(signed) == before
    assert isinstance(witness.add_checkpoint(log.body(20, 21)), tuple)
