"""The heads that a log's own notes know, against the log that is shown: what was signed, frozen or cosigned once.

Nothing of a home proves anything about it. But whoever cuts a log and signs it again has to change every one of these,
too, and the notes of witnesses among them can't be made again without the witnesses.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from auditor.evidence import Entries, Span
from auditor.findings import Finding, Note, Outcome
from auditor.home_contents import read_plain
from tlog.checkpoint import Checkpoint, parse_checkpoint
from tlog.errors import Error
from tlog.merkle import Frontier, leaf_hash
from tlog.note import parse_note

_LOG: Final = "log"
_FILES: Final = ("signed", "frozen", "head")
_STAGED: Final = "head"
"""The committed head: entries up to it may be in no tile yet."""
_MAX_WITNESS_FILES: Final = 100


@dataclass(frozen=True, slots=True)
class OwnHead:
    """A head that stands in the private files of a log."""

    place: str
    checkpoint: Checkpoint


def read_own_heads(home: Path, names: Collection[str]) -> tuple[OwnHead, ...]:
    """The heads in the private files of the logs of a home. To be read before the logs: a head is noted once its tiles
    are there, and both grow meanwhile.
    """
    return tuple(head for name in names for head in _read(home, name.replace(_LOG, f"{_LOG}-state", 1)))


def check_own_heads(own: Collection[OwnHead], entries: Entries, verified: Checkpoint | None) -> Outcome:
    """The log that is shown has each of them; `verified` is its newest checkpoint."""
    findings: list[Finding] = []
    count = 0
    for span in entries.spans:
        heads = sorted(
            (head for head in own if head.checkpoint.origin == span.origin),
            key=lambda one: one.checkpoint.size,
        )
        count += len(heads)
        if verified is None or any(head.checkpoint != verified for head in heads):
            findings += _check(span, heads, entries)
    checked = Note("own heads", "heads in the log's own notes, each one that the log has", count)
    return Outcome(tuple(findings), (checked,) if own else ())


def _check(span: Span, heads: Collection[OwnHead], entries: Entries) -> Iterator[Finding]:
    following = [other.start for other in entries.spans if other.start > span.start]
    end = min(following, default=len(entries.entries))
    frontier = Frontier(0, ())
    for head in heads:
        size, there = head.checkpoint.size, end - span.start
        if size > there:
            if not head.place.endswith(f"/{_STAGED}"):
                what = "The log has signed, or was shown to a witness, larger than it is now."
                yield Finding("LOG_ROLLED_BACK", head.place, what, {"seen_size": size, "size": there})
            continue
        part = entries.entries[span.start + frontier.size : span.start + size]
        frontier = frontier.extend(leaf_hash(entry or b"") for entry in part)
        if frontier.root() != head.checkpoint.root:
            what = "The log's own notes have a head that the log which is shown never had."
            evidence: dict[str, str | int] = {"seen_size": size, "seen_root": head.checkpoint.root.hex()}
            yield Finding("LOG_FORK", head.place, what, evidence)


def _read(home: Path, state: str) -> Iterator[OwnHead]:
    for name in _FILES:
        data = _plain(home / state / name)
        if data is not None:
            yield from _head(f"{state}/{name}", data.decode("ascii", "replace"))
    folder = home / state / "witnesses"
    names = sorted(folder.glob("*.json"))[:_MAX_WITNESS_FILES] if folder.is_dir() else []
    for path in names:
        for note in _notes(_plain(path) or b""):
            yield from _head(f"{state}/witnesses", note)


def _notes(data: bytes) -> Iterator[str]:
    try:
        notes = list(json.loads(data)["notes"].values())
        yield from (parse_note(note.encode()).text for note in notes)
    except (Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # the check of the home's files names it


def _head(place: str, text: str) -> Iterator[OwnHead]:
    try:
        yield OwnHead(place, parse_checkpoint(text))
    except Error:
        return  # the check of the home's files names it


def _plain(path: Path) -> bytes | None:
    try:
        return read_plain(path)
    except (OSError, Error):
        return None
