"""What can be wrong with the log of a home, its checkpoint, its witnesses and its mirror."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from memory import event
from memory.cosigning import witness_folder
from memory.diagnosis import Finding, fail, ok, warn
from memory.layout import CHECKPOINT

if TYPE_CHECKING:
    from memory.wiring import Home
    from tlog.policy import Policy

_MICROSECONDS: Final = 1_000_000
_LATE_SECONDS: Final = 3600
_ASK_SECONDS: Final = 3.0
_MAX_LEAD_SECONDS: Final = 300


def outbox(home: Home) -> Iterator[Finding]:
    """Whether statements wait longer to be logged than was promised."""
    with home.parts().store.read_whole() as view:
        waiting = view.counts()["unlogged"]
        rows = view.unlogged(1)
        first = view.event_by_seq(rows[0].seq) if rows else None
        content = None if first is None else first.content
    if first is None:
        yield ok("outbox", "every statement is in the log")
        return
    recorded_at = None if content is None else event.decode_content(content).get("recorded_at")
    age = 0.0 if recorded_at is None else (home.clock() - recorded_at) / _MICROSECONDS
    text = f"{waiting} statements are not in the log yet, the oldest for {_duration(age)}"
    if age > home.config.merge_delay_seconds:
        yield fail("outbox", f"{text}: longer than was promised", "muniment log publish")
    elif age > _LATE_SECONDS:
        yield warn("outbox", text, "muniment log publish, or keep muniment mcp or muniment serve running")
    else:
        yield ok("outbox", text)


def checkpoint(home: Home) -> Iterator[Finding]:
    """Whether the public checkpoint is what the home's own policy asks for, and young enough."""
    from memory.answers import Receipts
    from tlog.staging import HEAD, parse_head

    note = home.public_storage().read(CHECKPOINT)
    if note is None:
        yield warn("checkpoint", "the log has no public checkpoint yet", "muniment log publish")
        return
    public, policy = Receipts(home).published(), home.policy()
    if public.root is None:
        yield fail("checkpoint", "the public checkpoint can't be read", "muniment log fsck")
        return
    known = parse_head(home.private_storage().read(HEAD), home.origin).size
    if known < public.size:
        yield fail(
            "rolled_back",
            f"the public checkpoint covers {public.size} entries, and the log's own state knows {known}: it was put"
            " back, or a standby that lacked the last commits was promoted; nothing is signed or published",
            "bring the newer state back, or muniment log restore; docs/NODES.md says when which for a database",
        )
        return
    if policy.quorum is not None and not public.witnessed:
        yield fail(
            "checkpoint",
            "the public checkpoint lacks the quorum of the home's policy",
            "muniment log publish",
        )
        return
    yield ok("checkpoint", f"the public checkpoint covers {public.size} entries")
    yield from _ages(home, policy, note)


def _ages(home: Home, policy: Policy, note: bytes) -> Iterator[Finding]:
    """How old the youngest cosignature is, and whether a witness's clock and ours differ."""
    from tlog.note import parse_note
    from tlog.policy import verify_cosignatures

    now = home.clock() // _MICROSECONDS
    times = [one.timestamp for one in verify_cosignatures(policy, parse_note(note))]
    if not times:
        return
    if max(times) - now > _MAX_LEAD_SECONDS:
        yield fail(
            "clock_of_witnesses",
            f"a witness dated a cosignature {_duration(max(times) - now)} after this machine's time",
            "set the clock, or tell the witness's operator",
        )
    bound = home.config.max_checkpoint_age_seconds
    if bound is not None and now - max(times) > bound:
        yield fail(
            "checkpoint_age",
            f"the youngest cosignature is {_duration(now - max(times))} old, and the bound is {_duration(bound)}",
            "muniment log publish",
        )


def witnesses(home: Home) -> Iterator[Finding]:
    """Which witnesses of the policy answer, whether the quorum can be had, and what they were caught in."""
    policy = home.policy()
    if not policy.witnesses:
        yield warn(
            "witnesses",
            "no witness cosigns the log, so nobody but its operator vouches for its heads",
            "name witnesses: muniment log policy",
        )
        return
    yield from _reached(home, policy)
    yield from _lies(home)


def _reached(home: Home, policy: Policy) -> Iterator[Finding]:
    from tlog.policy import satisfied_by
    from witness.client import hear_heads

    silent = hear_heads(policy, home.origin, _ASK_SECONDS).silent
    answering = [one.name for one in policy.witnesses if one.name not in silent]
    if not silent:
        yield ok("witnesses", f"all {len(policy.witnesses)} witnesses of the policy answer")
        return
    text = f"silent: {', '.join(silent)}"
    if policy.quorum is not None and not satisfied_by(policy, answering):
        yield fail(
            "witnesses",
            f"{text}; those that answer don't make the quorum",
            "start them, or look at the network",
        )
    else:
        yield warn(
            "witnesses", text, "start them, or look at the network; the quorum can be had without them"
        )


def _lies(home: Home) -> Iterator[Finding]:
    from tlog.storage import DirectoryStorage
    from witness.remembered import Remembered

    folder = witness_folder(home)
    kept = Remembered(DirectoryStorage(folder)).lies() if folder.is_dir() else ()
    if kept:
        yield fail(
            "witness_lies",
            f"{len(kept)} pieces of evidence against witnesses are kept in {folder}",
            "read them (docs/WITNESS.md), and take the witness out of the policy",
        )


def mirror(home: Home) -> Iterator[Finding]:
    """Whether the mirror can be reached and has what is public."""
    from memory.mirroring import describe_mirror

    if home.config.mirror is None:
        yield ok("mirror", "no mirror is configured")
        return
    held = describe_mirror(home)["size"]
    with home.parts().store.read_whole() as view:
        logged = view.last_logged_index() + 1 - home.first_position
    if held < logged:
        yield warn("mirror", f"the mirror holds {held} of {logged} entries", "muniment log publish")
    else:
        yield ok("mirror", f"the mirror holds all {held} entries")


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
