"""What an erasure costs in a store in use: one, a batch, and the scan of every file that follows it.

    python benchmarks/erase_rates.py [--facts N] [--rounds R] [--batch B] [--home DIR] [--json]

Writes N facts (100,000) the way every write goes but for the flush at its end, half of them corrections, into a home
in a folder of its own, or takes the home that --facts N --home DIR made before. Then it erases one fact at a time by
id, by key and by subject, R times each (25), and B ids (1,000) at once, each with its preview, confirmed and timed
from the token to the answer.

"Without the scan" the two looks at the files, which are made in a process apart, are left out and the manifest says
`not_run`; all else is there: the durable record, the transaction, the emptied write-ahead log, the signed manifest.
Then one erasure of each kind is made as a user makes it, the two looks are timed by themselves, and the rate of the
scan is the CPU time of its process. Any VACUUM that a connection begins in all that is counted.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

import apsw  # noqa: E402
from log_report import machine  # noqa: E402

from memory import erase_look, erase_run, store  # noqa: E402
from memory.erase_checks import check  # noqa: E402
from memory.model import SCOPES, Principal  # noqa: E402
from memory.wiring import Home, open_home  # noqa: E402

WHO = Principal("bench", "bot", "one", SCOPES)
DURABILITY = "WAL, synchronous=FULL, secure_delete, gaps zeroed; the file system is under `machine`"
PUBLISH_EVERY = 20_000
WORDS = [
    "amber",
    "birch",
    "cedar",
    "dune",
    "ember",
    "fjord",
    "grove",
    "harbour",
    "inlet",
    "juniper",
    "kelp",
    "lagoon",
    "meadow",
    "north",
    "orchard",
]
TARGETS = {"one_ms": 40.0, "batch_ms_each": 6.0}


def fill(home: Home, count: int) -> dict[str, Any]:
    """What it took to write so many facts: each key is corrected once, each subject has twenty."""
    memory, chance, begun = home.memory(WHO), random.Random(1), time.perf_counter()
    for number in range(count):
        memory.remember(
            f"machine {number // 2} of owner {number // 20}: {' '.join(chance.choices(WORDS, k=12))} {number}",
            key=f"machine/{number // 2}/place",
            value=f"hall {number}",
            subject=f"owner {number // 20}",
        )
        if number % PUBLISH_EVERY == PUBLISH_EVERY - 1:
            home.publish()
    home.publish()
    seconds = time.perf_counter() - begun
    return {"facts": count, "seconds": round(seconds, 1), "a_second": round(count / seconds)}


class Asked:
    """What is erased next: never the same twice."""

    def __init__(self, home: Home, facts: int, batch: int) -> None:
        chance = random.Random(2)
        owners = list(range(facts // 20))
        chance.shuffle(owners)
        self._owners = iter(owners)
        self._memory, self._batch = home.memory(WHO), batch

    def _machines(self) -> list[int]:
        owner = next(self._owners)
        return [owner * 10 + place for place in range(10)]

    def _ids(self, key: str) -> list[str]:
        return [fact["id"] for fact in self._memory.history(key)["facts"]]

    def one_id(self) -> dict[str, Any]:
        return {"id": self._ids(f"machine/{self._machines()[3]}/place")[0]}

    def one_key(self) -> dict[str, Any]:
        return {"key": f"machine/{self._machines()[4]}/place"}

    def one_subject(self) -> dict[str, Any]:
        return {"subject": f"owner {next(self._owners)}"}

    def many_ids(self) -> dict[str, Any]:
        ids: list[str] = []
        while len(ids) < self._batch:
            for number in self._machines():
                ids += self._ids(f"machine/{number}/place")
        return {"id": ids[: self._batch]}


def timed(home: Home, selector: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of one preview and of the erasure that it confirms, and what the erasure ended as."""
    memory = home.memory(WHO)
    begun = time.perf_counter()
    token = memory.forget_preview(**selector)["confirm"]
    shown = time.perf_counter()
    cpu = time.process_time()
    answer = memory.forget(confirm=token, **selector)
    done = time.perf_counter()
    return {
        "preview_ms": (shown - begun) * 1000,
        "erase_ms": (done - shown) * 1000,
        "cpu_ms": (time.process_time() - cpu) * 1000,
        "erased": answer["erased"],
        "state": answer["state"],
        "why": sorted(one["code"] for one in answer["why"]),
    }


@contextmanager
def without_flushes() -> Iterator[None]:
    """Connections that leave it to the system when a write reaches the disk: for filling alone."""
    kept = store._PRAGMAS
    others = tuple(one for one in kept if one[0] != "synchronous")
    store._PRAGMAS = (*others, ("synchronous", "OFF", 0))
    try:
        yield
    finally:
        store._PRAGMAS = kept


@contextmanager
def without_the_scan() -> Iterator[None]:
    """Erasures whose two looks at the files say that they were not run."""
    kept = erase_run.check_residue, erase_look.check_free_space
    erase_run.check_residue = lambda *_: (check("residue", "not_run", {}, ["scan_not_available"]), 0)
    erase_look.check_free_space = lambda _: check("free_space", "not_run", {}, ["scan_not_available"])
    try:
        yield
    finally:
        erase_run.check_residue, erase_look.check_free_space = kept


class Looks:
    """Wall and CPU time of each look at the files, which is made in a child process."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, float]]] = {"residue": [], "free_space": []}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        kept = erase_run.check_residue, erase_look.check_free_space
        erase_run.check_residue = self._timed("residue", kept[0])
        erase_look.check_free_space = self._timed("free_space", kept[1])
        try:
            yield
        finally:
            erase_run.check_residue, erase_look.check_free_space = kept

    def _timed(self, name: str, look: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            answer = look(*arguments)
            wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            counts = (answer[0] if isinstance(answer, tuple) else answer)["counts"]
            self.found[name].append(
                {"wall_seconds": wall, "cpu_seconds": cpu}
                | {key: counts[key] for key in ("bytes", "needles", "pages", "hits") if key in counts}
            )
            return answer

        return run


@contextmanager
def counting_vacuums() -> Iterator[list[str]]:
    """Every VACUUM that any connection of the store is asked for, into another file or in place."""
    seen: list[str] = []
    connect = store._connect

    def watched(path: Path, *more: Any) -> apsw.Connection:
        connection = connect(path, *more)
        connection.set_authorizer(None)
        connection.trace_v2(
            apsw.SQLITE_TRACE_STMT,
            lambda event: (
                seen.append(event["sql"]) if event["sql"].lstrip()[:6].upper() == "VACUUM" else None
            ),
        )
        return connection

    store._connect = watched
    try:
        yield seen
    finally:
        store._connect = connect


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and the slowest of some erasures."""
    took = sorted(row["erase_ms"] for row in rows)
    return {
        "rounds": len(rows),
        "records": rows[0]["erased"],
        "median_ms": round(median(took), 1),
        "p95_ms": round(took[min(len(took) - 1, int(len(took) * 0.95))], 1),
        "median_cpu_ms": round(median(row["cpu_ms"] for row in rows), 1),
        "median_preview_ms": round(median(row["preview_ms"] for row in rows), 1),
        "states": sorted({row["state"] for row in rows}),
    }


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    place = folder / "home" if arguments.home is None else arguments.home
    fresh = not (place / "store.db").exists()
    filled: dict[str, Any] = {"facts": arguments.facts, "taken_from_before": not fresh}
    if fresh:
        with without_flushes(), open_home(place) as home:
            filled |= fill(home, arguments.facts)
    with counting_vacuums() as vacuums, open_home(place) as home:
        home.parts().store.checkpoint_truncate()
        asked = Asked(home, arguments.facts, arguments.batch)
        results: dict[str, Any] = {}
        kinds = (("one id", asked.one_id), ("one key", asked.one_key), ("one subject", asked.one_subject))
        with without_the_scan():
            for name, ask in kinds:
                results[name] = summary([timed(home, ask()) for _ in range(arguments.rounds)])
            batches = [timed(home, asked.many_ids()) for _ in range(3)]
        results["batch"] = summary(batches)
        results["batch"]["median_ms_each"] = round(results["batch"]["median_ms"] / arguments.batch, 2)
        looks = Looks()
        with looks():
            whole = [timed(home, ask()) for ask in (asked.one_id, asked.one_subject, asked.many_ids)]
        home_bytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        store_bytes = (place / "store.db").stat().st_size
    return {
        "machine": machine(place, {}),
        "durability": DURABILITY,
        "filled": filled,
        "home_bytes": home_bytes,
        "store_bytes": store_bytes,
        "without_scan": results,
        "with_scan": [
            {**row, "preview_ms": round(row["preview_ms"]), "erase_ms": round(row["erase_ms"])}
            for row in whole
        ],
        "scan": rates(looks),
        "vacuums": len(vacuums),
        "targets": targets(results),
    }


def rates(looks: Looks) -> dict[str, Any]:
    """Megabytes a second of CPU time of each look, and what it would take for a home of one gigabyte."""
    found: dict[str, Any] = {}
    for name, rows in looks.found.items():
        # The free-space look reads the store alone; of its pages the size is the default.
        sizes = [row.get("bytes", row.get("pages", 0) * 4096) for row in rows]
        speeds = [size / row["cpu_seconds"] / 1e6 for size, row in zip(sizes, rows, strict=True)]
        found[name] = {
            "needles": [int(row["needles"]) for row in rows if "needles" in row],
            "mb": [round(size / 1e6, 1) for size in sizes],
            "cpu_seconds": [round(row["cpu_seconds"], 2) for row in rows],
            "wall_seconds": [round(row["wall_seconds"], 2) for row in rows],
            "mb_per_cpu_second": [round(speed, 1) for speed in speeds],
            "one_gb_seconds": round(1000 / median(speeds), 1),
            "extrapolated": True,
        }
    return found


def targets(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was aimed at, what was found, and whether that is enough."""
    one, batch = results["one id"]["median_ms"], results["batch"]["median_ms_each"]
    rows = (
        ("one erasure, median ms", TARGETS["one_ms"], one),
        ("of a batch, ms each", TARGETS["batch_ms_each"], batch),
    )
    return [{"what": what, "aim": aim, "found": found, "reached": found <= aim} for what, aim, found in rows]


def show(results: dict[str, Any]) -> None:
    """The results as lines."""
    where = results["machine"]
    print(f"{where['processor']}, {where['cores']} cores, {where['file_system']}, load {where['load']}")
    print(f"Python {where['python']}, {where['packages']}; {results['durability']}")
    print(f"filled {results['filled']}; home {results['home_bytes'] / 1e6:.0f} MB")
    for name, row in results["without_scan"].items():
        print(f"without the scan, {name:<12} {row}")
    for row in results["with_scan"]:
        print(f"with the scan    {row}")
    for name, row in results["scan"].items():
        print(f"look {name:<12} {row}")
    print(f"VACUUMs {results['vacuums']}")
    for row in results["targets"]:
        end = "reached" if row["reached"] else "MISSED"
        print(f"{row['what']:<28} aim <= {row['aim']:<6} found {row['found']:<8} {end}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--home", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.facts < 20 * (5 * arguments.rounds + 10 + arguments.batch // 4):
        parser.error("expected more facts: nothing is erased twice")
    with tempfile.TemporaryDirectory(prefix="erase-rates-") as folder:
        results = run(arguments, Path(folder))
    print(json.dumps(results, indent=2)) if arguments.json else show(results)
    return 1 if results["vacuums"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
