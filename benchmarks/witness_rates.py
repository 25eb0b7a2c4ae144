"""How many heads a witness cosigns a second, ours and aics-witness in turns, in one run.

    python benchmarks/witness_rates.py [--rounds N] [--seconds S] [--memory REQUESTS] [--only-ours]

`--rounds 0 --only-ours --memory 1000000` measures no rates, only what is resident while a million heads go by.

Every request is a head that grows its log by one entry, signed and proved, so each one has to be judged, cosigned and
durably stored before it is answered; a request counts when it is answered 200. Bodies are made before the clock runs.
aics-witness is installed from the package index for the run, in a folder of its own (Python 3.12 or newer), unless
AICS_WITNESS names its program; where it can't be had, ours is measured alone.

Rows: one log whose heads are sent one after another; one log that has a head under way on every connection; 1,000
logs in turn. Requests that arrive at ours together share one commit, those of one log too; aics-witness commits each.
Other work on the machine slows ours more than a peer that mostly waits: as root, `nice -n -15` before the command
keeps it away from both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "interop")]

import apsw  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from installing import CannotInstall  # noqa: E402
from installing import environment as make_environment  # noqa: E402

from tlog import merkle  # noqa: E402
from tlog.ascii import encode_base64  # noqa: E402
from tlog.note import SignatureType, VerifierKey, make_verifier_key  # noqa: E402

PEER = "aics-witness==0.1.0"
LOGS = 1000
NAME = "bench.invalid/log-{}"
KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)


class Tree:
    """A growing tree that every benchmarked log shares: roots, and the proof from each size to the next."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._steps: dict[int, tuple[str, str]] = {}

    def step(self, size: int) -> tuple[str, str]:
        """The proof lines from `size` to the next, and the next root, as they stand in a request."""
        if size not in self._steps:
            proof = merkle.prove_consistency(size, size + 1, self._read)
            root = merkle.tree_root(size + 1, self._read)
            self._steps[size] = "".join(f"{encode_base64(one)}\n" for one in proof), encode_base64(root)
        return self._steps[size]

    def _read(self, nodes: Sequence[merkle.Node]) -> list[bytes]:
        return [self._node(*node) for node in nodes]

    def _node(self, level: int, index: int) -> bytes:
        found = self._nodes.get((level, index))
        if found is None:
            found = (
                merkle.node_hash(self._node(level - 1, 2 * index), self._node(level - 1, 2 * index + 1))
                if level
                else merkle.leaf_hash(b"%d" % index)
            )
            self._nodes[level, index] = found
        return found


TREE = Tree()


@cache
def verifier(origin: str) -> VerifierKey:
    """The key of a log; all have the same key under their own name."""
    return make_verifier_key(origin, SignatureType.ED25519, KEY.public_key().public_bytes_raw())


def request(origin: str, size: int) -> bytes:
    """The whole HTTP request for the head of `size` + 1 after that of `size`."""
    proof, root = TREE.step(size)
    text = f"{origin}\n{size + 1}\n{root}\n"
    line = encode_base64(verifier(origin).key_id + KEY.sign(text.encode()))
    body = f"old {size}\n{proof}\n{text}\n\u2014 {origin} {line}\n".encode()
    head = f"POST /add-checkpoint HTTP/1.1\r\nhost: witness\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass
class Server:
    """A running witness, and the size to which each log has grown there."""

    name: str
    port: int
    pid: int
    sizes: dict[str, int] = field(default_factory=dict)

    def next_requests(self, origins: list[str], count: int) -> Iterator[bytes]:
        """The next heads of these logs, one of each in turn."""
        for number in range(count):
            origin = origins[number % len(origins)]
            size = self.sizes.get(origin, 0)
            self.sizes[origin] = size + 1
            yield request(origin, size)

    def cpu_seconds(self) -> float:
        """What the process has computed so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """What the process has resident now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


@dataclass(frozen=True)
class Load:
    """Which logs grow, over how many connections, and how many requests are under way at a time.

    `at_once`: a log has several heads under way, each built on the one before it.
    """

    name: str
    origins: list[str]
    connections: int
    under_way: int
    at_once: bool = False


@dataclass
class Connection:
    """One connection, and the request under way on it."""

    socket: socket.socket
    number: int = 0
    began: float = 0.0
    received: bytes = b""

    def send(self, request: bytes, number: int, began: float) -> None:
        """Sends one request; `began` is when it was first sent."""
        self.number, self.began, self.received = number, began, b""
        self.socket.sendall(request)


@dataclass
class Outcome:
    """What one run of requests gave."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def drive(port: int, load: Load, requests: list[bytes]) -> Outcome:
    """Sends every request, and measures until each is answered 200.

    A 409 is allowed where the heads of one log are sent at once: a head that overtook the one before it is sent
    again when that was answered. Its latency counts from the first time.
    """
    selector = selectors.DefaultSelector()
    free = deque(Connection(socket.create_connection(("127.0.0.1", port))) for _ in range(load.connections))
    for connection in free:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    outcome = Outcome()
    answered = bytearray(len(requests))
    waiting: dict[int, Connection] = {}
    following, left = 0, len(requests)
    began = time.perf_counter()
    while left:
        while following < len(requests) and load.connections - len(free) < load.under_way:
            free.popleft().send(requests[following], following, time.perf_counter())
            following += 1
        for key, _ in selector.select(30):
            connection = key.data
            connection.received += connection.socket.recv(65536)
            status = complete_status(connection.received)
            if status is None:
                continue
            number = connection.number
            outcome.statuses[status] = outcome.statuses.get(status, 0) + 1
            if status == 409 and load.at_once:
                if number == 0 or answered[number - 1]:
                    connection.send(requests[number], number, connection.began)
                else:
                    waiting[number - 1] = connection
                continue
            if status != 200:
                raise SystemExit(f"answered with {status}: {connection.received[:500]!r}")
            outcome.latencies.append(time.perf_counter() - connection.began)
            answered[number] = 1
            left -= 1
            free.append(connection)
            if number in waiting:
                blocked = waiting.pop(number)
                blocked.send(requests[blocked.number], blocked.number, blocked.began)
    outcome.seconds = time.perf_counter() - began
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    selector.close()
    return outcome


def complete_status(data: bytes) -> int | None:
    """The status of an answer that has arrived whole."""
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return None
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(head.split(b" ", 2)[1]) if len(body) >= int(line[15:]) else None
    raise SystemExit(f"an answer without a length: {head!r}")


@contextmanager
def running(command: list[str], cwd: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def ours(folder: Path) -> Iterator[Server]:
    """Our witness, with all logs imported."""
    command = [sys.executable, "-m", "memory.cli", "witness"]
    environment = {"PYTHONPATH": str(REPOSITORY)}

    def run(*arguments: str) -> None:
        subprocess.run(
            [*command, *arguments, "--state", str(folder / "state")],
            check=True,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
        )

    run("init", "--name", "ours.bench.invalid/w")
    entries = [f"vkey {verifier(origin).vkey}\nqpd 2147483647\ncontact nobody\n" for origin in origins()]
    (folder / "logs").write_text("logs/v0\n" + "".join(entries))
    run("import-logs", str(folder / "logs"))
    serve = [*command, "serve", "--state", str(folder / "state"), "--listen", "127.0.0.1:0", "--json"]
    with running(serve, folder, environment) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["listening"]
        yield Server("muniment", int(url.rpartition(":")[2]), process.pid)


@contextmanager
def peer(folder: Path) -> Iterator[Server]:
    """aics-witness, in an environment of its own, with all logs in its configuration."""
    program = os.environ.get("AICS_WITNESS") or str(
        make_environment(folder, PEER, "3.12", "3.13", "3.14") / "aics-witness"
    )
    configuration = folder / "w.json"
    options = {
        "--config": configuration,
        "--name": "peer.bench.invalid/w",
        "--db": "p.db",
        "--key-file": "p.key",
    }
    subprocess.run(
        [program, "init", *(str(word) for option in options.items() for word in option)],
        check=True,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    document = json.loads(configuration.read_text())
    document["logs"] = [{"origin": origin, "vkeys": [verifier(origin).vkey]} for origin in origins()]
    configuration.write_text(json.dumps(document))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = [program, "serve", "--config", str(configuration), "--listen", f"127.0.0.1:{port}"]
    with running(serve, folder, {}) as process:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield Server("aics-witness", port, process.pid)


def origins() -> list[str]:
    return [NAME.format(number) for number in range(LOGS + 3)]


LOADS = (
    Load("one log, in turn", [NAME.format(LOGS)], 1, 1),
    Load("one log, in turn", [NAME.format(LOGS + 1)], 16, 1),
    Load("one log, at once", [NAME.format(LOGS + 2)], 16, 16, True),
    Load("1,000 logs", [NAME.format(number) for number in range(LOGS)], 1, 1),
    Load("1,000 logs", [NAME.format(number) for number in range(LOGS)], 16, 16),
)


def measure(server: Server, load: Load, seconds: float, rate: float) -> Outcome:
    """One run that takes about so many seconds at such a rate."""
    requests = list(server.next_requests(load.origins, max(50, int(rate * seconds))))
    before = server.cpu_seconds()
    outcome = drive(server.port, load, requests)
    outcome.cpu_seconds = server.cpu_seconds() - before
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--memory", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--only-ours", action="store_true")
    args = parser.parse_args()
    print(
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.machine()},"
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, priority {os.getpriority(os.PRIO_PROCESS, 0)}"
    )
    with tempfile.TemporaryDirectory(prefix="witness-rates-") as place, ExitStack() as stack:
        folders = [Path(place) / name for name in ("ours", "peer")]
        for folder in folders:
            folder.mkdir(mode=0o700)
        servers = [stack.enter_context(ours(folders[0]))]
        if not args.only_ours:
            try:
                servers.append(stack.enter_context(peer(folders[1])))
            except CannotInstall as reason:
                print(f"skipped: {reason}")
        found: dict[tuple[int, str], list[Outcome]] = {}
        for _ in range(args.rounds + 1 if args.rounds else 0):
            for index, load in enumerate(LOADS):
                for server in servers:
                    before = found.setdefault((index, server.name), [])
                    rate = before[-1].rate if before else 0.0
                    before.append(measure(server, load, args.seconds, rate))
        if found:
            show(found, servers)
        if args.memory:
            memory(servers[0], args.memory)
    return 0


def show(found: dict[tuple[int, str], list[Outcome]], servers: list[Server]) -> None:
    """The table: medians over the rounds but the first, which found out the rates; and how often the peer's."""
    print(
        f"{'load':<17} {'connections':>11} {'witness':<13} {'200 a second':>12} {'p50 ms':>7} {'p99 ms':>7}"
        f" {'CPU ms each':>11} {'409s':>6} {'times':>6}"
    )
    for index, load in enumerate(LOADS):
        rates = {}
        for server in servers:
            runs = found[index, server.name][1:]
            rate = rates[server.name] = median(one.rate for one in runs)
            p50, p99 = (median(one.percentile(share) for one in runs) * 1000 for share in (0.5, 0.99))
            cpu = median(one.cpu_seconds / len(one.latencies) for one in runs) * 1000
            conflicts = sum(one.statuses.get(409, 0) for one in runs)
            times = f"{rates['muniment'] / rate:.1f}" if server.name != "muniment" else ""
            print(
                f"{load.name:<17} {load.connections:>11} {server.name:<13} {rate:12.0f} {p50:7.2f} {p99:7.2f}"
                f" {cpu:11.2f} {conflicts:>6} {times:>6}"
            )


def memory(server: Server, requests: int) -> None:
    """What our witness has resident before any request of this run, and after each twentieth of them."""
    done, step = 0, max(1000, requests // 20)
    began = time.perf_counter()
    print(f"after {done:>9,} requests: {server.memory_bytes() / 1e6:6.1f} MB resident", flush=True)
    while done < requests:
        drive(server.port, LOADS[-1], list(server.next_requests(LOADS[-1].origins, step)))
        done += step
        seconds = time.perf_counter() - began
        print(
            f"after {done:>9,} requests: {server.memory_bytes() / 1e6:6.1f} MB resident, {seconds:5.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
