"""What the MCP server costs a host: start, tool list, calls, tokens; beside two other memory servers.

    python benchmarks/surface_rates.py [--rounds 5] [--calls 300] [--alone]

The others are installed for the run, each in an environment of its own; `--alone` leaves them out. Each server is
spoken to by the same lines over stdio. CPU is that of the server's process as the system counts it, in ticks of
10 ms; wall times are of a machine that may have other work, so the load is said. Tokens are bytes of JSON through 3,
an estimate that is the same for all; a host shows a model the text or the structured part, so each is counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "interop")]

from installing import CannotInstall, environment, node_modules  # noqa: E402

INSPEXIMUS, REFERENCE = "inspeximus[mcp]==3.23.1", "@modelcontextprotocol/server-memory"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
SDK = "import mcp.server.lowlevel"
TICK = os.sysconf("SC_CLK_TCK")
FACTS = 100
SERVICES = ("checkout", "search", "billing", "mail", "login")


@dataclass(frozen=True)
class Server:
    """A memory server, how a fact is given to it, and how facts are asked for."""

    name: str
    command: list[str]
    write: Callable[[int], tuple[str, dict[str, Any]]]
    read: tuple[str, dict[str, Any]]
    environment: dict[str, str] = field(default_factory=dict)


class Stdio:
    """One server process, spoken to line by line."""

    def __init__(self, server: Server) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            server.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **server.environment},
        )
        self.number = 0

    def ask(self, method: str, params: dict[str, Any]) -> tuple[Any, int]:
        """The result of a request, and how many bytes its line had."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.number += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        while True:
            raw = self.process.stdout.readline()
            answer = json.loads(raw)
            if answer.get("id") == self.number:
                return answer["result"], len(raw)

    def begin(self) -> None:
        self.ask("initialize", HELLO)
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.process.stdin.flush()

    def tool(self, name: str, arguments: dict[str, Any]) -> tuple[Any, int]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def cpu(self) -> float:
        """Seconds of CPU of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def end(self) -> None:
        self.process.communicate(timeout=30)


@contextmanager
def running(server: Server) -> Iterator[Stdio]:
    one = Stdio(server)
    try:
        yield one
    finally:
        one.end()


def text_of(number: int) -> tuple[str, str, str]:
    """A fact as a sentence, with its key and value."""
    service = f"{SERVICES[number % len(SERVICES)]}-{number // len(SERVICES)}"
    value = f"eu-west-{number % 7}"
    return (
        f"The {service} service runs in the region {value} since the move in spring.",
        f"{service}/region",
        value,
    )


def ours(home: Path) -> Server:
    def write(number: int) -> tuple[str, dict[str, Any]]:
        text, key, value = text_of(number)
        return "remember", {"text": text, "key": key, "value": value}

    command = [sys.executable, "-m", "memory.cli", "mcp", "--home", str(home)]
    read = ("recall", {"query": "which region does the checkout service run in", "limit": 10})
    return Server("muniment", command, write, read, {"PYTHONPATH": str(REPOSITORY)})


def inspeximus(folder: Path) -> Server:
    def write(number: int) -> tuple[str, dict[str, Any]]:
        text, key, _ = text_of(number)
        return "remember", {"text": text, "key": key.replace("/", "::")}

    bin = environment(folder / "inspeximus", INSPEXIMUS)
    read = ("recall", {"query": "which region does the checkout service run in", "k": 10})
    home = {"HOME": str(folder), "INSPEXIMUS_PATH": str(folder / "store.json")}
    return Server("inspeximus-mcp 3.23.1", [str(bin / "inspeximus-mcp")], write, read, home)


def reference(folder: Path) -> Server:
    def write(number: int) -> tuple[str, dict[str, Any]]:
        text, key, _ = text_of(number)
        entity = {"name": key.partition("/")[0], "entityType": "service", "observations": [text]}
        return "create_entities", {"entities": [entity]}

    place = node_modules(folder, REFERENCE) / "node_modules" / REFERENCE
    version = json.loads((place / "package.json").read_text())["version"]
    command = ["node", str(place / "dist" / "index.js")]
    # It finds what contains the query, so it is asked for a word.
    read = ("search_nodes", {"query": "checkout"})
    where = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    return Server(f"server-memory {version}", command, write, read, where)


# What is measured


def starts(server: Server, rounds: int) -> list[float]:
    """Medians: wall and CPU to the first answer, wall and CPU to the tool list, in milliseconds."""
    found = []
    for _ in range(rounds):
        with running(server) as one:
            one.begin()
            first = (time.perf_counter() - one.began, one.cpu())
            one.ask("tools/list", {})
            found.append((*first, time.perf_counter() - one.began, one.cpu()))
    return [statistics.median(column) * 1000 for column in zip(*found, strict=True)]


def beside_the_sdk(server: Server, rounds: int) -> tuple[float, float, float]:
    """CPU of importing the SDK, of importing our server, and to our first answer, in turns; medians in milliseconds."""
    found = []
    for _ in range(rounds):
        sdk, own = importing(SDK), importing("import memory.mcp_stdio")
        with running(server) as one:
            one.begin()
            found.append((sdk, own, one.cpu() * 1000))
    sdk, own, first = (statistics.median(column) for column in zip(*found, strict=True))
    return sdk, own, first


def importing(code: str) -> float:
    """CPU of a process that imports something, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def calls(server: Server, count: int) -> dict[str, float]:
    """Calls a second, one after the other, with the CPU that each costs the server, after FACTS facts are in it."""
    with running(server) as one:
        one.begin()
        began, spent = time.perf_counter(), one.cpu()
        for number in range(FACTS):
            one.tool(*server.write(number))
        writes = FACTS / (time.perf_counter() - began), (one.cpu() - spent) / FACTS * 1000
        began, spent = time.perf_counter(), one.cpu()
        for _ in range(count):
            one.tool(*server.read)
        reads = count / (time.perf_counter() - began), (one.cpu() - spent) / count * 1000
    return {"writes": writes[0], "write_ms": writes[1], "reads": reads[0], "read_ms": reads[1]}


def tokens(server: Server) -> dict[str, int]:
    """Tokens of the tool list, of the answer to a write and to a question; the last also as the line that was sent."""
    with running(server) as one:
        one.begin()
        listed, _ = one.ask("tools/list", {})
        written, _ = one.tool(*server.write(FACTS + 1))
        read, size = one.tool(*server.read)
    return {
        "tools": len(listed["tools"]),
        "list": _tokens(json.dumps(listed["tools"], separators=(",", ":"))),
        "write": _tokens(written["content"][0]["text"]),
        "read": _tokens("".join(one["text"] for one in read["content"])),
        "read_bytes": size,
    }


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // 3)


def over_http(home: Path, count: int) -> tuple[float, float]:
    """Reads a second over HTTP on one kept connection, and the CPU that each costs the server, in milliseconds."""
    import httpx

    secret = "a secret of this run alone"
    command = [sys.executable, "-m", "memory.cli", "mcp", "--home", str(home), "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MUNIMENT_MCP_SECRET": secret},
    )
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    name, arguments = ours(home).read
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": f"Bearer {secret}",
        "Accept": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    try:
        with httpx.Client(headers=headers) as client:
            assert client.post(url, json=body).status_code == 200
            began, spent = time.perf_counter(), _cpu_of(process.pid)
            for _ in range(count):
                client.post(url, json=body)
            return count / (time.perf_counter() - began), (_cpu_of(process.pid) - spent) / count * 1000
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="starts of each server")
    parser.add_argument("--calls", type=int, default=300, help="reads of each server")
    parser.add_argument("--alone", action="store_true", help="without the other servers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="surface-") as place:
        folder = Path(place)
        servers = [ours(folder / "home")]
        for make in () if args.alone else (inspeximus, reference):
            own = folder / make.__name__
            (own / make.__name__).mkdir(parents=True)
            try:
                servers.append(make(own))
            except CannotInstall as reason:
                print(f"{make.__name__}: left out, {reason}", file=sys.stderr)
        show(servers, folder / "home", args)


def show(servers: list[Server], home: Path, args: argparse.Namespace) -> None:
    """Prints the tables of docs/benchmarks/surface_rates.md."""
    rates = {server.name: calls(server, args.calls) for server in servers}
    print("| | first answer, wall ms | CPU ms | tool list, wall ms | CPU ms |\n|---|---|---|---|---|")
    for server in servers:
        print(f"| {server.name} | " + " | ".join(f"{one:.0f}" for one in starts(server, args.rounds)) + " |")
    sdk, own, first = beside_the_sdk(servers[0], args.rounds)
    print(
        f"\nCPU ms: import of the SDK {sdk:.0f}, of our server with it {own:.0f}, to our first answer {first:.0f}"
    )
    print("\n| | writes/s | CPU ms each | reads/s | CPU ms each |\n|---|---|---|---|---|")
    for name, one in rates.items():
        row = f"{one['writes']:.0f} | {one['write_ms']:.1f} | {one['reads']:.0f} | {one['read_ms']:.1f}"
        print(f"| {name}, stdio | {row} |")
    reads, cpu = over_http(home, args.calls)
    print(f"| muniment, HTTP | | | {reads:.0f} | {cpu:.1f} |")
    print("\n| | tools | tokens of the list | of a write's answer | of ten facts | bytes of that line |")
    print("|---|---|---|---|---|---|")
    for server in servers:
        found = tokens(server)
        row = (
            f"{found['tools']} | {found['list']} | {found['write']} | {found['read']} | {found['read_bytes']}"
        )
        print(f"| {server.name} | {row} |")
    print(f"\nload: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
