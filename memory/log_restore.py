"""A home whose log was rolled back, or is gone, brought up to a newer copy of the log.

The log comes first: once it extends what its mirror and witnesses know, the store is told where its statements
stand, and what was erased since the store was copied is erased in it again. Statements that the copy has and this
store has not stay missing, and an audit says so; a backup of the store may have them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory import restore, store_backup
from memory.chain import log_number
from memory.engines import require_file_store
from memory.erase_record import LOCK
from memory.home_names import private_log, public_log
from memory.recovery import last_manifest
from memory.replay import replay
from tlog.ascii import encode_base64
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.log_settings import LogSettings
from tlog.restore import Restored, open_source, restore_log
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from memory.wiring import Home

_OUTBOX = "outbox"


def restore_from(home: Home, place: str | None) -> dict[str, Any]:
    """Size and root of the log once it holds what the copy does, and how far the store is behind it.

    The copy is the mirror of the home where none is named. Raises what `restore_log` raises, before anything is
    changed, where the histories differ.
    """
    require_file_store(home.config.database, "restoring the log from a copy")
    number = log_number(home.config)
    private = DirectoryStorage(home.path / private_log(number))
    settings = LogSettings(home.origin, (home.log_signer(),), policy=home.policy())
    copy = _place(home, place, number)
    with open_source(copy) as source, home.files.lock(LOCK), private.lock(_OUTBOX):
        done = restore_log(source, home.public_storage(), private, settings)
        missing = _follow(home, done)
    return {
        "size": done.head.size,
        "root": encode_base64(done.head.root),
        "appended": done.appended,
        "missing": missing,
    }


def _place(home: Home, place: str | None, number: int) -> str:
    if place is None:
        if home.config.mirror is None:
            raise MalformedError("expected --from DIR|URL: this home has no mirror to restore from")
        place = home.config.mirror
    if "://" in place:
        return place
    folder = Path(place).expanduser().absolute()
    if (folder / public_log(number + 1)).is_dir():
        raise RefusedError(
            "log restore: the copy has a log that took this one's place; its key is not in this home",
            code="frozen",
        )
    within = folder / public_log(number)
    return str(within if within.is_dir() else folder)


def _follow(home: Home, done: Restored) -> int:
    """How many statements of ours the log has and the store has not, once the store knows where its own stand."""
    store = home.parts().store
    entries = list(restore.own_entries(home))
    with store.write() as txn:
        number, digest = last_manifest(txn.view)
        store_backup.forget_positions(txn, home.first_position + done.same_to)
        past = restore.place(txn, entries)
        manifests = list(restore.manifests_since(home, {"manifests": number, "manifest": digest}))
        missing = replay(home, home.parts().vault, txn, past, manifests)
    if manifests and not store.checkpoint_truncate():
        raise UnavailableError(
            "what was erased is erased again; the store's journal cannot be emptied while another reads it",
            code="restore_failed",
        )
    return len(missing.logged)
