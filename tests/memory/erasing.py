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
