"""What an earlier audit said of a store, said again while no byte of the evidence is another one.

Whoever wants to know whether a store is as it was has to read all of it, and not to judge it again: the same bytes,
under the same rules and trust, come to the same verdict until a moment that something in them names. So an audit
that found nothing keeps a digest over everything that its judgement of the store came from, what it said, and that
moment. A later one hashes what is there now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from auditor.ageing import due_times
from auditor.chain import AuditedLog
from auditor.checks_log import CHECKPOINT
from auditor.evidence import Asked, Entries, Statement, StoreRows
from auditor.exhibits import Backup, Exhibits, PageMap, Sampled
from auditor.findings import Note, Outcome
from auditor.narrow_checks import Base
from auditor.row_marks import load_marks
from auditor.snapshot import Snapshot
from tlog import cbor
from tlog.merkle import leaf_hash
from tlog.trust import USES, Trust

_PART_BYTES: Final = 1 << 20
_SECOND: Final = 1_000_000
_TILES: Final = "tile/"
_EXECUTING: Final = "executing"
_AGAIN: Final = {
    "signatures": "signatures that an earlier audit verified under the same trust, on entries that are the same bytes",
    "links": "statements that an earlier audit opened under the same trust, in rows that are the same bytes",
}
"""What is said of that which an earlier audit verified one by one, and this one has not."""


@dataclass(frozen=True, slots=True)
class Said:
    """What an earlier audit had to say, and to show, of the store that is still the same."""

    outcome: Outcome
    exhibits: Exhibits


def mark_of(snapshot: Snapshot, log: AuditedLog) -> str | None:
    """A digest of all that a judgement of the store comes from, but the trust and the times; None where that can't be
    told: a log whose files can't be listed, or that has entries which no checkpoint covers."""
    entries = log.entries
    if log.files.names is None or not entries.proved or len(entries.entries) != entries.size:
        return None
    parts: list[Any] = []
    for source in (snapshot.main, snapshot.wal):
        parts.append(None if source is None else _digest(source.read, source.size_bytes))
    parts += [entries.size, hashlib.sha256(b"".join(_leaves(entries))).digest(), sorted(entries.successions)]
    parts.append([[span.start, span.size, span.origin, span.at is None] for span in entries.spans])
    parts += _beside(log)
    return hashlib.sha256(cbor.encode(parts)).hexdigest()


def beside_of(log: AuditedLog) -> str:
    """A digest of the files beside the tiles."""
    return hashlib.sha256(cbor.encode(_beside(log))).hexdigest()


def _beside(log: AuditedLog) -> list[Any]:
    """Each file beside the tiles with its digest."""
    parts: list[Any] = []
    for name in log.files.names or ():
        # The tiles, and what the checkpoint covers, were compared with the entries as the log was read.
        if not name.startswith(_TILES) and name != CHECKPOINT:
            data = log.files.read(name)
            digest = None if data is None else hashlib.sha256(data).digest()
            parts.append([name.encode("utf-8", "surrogateescape"), digest])
    return parts


def holds_until(rows: StoreRows, statements: Sequence[Statement], entries: Entries, asked: Asked) -> int:
    """The first moment, in microseconds, at which the same bytes may be judged otherwise, whatever keys count; now, if
    that is under way."""
    if any(row.state == _EXECUTING for row in rows.erasures):
        return asked.now
    if any(one.row.entry_index is None or one.row.entry_index >= entries.size for one in statements):
        return asked.now
    moments = (moment for moment in (*due_times(rows), *_reviews(statements)) if moment > asked.now)
    return min(moments, default=1 << 62)


def seen_at(log: AuditedLog) -> list[int]:
    """When, in seconds, witnesses had seen the logs: each quorum, and the newest of all."""
    newest = () if log.verified is None else (one.timestamp for one in log.verified.cosignatures)
    return [*(span.at for span in log.entries.spans if span.at is not None), max(newest, default=0)]


def to_keep(
    mark: str | None,
    beside: str,
    seen: Sequence[int],
    outcome: Outcome,
    exhibits: Exhibits,
    asked: Asked,
    until: int,
) -> dict[str, Any]:
    """What a later audit is to know of this one; nothing where it could not tell whether the bytes are the same."""
    if mark is None or until <= asked.now:
        return {}
    return {
        "mark": mark,
        "beside": beside,
        "at": asked.now,
        "seen": list(seen),
        "until": until,
        "checked": [[note.check, note.text, note.count] for note in outcome.checked],
        "not_checked": [[note.check, note.text, note.count] for note in outcome.not_checked],
        "counts": dict(outcome.counts),
        "kinds": dict(exhibits.kinds),
        "statuses": dict(exhibits.statuses),
        "sample": [asdict(one) for one in exhibits.sample],
        "backups": [asdict(one) for one in exhibits.backups],
        "maps": [asdict(one) for one in exhibits.maps],
    }


def recall(kept: Mapping[str, Any], mark: str | None, seen: Sequence[int], asked: Asked) -> Said | None:
    """What was said of this very evidence; None if it was of other bytes, or no longer has to be so.

    Witnesses may have seen the same entries once more since: what was plausible by the earlier time is so by a later
    one, unless a key began or ended in between.
    """
    try:
        if mark is None or kept["mark"] != mark or not _is_of_now(kept, seen, asked):
            return None
        outcome = Outcome(
            checked=tuple(_again(_notes(kept["checked"]))),
            not_checked=_notes(kept["not_checked"]),
            counts=kept["counts"],
        )
        maps = tuple(
            PageMap(**{**one, "runs": tuple((kind, count) for kind, count in one["runs"])})
            for one in kept["maps"]
        )
        exhibits = Exhibits(
            maps=maps,
            kinds=kept["kinds"],
            statuses=kept["statuses"],
            sample=tuple(Sampled(**one) for one in kept["sample"]),
            backups=tuple(Backup(**one) for one in kept["backups"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
    return Said(outcome, exhibits)


def base_of(folder: Path, log: AuditedLog, asked: Asked) -> Base | None:
    """What an earlier audit kept of this store, if nothing but new statements of it came into the log since."""
    kept, entries = log.before.store, log.entries
    try:
        counts = kept["counts"]
        first, verified = counts["entries"], log.verified
        one_log = len(entries.spans) == 1 and not entries.successions and not entries.others
        grown = first == counts["statements"] and first <= log.before.size <= entries.size
        if verified is None or not (one_log and grown and _is_of_now(kept, seen_at(log), asked)):
            return None
        if kept["beside"] != beside_of(log):
            return None
        marks = load_marks(folder, verified.checkpoint.origin, kept["mark"])
    except (KeyError, TypeError, ValueError):
        return None
    return Base(marks, kept) if marks is not None and marks.last == first else None


def _is_of_now(kept: Mapping[str, Any], seen: Sequence[int], asked: Asked) -> bool:
    """Whether what was said of some bytes has to be said of them now."""
    if not kept["at"] <= asked.now < kept["until"]:
        return False
    # What no witness dates is judged by the clock.
    pairs = [*zip(kept["seen"], seen, strict=True), (kept["at"] // _SECOND, asked.now // _SECOND)]
    moments = list(_of_keys(asked.trust))
    return not any(now < then or any(then < moment <= now for moment in moments) for then, now in pairs)


def _again(notes: Sequence[Note]) -> Iterator[Note]:
    """The same notes, without the claim that this audit verified one by one what the earlier one has."""
    told = set()
    for note in notes:
        if note.check not in _AGAIN:
            yield note
        elif note.check not in told:
            told.add(note.check)
            total = sum(one.count or 0 for one in notes if one.check == note.check)
            yield Note(note.check, note.text, 0)
            yield Note(note.check, _AGAIN[note.check], total)


def _notes(kept: Sequence[Sequence[Any]]) -> tuple[Note, ...]:
    return tuple(Note(check, text, count) for check, text, count in kept)


def _leaves(entries: Entries) -> Sequence[bytes]:
    if len(entries.leaves) == len(entries.entries):
        return entries.leaves
    return [leaf_hash(entry or b"") for entry in entries.entries]


def _digest(read: Any, size_bytes: int) -> bytes:
    digest = hashlib.sha256(size_bytes.to_bytes(8, "big"))
    for offset in range(0, size_bytes, _PART_BYTES):
        digest.update(read(offset, _PART_BYTES))
    return digest.digest()


def _of_keys(trust: Trust) -> Iterator[int]:
    """The first second in which a key counts, and the first in which it no longer does."""
    for use in USES:
        for key in trust.keys_for(use):
            yield key.not_before
            if key.not_after is not None:
                yield key.not_after + 1


def _reviews(statements: Sequence[Statement]) -> Iterator[int]:
    """When somebody has to look at a hold."""
    for one in statements:
        if one.link is not None and one.link.kind == "hold":
            due = (one.content or {}).get("review_by")
            if type(due) is int:
                yield due
