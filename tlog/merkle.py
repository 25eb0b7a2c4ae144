"""Merkle trees of RFC 6962 and RFC 9162: hashes, proofs made from stored hashes, proofs verified.

A tree of `size` leaves is never held. What is stored are the hashes of its complete subtrees, and whoever
stores them hands in a reader. Every proof is a list of ranges of leaves: the hashes of the complete subtrees
that make up each range are read in one call and folded together.

A proof that some subtree [start, end) is part of a tree is the general case. With one leaf it is an inclusion
proof, with start 0 it is a consistency proof, so one function makes all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from tlog.ascii import HASH_BYTES, MAX_SIZE
from tlog.errors import MalformedError, VerificationError

Node = tuple[int, int]
"""(level, index): the complete subtree of 2**level leaves from leaf index * 2**level."""

HashReader = Callable[[Sequence[Node]], Sequence[bytes]]
"""Returns the hash of each asked node, in order. Asked only for nodes complete at the tree's size."""

EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """The leaf hash of an entry. RFC 9162, 2.1.1."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of the node over two subtrees. RFC 9162, 2.1.1."""
    return sha256(b"\x01" + left + right).digest()


def parent_hashes(row: Iterable[bytes]) -> list[bytes]:
    """The hashes one level up: of each pair of neighbours; a last one without neighbour is left out."""
    pairs = iter(row)
    return [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=False)]


def range_nodes(start: int, end: int) -> tuple[Node, ...]:
    """The largest complete subtrees that make up the leaves [start, end), left to right."""
    nodes = []
    while start < end:
        level = (end - start).bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        nodes.append((level, start >> level))
        start += 1 << level
    return tuple(nodes)


def is_subtree(start: int, end: int, size: int) -> bool:
    """Whether [start, end) is a non-empty subtree of the tree. Merkle Tree Certificates draft, 4.1."""
    return 0 <= start < end <= size <= MAX_SIZE and start % (1 << (end - start - 1).bit_length()) == 0


# Making proofs


def tree_root(size: int, read: HashReader) -> bytes:
    """The root hash of the tree of `size` leaves."""
    _require_bounds(0 <= size <= MAX_SIZE, "size")
    return _read_ranges([(0, size)], read)[0] if size else EMPTY_ROOT


def subtree_root(start: int, end: int, read: HashReader) -> bytes:
    """The root hash of the subtree [start, end)."""
    _require_bounds(is_subtree(start, end, end), "subtree")
    return _read_ranges([(start, end)], read)[0]


def prove_inclusion(index: int, size: int, read: HashReader) -> tuple[bytes, ...]:
    """The inclusion proof of leaf `index`, its sibling's hash first. RFC 9162, 2.1.3.1."""
    _require_bounds(0 <= index < size, "index")
    return prove_subtree(index, index + 1, size, read)


def prove_consistency(old_size: int, new_size: int, read: HashReader) -> tuple[bytes, ...]:
    """The consistency proof between two sizes, empty from size 0. RFC 9162, 2.1.4.1."""
    _require_bounds(0 <= old_size <= new_size, "old size")
    return prove_subtree(0, old_size, new_size, read) if old_size else ()


def prove_subtree(start: int, end: int, size: int, read: HashReader) -> tuple[bytes, ...]:
    """The proof that [start, end) is part of the tree of `size`. Merkle Tree Certificates draft, 4.4."""
    _require_bounds(is_subtree(start, end, size), "subtree")
    ranges = []
    low, high = 0, size
    whole = True  # the verifier holds the hash of [start, end) itself and not merely of its right part
    while (low, high) != (start, end):
        middle = low + (1 << ((high - low - 1).bit_length() - 1))
        if end <= middle:
            ranges.append((middle, high))
            high = middle
        else:
            ranges.append((low, middle))
            low = middle
            if start < middle:
                start, whole = middle, False
    if not whole:
        ranges.append((low, high))
    return tuple(_read_ranges(ranges[::-1], read))


def prove_subtree_inclusion(index: int, start: int, end: int, read: HashReader) -> tuple[bytes, ...]:
    """The inclusion proof of leaf `index` within the subtree [start, end), its sibling's hash first."""
    _require_bounds(is_subtree(start, end, end) and start <= index < end, "index")

    def shifted(nodes: Sequence[Node]) -> Sequence[bytes]:
        # Exact, because `start` is a multiple of every complete subtree's size within [start, end).
        return read([(level, (start >> level) + position) for level, position in nodes])

    return prove_subtree(index - start, index - start + 1, end - start, shifted)


def _read_ranges(ranges: Sequence[tuple[int, int]], read: HashReader) -> list[bytes]:
    nodes = [range_nodes(start, end) for start, end in ranges]
    wanted = [node for group in nodes for node in group]
    hashes = read(wanted) if wanted else ()
    if len(hashes) != len(wanted):
        raise VerificationError("hash reader: expected one hash for each node", code="tile")
    _require_hashes(hashes)
    roots, position = [], 0
    for group in nodes:
        roots.append(_fold(hashes[position : position + len(group)]))
        position += len(group)
    return roots


def _fold(hashes: Sequence[bytes]) -> bytes:
    root = hashes[-1]
    for left in hashes[-2::-1]:
        root = sha256(b"\x01" + left + root).digest()
    return root


# Verifying proofs


def inclusion_root(index: int, size: int, leaf: bytes, proof: Sequence[bytes]) -> bytes:
    """The root that an inclusion proof leads to from the leaf hash `leaf`. RFC 9162, 2.1.3.2.

    Raises VerificationError if the proof cannot be one of this leaf in a tree of this size. The result is
    worth something only once it is compared with a root that is trusted, or a signature over it is checked.
    """
    _require(0 <= index < size <= MAX_SIZE, "inclusion")
    _require_hashes((leaf, *proof))
    first, last = index, size - 1
    root = leaf
    for sibling in proof:
        _require(last > 0, "inclusion")
        if first & 1 or first == last:
            root = sha256(b"\x01" + sibling + root).digest()
            while first and not first & 1:
                first >>= 1
                last >>= 1
        else:
            root = sha256(b"\x01" + root + sibling).digest()
        first >>= 1
        last >>= 1
    _require(last == 0, "inclusion")
    return root


def verify_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Returns if the leaf hash is at `index` of the tree with this size and root. RFC 9162, 2.1.3.2."""
    _require(inclusion_root(index, size, leaf, proof) == root, "inclusion")


def verify_subtree_inclusion(
    index: int, start: int, end: int, leaf: bytes, proof: Sequence[bytes], root: bytes
) -> None:
    """Returns if the leaf hash is at `index` of the subtree [start, end) with this root."""
    _require(is_subtree(start, end, end), "subtree inclusion")
    verify_inclusion(index - start, end - start, leaf, proof, root)


def verify_consistency(
    old_size: int, new_size: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Returns if the tree of `new_size` is the tree of `old_size` with leaves appended. RFC 9162, 2.1.4.2.

    From size 0 to a larger one nothing can be proved and nothing is accepted: whoever knows no earlier tree
    must say so by not calling this.
    """
    _require(0 <= old_size <= new_size <= MAX_SIZE, "consistency")
    if old_size == 0:
        _require(new_size == 0 and not proof and old_root == new_root == EMPTY_ROOT, "consistency")
        return
    verify_subtree_consistency(0, old_size, new_size, old_root, new_root, proof)


def verify_subtree_consistency(
    start: int, end: int, size: int, subtree_hash: bytes, root: bytes, proof: Sequence[bytes]
) -> None:
    """Returns if [start, end) with this hash is part of the tree with this size and root.

    draft-ietf-plants-merkle-tree-certs-03, 4.4; with start 0 it is RFC 9162, 2.1.4.2.
    """
    _require(subtree_consistency_root(start, end, size, subtree_hash, proof) == root, "consistency")


def subtree_consistency_root(
    start: int, end: int, size: int, subtree_hash: bytes, proof: Sequence[bytes]
) -> bytes:
    """The root of the tree of `size` that the proof leads to from the hash of [start, end).

    Raises VerificationError unless the proof also leads to that hash. Worth something only once the result is
    compared with a trusted root, or a signature over it is checked.
    """
    _require(is_subtree(start, end, size), "consistency")
    _require_hashes((subtree_hash, *proof))
    first, inner, outer = start, end - 1, size - 1
    at_edge = inner == outer  # an incomplete subtree at the tree's right edge is a node of the tree too
    while first != inner and (at_edge or inner & 1):
        first, inner, outer = first >> 1, inner >> 1, outer >> 1
    rest = list(proof)
    if first == inner:
        seed = subtree_hash
    else:
        _require(bool(rest), "consistency")
        seed = rest.pop(0)
    old = new = seed
    for sibling in rest:
        _require(outer > 0, "consistency")
        if inner & 1 or inner == outer:
            if first < inner:
                old = sha256(b"\x01" + sibling + old).digest()
            new = sha256(b"\x01" + sibling + new).digest()
            while inner and not inner & 1:
                first, inner, outer = first >> 1, inner >> 1, outer >> 1
        else:
            new = sha256(b"\x01" + new + sibling).digest()
        first, inner, outer = first >> 1, inner >> 1, outer >> 1
    _require(outer == 0 and old == subtree_hash, "consistency")
    return new


# Growing


@dataclass(frozen=True)
class Frontier:
    """The right edge of a tree: all that is needed to append leaves and to know the root.

    `hashes` are those of `range_nodes(0, size)`, left to right.
    """

    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        _require_bounds(0 <= self.size <= MAX_SIZE, "size")
        if len(self.hashes) != self.size.bit_count():
            raise VerificationError("frontier: expected one hash for each complete subtree", code="tile")
        _require_hashes(self.hashes)

    @classmethod
    def from_reader(cls, size: int, read: HashReader) -> Frontier:
        """The frontier of the tree of `size` whose hashes `read` returns."""
        nodes = range_nodes(0, size)
        return cls(size, tuple(read(nodes)) if nodes else ())

    def root(self) -> bytes:
        """The root hash of the tree."""
        return _fold(self.hashes) if self.hashes else EMPTY_ROOT

    def append(self, leaf: bytes) -> Frontier:
        """The frontier after one more leaf hash."""
        return self.extend((leaf,))

    def extend(self, leaves: Iterable[bytes]) -> Frontier:
        """The frontier after more leaf hashes, at a cost of one node hash a leaf."""
        row = list(leaves)
        _require_hashes(row)
        size = self.size + len(row)
        edge = list(self.hashes)
        added: list[bytes] = []  # smallest subtree first
        position = self.size
        while row:
            if position & 1:
                row.insert(0, edge.pop())
            if len(row) & 1:
                added.append(row.pop())
            row = parent_hashes(row)
            position >>= 1
        return Frontier(size, (*edge, *reversed(added)))


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise VerificationError(f"{what} proof: does not hold", code="proof")


def _require_bounds(holds: bool, what: str) -> None:
    if not holds:
        raise MalformedError(f"{what}: outside the tree")


def _require_hashes(hashes: Sequence[bytes]) -> None:
    if set(map(len, hashes)) - {HASH_BYTES}:
        raise VerificationError(f"hash: expected {HASH_BYTES} bytes", code="proof")
