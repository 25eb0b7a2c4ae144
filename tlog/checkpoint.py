"""C2SP tlog-checkpoint: a log's origin, size and root as the text of a signed note."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tlog.ascii import HASH_BYTES, MAX_SIZE, decode_hash, encode_base64, parse_decimal
from tlog.errors import MalformedError, VerificationError
from tlog.merkle import EMPTY_ROOT
from tlog.note import Note, VerifiedLine, VerifierKey, known_lines, parse_note, require_text

MAX_ORIGIN_BYTES = 255  # what the length byte before it in an ML-DSA-44 cosignature can hold


@dataclass(frozen=True)
class Checkpoint:
    """A log's head. tlog-checkpoint, Note text.

    Size 0 with a root other than the empty tree's can be written and read, because a witness has an answer of
    its own for it; `open_checkpoint` refuses it.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for line in (self.origin, *self.extensions):
            if not line or "\n" in line:
                raise MalformedError("checkpoint: expected lines that are not empty")
        require_text("\n".join((self.origin, *self.extensions, "")))
        if len(self.origin.encode()) > MAX_ORIGIN_BYTES:
            raise MalformedError(f"checkpoint origin: expected at most {MAX_ORIGIN_BYTES} bytes")
        if not 0 <= self.size <= MAX_SIZE:
            raise MalformedError("checkpoint size: expected 0 to 2^63-1")
        if len(self.root) != HASH_BYTES:
            raise MalformedError(f"checkpoint root: expected {HASH_BYTES} bytes")


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A checkpoint that its log signed, the note it stood in, and the log's lines that hold."""

    checkpoint: Checkpoint
    note: Note
    lines: tuple[VerifiedLine, ...]


def parse_checkpoint(text: str) -> Checkpoint:
    """The checkpoint in a note's text."""
    origin, *rest = text.split("\n")
    if len(rest) < 3 or rest.pop():
        raise MalformedError("checkpoint: expected an origin, a size and a root, each on a line of its own")
    size, root, *extensions = rest
    return Checkpoint(
        origin,
        parse_decimal(size, "checkpoint size"),
        decode_hash(root, "checkpoint root"),
        tuple(extensions),
    )


def format_checkpoint(checkpoint: Checkpoint) -> str:
    """The note text of a checkpoint."""
    lines = (checkpoint.origin, str(checkpoint.size), encode_base64(checkpoint.root), *checkpoint.extensions)
    return "".join(f"{line}\n" for line in lines)


def open_checkpoint(data: bytes, log_keys: Iterable[VerifierKey], origin: str) -> OpenedCheckpoint:
    """The checkpoint of the log `origin` in a signed note, once a key of the log has signed it.

    Raises MalformedError for anything but a checkpoint, and VerificationError with code `origin`,
    `log_signature` (none of the log's keys signed, or one of their lines fails) or `empty_root`.
    """
    note = parse_note(data)
    checkpoint = parse_checkpoint(note.text)
    if checkpoint.origin != origin:
        raise VerificationError("checkpoint: is of another origin than the one expected", code="origin")
    return OpenedCheckpoint(checkpoint, note, verify_log_lines(note, checkpoint, log_keys))


def verify_log_lines(
    note: Note, checkpoint: Checkpoint, log_keys: Iterable[VerifierKey]
) -> tuple[VerifiedLine, ...]:
    """The lines of a log's keys over its checkpoint, at least one and each verified."""
    from tlog.cosignature import verify_log_line  # late: cosignature reads checkpoints

    try:
        lines = known_lines(note, log_keys)
        for line in lines:
            verify_log_line(line.key, line.line, note.text)
    except VerificationError as error:
        raise VerificationError(error.message, code="log_signature") from None
    if not lines:
        raise VerificationError("checkpoint: no signature by a key of the log", code="log_signature")
    if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
        raise VerificationError("checkpoint: an empty log with the root of another", code="empty_root")
    return lines
