"""C2SP tlog-witness on the wire: the add-checkpoint request and the two bodies that answer it.

Both sides use this module: what the client formats, the server parses, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from tlog.ascii import MAX_SIZE, decode_hash, encode_base64, parse_decimal
from tlog.checkpoint import Checkpoint, parse_checkpoint
from tlog.errors import MalformedError
from tlog.note import Note, SignatureLine, format_note, parse_note, parse_signature_lines

MAX_PROOF_HASHES = 63
MAX_BODY_BYTES = 128 * 1024  # 16 ML-DSA-44 signatures and a full proof
MAX_ANSWER_BYTES = 64 * 1024
SIZE_TYPE = "text/x.tlog.size"


@dataclass(frozen=True)
class AddCheckpoint:
    """A checkpoint to cosign, and the proof that it extends `old_size`. Nothing of it is verified."""

    old_size: int
    proof: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint


def parse_add_checkpoint(body: bytes) -> AddCheckpoint:
    """The request in `body`. tlog-witness, add-checkpoint.

    Checkpoints with extension lines are refused: an ML-DSA-44 cosignature does not cover them, so a witness
    would seem to vouch for lines that it did not sign.
    """
    if len(body) > MAX_BODY_BYTES:
        raise MalformedError(f"add-checkpoint: expected at most {MAX_BODY_BYTES} bytes", code="too_large")
    header, separator, signed = body.partition(b"\n\n")
    if not separator:
        raise MalformedError("add-checkpoint: expected an old size, a proof, an empty line and a checkpoint")
    first, *hashes = _ascii(header, "add-checkpoint").split("\n")
    if not first.startswith("old "):
        raise MalformedError("add-checkpoint: expected the first line to be old and a size")
    if len(hashes) > MAX_PROOF_HASHES:
        raise MalformedError(f"add-checkpoint: expected at most {MAX_PROOF_HASHES} proof lines")
    note = parse_note(signed)
    checkpoint = parse_checkpoint(note.text)
    if checkpoint.extensions:
        raise MalformedError("add-checkpoint: expected a checkpoint without extension lines")
    return AddCheckpoint(
        old_size=parse_decimal(first.removeprefix("old "), "old size"),
        proof=tuple(decode_hash(line, "proof line") for line in hashes),
        note=note,
        checkpoint=checkpoint,
    )


def format_add_checkpoint(old_size: int, proof: Iterable[bytes], note: Note) -> bytes:
    """The body that submits `note`, which `parse_add_checkpoint` reads back."""
    lines = (f"old {old_size}", *map(encode_base64, proof), "", "")
    return "\n".join(lines).encode("ascii") + format_note(note)


def parse_conflict(content_type: str, body: bytes) -> int:
    """The size that a witness's 409 names: that of the last head it cosigned. tlog-witness, add-checkpoint.

    One spelling only, so that no answer can be read as another size.
    """
    if content_type.partition(";")[0].strip().lower() != SIZE_TYPE:
        raise MalformedError(f"conflict: expected a body of type {SIZE_TYPE}")
    if len(body) > len(f"{MAX_SIZE}\n") or not body.endswith(b"\n"):
        raise MalformedError("conflict: expected one size and a newline")
    return parse_decimal(_ascii(body[:-1], "conflict"), "conflict size")


def format_conflict(size: int) -> bytes:
    """The body of a 409, which `parse_conflict` reads back."""
    return b"%d\n" % size


def parse_cosignatures(body: bytes) -> tuple[SignatureLine, ...]:
    """The signature lines of a witness's 200, each still to be verified."""
    if len(body) > MAX_ANSWER_BYTES:
        raise MalformedError(f"cosignatures: expected at most {MAX_ANSWER_BYTES} bytes", code="too_large")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedError("cosignatures: expected UTF-8") from None
    return parse_signature_lines(text)


def format_cosignatures(lines: Iterable[SignatureLine]) -> bytes:
    """The body of a 200, which `parse_cosignatures` reads back."""
    return "".join(line.line for line in lines).encode()


def origin_digest(origin: str) -> bytes:
    """The hash under which a witness serves a log's checkpoint. tlog-witness, Monitor Retrieval Mechanism."""
    return sha256(origin.encode()).digest()


def _ascii(data: bytes, what: str) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise MalformedError(f"{what}: expected ASCII") from None
