"""What an erasure does to backups made before it: it destroys the keys of what it took, and says which held it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from memory import store_backup, store_erase
from memory.manifest_fields import MAX_ITEMS
from tlog.errors import Error, UnavailableError

if TYPE_CHECKING:
    from memory.backup_keys import KeyRing
    from memory.parts import Parts

System = dict[str, Any]
_SWEPT: Final = (*store_backup.HASHED, "tenant")


def destroy_keys(parts: Parts, tenant_id: int, seqs: Sequence[int]) -> tuple[System, ...]:
    """Backups as a system of the manifest, the keys of these statements destroyed; nothing where none was made.

    Keys go as well of every row of hashes that is no longer there, and of the requests that made the statements,
    kept or not. It may be done again.
    """
    from memory.backup_keys import ring_of

    ring = ring_of(parts.home)
    system: System = {"kind": "backup", "method": "destroy_key"}
    try:
        _require_all(parts, ring)
        if not ring.exists():
            return ()
        destroyed = ring.destroy("record", seqs)
        with parts.store.read_whole() as view:
            concerned = set(store_erase.requests_of(view, tenant_id, seqs))
            there = {space: store_backup.hashed_numbers(view, space) for space in _SWEPT}
        there["request"] -= concerned
        for space, numbers in there.items():
            ring.destroy(space, [place for place in ring.places(space) if place not in numbers])
    except Error:
        return (system | {"erased": 0, "result": "failed", "why": ["backups_remain"]},)
    return (system | {"erased": destroyed, "result": "verified"},)


def _require_all(parts: Parts, ring: KeyRing) -> None:
    """Returns if the keys of every backup that the database knows of are in this ring; UnavailableError if not.

    Where many nodes share a database and no bucket, each has files of its own, and one of them made the backups.
    """
    if parts.home.config.database is None:
        return
    with parts.store.read_whole() as view:
        made = {number for number, *_ in store_backup.backups(view)}
    if made - {number for number, *_ in ring.listed_backups()}:
        raise UnavailableError(
            "the keys of backups are in the folder of another node", code="key_not_destroyed"
        )


def sweep(parts: Parts) -> None:
    """Destroys the keys of rows of hashes that are no longer there."""
    destroy_keys(parts, 0, ())


def told(parts: Parts, seqs: Sequence[int], systems: Sequence[System]) -> list[System]:
    """The backups that held some of these statements, as a manifest lists them."""
    unreadable = all(one["result"] == "verified" for one in systems if one["kind"] == "backup")
    with parts.store.read_whole() as view:
        held = store_backup.backups_holding(view, seqs)
    return [
        {
            "backup": number,
            "beyond_use": unreadable,
            "made_at": made_at,
            "expires_at": expires_at,
            "count": count,
        }
        for number, made_at, expires_at, count in held[:MAX_ITEMS]
    ]
