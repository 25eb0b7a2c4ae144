"""What a call over HTTP costs the server, beside the same call of the facade, in one run and in turns.

    python benchmarks/http_rates.py [--facts N] [--calls N] [--rounds N]

A real `muniment serve` on this machine, asked with a token over kept connections by plain sockets: one caller after the
other's answer, and eight at once. CPU is that of the server's process, from the kernel; it counts where the machine has
other work, which makes rates a matter of luck. `healthz` is what HTTP costs without any of our work. The facade is
called in this process, on the same home.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from memory import tokens, wiring  # noqa: E402
from memory.model import SCOPES  # noqa: E402
from memory.principal import make_principal  # noqa: E402
from memory.service import Memory  # noqa: E402

PRINCIPAL = make_principal("bench", "agent", "client", SCOPES, authenticated=True)
AT_ONCE = 8
TICK = os.sysconf("SC_CLK_TCK")
Body = dict[str, object] | None
Request = Callable[[int], tuple[str, str, Body]]


def requests(facts: int) -> dict[str, Request]:
    """What is asked, by the number of the call."""
    written = iter(range(10**9))
    return {
        "healthz": lambda n: ("GET", "/healthz", None),
        "get": lambda n: ("POST", "/v1/get", {"key": f"service-{n % facts}/region"}),
        "recall": lambda n: ("POST", "/v1/recall", {"query": f"where does service-{n % facts} run"}),
        "remember": lambda n: ("POST", "/v1/facts", new_fact(next(written))),
    }


def new_fact(number: int) -> dict[str, object]:
    """A fact that there is not yet."""
    name = f"new-{os.getpid()}-{number}"
    return {
        "text": f"{name} runs in region-{number % 7}",
        "key": f"{name}/region",
        "value": f"region-{number % 7}",
    }


class Connection:
    """One kept connection, and no client library whose cost would be measured with the server's."""

    def __init__(self, address: str, token: str) -> None:
        host, port = address.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._head = (
            f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        )

    def ask(self, method: str, path: str, body: Body) -> int:
        """The status of the answer, once all of it was read."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n"
        self._socket.sendall(head.encode() + data)
        status, size = int(self._file.readline().split(b" ")[1]), 0
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        self._file.read(size)
        return status

    def close(self) -> None:
        """Ends it."""
        self._file.close()
        self._socket.close()


def cpu_seconds(process: int) -> float:
    """User and system time of a process and its threads so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def ask_many(address: str, token: str, request: Request, calls: int, at_once: int) -> float:
    """How many calls a second were answered, all of them well."""
    failures: list[int] = []

    def ask(first: int) -> None:
        connection = Connection(address, token)
        for number in range(first, calls, at_once):
            status = connection.ask(*request(number))
            if status not in (200, 201):
                failures.append(status)
        connection.close()

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(at_once)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    return calls / (time.perf_counter() - began)


def facade(memory: Memory, name: str, request: Request, calls: int) -> float:
    """CPU seconds of one call of the facade."""
    methods: dict[str, Callable[..., object]] = {
        "get": memory.get,
        "recall": memory.recall,
        "remember": memory.remember,
    }
    began = time.process_time()
    for number in range(calls):
        body = request(number)[2] or {}
        methods[name](**body)
    return (time.process_time() - began) / calls


def start(home: Path) -> tuple[subprocess.Popen[str], str, float]:
    """A server, its address, and the CPU seconds until it took connections."""
    command = [sys.executable, "-m", "memory.cli", "serve", "--json", "--home", str(home)]
    options = [
        "--listen",
        "127.0.0.1:0",
        "--rate",
        "1000000",
        "--burst",
        "1000000",
        "--publish-every",
        "3600",
    ]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["listening"]
    return process, address, cpu_seconds(process.pid)


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, wiring.open_home(Path(folder) / "home") as home:
        memory = home.memory(PRINCIPAL)
        for number in range(args.facts):
            memory.remember(f"service-{number} runs in region-{number % 7}", key=f"service-{number}/region",
                            value=f"region-{number % 7}")  # fmt: skip
        token = str(tokens.create(home, PRINCIPAL, None)["token"])
        process, address, started = start(home.path)
        asked = requests(args.facts)
        found: dict[str, list[tuple[float, ...]]] = {name: [] for name in asked}
        try:
            for _ in range(args.rounds):
                for name, request in asked.items():
                    alone = 0.0 if name == "healthz" else facade(memory, name, request, args.calls)
                    before = cpu_seconds(process.pid)
                    one = ask_many(address, token, request, args.calls, 1)
                    between = cpu_seconds(process.pid)
                    many = ask_many(address, token, request, args.calls, AT_ONCE)
                    after = cpu_seconds(process.pid)
                    found[name].append(
                        (one, many, (between - before) / args.calls, (after - between) / args.calls, alone)
                    )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    print(
        f"{args.facts} facts, {args.calls} calls, medians of {args.rounds} rounds, load {os.getloadavg()[0]:.1f}"
    )
    print(f"CPU until connections are taken: {started:.2f} s")
    print("call       calls/s: 1, 8 at once    server CPU ms/call: 1, 8 at once    facade CPU ms/call")
    for name, rows in found.items():
        one, many, cpu_one, cpu_many, alone = (median(column) for column in zip(*rows, strict=True))
        print(
            f"{name:<10} {one:8.0f} {many:8.0f} {cpu_one * 1e3:16.2f} {cpu_many * 1e3:8.2f} {alone * 1e3:16.2f}"
        )


if __name__ == "__main__":
    main()
