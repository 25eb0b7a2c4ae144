"""What each operation costs in stores of 1,000 to 1,000,000 facts, in 100 tenants of which the largest has a fifth.

    python benchmarks/scale_rates.py [--facts 1000 10000 100000] [--homes DIR] [--json FILE]

The facts go through the real write path, some hundred to a commit; a load that is cut short goes on where it was.
Each size is measured in a process of its own, in the largest tenant, after its log is published. A time is that of
the call, beside it the processor time of the process; `signatures` is that as a number of raw Ed25519 signatures,
measured before and after. Without --homes the stores are made in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from memory.model import SCOPES, Principal  # noqa: E402
from memory.wiring import Home, open_home  # noqa: E402

TENANTS = 100
A_COMMIT = 2000
A_PUBLICATION = 50_000
DIFFERENT = 50_000
PARTS = ("city", "employer", "region", "retention", "owner", "plan", "contact", "language")


def words() -> tuple[list[str], list[float]]:
    """Words that no dictionary has, and how often each is used: the n-th as often as one n-th of the first."""
    chance = random.Random(7)
    heads = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    made: dict[str, None] = {}
    while len(made) < DIFFERENT:
        made["".join(chance.choice(heads) for _ in range(chance.choice((2, 3, 3, 4))))] = None
    return list(made), list(accumulate(1 / (rank + 2) for rank in range(len(made))))


WORDS, WEIGHTS = words()
RANKS = {word: rank for rank, word in enumerate(WORDS)}
SHARES = [1.0]
"""Up to which sum of shares each tenant goes; the n-th has one n-th of the facts of the first."""


def fact(number: int) -> tuple[int, dict[str, str]]:
    """The tenant and the arguments of a fact. One in five says something else of a key that was said before."""
    chance = random.Random(number)
    tenant = bisect(SHARES, chance.random() * SHARES[-1])
    about = number - chance.randrange(1, 200) if number > 200 and chance.random() < 0.2 else number
    said = chance.choices(WORDS, cum_weights=WEIGHTS, k=12)
    if about != number:
        tenant = fact(about)[0]
    key = f"person-{about}/{PARTS[about % len(PARTS)]}"
    value = f"{said[0]} {said[1]} {number % 1000}"
    return tenant, {"text": f"{' '.join(said[2:])}: the {key} is {value}", "key": key, "value": value}


KINDS = ("rare words", "frequent words", "both")


def queries(text: str, chance: random.Random) -> dict[str, str]:
    """What finds a fact with this text: its three rarest words, four very frequent words, or both."""
    rare = sorted(text.split(":")[0].split(), key=RANKS.__getitem__)[-3:]
    frequent = chance.sample(WORDS[:60], 4)
    return dict(zip(KINDS, map(" ".join, (rare, frequent, (*rare, *frequent[:3]))), strict=True))


def caller(tenant: int) -> Principal:
    return Principal(f"tenant-{tenant}", "main", "bench", SCOPES)


def load(folder: Path, count: int) -> None:
    """Returns once the store in the folder has so many statements and their log is published."""
    with open_home(folder) as home:
        store = home.parts().store
        memories = [home.memory(caller(tenant)) for tenant in range(len(SHARES))]
        with store._connection() as connection:
            # Hashes scatter the pages that a load writes over the whole file, and each is copied at a checkpoint.
            connection.execute("PRAGMA cache_size = -2097152")
            connection.execute("PRAGMA wal_autocheckpoint = 100000")
        with store.read() as view:
            done = view.counts()["statements"]
        began, first = time.process_time(), done
        together = store.write_together
        while done < count:
            upto = min(done + A_COMMIT, count)
            with store._shared() as new_txn:
                store.write_together = lambda work, new=new_txn: work(new())  # type: ignore[method-assign, misc]
                for number in range(done, upto):
                    tenant, arguments = fact(number)
                    memories[tenant].remember(**arguments)  # type: ignore[arg-type]
            done = upto
            if done % A_PUBLICATION == 0:
                home.publish(3600)
                print(f"  {done} loaded", file=sys.stderr, flush=True)
        store.write_together = together  # type: ignore[method-assign]
        if done > first:
            cost = (time.process_time() - began) / (done - first) * 1e6
            print(f"  {done}: {cost:.0f} us of processor a fact, {A_COMMIT} to a commit", file=sys.stderr)
        home.publish(3600)
        store.checkpoint_truncate()


def signature_seconds() -> float:
    """Processor time of a raw Ed25519 signature, now."""
    key, message = Ed25519PrivateKey.generate(), os.urandom(120)
    began = time.process_time()
    for _ in range(1000):
        key.sign(message)
    return (time.process_time() - began) / 1000


def timed(name: str, calls: Iterator[Callable[[], Any]]) -> dict[str, Any]:
    """Percentiles of the calls in milliseconds, their processor time, and that in signatures."""
    before, times, spent = signature_seconds(), [], []
    for call in calls:
        began, processor = time.perf_counter(), time.process_time()
        call()
        spent.append(time.process_time() - processor)
        times.append(time.perf_counter() - began)
    times.sort()
    spent.sort()
    signature = (before + signature_seconds()) / 2
    cost = statistics.median(spent)
    return {
        "operation": name,
        "calls": len(times),
        **{
            f"p{at}_ms": round(times[min(len(times) * at // 100, len(times) - 1)] * 1e3, 3)
            for at in (50, 95, 99)
        },
        "cpu_ms": round(cost * 1e3, 3),
        "cpu_p95_ms": round(spent[len(spent) * 95 // 100] * 1e3, 3),
        "signatures": round(cost / signature, 1),
    }


def measure(folder: Path, count: int, calls: int, erasures: int) -> dict[str, Any]:
    """Every figure of the store in the folder; it gets some facts more by it, and loses as few."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    chance = random.Random(count)
    mine = [number for number in range(max(0, count - 50_000), count) if fact(number)[0] == 0]
    with open_home(folder) as home:
        memory = home.memory(caller(0))
        picked = [fact(chance.choice(mine))[1] for _ in range(calls)]
        keys = [arguments["key"] for arguments in picked]
        ids = [memory.history(key)["facts"][0]["id"] for key in keys]
        past = datetime.now(UTC).isoformat()
        asked = [queries(arguments["text"], chance) for arguments in picked]
        new = [f"added-{count}-{os.urandom(4).hex()}-{number}" for number in range(calls)]
        rows = [
            timed(
                "remember",
                (lambda k=k: memory.remember(f"the {k} is so", key=f"{k}/city", value=k) for k in new),
            ),
            timed(
                "correct",
                (lambda k=k: memory.remember("it moved", key=f"{k}/city", value=f"{k} 2") for k in new),
            ),
            *(
                timed(f"recall, {kind}", (lambda q=q[kind]: memory.recall(q) for q in asked))
                for kind in KINDS
            ),
            timed("get", (lambda k=k: memory.get(k) for k in keys)),
            timed("as_of", (lambda k=k: memory.get(k, as_of=past) for k in keys)),
            timed("history", (lambda k=k: memory.history(k) for k in keys)),
            timed("status", (memory.status for _ in range(20))),
            timed("provenance", (lambda i=i: memory.provenance(i) for i in ids)),
            timed("receipt", (lambda i=i: memory.receipt(i) for i in ids)),
            timed("publish", iter([lambda: home.publish(600)])),
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if erasures:
            rows += forgets(home, [f"{key}/city" for key in new[:erasures]])
        rows += [clients(home, 8, calls)]
    rows += [processes(folder, 4, calls)]
    return {
        "facts": count,
        "bytes_a_fact": round(size / count),
        "peak_megabytes": round(peak / 1024),
        "operations": rows,
    }


def forgets(home: Home, keys: list[str]) -> list[dict[str, Any]]:
    """An erasure of a key as a whole, and what of its time is not the scan, which reads every file."""
    memory, scan, apart = home.memory(caller(0)), home.scan, []

    def timed_scan(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return scan(*args, **named)
        finally:
            apart.append(time.perf_counter() - began)

    def forget(key: str) -> None:
        memory.forget(key=key, confirm=memory.forget_preview(key=key)["confirm"])

    home.scan = timed_scan  # type: ignore[method-assign]
    row = timed("forget", (lambda k=k: forget(k) for k in keys))
    home.scan = scan  # type: ignore[method-assign]
    return [{**row, "scan_p50_ms": round(statistics.median(apart) * 1e3, 1)}]


def mixed(home: Home, name: str, calls: int) -> None:
    """A write, three recalls and a look-up, over and over."""
    memory = home.memory(caller(0))
    for number in range(calls // 4):
        said = fact(number)[1]
        memory.remember(said["text"], key=f"{name}/{number}", value=f"{name} {number}")
        for _ in range(3):
            memory.recall(" ".join(said["text"].split()[:3]))
        memory.get(f"{name}/{number}")


def clients(home: Home, count: int, calls: int) -> dict[str, Any]:
    """Operations a second of so many threads of one process, of which one in five is a write."""
    run = os.urandom(3).hex()
    threads = [threading.Thread(target=mixed, args=(home, f"{run}-{at}", calls)) for at in range(count)]
    began, processor = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done, seconds = count * (calls // 4) * 5, time.perf_counter() - began
    cost = (time.process_time() - processor) / done
    return {
        "operation": f"mixed, {count} clients",
        "a_second": round(done / seconds),
        "cpu_ms": round(cost * 1e3, 3),
    }


def _process(folder: str, name: str, calls: int) -> None:
    with open_home(folder) as home:
        mixed(home, name, calls)


def processes(folder: Path, count: int, calls: int) -> dict[str, Any]:
    """The same of so many processes."""
    context, run = multiprocessing.get_context("spawn"), os.urandom(3).hex()
    children = [
        context.Process(target=_process, args=(str(folder), f"{run}-{at}", calls)) for at in range(count)
    ]
    began = time.perf_counter()
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0, "a process failed"
    done, seconds = count * (calls // 4) * 5, time.perf_counter() - began
    return {"operation": f"mixed, {count} processes", "a_second": round(done / seconds)}


def show(result: dict[str, Any]) -> None:
    print(
        f"\n{result['facts']} facts: {result['bytes_a_fact']} bytes a fact on disk, "
        f"{result['peak_megabytes']} MB of memory at most"
    )
    print(f"{'':<22}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'cpu ms':>9}{'signatures':>12}")
    for row in result["operations"]:
        if "p50_ms" in row:
            times = "".join(f"{row[name]:>9.2f}" for name in ("p50_ms", "p95_ms", "p99_ms", "cpu_ms"))
            print(f"{row['operation']:<22}{times}{row['signatures']:>12.1f}")
        else:
            print(f"{row['operation']:<22}{row['a_second']:>9} a second")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--erasures", type=int, default=5, help="each reads the whole home")
    parser.add_argument("--homes", type=Path, help="where the stores are, or are made and stay")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--load", action="store_true", help="makes the stores and measures nothing")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    SHARES[:] = accumulate(1 / (number + 1) for number in range(args.tenants))
    if args.one:
        print(json.dumps(measure(args.homes, args.facts[0], args.calls, args.erasures)))
        return
    results = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        for count in args.facts:
            home = (args.homes or Path(folder)) / str(count)
            home.parent.mkdir(parents=True, exist_ok=True)
            load(home, count)
            if args.load:
                continue
            command = [sys.executable, __file__, "--one", "--homes", str(home)]
            command += ["--facts", str(count), "--calls", str(args.calls), "--tenants", str(args.tenants)]
            command += ["--erasures", str(args.erasures)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results.append(json.loads(done.stdout))
            show(results[-1])
    if args.json:
        about = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}",
            "load": os.getloadavg()[0],
            "command": f"python benchmarks/scale_rates.py --facts {' '.join(map(str, args.facts))}",
        }
        args.json.write_text(json.dumps({**about, "sizes": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
