"""RFC 6962 and RFC 9162 trees, against a slow tree written down straight from the definitions."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlog.errors import Error, MalformedError, VerificationError
from tlog.merkle import (
    EMPTY_ROOT,
    Frontier,
    Node,
    inclusion_root,
    is_subtree,
    leaf_hash,
    node_hash,
    parent_hashes,
    prove_consistency,
    prove_inclusion,
    prove_subtree,
    prove_subtree_inclusion,
    range_nodes,
    subtree_consistency_root,
    subtree_root,
    tree_root,
    verify_consistency,
    verify_inclusion,
    verify_subtree_consistency,
    verify_subtree_inclusion,
)

LARGEST = 300
LEAVES = [leaf_hash(b"entry-%d" % number) for number in range(LARGEST)]
OTHER = leaf_hash(b"another")

# The slow tree


def split(size: int) -> int:
    """The largest power of two below `size`. RFC 9162, 2.1.1."""
    k = 1
    while k * 2 < size:
        k *= 2
    return k


@cache
def mth(start: int, end: int) -> bytes:
    """RFC 9162, 2.1.1."""
    if start == end:
        return sha256().digest()
    if end - start == 1:
        return LEAVES[start]
    k = split(end - start)
    return sha256(b"\1" + mth(start, start + k) + mth(start + k, end)).digest()


def path(index: int, start: int, end: int) -> list[bytes]:
    """RFC 9162, 2.1.3.1."""
    if end - start == 1:
        return []
    k = split(end - start)
    if index < start + k:
        return [*path(index, start, start + k), mth(start + k, end)]
    return [*path(index, start + k, end), mth(start, start + k)]


def subproof(start: int, end: int, low: int, high: int, whole: bool) -> list[bytes]:
    """RFC 9162, 2.1.4.1, for a subtree that starts anywhere."""
    if (start, end) == (low, high):
        return [] if whole else [mth(low, high)]
    middle = low + split(high - low)
    if end <= middle:
        return [*subproof(start, end, low, middle, whole), mth(middle, high)]
    if start >= middle:
        return [*subproof(start, end, middle, high, whole), mth(low, middle)]
    return [*subproof(middle, end, middle, high, False), mth(low, middle)]


def read(nodes: Sequence[Node]) -> list[bytes]:
    """The reader over the slow tree; it refuses nodes that reach beyond the leaves there are."""
    assert all((index + 1) << level <= LARGEST for level, index in nodes)
    return [mth(index << level, (index + 1) << level) for level, index in nodes]


@st.composite
def subtrees(draw: st.DrawFn, size: st.SearchStrategy[int]) -> tuple[int, int, int]:
    """A (start, end, size) with start on a multiple of the subtree's size."""
    largest = draw(size)
    start = draw(st.integers(0, largest - 1))
    limit = (start & -start) or largest
    return start, draw(st.integers(start + 1, min(start + limit, largest))), largest


SIZES = st.integers(1, LARGEST)
SUBTREES = subtrees(SIZES)
HASHES = st.binary(min_size=32, max_size=32)

# Known answers


def test_hashes_of_the_certificate_transparency_tree(vectors: Path) -> None:
    tree = json.loads((vectors / "certificate-transparency/reference_tree.json").read_text())
    leaves = [leaf_hash(bytes.fromhex(entry)) for entry in tree["leaf_inputs_hex"]]
    for size, root in enumerate(tree["root_hashes_hex_by_size"]):
        assert Frontier().extend(leaves[:size]).root().hex() == root
    row = leaves
    for hashes in tree["node_hashes_hex"]:
        assert [one.hex() for one in row[: len(hashes)]] == hashes
        row = parent_hashes(row)


def test_known_answers() -> None:
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert node_hash(leaf_hash(b""), leaf_hash(b"\0")).hex() == (
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    )
    assert b64decode("rrsCfVw90Ihx7lJXemH8gxItDRQ1J5GUNjm9TBLTaUM=") == Frontier().extend(LEAVES).root()


def test_own_log_vectors(vectors: Path) -> None:
    known = json.loads((vectors / "checkpoints/vectors.json").read_text())
    for size, checkpoint in known["checkpoints"].items():
        assert tree_root(int(size), read) == b64decode(checkpoint["root"])
    assert known["inclusion"] and known["consistency"]
    for case in known["inclusion"]:
        proof = tuple(map(b64decode, case["proof"]))
        assert prove_inclusion(case["index"], case["size"], read) == proof
        leaf, root = b64decode(case["leaf_hash"]), b64decode(case["root"])
        verify_inclusion(case["index"], case["size"], leaf, proof, root)
    for case in known["consistency"]:
        proof = tuple(map(b64decode, case["proof"]))
        assert prove_consistency(case["old"], case["new"], read) == proof
        roots = b64decode(case["old_root"]), b64decode(case["new_root"])
        verify_consistency(case["old"], case["new"], *roots, proof)


# transparency-dev's cases, of which those with a subtree without a leaf are refused here.


def check(cases: list[Any], verify: Callable[[Any], None], refused: Callable[[Any], bool]) -> None:
    assert len(cases) >= 40
    for case in cases:
        if case["wantErr"] or refused(case):
            with pytest.raises(Error):
                verify(case)
        else:
            verify(case)


def hashes(case: Any, *names: str) -> list[Any]:
    return [
        [b64decode(one) for one in case[name] or ()]
        if name == "proof"
        else b64decode(case[name] or "", validate=True)
        for name in names
    ]


def cases(vectors: Path, name: str) -> list[Any]:
    found = json.loads((vectors / "merkle" / name).read_text())
    assert isinstance(found, list)
    return found


def test_inclusion_cases(vectors: Path) -> None:
    check(
        cases(vectors, "inclusion.json"),
        lambda case: verify_inclusion(
            case["leafIdx"], case["treeSize"], *hashes(case, "leafHash", "proof", "root")
        ),
        lambda case: False,
    )


def test_consistency_cases(vectors: Path) -> None:
    check(
        cases(vectors, "consistency.json"),
        lambda case: verify_consistency(
            case["size1"], case["size2"], *hashes(case, "root1", "root2", "proof")
        ),
        lambda case: False,
    )


def test_subtree_inclusion_cases(vectors: Path) -> None:
    check(
        cases(vectors, "subtreeinclusion.json"),
        lambda case: verify_subtree_inclusion(
            case["leafIdx"], case["start"], case["end"], *hashes(case, "leafHash", "proof", "root")
        ),
        lambda case: False,
    )


def test_subtree_consistency_cases(vectors: Path) -> None:
    check(
        cases(vectors, "subtreeconsistency.json"),
        lambda case: verify_subtree_consistency(
            case["start"], case["end"], case["size"], *hashes(case, "root1", "root2", "proof")
        ),
        lambda case: case["start"] == case["end"],
    )


# Against the slow tree


def test_root_and_frontier_of_every_size() -> None:
    grown = Frontier()
    for size in range(LARGEST + 1):
        assert (
            tree_root(size, read) == grown.root() == Frontier().extend(LEAVES[:size]).root() == mth(0, size)
        )
        assert grown == Frontier.from_reader(size, read)
        if size < LARGEST:
            grown = grown.append(LEAVES[size])


@pytest.mark.parametrize("hundred", [1, 2, 3])
def test_every_proof_of_every_size_up_to_300_is_that_of_the_slow_tree(hundred: int) -> None:
    for size in range(100 * hundred - 99, 100 * hundred + 1):
        for index in range(size):
            assert list(prove_inclusion(index, size, read)) == path(index, 0, size)
        for old_size in range(1, size + 1):
            assert list(prove_consistency(old_size, size, read)) == subproof(0, old_size, 0, size, True)


@pytest.mark.parametrize("hundred", [1, 2, 3])
def test_proofs_of_the_slow_tree_are_verified_at_every_size_up_to_300(hundred: int) -> None:
    for size in range(100 * hundred - 99, 100 * hundred + 1):
        root = mth(0, size)
        for index in {0, size - 1, size // 2, size * 7 // 11, split(size) - 1} & set(range(size)):
            proof = path(index, 0, size)
            verify_inclusion(index, size, LEAVES[index], proof, root)
            for wrong in ([*proof, OTHER], proof[:-1] if proof else [OTHER]):
                with pytest.raises(VerificationError):
                    verify_inclusion(index, size, LEAVES[index], wrong, root)
        for old_size in {1, size, size - 1, size // 2, size * 7 // 11, split(size)} & set(range(1, size + 1)):
            shown = subproof(0, old_size, 0, size, True)
            verify_consistency(old_size, size, mth(0, old_size), root, shown)
            with pytest.raises(VerificationError):
                verify_consistency(old_size, size, mth(0, old_size), root, [*shown, OTHER])


def test_every_inclusion_proof_up_to_65_and_the_edges_up_to_300() -> None:
    for size in range(1, LARGEST + 1):
        indexes = range(size) if size <= 65 else {0, 1, size // 2, size & ~1, size - 1} - {size}
        for index in indexes:
            proof = prove_inclusion(index, size, read)
            assert list(proof) == path(index, 0, size)
            verify_inclusion(index, size, LEAVES[index], proof, mth(0, size))


def test_every_consistency_proof_up_to_65() -> None:
    for new in range(1, 66):
        for old in range(1, new + 1):
            proof = prove_consistency(old, new, read)
            assert list(proof) == subproof(0, old, 0, new, True)
            verify_consistency(old, new, mth(0, old), mth(0, new), proof)


def test_every_subtree_up_to_40() -> None:
    for size in range(1, 41):
        for start in range(size):
            for end in range(start + 1, size + 1):
                if not is_subtree(start, end, size):
                    with pytest.raises(MalformedError):
                        prove_subtree(start, end, size, read)
                    with pytest.raises(VerificationError):
                        verify_subtree_consistency(start, end, size, OTHER, OTHER, ())
                    continue
                proof = prove_subtree(start, end, size, read)
                assert list(proof) == subproof(start, end, 0, size, True)
                inner, outer = mth(start, end), mth(0, size)
                verify_subtree_consistency(start, end, size, inner, outer, proof)
                refused(start, end, size, OTHER, outer, proof)
                refused(start, end, size, inner, OTHER, proof)
                refused(start, end, size, inner, outer, proof[1:] if proof else (OTHER,))
                with pytest.raises(VerificationError):  # whatever root a longer proof would lead to
                    subtree_consistency_root(start, end, size, inner, (*proof, OTHER))


def refused(start: int, end: int, size: int, inner: bytes, outer: bytes, proof: Sequence[bytes]) -> None:
    with pytest.raises(VerificationError):
        verify_subtree_consistency(start, end, size, inner, outer, proof)


def test_accumulated_answers_of_the_merkle_tree_certificates_draft() -> None:
    """Every subtree, inclusion proof and subtree proof up to 130 leaves, hashed into one value each.

    The draft's newest text counts subtrees without a leaf, so their lines are added as it defines them.
    """
    leaves = [leaf_hash(bytes((number,))) for number in range(130)]
    complete = {
        (level, index): Frontier().extend(leaves[index << level : (index + 1) << level]).root()
        for level in range(8)
        for index in range(130 >> level)
    }

    def reader(nodes: Sequence[Node]) -> list[bytes]:
        return [complete[node] for node in nodes]

    def line(start: str, found: Sequence[bytes]) -> bytes:
        return (" ".join((start, *(one.hex() for one in found))) + "\n").encode()

    roots, inclusions, proofs = sha256(), sha256(), sha256()
    for size in range(131):
        for end in range(size + 1):
            for start in range(end + 1):
                if start == end:
                    proof: tuple[bytes, ...] = ()
                elif is_subtree(start, end, size):
                    proof = prove_subtree(start, end, size, reader)
                else:
                    continue
                proofs.update(line(f"[{start}, {end}) {size}", proof))
    for end in range(131):
        for start in range(end + 1):
            if start == end:
                roots.update(line(f"[{start}, {end})", [EMPTY_ROOT]))
            elif is_subtree(start, end, end):
                roots.update(line(f"[{start}, {end})", [subtree_root(start, end, reader)]))
                for index in range(start, end):
                    proof = prove_subtree_inclusion(index, start, end, reader)
                    inclusions.update(line(f"{index} [{start}, {end})", proof))
    assert roots.hexdigest() == "b82806ad4265bb151c1119c0f4db437bb4d1a1f887b3a7fba1cd4ebf552e3e81"
    assert inclusions.hexdigest() == "ac2a8f989e44d99e399db448050ff5f19757df53cfb716aa81015d3955d8163f"
    assert proofs.hexdigest() == "10fa99b37bf9bf9ffa26b412fbd98bd75363256d0b75d61bc4538b9c9c5a0a74"


@given(SUBTREES, st.data())
def test_subtree_inclusion(subtree: tuple[int, int, int], data: st.DataObject) -> None:
    start, end, _ = subtree
    index = data.draw(st.integers(start, end - 1))
    proof = prove_subtree_inclusion(index, start, end, read)
    assert list(proof) == path(index, start, end)
    verify_subtree_inclusion(index, start, end, LEAVES[index], proof, subtree_root(start, end, read))
    for outside in (start - 1, end, end + 1):
        with pytest.raises(VerificationError):
            verify_subtree_inclusion(outside, start, end, LEAVES[index], proof, mth(start, end))


@given(SUBTREES)
def test_subtree_proof(subtree: tuple[int, int, int]) -> None:
    start, end, size = subtree
    proof = prove_subtree(start, end, size, read)
    assert list(proof) == subproof(start, end, 0, size, True)
    assert subtree_consistency_root(start, end, size, mth(start, end), proof) == mth(0, size)


@given(st.integers(0, LARGEST), st.lists(st.integers(0, 90), max_size=8))
def test_frontier_extended_in_any_steps(first: int, steps: list[int]) -> None:
    grown = Frontier().extend(LEAVES[:first])
    for step in steps:
        grown = grown.extend(LEAVES[grown.size : grown.size + step])
    assert grown == Frontier.from_reader(grown.size, read)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_range_nodes_cover_the_range_once(one: int, other: int) -> None:
    start, end = sorted((one, other))
    position = start
    nodes = range_nodes(start, end)
    for level, index in nodes:
        assert index << level == position
        position += 1 << level
    assert position == end
    assert len(nodes) <= 2 * 63
    for (level, index), (next_level, _) in pairwise(nodes):
        assert not (index % 2 == 0 and level == next_level), "two nodes that could be one"


# What does not hold


@given(SUBTREES, st.data())
def test_changed_subtree_proof_fails(subtree: tuple[int, int, int], data: st.DataObject) -> None:
    start, end, size = subtree
    proof = list(prove_subtree(start, end, size, read))
    inner, outer = mth(start, end), mth(0, size)
    change = data.draw(st.sampled_from(["hash", "add", "drop", "swap", "inner", "outer", "short"]))
    if change == "hash" and proof:
        proof[data.draw(st.integers(0, len(proof) - 1))] = OTHER
    elif change == "add":
        proof.insert(data.draw(st.integers(0, len(proof))), data.draw(st.sampled_from([OTHER, inner, outer])))
    elif change == "drop" and proof:
        proof.pop(data.draw(st.integers(0, len(proof) - 1)))
    elif change == "swap" and len(proof) > 1:
        proof[0], proof[-1] = proof[-1], proof[0]
    elif change == "inner":
        inner = OTHER
    elif change == "outer":
        outer = OTHER
    else:
        proof.append(OTHER[:-1])
    with pytest.raises(VerificationError):
        verify_subtree_consistency(start, end, size, inner, outer, proof)


@given(SIZES, st.data())
def test_inclusion_proof_holds_for_its_index_and_leaf_only(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = prove_inclusion(index, size, read)
    other = data.draw(st.integers(0, size))
    if other != index:
        with pytest.raises(VerificationError):
            verify_inclusion(other, size, LEAVES[index], proof, mth(0, size))
    with pytest.raises(VerificationError):
        verify_inclusion(index, size, OTHER, proof, mth(0, size))
    with pytest.raises(VerificationError):
        inclusion_root(index, size, LEAVES[index], (*proof, OTHER))
    if proof:
        with pytest.raises(VerificationError):
            inclusion_root(index, size, LEAVES[index], proof[:-1])


@given(st.integers(-2, 2**65), st.integers(-2, 2**65), HASHES, st.lists(HASHES, max_size=3))
def test_arbitrary_numbers_only_ever_raise_verification_errors(
    one: int, other: int, value: bytes, proof: list[bytes]
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: verify_inclusion(one, other, value, proof, value),
        lambda: verify_consistency(one, other, value, OTHER, proof),
        lambda: verify_subtree_consistency(one, other, other, value, OTHER, proof),
        lambda: verify_subtree_inclusion(one, 0, other, value, [*proof, value], value),
    ]
    for call in calls:
        with pytest.raises(VerificationError):
            call()


@pytest.mark.parametrize(
    ("old", "new", "old_root", "new_root", "proof"),
    [
        (0, 1, EMPTY_ROOT, LEAVES[0], ()),
        (0, 1, EMPTY_ROOT, EMPTY_ROOT, ()),
        (0, 1, OTHER, LEAVES[0], ()),
        (0, 1, EMPTY_ROOT, LEAVES[0], (LEAVES[0],)),
        (0, 0, EMPTY_ROOT, OTHER, ()),
        (0, 0, OTHER, OTHER, ()),
        (0, 0, EMPTY_ROOT, EMPTY_ROOT, (OTHER,)),
        (1, 1, LEAVES[0], LEAVES[0], (OTHER,)),
        (1, 1, LEAVES[0], OTHER, ()),
        (1, 1, b"", b"", ()),
        (2, 1, mth(0, 2), mth(0, 1), ()),
        (1, 2, mth(0, 1), mth(0, 2), ()),
        (-1, 1, OTHER, LEAVES[0], ()),
    ],
)
def test_consistency_that_proves_nothing_is_refused(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: tuple[bytes, ...]
) -> None:
    with pytest.raises(VerificationError):
        verify_consistency(old, new, old_root, new_root, proof)


def test_two_empty_trees_are_consistent() -> None:
    verify_consistency(0, 0, EMPTY_ROOT, EMPTY_ROOT, ())


def test_range_that_is_no_subtree_includes_nothing() -> None:
    root = node_hash(LEAVES[1], LEAVES[2])
    verify_inclusion(0, 2, LEAVES[1], (LEAVES[2],), root)
    with pytest.raises(VerificationError):
        verify_subtree_inclusion(1, 1, 3, LEAVES[1], (LEAVES[2],), root)


def test_proof_from_size_0_is_empty() -> None:
    assert prove_consistency(0, 7, read) == ()


@pytest.mark.parametrize("index", [-1, 1, 2, 2**64 - 1])
def test_tree_of_one_leaf_has_no_other_index(index: int) -> None:
    verify_inclusion(0, 1, LEAVES[0], (), LEAVES[0])
    for proof in ((), (LEAVES[0],)):
        with pytest.raises(VerificationError):
            verify_inclusion(index, 1, LEAVES[0], proof, LEAVES[0])


def test_tree_of_one_leaf_has_an_empty_proof() -> None:
    with pytest.raises(VerificationError):
        verify_inclusion(0, 1, LEAVES[0], (LEAVES[0],), LEAVES[0])


@pytest.mark.parametrize("length", [0, 12, 31, 33])
def test_hash_of_another_length_is_refused(length: int) -> None:
    wrong = bytes(length)
    with pytest.raises(VerificationError):
        verify_inclusion(0, 2, wrong, (LEAVES[1],), mth(0, 2))
    with pytest.raises(VerificationError):
        inclusion_root(0, 2, LEAVES[0], (wrong,))
    with pytest.raises(VerificationError):
        verify_consistency(1, 1, wrong, wrong, ())
    for leaves in ((wrong,), (wrong, LEAVES[0]), (LEAVES[0], wrong)):
        with pytest.raises(VerificationError):
            Frontier().extend(leaves)


def test_reader_that_answers_wrongly_is_refused() -> None:
    for answer in ([], [OTHER, OTHER], [OTHER[:-1]]):
        with pytest.raises(VerificationError):
            tree_root(1, lambda nodes, answer=answer: answer)


@pytest.mark.parametrize(
    "call",
    [
        lambda: prove_inclusion(3, 3, read),
        lambda: prove_inclusion(-1, 3, read),
        lambda: prove_consistency(4, 3, read),
        lambda: prove_consistency(-1, 3, read),
        lambda: prove_subtree(1, 3, 3, read),
        lambda: prove_subtree(2, 2, 3, read),
        lambda: prove_subtree(2, 4, 3, read),
        lambda: prove_subtree_inclusion(4, 2, 4, read),
        lambda: subtree_root(0, 0, read),
        lambda: tree_root(-1, read),
        lambda: tree_root(2**63, read),
        lambda: Frontier(-1, ()),
        lambda: Frontier(2**63, (OTHER,)),
    ],
)
def test_proof_outside_the_tree_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(MalformedError):
        call()


def test_frontier_of_another_length_is_refused() -> None:
    with pytest.raises(VerificationError):
        Frontier(3, (OTHER,))


def test_largest_subtree_does_not_overflow() -> None:
    assert is_subtree(0, 2**63 - 1, 2**63 - 1)
    assert not is_subtree(1, 2**63 - 1, 2**63 - 1)
    assert not is_subtree(0, 2**63, 2**63)


@settings(max_examples=30)
@given(st.integers(1, 2**63 - 1), st.data())
def test_proofs_in_trees_of_any_size(size: int, data: st.DataObject) -> None:
    """Trees in which every complete subtree of a level has the same hash: all leaves are alike."""
    same = [OTHER]
    for _ in range(63):
        same.append(node_hash(same[-1], same[-1]))

    def alike(nodes: Sequence[Node]) -> list[bytes]:
        return [same[level] for level, _ in nodes]

    root = tree_root(size, alike)
    index = data.draw(st.integers(0, size - 1))
    verify_inclusion(index, size, OTHER, prove_inclusion(index, size, alike), root)
    old = data.draw(st.integers(1, size))
    verify_consistency(old, size, tree_root(old, alike), root, prove_consistency(old, size, alike))
