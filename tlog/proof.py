"""C2SP tlog-proof: a file that shows an entry to be in a log, checked against a policy and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from tlog.ascii import HASH_BYTES, MAX_SIZE, decode_base64, decode_hash, encode_base64, parse_decimal
from tlog.checkpoint import parse_checkpoint
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import leaf_hash, verify_inclusion
from tlog.note import MAX_NOTE_BYTES, parse_note
from tlog.policy import Policy, VerifiedCheckpoint, verify_checkpoint

HEADER = "c2sp.org/tlog-proof@v1"
MAX_HASHES = 63  # a tree of 2^63 leaves has no longer path
MAX_EXTRA_BYTES = 1 << 20
MAX_PROOF_BYTES = MAX_NOTE_BYTES + 2 * MAX_EXTRA_BYTES


@dataclass(frozen=True)
class TlogProof:
    """An entry's index, its inclusion proof and the signed checkpoint that it leads to; nothing is verified.

    `extra` is covered by no signature: whoever hands the file on can change it.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes
    extra: bytes | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.index <= MAX_SIZE:
            raise MalformedError("tlog-proof index: expected 0 to 2^63-1")
        if len(self.hashes) > MAX_HASHES or any(len(one) != HASH_BYTES for one in self.hashes):
            raise MalformedError(f"tlog-proof: expected up to {MAX_HASHES} hashes of {HASH_BYTES} bytes")
        if self.extra is not None and not 1 <= len(self.extra) <= MAX_EXTRA_BYTES:
            raise MalformedError(f"tlog-proof extra: expected 1 to {MAX_EXTRA_BYTES} bytes")
        parse_checkpoint(parse_note(self.checkpoint).text)


def parse_proof(data: bytes) -> TlogProof:
    """The proof in a file, which must hold nothing else. tlog-proof, Format."""
    if len(data) > MAX_PROOF_BYTES:
        raise MalformedError(f"tlog-proof: expected at most {MAX_PROOF_BYTES} bytes", code="too_large")
    head, _, checkpoint = data.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise MalformedError("tlog-proof: expected ASCII before the checkpoint") from None
    if lines.pop(0) != HEADER:
        raise MalformedError(
            f"tlog-proof: expected the line {HEADER}, a proof, an empty line and a checkpoint"
        )
    extra = None
    if lines and lines[0].startswith("extra "):
        extra = decode_base64(lines.pop(0).removeprefix("extra "), "tlog-proof extra")
    if not lines or not lines[0].startswith("index "):
        raise MalformedError("tlog-proof: expected an index line")
    index = parse_decimal(lines[0].removeprefix("index "), "tlog-proof index")
    hashes = tuple(decode_hash(line, "tlog-proof hash") for line in lines[1:])
    return TlogProof(index, hashes, checkpoint, extra)


def format_proof(proof: TlogProof) -> bytes:
    """The bytes of a `.tlog-proof` file."""
    lines = [HEADER]
    if proof.extra is not None:
        lines.append(f"extra {encode_base64(proof.extra)}")
    lines.append(f"index {proof.index}")
    lines += [encode_base64(one) for one in proof.hashes]
    return "\n".join((*lines, "", "")).encode() + proof.checkpoint


def verify_proof(
    proof: TlogProof, entry: bytes, policy: Policy, origin: str | None = None
) -> VerifiedCheckpoint:
    """The checkpoint that the entry is proved to be under, once the policy is satisfied by it.

    Raises VerificationError with the codes of `verify_checkpoint`, or `inclusion`.
    """
    verified = verify_checkpoint(policy, proof.checkpoint, origin)
    head = verified.checkpoint
    try:
        verify_inclusion(proof.index, head.size, leaf_hash(entry), proof.hashes, head.root)
    except VerificationError:
        raise VerificationError(
            "tlog-proof: the entry is not at this index of the checkpoint's tree", code="inclusion"
        ) from None
    return verified
