"""What a fact costs on PostgreSQL, at one, two and four nodes: processor time of nodes and server, bytes, and rates.

    python benchmarks/node_rates.py [--facts 2000] [--tenants 20] [--nodes 1 2 4]

Each node is a process with the facade and no HTTP around it; it writes to tenants of its own.
A PostgreSQL server of its own, with durable commits, is started on loopback. Processor time is that of the processes
that are measured, so it says something on a machine that does other things too; the wall does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "servers"), str(ROOT / "tests" / "nodes")]

import postgres_cluster  # noqa: E402
from storm import ROLES  # noqa: E402

from memory import wiring  # noqa: E402
from memory.principal import agent_from_environment  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")


def node(home: str, server: int, number: int, facts: int, tenants: int) -> None:
    """Writes and reads; says what it took, as JSON."""
    with wiring.open_existing_home(home) as opened:
        memories = [
            opened.memory(agent_from_environment({"MUNIMENT_TENANT": f"t{number}-{at}"}))
            for at in range(tenants)
        ]
        for memory in memories:
            memory.remember("begun", key="begun", value="1")
        told = {}
        for what in ("remember", "correct", "get", "recall"):
            wall, processor, served = time.perf_counter(), time.process_time(), server_seconds(server)
            for at in range(facts):
                memory, key = memories[at % tenants], f"service-{at}/region"
                if what in ("remember", "correct"):
                    value = f"region {at % 40}" if what == "remember" else f"zone {at % 40}"
                    memory.remember(f"service {at} runs in {value} since the last move", key=key, value=value)
                elif what == "get":
                    memory.get(key)
                else:
                    memory.recall(f"where does service {at} run", limit=10)
            took = time.perf_counter() - wall, time.process_time() - processor
            told[what] = (*took, server_seconds(server) - served)
    print(json.dumps(told))


def server_seconds(server: int) -> float:
    """Processor time of the server and of all its children that there were."""
    total = 0
    for pid in (server, *Path(f"/proc/{server}/task/{server}/children").read_text().split()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15] if pid == server else fields[11:13]))
    return total / TICKS


def measure(
    server: postgres_cluster.Server, home: Path, nodes: int, args: argparse.Namespace, first: int
) -> None:
    assert server.process is not None
    command = [sys.executable, __file__, "--node", str(home), "--server", str(server.process.pid)]
    shape = ["--facts", str(args.facts // nodes), "--tenants", str(max(args.tenants // nodes, 1))]
    started = [
        subprocess.Popen([*command, "--number", str(first + at), *shape], stdout=subprocess.PIPE)
        for at in range(nodes)
    ]
    told = [json.loads(one.communicate()[0]) for one in started]
    each = args.facts // nodes
    print(f"{nodes} nodes")
    for what in told[0]:
        rate = sum(each / one[what][0] for one in told)
        cpu = sum(one[what][1] for one in told) / (each * nodes)
        # Each node saw what the server did for all of them in its own time.
        served = sum(one[what][2] for one in told) / nodes / (each * nodes)
        print(
            f"  {what:9} {rate:7.0f} a second (wall)   {1e3 * cpu:6.2f} ms of processor of the node,"
            f" {1e3 * served:6.2f} of the server",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=2000)
    parser.add_argument("--tenants", type=int, default=20)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--node", help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.node:
        node(args.node, args.server, args.number, args.facts, args.tenants)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_cluster.running("fsync=on", "full_page_writes=on") as server,
    ):
        with server.connect() as connection:
            for statement in ROLES:
                connection.execute(statement)
        home = Path(folder) / "home"
        dsn = f"host=127.0.0.1 port={server.port} dbname=memory user=muniment"
        wiring.init_home(home, database=dsn).close()
        first = 0
        for nodes in args.nodes:
            measure(server, home, nodes, args, first)
            first += nodes
        with server.connect("memory") as connection:
            (size,), (facts,) = (
                connection.execute(query).fetchone()
                for query in ("SELECT pg_database_size('memory')", "SELECT count(*) FROM muniment.facts")
            )
            print(f"{size / facts:.0f} bytes a fact in the database, {facts} facts, before any vacuum")
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
