"""A home whose log was rolled back, or is gone, brought up to a newer copy of the log.

The log comes first: once it extends what its mirror and witnesses know, the store is told where its statements
stand, and what was erased since the store was copied is erased in it again. Statements that the copy has and this
store has not stay missing, and an audit says so; a backup of the store may have them. A database that was put back is
such a store, whose newest copy of the log are the public files themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory import restore, store_backup
from memory.assembly import RESTORING, is_to_be_filled, put_together
from memory.erase_record import alone
from memory.log_return import bring_up, bring_up_to_public, no_copy, place_of
from memory.recovery import last_manifest
from memory.replay import destroy_keys, replay
from memory.store_access import drop_all_access
from tlog.ascii import encode_base64
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.wiring import Home
    from tlog.restore import Restored


def restore_from(home: Home, place: str | None) -> dict[str, Any]:
    """Size and root of the log once it holds what the copy does, and how far the store is behind it.

    The copy is the mirror of the home where none is named, and for a store in a database without one the public files
    of the log. Raises what `restore_log` raises, before anything is changed, where the histories differ.
    """
    copy, in_database = place_of(home, place), home.config.database is not None
    if copy is None and not in_database:
        raise no_copy()
    parts = put_together(home) if in_database else home.parts()
    try:
        with alone(parts):
            if in_database and is_to_be_filled(parts):
                done, missing = _without_store(parts, copy)
            else:
                done = _bring_up(home, copy)
                missing = _follow(parts, done)
    finally:
        if in_database:
            parts.store.close()
    return {
        "size": done.head.size,
        "root": encode_base64(done.head.root),
        "appended": done.appended,
        "missing": missing,
    }


def _bring_up(home: Home, copy: str | None) -> Restored:
    return bring_up_to_public(home) if copy is None else bring_up(home, copy)


def _without_store(parts: Parts, copy: str | None) -> tuple[Restored, int]:
    """The log alone: the database has nothing that could follow it, and is not opened before it has."""
    with parts.store.write_whole() as txn:
        txn.set_meta(RESTORING, 1)
    done = _bring_up(parts.home, copy)
    return done, sum(1 for _ in restore.own_entries(parts.home))


def _follow(parts: Parts, done: Restored) -> int:
    """How many statements of ours the log has and the store has not, once the store knows where its own stand."""
    home, store = parts.home, parts.store
    with store.write_alone() as txn:
        number, digest = last_manifest(txn.view)
        store_backup.forget_positions(txn, home.first_position + done.same_to)
        past = restore.place(txn, restore.own_entries(home))
        manifests = list(restore.manifests_since(home, {"manifests": number, "manifest": digest}))
        missing = replay(home, parts.vault, txn, past, manifests)
        txn.go_on()
        if home.config.database is not None and (manifests or past):
            drop_all_access(txn)
    destroy_keys(store, manifests)
    if (manifests or home.config.database is not None) and not store.checkpoint_truncate():
        raise UnavailableError(
            "what was erased is erased again; who still reads the store keeps its bytes from going: end that, and call"
            " this again",
            code="restore_failed",
        )
    return len(missing.logged)
