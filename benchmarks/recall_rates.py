"""What a recall costs at 1,000, 10,000 and more facts of one agent, in CPU and wall time.

    python benchmarks/recall_rates.py [--home DIR] [--sizes 1000,10000] [--queries N] [--json FILE]

Facts are made up from a seed: words by a Zipf law over 20,000, ten to twenty of them a fact, half of the facts with a
key. They are written by `remember`, each size an agent of one home of its own; with `--home` they stay, and a run that
was cut short goes on. Half of a query's words are frequent ones. Beside the times stands that of one Ed25519 signature
in the same run, for machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any, Final

import apsw
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from memory import wiring  # noqa: E402
from memory.model import SCOPES, Principal  # noqa: E402
from memory.service import Memory  # noqa: E402

WORDS: Final = 20_000
FREQUENT: Final = 60


def vocabulary(dice: random.Random) -> list[str]:
    """Words that nobody uses, the most frequent first."""
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    return [
        "".join(dice.choice(syllables) for _ in range(2 + number % 3)) + str(number)
        for number in range(WORDS)
    ]


class Maker:
    """Texts and queries by a Zipf law; the same seed gives the same."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._words = vocabulary(random.Random(1))
        self._shares = list(accumulate(1 / (rank + 3) for rank in range(WORDS)))

    def text(self) -> str:
        return " ".join(
            self._dice.choices(self._words, cum_weights=self._shares, k=self._dice.randint(10, 20))
        )

    def query(self) -> str:
        frequent = self._dice.choices(self._words[:FREQUENT], k=3)
        rare = self._dice.choices(self._words, cum_weights=self._shares, k=3)
        return " ".join([*frequent, *rare])


def fill(memory: Memory, size: int) -> None:
    """Writes the facts that are not there yet."""
    have = sum(memory.status()["facts"].values())
    maker = Maker(2)
    for number in range(size):
        text = maker.text()
        if number < have:
            continue
        key = f"thing {number // 2}/size" if number % 2 else None
        memory.remember(text, key=key, value=None if key is None else f"{number} units")


def timed(act: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    act()
    return (clock() - began) * 1e3


def spread(times: list[float]) -> dict[str, float]:
    """Median, 95th and 99th of a hundred, in milliseconds."""
    ordered = sorted(times)
    return {
        "p50": round(median(ordered), 3),
        "p95": round(ordered[int(len(ordered) * 0.95)], 3),
        "p99": round(ordered[int(len(ordered) * 0.99)], 3),
    }


def measure(memory: Memory, queries: int) -> dict[str, Any]:
    """CPU and wall time of recalls, after some to warm up."""
    maker = Maker(3)
    asked = [maker.query() for _ in range(queries + 20)]
    for query in asked[:20]:
        memory.recall(query)
    cpu, wall, found = [], [], 0
    for query in asked[20:]:
        began = time.monotonic()
        cpu.append(timed(lambda query=query: memory.recall(query), time.process_time))  # type: ignore[misc]
        wall.append((time.monotonic() - began) * 1e3)
        found += bool(memory.recall(query, limit=1)["facts"])
    return {"cpu_ms": spread(cpu), "wall_ms": spread(wall), "found": found, "queries": queries}


def signature_ms() -> float:
    """CPU time of one raw Ed25519 signature."""
    key = Ed25519PrivateKey.generate()
    return median(timed(lambda: key.sign(b"x" * 32), time.process_time) for _ in range(500))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path)
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[str, Any] = {
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    with ExitStack() as stack:
        folder = args.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recall-rates-")))
        for size in map(int, args.sizes.split(",")):
            home = stack.enter_context(wiring.open_home(folder / str(size)))
            memory = home.memory(Principal("rates", "agent", "benchmark", SCOPES))
            fill(memory, size)
            results[str(size)] = measured = measure(memory, args.queries)
            measured["signature_ms"] = round(signature_ms(), 4)
            print(f"{size:9,} facts: {measured}", flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
