"""What can be wrong with keys, store, clock and erasures of a home."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from memory import store_erase
from memory.diagnosis import Finding, fail, ok, skipped, warn
from memory.layout import STORE
from memory.times import format_time

if TYPE_CHECKING:
    from memory.wiring import Home

_DEEP_ABOVE_BYTES: Final = 256 << 20
_LONG_WAL_BYTES: Final = 64 << 20
_MICROSECONDS: Final = 1_000_000
_STEP_BACK_SECONDS: Final = 2


def keys(home: Home) -> Iterator[Finding]:
    """Whether each key file holds the key that the home's own list names."""
    from memory.key_check import require_sound_keys

    require_sound_keys(home.path, home.config)
    home.log_signer()
    yield ok("keys", "every key file holds the key that the list of keys names")


def store(home: Home, deep: bool) -> Iterator[Finding]:
    """Whether the store is sound and keeps what an erasure relies on; a large one page by page only if `deep`."""
    opened = home.parts().store
    opened.require_promises()
    yield ok("store_settings", "the store keeps what an erasure relies on")
    size = (home.path / STORE).stat().st_size
    if size > _DEEP_ABOVE_BYTES and not deep:
        yield skipped("store", f"the store has {size >> 20} MiB; muniment doctor --deep reads all of it")
        return
    wrong = opened.check()
    if wrong:
        yield fail(
            "store", f"SQLite finds the store damaged in {len(wrong)} places", "put it back from a backup"
        )
    else:
        yield ok("store", f"SQLite finds the store sound ({size >> 10} KiB)")


def write_ahead_log(home: Home) -> Iterator[Finding]:
    """Whether somebody reads for so long that the write-ahead log can't be emptied: an erasure would wait for it."""
    emptied = home.parts().store.checkpoint_truncate(deadline_seconds=1.0)
    path = home.path / f"{STORE}-wal"
    size = path.stat().st_size if path.exists() else 0
    if emptied:
        yield ok("wal", "nobody keeps the write-ahead log from being emptied")
    elif size > _LONG_WAL_BYTES:
        yield fail(
            "wal",
            f"a reader keeps the write-ahead log from being emptied, and it has {size >> 20} MiB",
            "end the process that has a read open (fuser on store.db names it)",
        )
    else:
        yield warn(
            "wal",
            "a reader or writer kept the write-ahead log from being emptied for a second",
            "run muniment doctor again; if it says so again, end the process that has a read open",
        )


def clock(home: Home) -> Iterator[Finding]:
    """Whether the clock is behind what was recorded already."""
    with home.parts().store.read_whole() as view:
        last = view.last_recorded_at()
    behind = (last - home.clock()) / _MICROSECONDS
    if behind > _STEP_BACK_SECONDS:
        yield fail(
            "clock",
            f"the clock is {behind:.0f} s behind the last statement, of {format_time(last)}",
            "set the clock; until then every statement is dated just after that one",
        )
    else:
        yield ok("clock", "the clock is not behind what was recorded")


def erasures(home: Home) -> Iterator[Finding]:
    """Whether an erasure was cut short, or ended with something open."""
    with home.parts().store.read_whole() as view:
        rows = view.erasures()
    executing = [row for row in rows if row.state == store_erase.EXECUTING]
    unfinished = sorted({row.request for row in rows if row.state == "inconclusive"})
    settled = {row.request for row in rows if row.state == "closed_complete"}
    left = [request for request in unfinished if request not in settled]
    if executing:
        yield warn(
            "erasures", "an erasure is under way", "wait for it; whoever opens the home next completes one"
        )
    if left:
        yield warn(
            "erasures",
            f"{len(left)} requests to erase are inconclusive: {', '.join(one.hex() for one in left[:3])}",
            "give the words again: muniment forget --request REQUEST",
        )
    if not executing and not left:
        yield ok("erasures", "no erasure waits for anything")


def systems(home: Home) -> Iterator[Finding]:
    """Whether the commands of declared systems are there."""
    from memory.erase_systems import parse_systems

    declared = parse_systems(home.config.systems, home.config.origin)
    if not declared:
        yield ok("systems", "no other system is declared")
        return
    for number, adapter in enumerate(declared, 1):
        commands = (adapter.command, *([adapter.counter] if adapter.counter else []))
        gone = [command for command in commands if not _runs(command[0])]
        if gone:
            yield fail(
                "systems", f"system {number}: a command is not there or can't be run", "correct config.toml"
            )
        elif not adapter.counter:
            yield warn(
                "systems",
                f"system {number} has nobody else who counts, so no erasure will be complete",
                "declare a counter behind a bar",
            )
        else:
            yield ok("systems", f"system {number}: its commands are there")


def _runs(command: str) -> bool:
    found = shutil.which(command)
    return found is not None and os.access(found, os.X_OK)
