"""Completes the files of a home that an older version made; its store is brought up by `store_upgrade`.

Before there was a list of keys, a home had those in its key files alone, and told verifiers of them in `trust.toml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory.home_names import COSE_KEYS, KEY_LIST, PRIVATE_LOG, STORE, TRUST
from memory.key_check import list_missing
from memory.key_list import current_key
from memory.store import FIRST_SCHEMA
from tlog.certificates import KeyList, encode_key_list
from tlog.storage import DirectoryStorage
from tlog.trust import parse_trust

if TYPE_CHECKING:
    from memory.config import Config


_INDEXES: Final = ("identities.sqlite", "entry-ids.sqlite")


def complete_key_list(folder: Path, config: Config) -> None:
    """Returns once a home that is older than the list of keys has one: the keys that it told verifiers of.

    A home whose list was lost gets none: its store is newer, or it had keys before those in its files. Then whatever
    asks for the list says so.
    """
    if config.root is not None or _schema_of(folder / STORE) != FIRST_SCHEMA:
        return
    files = DirectoryStorage(folder)
    with files.lock("home"):
        told = files.read(TRUST)
        if told is None or files.read(KEY_LIST) is not None:
            return
        keys = tuple(key for key in parse_trust(told.decode("utf-8")).keys if key.use in COSE_KEYS)
        if {(key.use, key.key) for key in keys} != {(use, current_key(folder, use)) for use in COSE_KEYS}:
            raise list_missing(KEY_LIST)
        files.replace(KEY_LIST, encode_key_list(KeyList(config.issuer, 1, config.created_at, keys)))


def drop_older_indexes(folder: Path) -> None:
    """Returns once no index of a log is of an older version: each is a cache, and is made again."""
    for state in folder.glob(f"{PRIVATE_LOG}*"):
        for name in _INDEXES:
            for end in ("-wal", "-shm", ""):
                (state / f"{name}{end}").unlink(missing_ok=True)


def _schema_of(store: Path) -> int:
    """The version of a store as SQLite tells it, what is in the write-ahead log included; 0 where there is none."""
    import apsw

    try:
        connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(1000)
            return int(connection.execute("PRAGMA user_version").fetchall()[0][0])  # type: ignore[arg-type]
        finally:
            connection.close(True)
    except apsw.Error:
        return 0
