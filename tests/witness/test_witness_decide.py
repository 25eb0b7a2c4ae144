from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlog import merkle
from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.errors import UnavailableError
from tlog.note import Note, add_signatures, parse_note, sign_note
from witness.decide import MAX_CLOCK_STEP_SECONDS, Accept, KnownHead, Refuse, cosignature_time, decide
from witness.wire import AddCheckpoint, format_add_checkpoint, parse_add_checkpoint


def head(log: Any, size: int) -> KnownHead:
    return KnownHead(size, log.checkpoint(size).root)


def ask(
    log: Any, known: KnownHead | None, old: int, size: int, proof: tuple[bytes, ...] | None = None
) -> Any:
    """The decision on a checkpoint that the log signed."""
    hashes = log.prove(old, size) if proof is None else proof
    note = log.note(size)
    return decide(known, AddCheckpoint(old, hashes, note, log.checkpoint(size)), [log.signer.verifier_key])


def signed_request(sim: Any, checkpoint: Checkpoint, old: int, *proof: bytes) -> AddCheckpoint:
    note = sign_note(format_checkpoint(checkpoint), [sim.make_log_signer()])
    return AddCheckpoint(old, proof, note, checkpoint)


@pytest.mark.parametrize(("known_size", "size"), [(1, 2), (1, 40), (7, 8), (8, 9), (16, 40), (39, 40)])
def test_accepts_what_follows(log: Any, known_size: int, size: int) -> None:
    decision = ask(log, head(log, known_size), known_size, size)
    assert decision == Accept(head(log, size), log.note(size))


@pytest.mark.parametrize("size", [0, 1, 40])
def test_accepts_any_first_head(log: Any, size: int) -> None:
    assert ask(log, None, 0, size) == Accept(head(log, size), log.note(size))


def test_accepts_any_head_after_that_of_an_empty_log(log: Any) -> None:
    assert ask(log, head(log, 0), 0, 3) == Accept(head(log, 3), log.note(3))


@pytest.mark.parametrize("size", [0, 1, 25])
def test_accepts_the_same_head_again(log: Any, size: int) -> None:
    assert isinstance(ask(log, head(log, size), size, size), Accept)


def test_unknown_origin_is_404(log: Any) -> None:
    request = parse_add_checkpoint(log.body(0, 5))
    assert_refused(decide(None, request, []), 404)


def test_no_signature_by_a_trusted_key_is_403(log: Any, sim: Any) -> None:
    other = sim.make_log_signer(seed=9).verifier_key
    assert_refused(decide(None, parse_add_checkpoint(log.body(0, 5)), [other]), 403)


def test_failing_signature_of_a_trusted_key_is_403(log: Any, sim: Any) -> None:
    body = b"old 0\n\n" + sim.tampered(log.note(5))
    assert_refused(decide(None, parse_add_checkpoint(body), [log.signer.verifier_key]), 403)


def test_a_failing_line_beside_one_that_holds_is_403(log: Any, sim: Any) -> None:
    second = sim.make_log_signer(seed=9)
    wrong = parse_note(sim.tampered(sign_note(log.note(5).text, [second]))).signatures
    request = AddCheckpoint(0, (), add_signatures(log.note(5), wrong), log.checkpoint(5))
    keys = [log.signer.verifier_key, second.verifier_key]
    assert_refused(decide(None, request, keys), 403)
    assert isinstance(decide(None, request, keys[:1]), Accept)  # of an unknown key it would mean nothing


def test_two_lines_of_one_trusted_key_are_403(log: Any) -> None:
    note = log.note(5)
    doubled = Note(note.text, note.signatures * 2)
    request = AddCheckpoint(0, (), doubled, log.checkpoint(5))
    assert_refused(decide(None, request, [log.signer.verifier_key]), 403)


def test_old_size_above_the_checkpoint_is_400_even_where_a_conflict_is_due(log: Any) -> None:
    assert_refused(ask(log, head(log, 20), 6, 5, ()), 400)
    assert_refused(ask(log, head(log, 6), 6, 5, ()), 400)


def test_old_size_above_a_checkpoint_of_size_0_is_400_before_its_root_is_judged(sim: Any) -> None:
    request = signed_request(sim, Checkpoint(sim.ORIGIN, 0, b"\1" * 32), 3)
    assert_refused(decide(None, request, [sim.make_log_signer().verifier_key]), 400)


def test_size_0_with_another_root_is_422(sim: Any) -> None:
    request = signed_request(sim, Checkpoint(sim.ORIGIN, 0, b"\1" * 32), 0)
    keys = [sim.make_log_signer().verifier_key]
    assert_refused(decide(None, request, keys), 422)
    assert_refused(decide(KnownHead(7, b"\2" * 32), request, keys), 422)  # before the 409


@pytest.mark.parametrize(
    ("known_size", "old"), [(None, 5), (0, 5), (7, 5), (7, 0), (3, 5), (20, 10), (20, 0)]
)
def test_another_old_size_is_409_with_the_last_cosigned_size(
    log: Any, known_size: int | None, old: int
) -> None:
    known = None if known_size is None else head(log, known_size)
    decision = ask(log, known, old, 10)
    assert_refused(decision, 409)
    assert decision.known_size == (known_size or 0)


def test_only_a_409_tells_a_size(log: Any) -> None:
    fork = log.fork_at(3)
    for decision in (ask(fork, head(log, 5), 5, 5), ask(fork, head(log, 5), 5, 9), ask(log, None, 9, 5)):
        assert decision.status != 409
        assert decision.known_size is None


@pytest.mark.parametrize("known_size", [None, 0])
def test_a_proof_from_size_0_is_422(log: Any, known_size: int | None) -> None:
    known = None if known_size is None else head(log, known_size)
    assert_refused(ask(log, known, 0, 3, (b"\1" * 32,)), 422)
    assert_refused(ask(log, known, 0, 0, (b"\1" * 32,)), 422)


def test_a_proof_that_does_not_hold_is_422(log: Any) -> None:
    proof = log.prove(5, 20)
    for wrong in (
        (),
        proof[1:],
        proof[::-1],
        (*proof, b"\1" * 32),
        (b"\1" * 32, *proof[1:]),
        (b"\1" * 32,) * 63,
    ):
        decision = ask(log, head(log, 5), 5, 20, wrong)
        assert_refused(decision, 422)
        assert decision.suspect.kind == "unproven"


def test_a_proof_for_the_same_size_is_422_and_no_suspicion(log: Any) -> None:
    decision = ask(log, head(log, 5), 5, 5, (b"\1" * 32,))
    assert_refused(decision, 422)
    assert decision.suspect is None


def test_the_same_size_with_another_root_is_422_and_a_fork(log: Any) -> None:
    fork = log.fork_at(3)
    decision = ask(fork, head(log, 5), 5, 5)
    assert_refused(decision, 422)
    assert (decision.suspect.kind, decision.suspect.note) == ("fork", fork.note(5))


def test_a_fork_is_noticed_even_where_the_old_size_is_wrong(log: Any) -> None:
    fork = log.fork_at(3)
    decision = ask(fork, head(log, 5), 4, 5)
    assert_refused(decision, 409)
    assert decision.suspect.kind == "fork"


def test_a_larger_head_of_a_fork_is_422(log: Any) -> None:
    fork = log.fork_at(3)
    decision = ask(fork, head(log, 5), 5, 9)
    assert_refused(decision, 422)
    assert decision.suspect.note == fork.note(9)


def test_what_is_kept_of_a_note_is_only_what_the_log_signed(log: Any, sim: Any) -> None:
    extra = sign_note(log.note(5).text, [sim.make_log_signer("stranger.example/x", 9)]).signatures
    request = AddCheckpoint(0, (), add_signatures(log.note(5), extra), log.checkpoint(5))
    decision = decide(None, request, [log.signer.verifier_key])
    assert isinstance(decision, Accept)
    assert decision.note == log.note(5)


def assert_refused(decision: Any, status: int) -> None:
    assert isinstance(decision, Refuse)
    assert decision.status == status


requests = st.lists(
    st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=60
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests, st.integers(1, 39))
def test_no_two_accepted_heads_ever_contradict_each_other(
    log: Any, attempts: list[tuple[bool, int, int, bool]], fork_size: int
) -> None:
    fork = log.fork_at(fork_size)
    known: KnownHead | None = None
    accepted: list[KnownHead] = []
    for from_fork, old, size, follows in attempts:
        source = fork if from_fork else log
        old_size = (known.size if known else 0) if follows else old
        if old_size > size:
            old_size, size = size, old_size
        decision = ask(source, known, old_size, size)
        if isinstance(decision, Accept):
            known = decision.head
            accepted.append(known)
    sizes = [one.size for one in accepted]
    assert sizes == sorted(sizes)
    assert any(all(one == head(source, one.size) for one in accepted) for source in (log, fork))


def test_a_request_that_was_parsed_is_decided_like_one_that_was_made(log: Any) -> None:
    body = format_add_checkpoint(5, log.prove(5, 20), log.note(20))
    decision = decide(head(log, 5), parse_add_checkpoint(body), [log.signer.verifier_key])
    assert isinstance(decision, Accept)


def test_the_empty_root_is_that_of_merkle(log: Any) -> None:
    assert log.checkpoint(0).root == merkle.EMPTY_ROOT


@pytest.mark.parametrize(
    ("now", "last", "expected"),
    [
        (100, None, 100),
        (100, 99, 100),
        (100, 100, 100),
        (100, 100 + MAX_CLOCK_STEP_SECONDS, 400),
        (1, None, 1),
    ],
)
def test_the_time_never_runs_backwards(now: int, last: int | None, expected: int) -> None:
    assert cosignature_time(now, last) == expected


@pytest.mark.parametrize(
    ("now", "last"), [(0, None), (-1, None), (2**63, None), (100, 101 + MAX_CLOCK_STEP_SECONDS), (0, 50)]
)
def test_nothing_is_cosigned_by_a_wrong_clock(now: int, last: int | None) -> None:
    with pytest.raises(UnavailableError):
        cosignature_time(now, last)
