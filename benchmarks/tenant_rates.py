"""A thousand tenants of a thousand facts: what operations cost on SQLite and PostgreSQL at one, two and four nodes.

    python benchmarks/tenant_rates.py [--tenants 1000] [--facts 1000] [--nodes 1 2 4] [--folder DIR] [--json FILE]

The facts go through the path of an import, 500 to a call, by two processes; a load that is cut short goes on where
it was, if the folder is given. Each node is a process with the facade and no HTTP around it; each call is of a tenant
drawn anew, the n-th as often as one n-th of the first. A PostgreSQL server of its own, with durable commits, is
started on loopback. Processor time is that of the nodes and of the server, so it says something on a machine that
does other things too; rates and percentiles are of the wall, and do not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "servers"), str(ROOT / "tests" / "nodes")]

import postgres_cluster  # noqa: E402
from node_rates import server_seconds  # noqa: E402
from scale_rates import PARTS, WEIGHTS, WORDS  # noqa: E402
from storm import ROLES  # noqa: E402

from memory import wiring  # noqa: E402
from memory.principal import agent_from_environment  # noqa: E402
from memory.remember_many import remember_many  # noqa: E402

A_CALL = 500
LOADERS = 2
ENGINES = ("sqlite", "postgres")


def principal(tenant: int) -> Any:
    return agent_from_environment({"MUNIMENT_TENANT": f"tenant-{tenant}"})


def said(tenant: int, number: int) -> dict[str, str]:
    """A fact of a tenant; one in five says something else of the key of the one before it."""
    chance = random.Random(tenant * 1_000_003 + number)
    drawn = chance.choices(WORDS, cum_weights=WEIGHTS, k=12)
    about = number - 1 if number % 5 == 4 else number
    key, value = f"person-{about}/{PARTS[about % len(PARTS)]}", f"{drawn[0]} {drawn[1]} {number}"
    return {"text": f"{' '.join(drawn[2:])}: the {key} is {value}", "key": key, "value": value}


def load(home: str, tenants: range, facts: int) -> None:
    """Returns once each of the tenants has its facts."""
    with wiring.open_existing_home(home) as opened:
        parts, caller = opened.parts(), [principal(tenant) for tenant in tenants]
        for at, tenant in enumerate(tenants):
            known = opened.memory(caller[at]).status()["facts"]
            done = sum(known.get(name, 0) for name in ("active", "superseded", "conflict", "retracted"))
            while done < facts:
                upto = min(done + A_CALL, facts)
                kept = remember_many(parts, [(caller[at], said(tenant, n)) for n in range(done, upto)])
                for one in kept:
                    if isinstance(one, Exception):
                        raise one
                done = upto


def timed(calls: Iterator[Callable[[], Any]], server: int) -> dict[str, Any]:
    """What the calls took: seconds of each, of the processor, and of the server's."""
    times, began, processor, served = [], time.perf_counter(), time.process_time(), server_seconds_of(server)
    for call in calls:
        at = time.perf_counter()
        call()
        times.append(time.perf_counter() - at)
    return {
        "times": times,
        "wall": time.perf_counter() - began,
        "cpu": time.process_time() - processor,
        "server": server_seconds_of(server) - served,
    }


def server_seconds_of(server: int) -> float:
    return server_seconds(server) if server else 0.0


def node(home: str, server: int, tenants: int, facts: int, calls: int) -> None:
    """Waits for a line, then does each operation so many times; says what that took, as JSON."""
    chance, run = random.Random(os.urandom(8)), os.urandom(4).hex()
    shares = list(accumulate(1 / (number + 1) for number in range(tenants)))
    with wiring.open_existing_home(home) as opened:
        memories = {}
        picked = []
        for _ in range(calls):
            tenant = bisect(shares, chance.random() * shares[-1])
            memory = memories.setdefault(tenant, opened.memory(principal(tenant)))
            picked.append((memory, said(tenant, chance.randrange(facts))))
        ids = [memory.history(fact["key"])["facts"][0]["id"] for memory, fact in picked]
        past = datetime.now(UTC).isoformat()
        print("ready", flush=True)
        sys.stdin.readline()
        operations: dict[str, Callable[[int, Any, Any], Any]] = {
            "remember": lambda at, memory, _: memory.remember(
                f"{run} is at {at}", key=f"{run}-{at}/city", value=f"city {at}"
            ),
            "correct": lambda at, memory, _: memory.remember(
                f"{run} moved from {at}", key=f"{run}-{at}/city", value=f"town {at}"
            ),
            "recall": lambda _, memory, fact: memory.recall(" ".join(fact["text"].split()[:5])),
            "get": lambda _, memory, fact: memory.get(fact["key"]),
            "as_of": lambda _, memory, fact: memory.get(fact["key"], as_of=past),
            "history": lambda _, memory, fact: memory.history(fact["key"]),
            "provenance": lambda at, memory, _: memory.provenance(ids[at]),
            "receipt": lambda at, memory, _: memory.receipt(ids[at]),
        }
        told = {
            name: timed((partial(operations[name], at, *one) for at, one in enumerate(picked)), server)
            for name in operations
        }
    print(json.dumps(told), flush=True)


def measure(home: Path, server: int, nodes: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every operation at so many nodes, which begin together."""
    command = [sys.executable, __file__, "--role", "node", "--home", str(home), "--server", str(server)]
    command += [
        "--tenants",
        str(args.tenants),
        "--facts",
        str(args.facts),
        "--calls",
        str(args.calls // nodes),
    ]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(nodes)
    ]
    for one in started:
        assert one.stdout is not None and one.stdout.readline() == "ready\n", "a node did not begin"
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [json.loads(one.communicate()[0]) for one in started]
    rows = []
    for name in told[0]:
        times = sorted(seconds for one in told for seconds in one[name]["times"])
        # Each node saw what the server did for all of them in its own time.
        served = sum(one[name]["server"] for one in told) / nodes
        rows.append(
            {
                "operation": name,
                "a_second": round(sum(len(one[name]["times"]) / one[name]["wall"] for one in told)),
                **{f"p{at}_ms": round(times[len(times) * at // 100] * 1e3, 2) for at in (50, 95, 99)},
                "node_ms": round(sum(one[name]["cpu"] for one in told) / len(times) * 1e3, 2),
                "server_ms": round(served / len(times) * 1e3, 2),
            }
        )
    return rows


@contextmanager
def engine(name: str, folder: Path) -> Iterator[tuple[Path, int]]:
    """A home on this engine, and the process of its server or 0."""
    home = folder / name
    if name == "sqlite":
        if not home.exists():
            wiring.init_home(home).close()
        yield home, 0
        return
    cluster, port = folder / "cluster", folder / "port"
    new = not port.exists()
    if new:
        shutil.rmtree(cluster, ignore_errors=True)
        cluster.mkdir()
        folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(cluster, "nobody")
        server = postgres_cluster.init(cluster / "primary")
    else:
        server = postgres_cluster.Server(cluster / "primary", int(port.read_text()))
    server.start("fsync=on", "full_page_writes=on", "shared_buffers=256MB", "max_wal_size=4GB")
    try:
        if new:
            with server.connect() as connection:
                for statement in ROLES:
                    connection.execute(statement)
            port.write_text(str(server.port))
        dsn = f"host=127.0.0.1 port={server.port} dbname=memory user=muniment"
        if not home.exists():
            wiring.init_home(home, database=dsn).close()
        assert server.process is not None
        yield home, server.process.pid
    finally:
        server.kill()


def run(name: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The engine's home filled, published and measured at each number of nodes."""
    with engine(name, folder) as (home, server):
        began, cuts = time.perf_counter(), [args.tenants * at // LOADERS for at in range(LOADERS + 1)]
        command = [
            sys.executable,
            __file__,
            "--role",
            "load",
            "--home",
            str(home),
            "--facts",
            str(args.facts),
        ]
        loaders = [
            subprocess.Popen([*command, "--of", str(cuts[at]), str(cuts[at + 1])]) for at in range(LOADERS)
        ]
        assert [one.wait() for one in loaders] == [0] * LOADERS, "a load failed"
        print(f"{name}: loaded in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        with wiring.open_existing_home(str(home)) as opened:
            began = time.perf_counter()
            opened.publish(7200)
        print(f"{name}: published in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        results: list[dict[str, Any]] = []
        for nodes in () if args.load else args.nodes:
            results.append({"engine": name, "nodes": nodes, "operations": measure(home, server, nodes, args)})
            show(results[-1])
        return results


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['engine']}, {result['nodes']} nodes")
    print(f"{'':<12}{'a second':>9}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'node ms':>9}{'server ms':>11}")
    for row in result["operations"]:
        figures = "".join(f"{row[name]:>9.2f}" for name in ("p50_ms", "p95_ms", "p99_ms", "node_ms"))
        print(f"{row['operation']:<12}{row['a_second']:>9}{figures}{row['server_ms']:>11.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--facts", type=int, default=1000, help="of each tenant")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--calls", type=int, default=400, help="of each operation, of all nodes together")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--folder", type=Path, help="where the homes are, or are made and stay")
    parser.add_argument("--load", action="store_true", help="makes the homes and measures nothing")
    parser.add_argument("--json", type=Path)
    for hidden, kind in (("--role", str), ("--home", str), ("--server", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "load":
        load(args.home, range(*args.of), args.facts)
        return
    if args.role == "node":
        node(args.home, args.server, args.tenants, args.facts, args.calls)
        return
    with tempfile.TemporaryDirectory(prefix="tenants-") as made:
        folder = args.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        results = [one for name in args.engines for one in run(name, folder, args)]
    print(f"load {os.getloadavg()[0]:.1f}")
    if args.json:
        about = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}",
            "tenants": args.tenants,
            "facts": args.facts,
            "load": os.getloadavg()[0],
        }
        args.json.write_text(json.dumps({**about, "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
