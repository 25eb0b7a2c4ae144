"""The whole of a witness's judgement: what it knows of a log and a request, to an acceptance or the refusal.

The order of the checks is part of the protocol: each status tells the client what is still right with its
request, and nothing about a log is told, or recorded, for a request that the log did not sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tlog.ascii import MAX_SIZE
from tlog.checkpoint import verify_log_lines
from tlog.errors import UnavailableError, VerificationError
from tlog.merkle import verify_consistency
from tlog.note import Note, VerifiedLine, VerifierKey
from witness.wire import AddCheckpoint

MAX_CLOCK_STEP_SECONDS = 300


@dataclass(frozen=True)
class KnownHead:
    """The last head of a log that this witness cosigned."""

    size: int
    root: bytes


@dataclass(frozen=True)
class Suspect:
    """A refused head that is kept, as its log signed it.

    A `fork` contradicts the known head of the same size: the two notes by themselves convict the log. For an
    `unproven` one it may be that only the sender's proof was wrong.
    """

    kind: Literal["fork", "unproven"]
    head: KnownHead
    note: Note


@dataclass(frozen=True)
class Accept:
    """Cosign `head`. `note` is the checkpoint with those lines of the log that hold, and no others."""

    head: KnownHead
    note: Note


@dataclass(frozen=True)
class Refuse:
    """Don't cosign, and answer `status`; a 409 carries `known_size`, the only size that is told."""

    status: Literal[400, 403, 404, 409, 422]
    code: str
    detail: str
    known_size: int | None = None
    suspect: Suspect | None = None


def decide(
    known: KnownHead | None, request: AddCheckpoint, log_keys: Sequence[VerifierKey]
) -> Accept | Refuse:
    """Whether to cosign the request's checkpoint. tlog-witness, add-checkpoint.

    `log_keys` are those trusted for the checkpoint's origin, none if the origin is unknown; `known` is None
    until the first cosignature.
    """
    if not log_keys:
        return Refuse(404, "unknown_origin", "this witness does not know the checkpoint's origin")
    checkpoint = request.checkpoint
    lines: tuple[VerifiedLine, ...] = ()
    try:
        lines = verify_log_lines(request.note, checkpoint, log_keys)
    except VerificationError as error:
        if error.code != "empty_root":
            return Refuse(403, "log_signature", error.message)
    if request.old_size > checkpoint.size:
        return Refuse(400, "bad_input", "expected an old size that is not above the checkpoint's size")
    if not lines:
        return Refuse(422, "empty_root", "a checkpoint of size 0 must have the root of the empty tree")
    head = KnownHead(checkpoint.size, checkpoint.root)
    note = Note(request.note.text, tuple(line.line for line in lines))
    return _compare(known, request, head, note) or Accept(head, note)


def _compare(known: KnownHead | None, request: AddCheckpoint, head: KnownHead, note: Note) -> Refuse | None:
    """The refusal if `head`, which the log signed in `note`, does not follow the known one."""
    old_size = known.size if known else 0
    fork = None
    if known and head.size == known.size and head.root != known.root:
        fork = Suspect("fork", head, note)
    if request.old_size != old_size:
        return Refuse(409, "old_size", "the old size is not that of the last cosigned head", old_size, fork)
    if old_size == 0 and request.proof:
        return Refuse(422, "proof", "expected no proof from size 0")
    if fork:
        return Refuse(422, "fork", "another root was cosigned at this size", suspect=fork)
    if known is None or old_size == 0:
        return None  # there is no head yet that this one could contradict
    try:
        verify_consistency(known.size, head.size, known.root, head.root, request.proof)
    except VerificationError as error:
        unproven = Suspect("unproven", head, note) if head != known else None
        return Refuse(422, "proof", error.message, suspect=unproven)
    return None


def cosignature_time(now: int, last: int | None) -> int:
    """The time for a cosignature: `now`, or that of the log's last cosignature where the clock stepped back.

    A cosignature says that no larger head was seen up to its time, so times may not run backwards. Raises
    UnavailableError if the clock stands far behind, or at no time that a cosignature can hold: a witness that
    signs on without a clock makes every head look fresh.
    """
    if not 0 < now <= MAX_SIZE or (last is not None and last - now > MAX_CLOCK_STEP_SECONDS):
        raise UnavailableError(
            "this witness's clock is wrong; nothing is cosigned until it is set", code="clock"
        )
    return now if last is None else max(now, last)
