from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlog import merkle
from tlog.cosignature import cosigned_message_mldsa44, verify_cosignature
from tlog.errors import MalformedError, RefusedError, VerificationError
from tlog.note import add_signatures, parse_note, verify_signature
from witness.decide import Refuse
from witness.service import Witness
from witness.subtree import format_sign_subtree, parse_sign_subtree

SIZE = 21


@pytest.fixture
def both(store: Any, clock: Any, sim: Any) -> Witness:
    """A witness with a key of each type, which has cosigned the log at its size."""
    return Witness(store, [sim.make_cosigner(), sim.make_cosigner(kind=6)], clock)


@pytest.fixture
def note(both: Witness, log: Any) -> Any:
    """The log's checkpoint with the witness's cosignatures."""
    lines = both.add_checkpoint(log.body(0, SIZE))
    assert isinstance(lines, tuple)
    return add_signatures(log.note(SIZE), lines)


def request(log: Any, note: Any, start: int, end: int, **changed: Any) -> bytes:
    fields = {
        "root": merkle.subtree_root(start, end, log._read),
        "proof": merkle.prove_subtree(start, end, SIZE, log._read),
        **changed,
    }
    return format_sign_subtree(start, end, fields["root"], fields["proof"], note)


SUBTREES = [
    (start, end)
    for start in range(SIZE)
    for end in range(start + 1, SIZE + 1)
    if merkle.is_subtree(start, end, SIZE)
]


def test_signs_every_subtree_of_a_cosigned_tree(both: Witness, log: Any, note: Any, sim: Any) -> None:
    key = sim.make_cosigner(kind=6).verifier_key
    for start, end in SUBTREES[::4]:
        (line,) = both.sign_subtree(request(log, note, start, end))  # type: ignore[misc]
        assert (line.name, line.key_id) == (key.name, key.key_id)
        assert line.signature[:8] == bytes(8)
        root = merkle.subtree_root(start, end, log._read)
        message = cosigned_message_mldsa44(key.name, 0, log.origin, start, end, root)
        verify_signature(key, line.signature[8:], message)


def test_a_line_with_time_0_is_no_cosignature_of_a_head(both: Witness, log: Any, note: Any, sim: Any) -> None:
    """The subtree from 0 to the size is the whole: its signature must not pass for the promise of a head."""
    (line,) = both.sign_subtree(request(log, note, 0, SIZE))  # type: ignore[misc]
    with pytest.raises(VerificationError):
        verify_cosignature(sim.make_cosigner(kind=6).verifier_key, line, log.note(SIZE).text)
    again = add_signatures(log.note(SIZE), [line])
    answer = both.sign_subtree(request(log, again, 8, 12))
    assert isinstance(answer, Refuse)
    assert answer.status == 403


@pytest.mark.parametrize("which", [0, 1])
def test_a_cosignature_by_either_key_is_enough(both: Witness, log: Any, note: Any, which: int) -> None:
    own = add_signatures(log.note(SIZE), [note.signatures[1 + which]])
    assert isinstance(both.sign_subtree(request(log, own, 8, 12)), tuple)


def refused(both: Witness, body: bytes) -> int:
    answer = both.sign_subtree(body)
    assert isinstance(answer, Refuse)
    return answer.status


def test_refuses_what_it_did_not_cosign(both: Witness, log: Any, note: Any, sim: Any) -> None:
    stranger = sim.make_cosigner("stranger.example/x", 99).cosign(log.note(SIZE).text, sim.TIME)
    assert refused(both, request(log, log.note(SIZE), 8, 12)) == 403
    assert refused(both, request(log, add_signatures(log.note(SIZE), [stranger]), 8, 12)) == 403
    tampered = add_signatures(parse_note(sim.tampered(note)), note.signatures[2:])
    assert isinstance(both.sign_subtree(request(log, tampered, 8, 12)), tuple)  # the log's line, not ours
    ours = type(note)(note.text, note.signatures[1:])
    assert refused(both, request(log, parse_note(sim.tampered(ours)), 8, 12)) == 403
    fork = log.fork_at(3)
    forged = type(note)(fork.note(SIZE).text, note.signatures)
    assert refused(both, request(log, forged, 8, 12)) == 403


def test_refuses_a_proof_that_does_not_hold(both: Witness, log: Any, note: Any) -> None:
    proof = merkle.prove_subtree(8, 12, SIZE, log._read)
    for changed in (
        {"root": b"\1" * 32},
        {"proof": proof[1:]},
        {"proof": (*proof, b"\1" * 32)},
        {"proof": ()},
    ):
        assert refused(both, request(log, note, 8, 12, **changed)) == 422


def test_an_unknown_log_is_404(both: Witness, log: Any, note: Any, store: Any) -> None:
    store.remove_log(log.origin)
    assert refused(both, request(log, note, 8, 12)) == 404


def test_a_witness_without_a_key_for_it_offers_nothing(witness: Witness, log: Any, note: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        witness.sign_subtree(request(log, note, 8, 12))
    assert caught.value.code == "not_offered"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"subtree 8 12", b"subtree 8 8"),
        (b"subtree 8 12", b"subtree 12 8"),
        (b"subtree 8 12", b"subtree 8 17"),
        (b"subtree 8 12", b"subtree 9 12"),
        (b"subtree 8 12", b"subtree 8 22"),
        (b"subtree 8 12", b"subtree 08 12"),
        (b"subtree 8 12", b"subtree +8 12"),
        (b"subtree 8 12", b"subtree 8  12"),
        (b"subtree 8 12", b"subtree 8 12 "),
        (b"subtree 8 12", b"subtree 8"),
        (b"subtree 8 12", b"subtree 0 9223372036854775808"),
        (b"subtree 8 12", b"subtree 0 18446744073709551616"),
        (b"subtree 8 12", b"old 8"),
        (b"subtree 8 12\n", b""),
        (b"=\n", b"\n"),
    ],
)
def test_refuses_malformed_requests(log: Any, old: bytes, new: bytes) -> None:
    body = request(log, log.note(SIZE), 8, 12)
    with pytest.raises(MalformedError):
        parse_sign_subtree(body.replace(old, new, 1))


def test_refuses_64_proof_lines_and_no_hash(log: Any) -> None:
    hashes = (b"\1" * 32,) * 64
    parse_sign_subtree(request(log, log.note(SIZE), 8, 12, proof=hashes[:63]))
    with pytest.raises(MalformedError):
        parse_sign_subtree(request(log, log.note(SIZE), 8, 12, proof=hashes))
    with pytest.raises(MalformedError):
        parse_sign_subtree(b"subtree 8 12\n\n" + log.note(SIZE).text.encode())


@settings(max_examples=50)
@given(st.sampled_from(SUBTREES))
def test_every_request_reads_back(log: Any, subtree: tuple[int, int]) -> None:
    start, end = subtree
    found = parse_sign_subtree(request(log, log.note(SIZE), start, end))
    assert (found.start, found.end, found.note) == (start, end, log.note(SIZE))
    assert found.proof == merkle.prove_subtree(start, end, SIZE, log._read)
