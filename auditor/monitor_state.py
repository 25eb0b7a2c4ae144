"""What a monitor keeps in its folder: the last head of each log that held, and the evidence of each alarm.

<SHA-256 of the origin>.checkpoint      the head, as an audit with the same --state reads it
alarms/<code>-<hash>/alarm.json         what was wrong, and when it was seen first
alarms/<code>-<hash>/<n>.note           each signed note that shows it
alarms/<code>-newest/                   the same of the newest one, once there are MAX_KEPT others of its code
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from auditor.exhibits import Head, head_of
from auditor.monitor import FORK, Alarm
from auditor.state import load_bytes
from tlog.errors import Error, MalformedError
from tlog.policy import Policy, verify_checkpoint
from tlog.storage import DirectoryStorage

ALARMS: Final = "alarms"
EARLIER: Final = "an earlier audit"
MAX_HEADS: Final = 256
MAX_KEPT: Final = 16
"""Of each code, as many are evidence enough."""
NEWEST: Final = "newest"
_SIZES: Final = ("size", "other_size")


@dataclass(frozen=True, slots=True)
class MonitorState:
    """The folder of one monitor."""

    files: DirectoryStorage
    folder: Path

    def head(self, origin: str) -> bytes | None:
        """The note of the last head of a log that held, if there was one."""
        return self.files.read(_name(origin))

    def keep_head(self, origin: str, note: bytes) -> None:
        """Returns once the head is durable."""
        if self.files.read(_name(origin)) != note:
            self.files.replace(_name(origin), note)

    def keep_alarm(self, origin: str, alarm: Alarm, now: int) -> str:
        """Where the evidence of an alarm lies, durable; what was kept of the same heads before stays as it was.

        A log that shows another head at every look would fill the disk: past MAX_KEPT of a code, the newest alone
        is kept beside the first ones.
        """
        code = alarm.code.lower().replace("_", "-")
        heads = sorted(note.partition(b"\n\n")[0] for _, note in alarm.notes)
        shown = hashlib.sha256(b"\0".join([alarm.key.encode(), *heads])).hexdigest()
        place = f"{ALARMS}/{code}-{shown[:16]}"
        if self.files.read(f"{place}/alarm.json") is not None:
            return str(self.folder / place)
        if sum(1 for _ in self.folder.glob(f"{ALARMS}/{code}-*/alarm.json")) >= MAX_KEPT:
            place = f"{ALARMS}/{code}-{NEWEST}"
        for number, (_, note) in enumerate(alarm.notes, 1):
            self.files.replace(f"{place}/{number}.note", note)
        document = {"origin": origin, "seen_at": now, **describe(alarm)}
        self.files.replace(f"{place}/alarm.json", json.dumps(document, indent=1).encode() + b"\n")
        return str(self.folder / place)

    def fork(self, origin: str) -> Alarm | None:
        """The first fork of a log whose evidence is in the folder: a log that has forked has done so for ever."""
        found = []
        for path in self.folder.glob(f"{ALARMS}/log-fork-*/alarm.json"):
            try:
                said = json.loads(path.read_bytes())
                notes = [
                    path.with_name(f"{n}.note").read_bytes() for n in range(1, len(said["shown_by"]) + 1)
                ]
                shown = tuple(zip(map(str, said["shown_by"]), notes, strict=True))
                sizes = {name: int(said[name]) for name in _SIZES if name in said}
                alarm = Alarm(FORK, str(said["what"]), shown, sizes)
                found += [(int(said["seen_at"]), path.parent.name, alarm)] if said["origin"] == origin else []
            except (OSError, ValueError, TypeError, KeyError):
                raise MalformedError("expected the evidence of a fork as a monitor keeps it") from None
        return min(found, key=lambda one: one[:2])[2] if found else None


def open_state(folder: Path) -> MonitorState:
    """The folder of a monitor, made if it is not there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return MonitorState(DirectoryStorage(folder), folder)


def describe(alarm: Alarm) -> dict[str, object]:
    """An alarm as JSON values, its notes by who showed them."""
    return {
        "code": alarm.code,
        "severity": alarm.severity,
        "what": alarm.what,
        "shown_by": [name for name, _ in alarm.notes],
        **alarm.evidence,
    }


def earlier_heads(folder: Path, policy: Policy) -> tuple[Head, ...]:
    """The heads that earlier audits, or a monitor, kept in a folder, as far as the policy accepts them."""
    heads = []
    for path in sorted(folder.glob("*.checkpoint"))[:MAX_HEADS]:
        data = load_bytes(path)
        with suppress(Error):  # of another log, or under another policy: an audit of that one has to say
            heads.append(head_of(verify_checkpoint(policy, data or b""), EARLIER))
    return tuple(heads)


def _name(origin: str) -> str:
    return f"{hashlib.sha256(origin.encode()).hexdigest()}.checkpoint"
