"""Two homes of the same facts for judges of what is left: one erased as Muniment does, and a careless twin.

    python tests/interop/erased.py HOME [careless]

Half of the facts are about one subject, in no order, with corrections between; then that subject is erased. The other
half has a word of the same shape that stays: a judge that does not find that has looked at nothing.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from installing import REPOSITORY, run

GONE: Final = "Zqxv-Kumquat"
KEPT: Final = "Wmpf-Tangelo"
FACTS: Final = 400


@dataclass(frozen=True)
class Erased:
    """The folders of both homes; no process has them open."""

    ours: Path
    careless: Path


def make_erased(folder: Path) -> Erased:
    """Both, each made by a process of its own."""
    made = Erased(folder / "ours", folder / "careless")
    for place, more in ((made.ours, []), (made.careless, ["careless"])):
        run([sys.executable, str(Path(__file__)), str(place), *more], cwd=REPOSITORY)
    return made


def files(home: Path) -> list[Path]:
    """Every file of a home."""
    return [path for path in sorted(home.rglob("*")) if path.is_file()]


def count(command: list[str], word: str) -> int:
    """How many lines of what a command prints have the word, in whatever case."""
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    return sum(word.lower().encode() in line.lower() for line in done.stdout.splitlines())


def _be_careless() -> None:
    """What is deleted stays in the file, and what is moved leaves a copy."""
    import apsw

    import memory.store
    from memory import vfs

    plain = next(name for name in apsw.vfs_names() if name != vfs.NAME)
    vfs.register = lambda: plain
    memory.store_rewrite.require_promises = lambda connection: None
    others = tuple(one for one in memory.store._PRAGMAS if one[0] != "secure_delete")
    memory.store._PRAGMAS = (*others, ("secure_delete", "OFF", 0))


def main() -> None:
    sys.path[:0] = [str(REPOSITORY)]
    if sys.argv[2:] == ["careless"]:
        _be_careless()
    from memory import wiring
    from memory.principal import owner_from_environment

    chance = random.Random(7)
    with wiring.open_home(sys.argv[1]) as home:
        memory = home.memory(owner_from_environment({}))
        for number in range(FACTS):
            subject, word = chance.choice([("Dana Scully", GONE), ("Fox Mulder", KEPT)])
            filler = " ".join(chance.choices(["ash", "oak", "elm"], k=chance.choice([3, 40])))
            text = f"{word} number {number} says {filler}"
            memory.remember(
                text, key=f"{subject}/{chance.randrange(90)}", value=f"{word} {number}", subject=subject
            )
        answer = memory.forget(
            confirm=memory.forget_preview(subject="Dana Scully")["confirm"], subject="Dana Scully"
        )
        state = "inconclusive" if sys.argv[2:] else "closed_complete"
        if answer["state"] != state:
            raise SystemExit(f"expected the erasure to end {state}, not {answer['state']}: {answer['why']}")
        home.publish()


if __name__ == "__main__":
    main()
