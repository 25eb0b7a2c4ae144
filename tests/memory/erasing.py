"""What the tests of erasures share: a clock that never stands still, a caller, and a plain look at every file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory import wiring
from memory.manifest import Manifest, verify_manifest
from memory.model import Principal
from memory.principal import owner_from_environment

ME = owner_from_environment({})


class Clock:
    """Microseconds that go on by one each time they are asked for."""

    def __init__(self, now: int = 1_900_000_000_123_456) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def write(home: wiring.Home, text: str, caller: Principal = ME, **more: Any) -> Any:
    """What `remember` answers."""
    return home.memory(caller).remember(text, **more)


def forget(home: wiring.Home, caller: Principal = ME, **selector: Any) -> Any:
    """What `forget` answers, confirmed with the token of its own preview."""
    memory = home.memory(caller)
    return memory.forget(confirm=memory.forget_preview(**selector)["confirm"], **selector)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, keys included, by its name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def found_in(home: wiring.Home, *needles: str) -> set[str]:
    """Which needles stand, in whatever case, in any file of the home: a plain scan that shares no code."""
    whole = b"\n".join(files_of(home.path).values()).lower()
    return {needle for needle in needles if needle.lower().encode() in whole}


def manifest_of(home: wiring.Home, answer: Any) -> Manifest:
    """The manifest that an answer names, its signature verified."""
    return verify_manifest(Path(answer["manifest"]).read_bytes(), home.manifest_signer().key)


def check_of(manifest: Manifest, name: str) -> Any:
    """The check of this name in a manifest."""
    return next(one for one in manifest.document["checks"] if one["check"] == name)


def lose_store(home: wiring.Home, *, with_schema: bool = False) -> None:
    """The store is gone, with what a database had of the log: the public files and the keys are there.

    `with_schema`: the schema of a database as well, which takes long to make in all its partitions.
    """
    database = home.config.database
    home.close()
    if database is None:
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            (home.path / name).unlink(missing_ok=True)
        return
    import psycopg

    with psycopg.connect(database) as connection:
        connection.execute("DROP SCHEMA muniment CASCADE")
        connection.execute("DROP SCHEMA IF EXISTS muniment_log CASCADE")
    if not with_schema:
        from memory.pg_schema import ensure_schema

        ensure_schema(database, partitions=2)


def is_closed(home: wiring.Home, answer: Any, state: str = "closed_complete") -> bool:
    """Whether an erasure ended so; in a database it is not complete where nobody may look at its pages."""
    return answer["state"] == state or (
        home.config.database is not None and answer["state"] == "inconclusive"
    )
