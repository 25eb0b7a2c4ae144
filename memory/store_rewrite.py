"""Whether a store keeps the promises that an erasure relies on, and the one rewrite of a store that did not.

What every connection sets is read back as it opens. Two promises are of the file itself: that the word index removes
words as they are deleted, and that no page belongs to auto_vacuum. A file that lacks one was written by something
else, and has old words and rows where nothing of ours looks. So it is written anew, once, through our file layer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import apsw

from memory import vfs
from tlog.errors import UnavailableError

Progress = Callable[[int, int], None]
_SECURE_DELETE: Final = "SELECT v FROM search_config WHERE k = 'secure-delete'"
# How often SQLite tells how far it is, in steps of its own, and about how many of them a page takes to be written anew.
_STEPS: Final = 5_000
_STEPS_A_PAGE: Final = 250
_BAR: Final = 40


def require_promises(connection: apsw.Connection) -> None:
    """Returns if what an erasure relies on is on; UnavailableError with code `store_setting` if one is off."""
    if connection.open_vfs != vfs.NAME:
        raise _off("the file layer that clears what SQLite leaves between cells")
    if _pragma(connection, "auto_vacuum") != 0:
        raise _off("auto_vacuum=NONE")
    if _pragma(connection, "journal_mode") != "wal":
        raise _off("journal_mode=WAL")
    if _pragma(connection, "secure_delete") != 1:
        raise _off("secure_delete")
    if connection.execute(_SECURE_DELETE).fetchall() != [(1,)]:
        raise _off("the secure-delete of the word index")


def rewrite_if_needed(
    connection: apsw.Connection, application_id: int, progress: Progress | None = None
) -> bool:
    """Whether this was a store of ours that lacked a promise, which it keeps from now on.

    Nothing is marked before the rewrite is durable: one that is cut short is made again.
    """
    if _pragma(connection, "application_id") != application_id or _keeps(connection):
        return False
    write_anew(connection, progress)
    return True


def write_anew(connection: apsw.Connection, progress: Progress | None = None) -> None:
    """Returns once every page is written anew, the word index in one piece, and the file keeps the promises."""
    if connection.open_vfs != vfs.NAME:
        raise _off("the file layer that clears what SQLite leaves between cells")
    told = progress or _bar()
    pages = max(int(_pragma(connection, "page_count")), 1)  # type: ignore[call-overload]  # a number
    seen = 0

    def handler() -> bool:
        nonlocal seen
        seen += _STEPS
        told(min(seen // _STEPS_A_PAGE, pages - 1), pages)
        return False

    for name, value in (("secure_delete", "ON"), ("temp_store", "MEMORY"), ("journal_mode", "WAL")):
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
    told(0, pages)
    connection.set_progress_handler(handler, _STEPS)
    try:
        connection.execute("INSERT INTO search (search) VALUES ('optimize')")
        connection.execute("PRAGMA auto_vacuum = NONE").fetchall()
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 1)")
    finally:
        connection.set_progress_handler(None)
    told(pages, pages)


def _keeps(connection: apsw.Connection) -> bool:
    if _pragma(connection, "auto_vacuum") != 0:
        return False
    return connection.execute(_SECURE_DELETE).fetchall() == [(1,)]


def _pragma(connection: apsw.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchall()[0][0]


def _off(what: str) -> UnavailableError:
    return UnavailableError(
        f"the store does not keep what an erasure relies on: {what} is off, so nothing was erased; open the home"
        " again, which writes the store anew",
        code="store_setting",
    )


def _bar() -> Progress:
    """A bar on standard error, for a person who waits; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def draw(done: int, total: int) -> None:
        width = _BAR * done // total
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r[{'#' * width}{'.' * (_BAR - width)}] the store is written anew, once{end}")
        sys.stderr.flush()

    return draw
