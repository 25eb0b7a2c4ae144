"""The SQL of state statements: how many statements there are of each kind, and where each sequence ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memory.event import decode_link

if TYPE_CHECKING:
    from memory.rows import TenantRow
    from memory.store_read import Snapshot


def last_seq(view: Snapshot) -> int:
    """The number of the last statement; 0 before the first."""
    row = view.one("SELECT max(seq) FROM events")
    return 0 if row is None or row[0] is None else int(row[0])


def count_kinds(view: Snapshot, after: int, until: int) -> Counter[str]:
    """How many statements there are of each kind, of those with these numbers, the first left out."""
    links = view.rows("SELECT link FROM events WHERE seq > ? AND seq <= ? ORDER BY seq", after, until)
    return Counter(decode_link(row[0]).kind for row in links)


def tenant_tips(view: Snapshot) -> list[list[bytes | int]]:
    """Number and last statement of each tenant that has any, in order of the random numbers."""
    rows = view.rows("SELECT number, last_seq FROM tenants WHERE last_seq > 0 ORDER BY number")
    return [[bytes(number), int(last)] for number, last in rows]


def last_tombstone(view: Snapshot) -> tuple[int, bytes] | None:
    """Number and commitment of the last erase statement."""
    row = view.one(
        """SELECT e.link, e.commitment FROM erasures r JOIN events e ON e.seq = r.tombstone
           ORDER BY r.tombstone DESC LIMIT 1"""
    )
    return None if row is None else (int(decode_link(row[0]).details["number"]), bytes(row[1]))


def first_tenant(view: Snapshot) -> TenantRow | None:
    """The tenant whose sequence has the statements that are about the whole store."""
    row = view.one("SELECT min(id) FROM tenants WHERE last_seq > 0")
    return None if row is None or row[0] is None else view.tenant_by_id(int(row[0]))


def link_of(view: Snapshot, seq: int) -> bytes:
    """The encoded link of a statement."""
    row = view.one("SELECT link FROM events WHERE seq = ?", seq)
    if row is None:
        raise LookupError("a value of the store names a statement that it does not have")
    return bytes(row[0])
