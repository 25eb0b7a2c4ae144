"""One look at a log that somebody else runs: what it serves, what its witnesses have seen, what was seen before.

Two heads that no one log can have, a log that goes back, a head that too few witnesses cosigned or none lately:
each is an alarm, with the signed notes that show it. A note convicts by itself, whoever kept it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from auditor.findings import SEVERITIES
from tlog.checkpoint import Checkpoint, open_checkpoint
from tlog.cosignature import MAX_CLOCK_SKEW_SECONDS, Cosignature
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.merkle import HashReader
from tlog.note import format_note, parse_note
from tlog.policy import verify_checkpoint, verify_cosignatures
from tlog.tile_reader import PathReader, VerifiedTiles
from tlog.trust import Trust
from witness.compare import Comparison, View, compare_heads

if TYPE_CHECKING:
    from witness.client import WitnessedHead

UNREACHABLE: Final = "LOG_UNREACHABLE"
FORK: Final = "LOG_FORK"
GRACE_SECONDS: Final = 600
"""How long a witness may have a head that the log does not publish yet: it is asked before anybody else sees it."""
ITSELF: Final = "the log"
EARLIER: Final = "an earlier look"


@dataclass(frozen=True, slots=True)
class Watched:
    """The log that is watched, by whose word, and how old its newest cosignature may be."""

    trust: Trust
    origin: str
    max_age_seconds: int | None = None
    grace_seconds: int = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that a log must not do, and the notes that show it, by who showed them."""

    code: str
    what: str
    notes: tuple[tuple[str, bytes], ...] = ()
    evidence: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """How much it matters, by its code."""
        return SEVERITIES.get(self.code, "medium")

    @property
    def key(self) -> str:
        """What tells it from another alarm: a fork is known by its heads, staleness by being there."""
        # Cosignatures that come later make it no other fork.
        notes = sorted(data.partition(b"\n\n")[0] for _, data in self.notes) if self.code == FORK else []
        return hashlib.sha256(b"\0".join([self.code.encode(), self.what.encode(), *notes])).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look came to. `keep` is the head to compare with the next time, None to keep the one there is."""

    alarms: tuple[Alarm, ...]
    head: Checkpoint | None
    cosigned_at: int | None
    heard: tuple[str, ...]
    silent: tuple[str, ...]
    keep: bytes | None


def look(
    watched: Watched, read: PathReader, witnessed: Sequence[WitnessedHead], kept: bytes | None, now: int
) -> Look:
    """What there is to say of the log that `read` reads, given what its witnesses serve and what was kept."""
    heard = tuple(sorted({name for head in witnessed for name in head.names}))
    silent = tuple(
        one.name for one in watched.trust.policy.witnesses if one.url is not None and one.name not in heard
    )
    earlier = None if kept is None else _view(watched, kept, EARLIER)
    views = [View(head.names, head.opened.checkpoint, format_note(head.opened.note)) for head in witnessed]
    views += [] if earlier is None else [earlier]
    served, data = _served(watched, read, earlier)
    if isinstance(served, Alarm):
        # A log that shows nothing must not hide what others show: two heads of one size need no tiles.
        forks = _forks(compare_heads(views, _Tiles(_no_tiles).reader_of))
        return Look((served, *forks), None, None, heard, silent, None)
    tiles = _Tiles(read)
    comparison = compare_heads([served, *views], tiles.reader_of)
    cosigned_at = _cosigned_at(watched, data, now)
    alarms = [
        *_forks(comparison),
        *_frozen(watched, served),
        *_behind(watched, served, earlier, witnessed, now),
        *_unproved(comparison, served, earlier, tiles),
        *_quorum(watched, data),
        *_age(watched, cosigned_at, data, now),
    ]
    keep = served.note if _may_keep(served, earlier, comparison) else None
    return Look(tuple(alarms), served.checkpoint, cosigned_at, heard, silent, keep)


def _served(watched: Watched, read: PathReader, earlier: View | None) -> tuple[View | Alarm, bytes]:
    """The head that the log serves with its bytes, or what is wrong with that."""
    try:
        data = read("checkpoint")
    except UnavailableError as error:
        return Alarm(UNREACHABLE, f"{error.message}."), b""
    except (MalformedError, VerificationError) as error:
        return Alarm("LOG_SIGNATURE", f"What it serves is no checkpoint: {error.message}."), b""
    if data is None:
        return _no_checkpoint(earlier), b""
    try:
        return _view(watched, data, ITSELF), data
    except (MalformedError, VerificationError) as error:
        return Alarm("LOG_SIGNATURE", f"{error.message}.", ((ITSELF, data),)), data


def _no_tiles(path: str) -> bytes | None:
    raise UnavailableError("the log does not answer", path=path)


class _Tiles:
    """Readers of the log's trees, and whether the log could not be reached when one was asked for."""

    def __init__(self, read: PathReader) -> None:
        self._read = read
        self.unreachable = False

    def reader_of(self, head: Checkpoint) -> HashReader:
        return VerifiedTiles(self._note, head.size, head.root).read_hashes

    def _note(self, path: str) -> bytes | None:
        try:
            return self._read(path)
        except UnavailableError:
            self.unreachable = True
            raise


def _view(watched: Watched, data: bytes, seen_by: str) -> View:
    keys = [log.key for log in watched.trust.policy.logs if log.key.name == watched.origin]
    opened = open_checkpoint(data, keys, watched.origin)
    return View((seen_by,), opened.checkpoint, format_note(opened.note))


def _no_checkpoint(earlier: View | None) -> Alarm:
    if earlier is None:
        return Alarm(UNREACHABLE, "The log has no checkpoint yet.")
    what = "The log serves no checkpoint, and has served one before."
    return Alarm("LOG_ROLLED_BACK", what, ((EARLIER, earlier.note),), {"seen_size": earlier.checkpoint.size})


def _forks(comparison: Comparison) -> Iterator[Alarm]:
    for split in comparison.splits:
        sides = [(", ".join(view.seen_by), view.note) for view in (split.smaller, split.larger)]
        sizes: dict[str, str | int] = {
            "size": split.larger.checkpoint.size,
            "other_size": split.smaller.checkpoint.size,
        }
        what = (
            "The log has signed two heads of one size."
            if split.kind == "same_size"
            else "The log has signed a head that does not extend another of its heads."
        )
        yield Alarm("LOG_FORK", what, tuple(sides), sizes)


def _frozen(watched: Watched, served: View) -> Iterator[Alarm]:
    try:
        watched.trust.check_frozen(served.checkpoint)
    except VerificationError as error:
        yield Alarm(
            "LOG_FORK", f"{error.message}.", ((ITSELF, served.note),), {"size": served.checkpoint.size}
        )


def _behind(
    watched: Watched, served: View, earlier: View | None, witnessed: Sequence[WitnessedHead], now: int
) -> Iterator[Alarm]:
    """The log serves less than it once served, or than a witness saw some time ago."""
    size = served.checkpoint.size
    if earlier is not None and earlier.checkpoint.size > size:
        what = "The log serves a smaller head than it has served before."
        notes = ((EARLIER, earlier.note), (ITSELF, served.note))
        sizes = {"size": size, "seen_size": earlier.checkpoint.size}
        yield Alarm("LOG_ROLLED_BACK", what, notes, sizes)
    for head in witnessed:
        at = max(_credible(head.cosignatures, now), default=now)
        if head.opened.checkpoint.size > size and now - at > watched.grace_seconds:
            what = "The log serves a smaller head than a witness cosigned some time ago."
            notes = ((", ".join(head.names), format_note(head.opened.note)), (ITSELF, served.note))
            sizes = {"size": size, "seen_size": head.opened.checkpoint.size, "seconds": now - at}
            yield Alarm("LOG_ROLLED_BACK", what, notes, sizes)


def _unproved(comparison: Comparison, served: View, earlier: View | None, tiles: _Tiles) -> Iterator[Alarm]:
    """The log is larger than it was, and does not show that it has grown out of what it was."""
    if earlier is None or earlier.checkpoint.size > served.checkpoint.size:
        return
    if not any(view.checkpoint == earlier.checkpoint for view in comparison.unproved):
        return
    if tiles.unreachable:
        yield Alarm(UNREACHABLE, "The log could not be reached for the tiles of its head.")
        return
    what = "The log does not serve the tiles that would show that its head extends an earlier one."
    notes = ((EARLIER, earlier.note), (ITSELF, served.note))
    yield Alarm("LOG_TRUNCATED", what, notes, {"size": served.checkpoint.size})


def _quorum(watched: Watched, data: bytes) -> Iterator[Alarm]:
    try:
        verify_checkpoint(watched.trust.policy, data, watched.origin)
    except VerificationError as error:
        code = "QUORUM_NOT_MET" if error.code == "quorum_not_met" else "LOG_SIGNATURE"
        yield Alarm(code, f"{error.message}.", ((ITSELF, data),))


def _age(watched: Watched, cosigned_at: int | None, data: bytes, now: int) -> Iterator[Alarm]:
    bound = watched.max_age_seconds
    if bound is None:
        bound = watched.trust.max_checkpoint_age_seconds
    if bound is None or (cosigned_at is not None and now - cosigned_at <= bound):
        return
    age = {} if cosigned_at is None else {"age_seconds": now - cosigned_at}
    what = "No cosignature on the head is as young as it has to be."
    yield Alarm("CHECKPOINT_STALE", what, ((ITSELF, data),), {"bound_seconds": bound, **age})


def _cosigned_at(watched: Watched, data: bytes, now: int) -> int | None:
    """The newest credible cosignature by a witness of the policy, on the head that is served."""
    try:
        lines = verify_cosignatures(watched.trust.policy, parse_note(data))
    except Error:
        return None
    return max(_credible(lines, now), default=None)


def _credible(lines: Sequence[Cosignature], now: int) -> Iterator[int]:
    """Their times, without those ahead of ours: one dated years ahead would make an old head look fresh for years."""
    return (line.timestamp for line in lines if line.timestamp <= now + MAX_CLOCK_SKEW_SECONDS)


def _may_keep(served: View, earlier: View | None, comparison: Comparison) -> bool:
    """Whether the served head may take the place of the earlier: only one that was proved to extend it may."""
    ours = (served.checkpoint.size, served.checkpoint.root)
    for split in comparison.splits:
        if ours in [(view.checkpoint.size, view.checkpoint.root) for view in (split.smaller, split.larger)]:
            return False
    if earlier is None:
        return True
    theirs = (earlier.checkpoint.size, earlier.checkpoint.root)
    proved = {(view.checkpoint.size, view.checkpoint.root) for view in comparison.consistent}
    return ours[0] >= theirs[0] and (ours == theirs or {ours, theirs} <= proved)
