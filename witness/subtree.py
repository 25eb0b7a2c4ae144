"""C2SP tlog-witness, sign-subtree: a part of a tree that the witness has cosigned, signed as such. No IO.

Nothing is remembered for it: that the whole is cosigned by one's own key, and that the part belongs to the
whole, makes the signature safe whatever was cosigned before or since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tlog.ascii import decode_hash, encode_base64, parse_decimal
from tlog.checkpoint import Checkpoint, parse_checkpoint
from tlog.cosignature import cosigned_message_mldsa44, make_cosignature_line, verify_cosignature
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import is_subtree, verify_subtree_consistency
from tlog.note import Note, SignatureLine, SignatureType, VerifierKey, format_note, known_lines, parse_note
from witness.decide import Refuse
from witness.wire import MAX_BODY_BYTES, MAX_PROOF_HASHES

_RANGE = re.compile("subtree ([0-9]+) ([0-9]+)")


class BytesSigner(Protocol):
    """A cosigner's key that signs whatever bytes it is given."""

    @property
    def verifier_key(self) -> VerifierKey: ...

    def sign_bytes(self, message: bytes, /) -> bytes: ...


@dataclass(frozen=True)
class SignSubtree:
    """A subtree to sign, and the proof that it is part of the checkpoint's tree. Nothing of it is verified."""

    start: int
    end: int
    root: bytes
    proof: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint


def parse_sign_subtree(body: bytes) -> SignSubtree:
    """The request in `body`. tlog-witness, sign-subtree.

    Checkpoints with extension lines are refused, for the reason that add-checkpoint has.
    """
    if len(body) > MAX_BODY_BYTES:
        raise MalformedError(f"sign-subtree: expected at most {MAX_BODY_BYTES} bytes", code="too_large")
    header, separator, signed = body.partition(b"\n\n")
    if not separator or not header.isascii():
        raise MalformedError(
            "sign-subtree: expected a range, a hash, a proof, an empty line and a checkpoint"
        )
    first, *hashes = header.decode("ascii").split("\n")
    found = _RANGE.fullmatch(first)
    if found is None or not 1 <= len(hashes) <= 1 + MAX_PROOF_HASHES:
        raise MalformedError(
            f"sign-subtree: expected a range, a hash and up to {MAX_PROOF_HASHES} proof lines"
        )
    start, end = (parse_decimal(number, "subtree range") for number in found.groups())
    root, *proof = (decode_hash(line, "subtree hash or proof line") for line in hashes)
    note = parse_note(signed)
    checkpoint = parse_checkpoint(note.text)
    if checkpoint.extensions:
        raise MalformedError("sign-subtree: expected a checkpoint without extension lines")
    if not is_subtree(start, end, checkpoint.size):
        raise MalformedError("sign-subtree: expected a subtree of the checkpoint's tree")
    return SignSubtree(start, end, root, tuple(proof), note, checkpoint)


def format_sign_subtree(start: int, end: int, root: bytes, proof: Iterable[bytes], note: Note) -> bytes:
    """The body that asks for [start, end), which `parse_sign_subtree` reads back."""
    lines = (f"subtree {start} {end}", *map(encode_base64, (root, *proof)), "", "")
    return "\n".join(lines).encode("ascii") + format_note(note)


def refuse_subtree(request: SignSubtree, own_keys: Sequence[VerifierKey]) -> Refuse | None:
    """Why the subtree may not be signed, None if it may. `own_keys` are those this witness cosigns with."""
    try:
        lines = known_lines(request.note, own_keys)
        for line in lines:
            # Time 0 is refused too: it is what a subtree's own signature has, not that of a head seen.
            verify_cosignature(line.key, line.line, request.note.text)
    except VerificationError as error:
        return Refuse(403, "cosignature", error.message)
    if not lines:
        return Refuse(403, "cosignature", "expected a checkpoint that this witness has cosigned")
    checkpoint = request.checkpoint
    try:
        verify_subtree_consistency(
            request.start, request.end, checkpoint.size, request.root, checkpoint.root, request.proof
        )
    except VerificationError as error:
        return Refuse(422, "proof", error.message)
    return None


def sign_subtree(request: SignSubtree, cosigners: Iterable[BytesSigner]) -> tuple[SignatureLine, ...]:
    """A line of each key whose format can name a subtree, with time 0. tlog-cosignature, ML-DSA-44."""
    lines = []
    for cosigner in cosigners:
        key = cosigner.verifier_key
        if key.kind == SignatureType.MLDSA44:
            origin = request.checkpoint.origin
            message = cosigned_message_mldsa44(key.name, 0, origin, request.start, request.end, request.root)
            lines.append(make_cosignature_line(key, 0, cosigner.sign_bytes(message)))
    return tuple(lines)
