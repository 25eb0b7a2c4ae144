"""C2SP tlog-proof files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlog.checkpoint import Checkpoint, format_checkpoint
from tlog.errors import Error, MalformedError
from tlog.merkle import leaf_hash, prove_inclusion, tree_root
from tlog.note import Note, SignatureType, format_note, parse_note
from tlog.policy import Policy, parse_policy
from tlog.proof import MAX_HASHES, MAX_PROOF_BYTES, TlogProof, format_proof, parse_proof, verify_proof
from tlog.tile import Tile, grow, hash_reader

ORIGIN = "log.example/test"
SIZE = 300
ENTRIES = [b"entry-%d" % number for number in range(SIZE)]
HEADER = "c2sp.org/tlog-proof@v1\n"
HASH = "Iu08wWceprUSFI2H31Iorbup5qTFUc5rNvCzycG1Kjg=\n"


def no_tile(tile: Tile) -> bytes:
    raise AssertionError("a new log has no tiles")


TILES = dict(grow(0, [leaf_hash(entry) for entry in ENTRIES], no_tile))


def hashes(index: int, size: int) -> tuple[bytes, ...]:
    tiles = dict(grow(0, [leaf_hash(entry) for entry in ENTRIES[:size]], no_tile))
    return prove_inclusion(index, size, hash_reader(size, tiles.__getitem__))


class Cast:
    def __init__(self, seed_signer: Callable[..., Any]) -> None:
        self.log = seed_signer(ORIGIN, SignatureType.ED25519, 1)
        self.witness = seed_signer("w.example", SignatureType.COSIGNATURE_ED25519, 2)
        self.policy = parse_policy(
            f"log {self.log.verifier_key.vkey}\nwitness w {self.witness.verifier_key.vkey}\nquorum w\n"
        )

    def checkpoint(self, size: int = SIZE, root: bytes | None = None) -> bytes:
        tiles = dict(grow(0, [leaf_hash(entry) for entry in ENTRIES[:size]], no_tile))
        right = tree_root(size, hash_reader(size, tiles.__getitem__))
        text = format_checkpoint(Checkpoint(ORIGIN, size, root or right))
        return format_note(Note(text, (self.log.sign(text), self.witness.cosign(text, 7))))

    def proof(self, index: int = 137, size: int = SIZE) -> TlogProof:
        return TlogProof(index, hashes(index, size), self.checkpoint(size))


@pytest.fixture(scope="module")
def cast(seed_signer: Callable[..., Any]) -> Cast:
    return Cast(seed_signer)


# The file


def test_own_vector(seed_signer: Callable[..., Any]) -> None:
    path = Path(__file__).parent.parent / "vectors/tlog-formats.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    proof = parse_proof(known["proof"].encode())
    policy = parse_policy(known["policy"])
    assert format_proof(proof).decode() == known["proof"]
    verified = verify_proof(proof, ENTRIES[known["index"]], policy, known["origin"])
    assert verified.witnesses == ("one", "two") and proof.extra == ENTRIES[known["index"]]
    text = verified.note.text
    log = seed_signer(known["origin"], SignatureType.ED25519, known["seeds"]["log"])
    one = seed_signer("witness.example/one", SignatureType.COSIGNATURE_ED25519, known["seeds"]["one"])
    assert verified.note.signatures[:2] == (log.sign(text), one.cosign(text, known["time"]))
    two = seed_signer("witness.example/two", SignatureType.MLDSA44, known["seeds"]["two"])
    assert policy.witnesses[1].key == two.verifier_key
    assert verified.checkpoint.root == tree_root(SIZE, hash_reader(SIZE, TILES.__getitem__))


def test_round_trip_with_and_without_extra(cast: Cast) -> None:
    for extra in (None, b"\0", b"index 7\n", bytes(1 << 20)):
        proof = TlogProof(137, hashes(137, SIZE), cast.checkpoint(), extra)
        assert parse_proof(format_proof(proof)) == proof
    assert format_proof(cast.proof()).startswith(f"{HEADER}index 137\n".encode())


def test_tree_of_one_entry_has_no_hashes(cast: Cast) -> None:
    proof = cast.proof(0, 1)
    assert format_proof(proof) == f"{HEADER}index 0\n\n".encode() + proof.checkpoint
    assert verify_proof(parse_proof(format_proof(proof)), ENTRIES[0], cast.policy)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "\n",
        HEADER,
        "index 0\n",
        "c2sp.org/tlog-proof@v2\nindex 0\n",
        "c2sp.org/tlog-proof@v1 \nindex 0\n",
        "C2SP.org/tlog-proof@v1\nindex 0\n",
        "\ufeff" + HEADER + "index 0\n",
        HEADER + "index\n",
        HEADER + "index \n",
        HEADER + "index  0\n",
        HEADER + "index\t0\n",
        HEADER + "Index 0\n",
        HEADER + "index 0 \n",
        HEADER + "index 0\r\n",
        HEADER + "index 007\n",
        HEADER + "index +7\n",
        HEADER + "index -0\n",
        HEADER + "index 1_0\n",
        HEADER + "index ٧\n",
        HEADER + f"index {2**63}\n",
        HEADER + "index " + "9" * 5000 + "\n",
        HEADER + "index 0\nindex 0\n",
        HEADER + "index 0\nextra QQ==\n",
        HEADER + "extra\nindex 0\n",
        HEADER + "extra \nindex 0\n",
        HEADER + "extra  QQ==\nindex 0\n",
        HEADER + "extra QQ\nindex 0\n",
        HEADER + "extra QR==\nindex 0\n",
        HEADER + "extra QQ==\r\nindex 0\n",
        HEADER + "extra QQ==\nextra QQ==\nindex 0\n",
        HEADER + "extra QQ==\n",
        HEADER + "index 0\n" + HASH.replace("Kjg=", "Kjh="),
        HEADER + "index 0\n" + HASH.replace("Kjg=", "Kjg"),
        HEADER + "index 0\n" + HASH.replace("\n", " \n"),
        HEADER + "index 0\n" + HASH.replace("\n", "\r\n"),
        HEADER + "index 0\n" + "A" * 5000 + "\n",
        HEADER + "index 0\nAAAA\n",
        HEADER + "index 0\n" + HASH * (MAX_HASHES + 1),
        HEADER + "index 0\n\n",
        HEADER + "\nindex 0\n",
    ],
)
def test_rejects_malformed_heads(cast: Cast, head: str) -> None:
    assert parse_proof(f"{HEADER}index 0\n\n".encode() + cast.checkpoint(1))
    with pytest.raises(MalformedError):
        parse_proof(f"{head}\n".encode() + cast.checkpoint(1))


def test_takes_63_hashes(cast: Cast) -> None:
    data = (HEADER + "index 0\n" + HASH * MAX_HASHES + "\n").encode() + cast.checkpoint(1)
    assert len(parse_proof(data).hashes) == 63


def test_rejects_malformed_checkpoints(cast: Cast) -> None:
    head = f"{HEADER}index 0\n\n".encode()
    whole = cast.checkpoint(1)
    text = parse_note(whole).text.encode()
    wrongs = (
        *(b"", b"\n", text, whole[:-1], whole + b"\n", whole.replace(b"\n", b"\r\n"), b"\n" + whole),
        *(
            text + b"\nhello\n",
            whole.replace(b"\n1\n", b"\n01\n"),
            whole + b"\0",
            whole.replace(b"\n1\n", b"\n"),
        ),
    )
    for wrong in wrongs:
        with pytest.raises(MalformedError):
            parse_proof(head + wrong)
    with pytest.raises(MalformedError):
        parse_proof(head[:-1])


def test_rejects_proofs_too_large() -> None:
    with pytest.raises(MalformedError) as raised:
        parse_proof(bytes(MAX_PROOF_BYTES + 1))
    assert raised.value.code == "too_large"


@given(st.binary(max_size=20), st.integers(0, 500), st.integers(0, 20))
def test_any_proof_that_parses_is_the_one_written(cast: Cast, noise: bytes, at: int, drop: int) -> None:
    data = format_proof(cast.proof(3, 5))
    data = data[:at] + noise + data[at + drop :]
    try:
        proof = parse_proof(data)
    except MalformedError:
        return
    assert format_proof(proof) == data


@pytest.mark.parametrize(
    "change",
    [
        {"index": -1},
        {"index": 2**63},
        {"hashes": (b"x" * 31,)},
        {"hashes": (bytes(32),) * 64},
        {"extra": b""},
        {"extra": bytes((1 << 20) + 1)},
        {"checkpoint": b"hello\n"},
    ],
)
def test_makes_no_proof_it_could_not_read(cast: Cast, change: dict[str, Any]) -> None:
    parts = {"index": 0, "hashes": (), "checkpoint": cast.checkpoint(1), "extra": None}
    assert TlogProof(**parts)
    with pytest.raises(MalformedError):
        TlogProof(**parts | change)


# Verifying


def code(proof: TlogProof, entry: bytes, policy: Policy, origin: str | None = None) -> str:
    with pytest.raises(Error) as raised:
        verify_proof(proof, entry, policy, origin)
    return raised.value.code


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 255, 256, 257, 300])
def test_proofs_hold(cast: Cast, size: int) -> None:
    for index in {0, size // 2, size - 1}:
        verified = verify_proof(cast.proof(index, size), ENTRIES[index], cast.policy, ORIGIN)
        assert verified.checkpoint.size == size and verified.witnesses == ("w",)


def test_proof_holds_for_its_entry_and_place_only(cast: Cast) -> None:
    proof = cast.proof()
    assert code(proof, b"entry-138", cast.policy) == "inclusion"
    assert code(proof, b"", cast.policy) == "inclusion"

    def other(index: int, found: Sequence[bytes]) -> TlogProof:
        return TlogProof(index, tuple(found), proof.checkpoint)

    for index in (0, 136, 138, 299, 300, 301, 2**63 - 1):
        assert code(other(index, proof.hashes), ENTRIES[137], cast.policy) == "inclusion"
    for found in (proof.hashes[:-1], (*proof.hashes, bytes(32)), proof.hashes[::-1], ()):
        assert code(other(137, found), ENTRIES[137], cast.policy) == "inclusion"


def test_index_of_the_size_fails(cast: Cast) -> None:
    assert code(TlogProof(1, (), cast.checkpoint(1)), ENTRIES[0], cast.policy) == "inclusion"


def test_proof_against_another_head_fails(cast: Cast) -> None:
    found = hashes(137, SIZE)
    assert code(TlogProof(137, found, cast.checkpoint(299)), ENTRIES[137], cast.policy) == "inclusion"
    wrong = cast.checkpoint(root=bytes(32))
    assert code(TlogProof(137, found, wrong), ENTRIES[137], cast.policy) == "inclusion"


def test_node_passed_off_as_an_entry_fails(cast: Cast) -> None:
    """A leaf and a node are hashed apart: two hashes joined are no entry."""
    inner = leaf_hash(ENTRIES[0]) + leaf_hash(ENTRIES[1])
    proof = TlogProof(0, hashes(0, 4)[1:], cast.checkpoint(4))
    assert code(proof, inner, cast.policy) == "inclusion"


def test_checkpoint_must_satisfy_the_policy(cast: Cast, seed_signer: Callable[..., Any]) -> None:
    proof = cast.proof()
    text = parse_note(proof.checkpoint).text
    unwitnessed = format_note(Note(text, (cast.log.sign(text),)))
    found = proof.hashes
    assert code(TlogProof(137, found, unwitnessed), ENTRIES[137], cast.policy) == "quorum_not_met"
    witnessed = format_note(Note(text, (cast.witness.cosign(text, 7),)))
    assert code(TlogProof(137, found, witnessed), ENTRIES[137], cast.policy) == "log_signature"
    assert code(proof, ENTRIES[137], cast.policy, "other.example") == "origin"
    stranger = seed_signer("other.example", SignatureType.ED25519, 9).verifier_key.vkey
    assert code(proof, ENTRIES[137], parse_policy(f"log {stranger}\nquorum none\n")) == "origin"


def test_extra_is_not_authenticated_and_changes_nothing(cast: Cast) -> None:
    proof = cast.proof()
    changed = TlogProof(proof.index, proof.hashes, proof.checkpoint, b"anything")
    assert verify_proof(changed, ENTRIES[137], cast.policy)
