"""What is wrong with a home and this machine, each with what to do about it; nothing about what is remembered.

A check that cannot be made does not stop the others.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory import doctor_log, doctor_store, wiring
from memory.diagnosis import Finding, fail, ok, skipped, warn
from memory.engines import require_postgres
from memory.layout import STORE, home_path, require_home, require_private
from tlog.errors import Error

if TYPE_CHECKING:
    from memory.wiring import Home

_OLDEST_PYTHON: Final = (3, 11)
_LEAST_FREE_BYTES: Final = 256 << 20
_ROOM: Final = 2
"""An erasure of a store written by something else, a restore and an audit each need a copy of it."""


def examine(path: str | os.PathLike[str] | None, deep: bool = False) -> tuple[Finding, ...]:
    """Everything that was looked at, in the order of what depends on what.

    `deep` also reads every page of a large store. Never raises for what is wrong with a home: that is a finding.
    """
    folder = home_path(path)
    found = [_python(), _sqlite(), _command(), *_folder(folder)]
    if any(one.result == "fail" for one in found if one.check in ("home", "home_mode")):
        return (*found, skipped("store", "the home has to be put right first"))
    found += [*_files(folder), _disk(folder)]
    try:
        home = wiring.open_existing_home(path)
    except Error as error:
        return (*found, fail("settings", error.message, "correct config.toml, or put it back from a backup"))
    with home:
        found.append(_guard(home))
        for name, look in _checks(deep, home.config.database is not None):
            found += _made(name, look, home)
    return tuple(found)


def _checks(deep: bool, in_database: bool) -> tuple[tuple[str, Callable[[Home], Iterator[Finding]]], ...]:
    of_store: tuple[tuple[str, Callable[[Home], Iterator[Finding]]], ...] = (
        (("store", _database),)
        if in_database
        else (
            ("store", lambda home: doctor_store.store(home, deep)),
            ("wal", doctor_store.write_ahead_log),
        )
    )
    return (
        ("keys", doctor_store.keys),
        *of_store,
        ("clock", doctor_store.clock),
        ("erasures", doctor_store.erasures),
        ("systems", doctor_store.systems),
        ("outbox", doctor_log.outbox),
        ("checkpoint", doctor_log.checkpoint),
        ("witnesses", doctor_log.witnesses),
        ("mirror", doctor_log.mirror),
    )


def _database(home: Home) -> Iterator[Finding]:
    require_postgres()
    from memory.doctor_pg import examine as examine_database

    return examine_database(home)


def _made(name: str, look: Callable[[Home], Iterator[Finding]], home: Home) -> list[Finding]:
    """What a check finds; what stops it is a finding as well."""
    found: list[Finding] = []
    try:
        found.extend(look(home))
    except Error as error:
        found.append(fail(name, error.message, "put right what this says, and run muniment doctor again"))
    except OSError as error:
        found.append(fail(name, f"a file or the disk failed: {error.strerror}", "look at the disk"))
    return found


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < _OLDEST_PYTHON:
        return fail("python", f"Python {version}", "install Python 3.11 or newer")
    return ok("python", f"Python {version}")


def _sqlite() -> Finding:
    import apsw

    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 42):
        return fail(
            "sqlite", f"SQLite {version}", "install a newer apsw: 3.42 is the oldest that erases words"
        )
    return ok("sqlite", f"SQLite {version}, apsw {apsw.apsw_version()}")


def _command() -> Finding:
    found = shutil.which("muniment")
    if found is None:
        return warn(
            "command",
            "muniment is not on the PATH, so a host that is told to start it by name won't find it",
            "add its folder to the PATH, or let muniment install write the whole path",
        )
    return ok("command", f"muniment is {found}")


def _folder(folder: Path) -> Iterator[Finding]:
    try:
        require_home(folder)
    except Error as error:
        yield fail("home", error.message, "name the home with --home, or make one with muniment init")
        return
    yield ok("home", f"a home in {folder}")
    try:
        require_private(folder)
    except Error as error:
        yield fail("home_mode", error.message, f"chmod 700 {folder}")
        return
    if folder.stat().st_uid != os.geteuid():
        yield warn("home_mode", "the home belongs to another user", "run muniment as the owner of the home")
    else:
        yield ok("home_mode", "the home is for its owner alone")


def _files(folder: Path) -> Iterator[Finding]:
    """Files that others may read, below a folder that they may not enter: a copy of it would let them in."""
    open_to_others = sum(
        1
        for path in (*folder.glob("keys/**/*"), *folder.glob("store.db*"))
        if not path.is_symlink() and path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077
    )
    if open_to_others:
        yield warn(
            "file_modes",
            f"{open_to_others} files of keys or of the store may be read by others once the folder can be entered",
            f"chmod -R go-rwx {folder / 'keys'} {folder}/store.db*",
        )
    else:
        yield ok("file_modes", "keys and store are for their owner alone")


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    store = folder / STORE
    wanted = max(_LEAST_FREE_BYTES, _ROOM * store.stat().st_size if store.exists() else 0)
    text = f"{free >> 20} MiB free where the home lies"
    if free < wanted:
        return warn("disk", text, f"make room: {wanted >> 20} MiB are needed for copies, audits and restores")
    return ok("disk", text)


def _guard(home: Home) -> Finding:
    if home.guard == "off":
        return warn("guard", "the write guard is off", 'set guard = "on" in config.toml')
    return ok("guard", "the write guard is on")
