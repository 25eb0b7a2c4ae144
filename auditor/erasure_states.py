"""What a manifest says of how far its erasure got, against what it says itself, and what the store noted and holds.

A state is a word with a meaning: complete with nothing against it, partial with nothing but what was kept on purpose,
denied with nothing erased, waiting with something to wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from auditor.evidence import ErasureRow, Statement
from auditor.findings import Finding
from auditor.manifest_form import is_first_form
from auditor.manifests import FOLDER, MAX_MANIFEST_BYTES, hour_of, list_in, map_in, map_of, number_in
from tlog import cbor
from tlog.errors import MalformedError

COMPLETE: Final = "closed_complete"
DENIED: Final = "closed_denied"
_DENIALS: Final = frozenset(
    {
        "freedom_of_expression",
        "legal_obligation",
        "public_health",
        "archiving",
        "legal_claims",
        "identity_not_shown",
        "unfounded",
    }
)
_ON_PURPOSE: Final = frozenset({"mentions_elsewhere", "legal_hold"}) | _DENIALS
_NOTED: Final = ("claim", "exceptions")
"""What the store notes of some erasures alone."""
_TIMES: Final = ("started_at", "received_at", "due_at")
_CLOCK_SKEW: Final = 300_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """Everything there is about one manifest and its erasure, which may have several: the last one counts."""

    number: int
    """Of the manifest; of the tombstone where there is none."""
    last: bool
    tombstone: Statement | None
    announced: Statement | None
    """The statement that puts the digest of the manifest into the log."""
    row: ErasureRow | None
    path: str | None
    """Of the file of the manifest, where there may be one."""
    data: bytes | None = None
    """What is in that file; one at a time, since nobody bounds how many there are."""

    @property
    def place(self) -> str:
        """Where its manifest lies."""
        return f"log {FOLDER}{self.number}.cose"


def check_state(
    case: Case, document: Mapping[str, Any], targets: Sequence[bytes], present: set[bytes]
) -> Iterator[Finding]:
    """`closed_complete` is said of an erasure only when everything was erased and every check was clean."""
    # Where nothing else is left, the hashes of retired values and of requests are what is erased.
    guard = map_in(document, "guard")
    erased = guard.get("disposition") == "erase"
    hashes = number_in(guard, "entries") + number_in(guard, "requests") if erased else 0
    state = document.get("state")
    denied = {one for one in list_in(document, "why") if isinstance(one, str)} & _DENIALS
    if not targets and not hashes and not denied:
        what = "The erasure names no statement: it verified nothing."
        yield Finding("ERASURE_EMPTY_SCOPE", case.place, what)
    if case.last and case.row is not None and case.row.state != document.get("state"):
        what = "The store calls the erasure by another state than its manifest."
        yield Finding("ERASURE_STATE_FALSE", case.row.place, what)
    yield from _check_meaning(case, document, targets)
    if state != COMPLETE:
        return
    systems = [map_of(system).get("result") for system in list_in(document, "systems")]
    checks = [map_of(check).get("result") for check in list_in(document, "checks")]
    reasons = list_in(document, "why") or list_in(document, "exceptions")
    unsound = [result for result in systems if result != "verified"]
    unsound += [result for result in checks if result != "clean"]
    if not (targets or hashes) or not systems or not checks or unsound or reasons:
        what = "The erasure is called complete, and the manifest itself names what was not verified."
        yield Finding("ERASURE_STATE_FALSE", case.place, what, {"results": len(unsound)})
    left = sum(target in present for target in targets)
    if left:
        what = "The erasure is called complete, and contents of it are still there."
        yield Finding("ERASURE_STATE_FALSE", case.place, what, {"contents": left})


def check_detail(case: Case, document: Mapping[str, Any]) -> Iterator[Finding]:
    """What the store noted of the erasure before its manifest was made is what the manifest says, to the hour."""
    if case.row is None or not case.last:
        return
    try:
        detail = cbor.decode(case.row.detail, max_bytes=MAX_MANIFEST_BYTES)
    except MalformedError:
        detail = None
    times = map_in(document, "times")
    said = {name: document.get(name) for name in ("basis", "scope", "guard", "erased")}
    if is_first_form(document):
        # That it is finer than the hour is no contradiction.
        times = {name: hour_of(time) for name, time in times.items()}
    said |= {name: times[name] for name in _TIMES if name in times}
    said |= {name: document[name] for name in _NOTED if name in document}
    said |= {"before": map_in(document, "log").get("before")}
    noted = {"before": None} | dict(map_of(detail))
    noted |= {name: hour_of(noted[name]) for name in _TIMES if name in noted}
    at = None if case.tombstone is None else case.tombstone.recorded_at
    if noted != said or (at is not None and times.get("erased_at", hour_of(at)) != hour_of(at)):
        what = "What the store noted of the erasure is not what its manifest says."
        yield Finding("ERASURE_STATE_FALSE", case.row.place, what)
    elif not _is_in_order(map_of(detail), at):
        what = "The times that the store noted of the erasure are not in order, or end after its tombstone."
        yield Finding("ERASURE_STATE_FALSE", case.row.place, what)


def _is_in_order(noted: Mapping[str, Any], erased_at: int | None) -> bool:
    """Whether it was received, begun and executed in this order, but for what a clock may have been set by."""
    times = [noted.get("received_at"), noted.get("started_at"), erased_at]
    known = [one for one in times if type(one) is int]
    return all(before <= after + _CLOCK_SKEW for before, after in pairwise(known))


def _check_meaning(case: Case, document: Mapping[str, Any], targets: Sequence[bytes]) -> Iterator[Finding]:
    """The state is one that its reasons leave."""
    state = document.get("state")
    why = {one for one in list_in(document, "why") if isinstance(one, str)}
    waits_for = why - _ON_PURPOSE
    means = {
        "closed_partial": bool(why) and not waits_for,
        DENIED: bool(why & _DENIALS) and not targets,
        "failed": "content_present" in why,
        "awaiting_backups": waits_for == {"backups_remain"},
        "awaiting_recipients": "recipients_remain" in waits_for <= {"backups_remain", "recipients_remain"},
        "inconclusive": bool(waits_for),
    }
    if isinstance(state, str) and not means.get(state, True):
        what = "The state of the erasure is not one that the reasons in its manifest leave."
        yield Finding("ERASURE_STATE_FALSE", case.place, what)
    untold = any(map_of(one).get("told") is not True for one in list_in(document, "recipients"))
    if "recipients_remain" in why and not untold:
        what = "The manifest waits for recipients, and says of each that it was told."
        yield Finding("ERASURE_STATE_FALSE", case.place, what)
