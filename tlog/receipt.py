"""COSE receipts (RFC 9942) with RFC 9162 proofs, and transparent statements (RFC 9943, 7).

A receipt signs a Merkle root; the proof beside it leads from an entry to that root. RFC 9942 signs neither
the tree size nor the leaf index, so one proof can be relabelled as a proof in another tree of the same root
path. Ours therefore carry the size in a protected label, checked against the proof, and the signed and
cosigned checkpoint of that size beside it, unprotected: the checkpoint has signatures of its own.

A receipt's signature proves what its signer says. That the tree is the one that witnesses saw follows only
from the checkpoint, opened with the caller's own policy and compared by size and root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tlog import cbor, merkle
from tlog.cose import (
    ALG,
    CHECKPOINT_LABEL,
    CWT_CLAIMS,
    CWT_ISS,
    CWT_SUB,
    KID,
    RECEIPTS,
    SIZE_LABEL,
    VDP,
    VDS,
    CoseKey,
    CoseSigner,
    Sign1,
    decode_sign1,
    encode_protected,
    encode_sign1,
    require_algorithm,
    require_no_legacy,
    sig_structure,
    sign_raw,
    verify_signature,
)
from tlog.errors import MalformedError, VerificationError
from tlog.statement import MAX_ENTRY_BYTES, entry_of, issuer_headers, require_kid, require_name

RFC9162_SHA256: Final = 1
INCLUSION: Final = -1
CONSISTENCY: Final = -2
MAX_RECEIPT_BYTES: Final = 1 << 17
MAX_RECEIPTS: Final = 16
_MAX_PROOFS: Final = 8
_MAX_PATH: Final = 64
_MAX_SIZE: Final = (1 << 63) - 1
_HASH_BYTES: Final = 32
_UNDERSTOOD: Final = frozenset((VDS, SIZE_LABEL))


@dataclass(frozen=True)
class Inclusion:
    """An inclusion proof and the root it leads to; `path` has the leaf's sibling first."""

    index: int
    size: int
    root: bytes
    path: tuple[bytes, ...]


@dataclass(frozen=True)
class Consistency:
    """A consistency proof and the newer root."""

    old_size: int
    new_size: int
    new_root: bytes
    path: tuple[bytes, ...]


@dataclass(frozen=True)
class Proof:
    """A proof as it stands in a receipt: (size, index) or (old size, new size), and the path."""

    first: int
    second: int
    path: tuple[bytes, ...]


@dataclass(frozen=True)
class Receipt:
    """A decoded receipt, nothing verified: `kid` says which key to verify it with.

    `kind` is INCLUSION or CONSISTENCY; `size` is the signed tree size, None in receipts of others.
    """

    kind: int
    issuer: str
    subject: str
    kid: bytes
    size: int | None
    proofs: tuple[Proof, ...]
    checkpoint: bytes | None
    message: Sign1


@dataclass(frozen=True)
class VerifiedReceipt:
    """What an inclusion receipt proves: its signer says that the entry is in the tree with this root.

    `index` follows from the proof. `size_signed` tells whether the signature covers `size`; where it does
    not, the size is known only once a checkpoint of the same root and size has been verified. `checkpoint`
    is the note beside the receipt, not verified.
    """

    index: int
    size: int
    root: bytes
    issuer: str
    subject: str
    kid: bytes
    size_signed: bool
    checkpoint: bytes | None


@dataclass(frozen=True)
class VerifiedConsistency:
    """What a consistency receipt proves: its signer says that the tree extends the caller's older one."""

    old_size: int
    new_size: int
    new_root: bytes
    issuer: str
    subject: str
    kid: bytes
    size_signed: bool
    checkpoint: bytes | None


def sign_receipt(
    signer: CoseSigner, issuer: str, subject: str, inclusion: Inclusion, checkpoint: bytes | None
) -> bytes:
    """A receipt for one entry; `checkpoint` is the note for `inclusion.size`, carried along unprotected.

    Sign only the root of a checkpoint that is published: a receipt is a promise about the log's history.
    """
    proof = _encode_proof(INCLUSION, inclusion.size, inclusion.index, inclusion.path)
    return _sign(_Draft(issuer, subject, inclusion.size, inclusion.root, proof, checkpoint), signer)


def sign_consistency_receipt(
    signer: CoseSigner, issuer: str, subject: str, consistency: Consistency, checkpoint: bytes | None
) -> bytes:
    """A receipt that the tree of `consistency.new_size` extends that of `consistency.old_size`."""
    proof = _encode_proof(CONSISTENCY, consistency.old_size, consistency.new_size, consistency.path)
    return _sign(
        _Draft(issuer, subject, consistency.new_size, consistency.new_root, proof, checkpoint), signer
    )


@dataclass(frozen=True)
class _Draft:
    issuer: str
    subject: str
    size: int
    root: bytes
    proof: dict[int | str, object]
    checkpoint: bytes | None


def _sign(draft: _Draft, signer: CoseSigner) -> bytes:
    if len(draft.root) != _HASH_BYTES:
        raise MalformedError(f"receipt: expected a root of {_HASH_BYTES} bytes")
    claims = {CWT_ISS: require_name(draft.issuer), CWT_SUB: require_name(draft.subject)}
    protected = encode_protected(
        {
            ALG: signer.algorithm,
            KID: signer.kid,
            CWT_CLAIMS: claims,
            VDS: RFC9162_SHA256,
            SIZE_LABEL: draft.size,
        }
    )
    unprotected: dict[int | str, object] = {VDP: draft.proof}
    if draft.checkpoint is not None:
        unprotected[CHECKPOINT_LABEL] = draft.checkpoint
    signature = sign_raw(signer, sig_structure(protected, draft.root))
    receipt = encode_sign1(protected, unprotected, None, signature)
    parse_receipt(receipt)  # what we write we can read
    return receipt


def _encode_proof(kind: int, first: int, second: int, path: Sequence[bytes]) -> dict[int | str, object]:
    return {kind: [cbor.encode([first, second, list(path)])]}


def parse_receipt(receipt: bytes) -> Receipt:
    """The receipt of either kind in these bytes. Nothing is verified.

    Raises MalformedError unless it is a deterministic COSE_Sign1 with a detached payload, vds 1 protected
    (RFC 9942, 4.3) and proofs of exactly one kind.
    """
    message = decode_sign1(receipt, max_bytes=MAX_RECEIPT_BYTES, understood=_UNDERSTOOD)
    issuer, subject, kid = issuer_headers(message.headers)
    require_no_legacy(message)
    if message.payload is not None:
        raise MalformedError("receipt: expected a detached payload, the root is recomputed")
    vds = message.headers.get(VDS)
    if type(vds) is not int or vds != RFC9162_SHA256:
        raise MalformedError("receipt: expected the protected vds to be 1 (RFC9162_SHA256)")
    kind, proofs = _parse_proofs(message)
    size = message.headers.get(SIZE_LABEL)
    checkpoint = message.unprotected.get(CHECKPOINT_LABEL)
    if type(size) is not int and size is not None:
        raise MalformedError("receipt: expected the signed tree size as an integer")
    if not isinstance(checkpoint, bytes | None):
        raise MalformedError("receipt: expected the checkpoint as a byte string")
    return Receipt(kind, issuer, subject, kid, size, proofs, checkpoint, message)


def _parse_proofs(message: Sign1) -> tuple[int, tuple[Proof, ...]]:
    vdp = message.unprotected.get(VDP)
    if not isinstance(vdp, dict) or len(vdp) != 1:
        raise MalformedError("receipt: expected proofs of one kind under label 396")
    kind, encoded = next(iter(vdp.items()))
    if kind not in (INCLUSION, CONSISTENCY):
        raise MalformedError("receipt: expected inclusion (-1) or consistency (-2) proofs")
    if not isinstance(encoded, list) or not 1 <= len(encoded) <= _MAX_PROOFS:
        raise MalformedError(f"receipt: expected 1 to {_MAX_PROOFS} proofs")
    return int(kind), tuple(_parse_proof(proof) for proof in encoded)


def _parse_proof(encoded: cbor.Value) -> Proof:
    if not isinstance(encoded, bytes):
        raise MalformedError("receipt: expected each proof as encoded CBOR in a byte string")
    proof = cbor.decode(encoded, max_bytes=MAX_RECEIPT_BYTES, max_depth=2)
    if not isinstance(proof, list) or len(proof) != 3:
        raise MalformedError("receipt: expected a proof of two numbers and a path")
    first, second, path = proof
    if type(first) is not int or type(second) is not int or not isinstance(path, list):
        raise MalformedError("receipt: expected a proof of two numbers and a path")
    if not (0 <= first <= _MAX_SIZE and 0 <= second <= _MAX_SIZE and len(path) <= _MAX_PATH):
        raise MalformedError("receipt: a number in a proof, or its path, is out of range")
    hashes = tuple(node for node in path if isinstance(node, bytes) and len(node) == _HASH_BYTES)
    if len(hashes) != len(path):
        raise MalformedError(f"receipt: expected every hash of a path to have {_HASH_BYTES} bytes")
    return Proof(first, second, hashes)


def verify_receipt(receipt: bytes, entry: bytes, key: CoseKey) -> VerifiedReceipt:
    """What the receipt proves about `entry`: that it is in the tree whose root `key` signed.

    `entry` are the logged bytes, without unprotected headers. Where there are several proofs, all must hold.
    """
    parsed = parse_receipt(receipt)
    if parsed.kind != INCLUSION:
        raise VerificationError("receipt: expected an inclusion receipt", code="receipt_kind")
    leaf = merkle.leaf_hash(entry)
    # RFC 9942, 5.2.1: the proof gives the root, then the signature is checked over it.
    roots = {merkle.inclusion_root(proof.second, proof.first, leaf, proof.path) for proof in parsed.proofs}
    root = _signed_root(parsed, roots, key)
    proof = parsed.proofs[0]
    size_signed = _size_is_signed(parsed, {proof.first for proof in parsed.proofs})
    return VerifiedReceipt(
        proof.second,
        proof.first,
        root,
        parsed.issuer,
        parsed.subject,
        parsed.kid,
        size_signed,
        parsed.checkpoint,
    )


def verify_consistency_receipt(
    receipt: bytes, old_size: int, old_root: bytes, key: CoseKey
) -> VerifiedConsistency:
    """What the receipt proves about the caller's own older tree, whose size and root never come from it."""
    parsed = parse_receipt(receipt)
    if parsed.kind != CONSISTENCY:
        raise VerificationError("receipt: expected a consistency receipt", code="receipt_kind")
    if any(proof.first != old_size for proof in parsed.proofs):
        raise VerificationError("receipt: the proof starts from another tree size", code="proof")
    # Both sizes are checked by the proof's own rules: nothing can be proved from an empty tree, or backwards.
    roots = {
        merkle.subtree_consistency_root(0, old_size, proof.second, old_root, proof.path)
        for proof in parsed.proofs
    }
    root = _signed_root(parsed, roots, key)
    proof = parsed.proofs[0]
    size_signed = _size_is_signed(parsed, {proof.second for proof in parsed.proofs})
    return VerifiedConsistency(
        old_size,
        proof.second,
        root,
        parsed.issuer,
        parsed.subject,
        parsed.kid,
        size_signed,
        parsed.checkpoint,
    )


def _signed_root(receipt: Receipt, roots: set[bytes], key: CoseKey) -> bytes:
    if len(roots) != 1:
        raise VerificationError("receipt: its proofs lead to different roots", code="proof")
    message = receipt.message
    require_kid(receipt.kid, key)
    algorithm = require_algorithm(key, message.headers.get(ALG))
    (root,) = roots
    verify_signature(key, algorithm, sig_structure(message.protected, root), message.signature)
    return root


def _size_is_signed(receipt: Receipt, sizes: set[int]) -> bool:
    if receipt.size is None:
        return False
    if sizes != {receipt.size}:
        raise VerificationError(
            "receipt: the proof is for another tree size than was signed", code="tree_size"
        )
    return True


def make_transparent(entry: bytes, receipts: Sequence[bytes]) -> bytes:
    """The transparent statement of an entry and its receipts: they are its only unprotected header."""
    if not 1 <= len(receipts) <= MAX_RECEIPTS:
        raise MalformedError(f"transparent statement: expected 1 to {MAX_RECEIPTS} receipts")
    for receipt in receipts:
        parse_receipt(receipt)
    if entry_of(entry) != entry:
        raise MalformedError("transparent statement: expected an entry without unprotected headers")
    message = decode_sign1(entry)
    return encode_sign1(message.protected, {RECEIPTS: list(receipts)}, message.payload, message.signature)


def split_transparent(data: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """The entry and the receipts of a transparent statement. Nothing is verified."""
    message = decode_sign1(data, max_bytes=MAX_ENTRY_BYTES + MAX_RECEIPTS * (MAX_RECEIPT_BYTES + 8))
    receipts = message.unprotected.get(RECEIPTS)
    # RFC 9943, figure 7: a closed map; each receipt is wrapped in a byte string.
    if message.unprotected.keys() != {RECEIPTS} or not isinstance(receipts, list):
        raise MalformedError("transparent statement: expected receipts as the only unprotected header")
    if not 1 <= len(receipts) <= MAX_RECEIPTS:
        raise MalformedError(f"transparent statement: expected 1 to {MAX_RECEIPTS} receipts")
    wrapped = tuple(receipt for receipt in receipts if isinstance(receipt, bytes))
    if len(wrapped) != len(receipts):
        raise MalformedError("transparent statement: expected each receipt in a byte string")
    for receipt in wrapped:
        parse_receipt(receipt)
    return entry_of(data), wrapped
