"""When openings were given and backups made, which the store alone says: after what they hold, and not ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from auditor.evidence import Asked, Statement, StoreRows
from auditor.findings import Finding, Note, Outcome
from auditor.manifests import hour_of

_SECOND = 1_000_000


def check_given(rows: StoreRows, statements: Sequence[Statement], asked: Asked) -> Outcome:
    """Each opening was given, and each backup made, between what it has and now, to the hour."""
    asked_of = statements if rows.openings or rows.backups else ()
    at = {one.row.seq: one.recorded_at for one in asked_of if one.recorded_at is not None}
    latest = asked.now + 300 * _SECOND
    return Outcome(tuple(_faults(rows, at, latest)), _checked(rows))


def _checked(rows: StoreRows) -> tuple[Note, ...]:
    count = len(rows.openings) + len(rows.backups)
    note = Note("given", "openings and backups dated between what is in them and now", count)
    return (note,) if count else ()


def _faults(rows: StoreRows, at: dict[int, int], latest: int) -> Iterator[Finding]:
    for opening in rows.openings:
        if not _hour(at.get(opening.seq, 0)) <= opening.given_at <= latest:
            what = "An opening was given before what it opens was recorded, or in times to come."
            yield Finding("TIME_IMPLAUSIBLE", f"store.db openings row {opening.id}", what)
    for number, backup in enumerate(rows.backups, 1):
        # After a restore the store may know no more of one than that it held something.
        early = backup.made_at and backup.made_at < _hour(at.get(backup.last_seq, 0))
        if early or backup.made_at > latest or backup.expires_at < backup.made_at:
            what = "A backup was made before what is in it, in times to come, or after it had expired."
            yield Finding("TIME_IMPLAUSIBLE", f"store.db backups, number {number}", what)


def _hour(at: int) -> int:
    hour = hour_of(at)
    return hour if type(hour) is int else 0
