"""Backups that the store knows of, and how much of what was erased since is still in each: what a report shows of them.

The store notes each backup that it made, and up to which statement. Which erasures came later follows from the
tombstones; that the keys of what they took are destroyed is what their manifests say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from auditor.evidence import BackupRow, Statement, StoreRows
from auditor.manifests import Manifest, list_in, map_of, number_in

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup, by its random number. Times are in seconds, to the hour."""

    backup: str
    made_at: int
    expires_at: int
    held: int
    """Statements in it that were erased after it was made."""
    beyond_use: int
    """Of those, the ones whose keys are destroyed, so that nobody can read them there: by the word of manifests."""


def residual_backups(
    rows: StoreRows, statements: Sequence[Statement], manifests: Iterable[Manifest]
) -> tuple[Backup, ...]:
    """Every backup that the store knows of, the oldest first."""
    if not rows.backups:
        return ()
    seqs = {one.row.commitment: one.row.seq for one in statements}
    erased = [
        (seqs[target], one.row.seq)
        for one in statements
        if one.link is not None
        for target in one.link.acts.get("erases", ())
        if target in seqs
    ]
    destroyed = _beyond_use(manifests)
    ordered = sorted(rows.backups, key=lambda row: (row.made_at, row.number))
    return tuple(_backup(row, erased, destroyed) for row in ordered)


def _backup(row: BackupRow, erased: Sequence[tuple[int, int]], destroyed: Mapping[bytes, int]) -> Backup:
    held = sum(seq <= row.last_seq < tombstone for seq, tombstone in erased)
    beyond = min(held, destroyed.get(row.number, 0))
    return Backup(row.number.hex(), row.made_at // _SECOND, row.expires_at // _SECOND, held, beyond)


def _beyond_use(manifests: Iterable[Manifest]) -> Mapping[bytes, int]:
    """By backup, how many of the statements in it the newest manifest of each request calls beyond use."""
    newest = {manifest.document.get("request"): manifest for manifest in manifests}
    found: Counter[bytes] = Counter()
    for manifest in newest.values():
        for one in map(map_of, list_in(manifest.document, "backups")):
            number = one.get("backup")
            if isinstance(number, bytes) and one.get("beyond_use") is True:
                found[number] += number_in(one, "count")
    return found
