"""Where a store that is restored is filled: a file that then takes its place, or the home's database, in a transaction.

Either there is all of it in the end, or what there was before: nothing, and nothing is served of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from memory.home_names import KEYS, STORE
from tlog.errors import RefusedError, UnavailableError, VerificationError
from tlog.storage import LOCK_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from memory.store import Store
    from memory.wiring import Home

UNFINISHED: Final = "restoring.db"


@contextmanager
def in_file(home: Home, failpoint: Callable[[str], None]) -> Iterator[Store]:
    """A new store, which is that of the home once the block has filled it."""
    from memory.layout import make_private_file
    from memory.store import open_store
    from memory.vault import Vault

    there = home.path / STORE
    if there.exists() and there.stat().st_size:
        raise _there_is_one()
    _remove(home)
    make_private_file(home.path / UNFINISHED)
    store = open_store(home.path / UNFINISHED, Vault(home.path / KEYS))
    try:
        yield store
        if not store.checkpoint_truncate():
            raise UnavailableError("the restored store cannot be completed", code="restore_failed")
    finally:
        store.close()
    _require_sound(store)
    failpoint("filled")
    os.replace(home.path / UNFINISHED, there)
    _remove(home)


@contextmanager
def in_database(home: Home, failpoint: Callable[[str], None]) -> Iterator[Store]:
    """The store of the home's database, which has no rows; the schema is made, and the log is what was public of it.

    What an attempt that ends has begun keeps the home from being opened, until another is through.
    """
    from memory.assembly import RESTORING, put_together
    from memory.log_return import bring_up_to_public

    home.close()
    store = put_together(home).store
    try:
        with store.alone_erasing(LOCK_TIMEOUT_SECONDS):
            with store.write_alone() as txn:
                if txn.view.one("SELECT 1 FROM tenants LIMIT 1") is not None:
                    raise _there_is_one()
                txn.set_meta(RESTORING, 1)
            bring_up_to_public(home)
            yield store
            failpoint("filled")
            # What was erased again came in and went, in one transaction.
            if not store.checkpoint_truncate():
                raise UnavailableError(
                    "the store is restored; a transaction that goes on keeps dead rows of what was erased again from"
                    " being taken out: end it, and call muniment log restore",
                    code="rows_pinned",
                )
    finally:
        store.close()


def _there_is_one() -> RefusedError:
    return RefusedError("expected a home whose store is gone; this one has one", code="store_exists")


def _remove(home: Home) -> None:
    """What an attempt that was cut short left."""
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path = home.path / f"{UNFINISHED}{end}"
            size = path.stat().st_size
            with path.open("r+b") as opened:
                opened.write(bytes(size))
                os.fsync(opened.fileno())
            path.unlink()


def _require_sound(store: Store) -> None:
    faults = store.check()
    store.close()
    if faults:
        raise VerificationError("the restored store is not sound", code="store_damaged")
