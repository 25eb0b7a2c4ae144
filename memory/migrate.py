"""Moves the store of a home from its file to a PostgreSQL database: the same rows and log, every receipt valid.

    nobody else has the file → rows, batch by batch → all compared → settings → the file and keys/guard destroyed

The settings are changed once everything was compared, so a move that ends before that has changed nothing of the home;
one that ends after it left the file, which a home in a database is not opened beside. Called again, it goes on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memory import log_move, store_move
from memory.erase_record import LOCK
from memory.home_names import KEYS, STORE
from memory.recovery import EXECUTING
from memory.store import open_store
from memory.vault import GUARD_FOLDER, Vault
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.keys import flush_folder

if TYPE_CHECKING:
    from memory.pg_migrate import Target
    from memory.store_read import Snapshot
    from memory.wiring import Home

BATCH: Final = 500
Progress = Callable[[int, int], None]


def migrate(home: Home, database: str, progress: Progress = lambda done, total: None) -> dict[str, Any]:
    """How many statements and contents were moved, once the database is the store of the home and the file is gone.

    Raises UnavailableError with code `busy` while another process has the home open, and RefusedError with code
    `database_in_use` where the database has statements that this home has not.
    """
    if home.config.database not in (None, database):
        raise RefusedError("the store of this home is in another database already", code="database_in_use")
    path = home.path / STORE
    if home.config.database is None and not path.exists():
        # Nothing was ever remembered: there is a store once the home is opened, unless its log says that it is gone.
        home.parts()
    if not path.is_file():
        raise MalformedError("expected a home with its store in a file", code="no_store")
    with home.files.lock(LOCK):
        # The settings are changed once all was compared: after that only the file is left to go.
        counts = {} if home.config.database is not None else _move(home, path, database, progress)
        home.write_config(replace(home.config, database=database))
        log_move.remove_files(home.path, home.config)
        _destroy(path)
        for key in sorted((home.path / KEYS / GUARD_FOLDER).glob("*.key")):
            _destroy(key)
    return {"statements": 0, "contents": 0, **counts}


def _move(home: Home, path: Path, database: str, progress: Progress) -> dict[str, int]:
    from memory.pg_migrate import open_target

    home.close()
    # As always when a home is opened: what a crash left of the file is made good.
    open_store(path, Vault(home.path / KEYS)).close()
    with store_move.alone(path) as view, open_target(home.path, database) as target:
        if view.meta(EXECUTING):
            raise UnavailableError("an erasure is not finished: open the home again first", code="busy")
        target.require_free(store_move.commitments(view))
        counts = _copy(home, view, target, progress)
        _compare(view, target)
        log_move.copy_private(home.path, home.config, database)
    return counts


def _copy(home: Home, view: Snapshot, target: Target, progress: Progress) -> dict[str, int]:
    vault = Vault(home.path / KEYS)
    last_at = view.last_recorded_at()
    for row in store_move.tenants(view):
        key = vault.key_path(row[1])
        target.add_tenant((*row, last_at), key.read_bytes() if key.exists() else None)
    total, after, done = view.counts()["statements"], 0, 0
    while batch := store_move.statements(view, after, BATCH):
        target.add_statements(batch)
        after, done = batch[-1][0][0], done + len(batch)
        progress(done, total)
    for table in store_move.WHOLE:
        names = store_move.columns(view, table)
        target.replace_rows(table, names, list(store_move.rows(view, table, names)))
    target.replace_meta(store_move.meta(view))
    target.go_on_after()
    return {"statements": done, "contents": store_move.count_contents(view)}


def _compare(view: Snapshot, target: Target) -> None:
    """Returns if every row that was moved reads back as it was; VerificationError names the table that does not."""
    for table in ("tenants", "events", "contents", "facts", *store_move.WHOLE):
        names = store_move.columns(view, table)
        if _digests(store_move.rows(view, table, names)) != _digests(target.rows(table, names)):
            raise VerificationError(
                f"the database has other rows in {table} than the file; nothing was changed",
                code="move_differs",
            )


def _digests(rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """What rows are known by, in whatever order they come; the rows themselves may be more than memory holds."""
    return sorted(hashlib.blake2b(repr(row).encode(), digest_size=16).digest() for row in rows)


def _destroy(path: Path) -> None:
    """Overwrites a file and removes it, with what SQLite keeps beside one."""
    for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if not one.is_file():
            continue
        with one.open("r+b") as file:
            left = os.fstat(file.fileno()).st_size
            while left > 0:
                left -= file.write(bytes(min(left, 1 << 20)))
            file.flush()
            os.fsync(file.fileno())
        one.unlink()
    flush_folder(path.parent)
