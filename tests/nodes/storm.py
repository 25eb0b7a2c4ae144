"""A storm over one memory: nodes, clients, and somebody who kills, stops and cuts; afterwards nothing may be wrong.

4 nodes of `muniment serve` over one database and one bucket, each behind proxies of its own
8 clients that write, and write again under the same idempotency key until they are answered
kill -9 of nodes; nodes that are stopped for longer than a lease; connections that are cut; keys
that are rotated meanwhile; the primary of the database killed, and its synchronous standby promoted
a watcher who reads the checkpoint as the public does, all the time
"""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import postgres_cluster
import seaweed
from aftermath import Written, require_right
from home_nodes import dsn, make_homes
from postgres_cluster import free_port
from proxy import Proxy

from memory.config import format_config, parse_config

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SHARED_KEYS = 3
START_SECONDS = 90.0


@dataclass
class Node:
    """One process of `muniment serve`, the proxies between it and what it needs, and its port."""

    home: Path
    port: int
    database: list[Proxy]
    bucket: Proxy
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.home.parent / f"{self.home.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "memory.cli", "serve", "--home", str(self.home), "--no-auth"),
                    *("--listen", f"127.0.0.1:{self.port}", "--publish-every", "0.7", "--rate", "100000"),
                ],
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env=self.environment,
            )

    def wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            assert self.process is not None and self.process.poll() is None, self.said()
            with suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            assert time.monotonic() < until, self.said()
            time.sleep(0.2)

    def said(self) -> str:
        return (self.home.parent / f"{self.home.name}.log").read_text("utf-8", "replace")[-3000:]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=8)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data[:1] == b"{" else data
        finally:
            connection.close()


class Client(threading.Thread):
    """Writes one fact after another, each until somebody answers it."""

    def __init__(self, number: int, nodes: list[Node], until: Callable[[], bool], seed: int) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.number = number
        self.written: list[Written] = []
        self.retries = 0
        self._nodes = nodes
        self._until = until
        self._random = random.Random(seed)

    def run(self) -> None:
        while not self._until():
            number = len(self.written)
            shared = self._random.random() < 0.3
            key = f"shared/{self._random.randrange(SHARED_KEYS)}" if shared else f"own-{self.number}/{number}"
            self.write(Written(key, f"v{self.number}-{number}"))
            time.sleep(self._random.uniform(0, 0.1))

    def write(self, one: Written) -> None:
        self.written.append(one)
        idempotency = {"Idempotency-Key": f'"{secrets.token_hex(16)}"'}
        body = {"text": f"{one.key} is {one.value}", "key": one.key, "value": one.value}
        for _ in range(600):
            node = self._random.choice(self._nodes)
            with suppress(OSError, http.client.HTTPException):
                status, answer = node.ask("POST", "/v1/facts", body, idempotency)
                if status < 500 and status != 429:
                    one.status, one.answer = status, answer
                    return
            self.retries += 1
            time.sleep(self._random.uniform(0.05, 0.4))
        raise AssertionError("a write was never answered")


class Watcher(threading.Thread):
    """Every checkpoint that the public could see, in the order in which it was there."""

    def __init__(self, bucket: Any, until: Callable[[], bool]) -> None:
        super().__init__(name="watcher", daemon=True)
        self.seen: list[bytes] = []
        self._bucket = bucket
        self._until = until

    def run(self) -> None:
        from tlog.errors import UnavailableError

        while not self._until():
            with suppress(UnavailableError):
                stood = self._bucket.get("checkpoint")
                if stood is not None and (not self.seen or self.seen[-1] != stood.data):
                    self.seen.append(stood.data)
            time.sleep(0.02)


@dataclass
class Storm:
    """All of it, running."""

    nodes: list[Node]
    primary: postgres_cluster.Server
    standbys: list[postgres_cluster.Server]
    bucket: Any
    random: random.Random
    did: Counter[str] = field(default_factory=Counter)

    def strike(self) -> None:
        """One thing that goes wrong, and that it is over."""
        node = self.random.choice(self.nodes)
        what = self.random.choice(("kill", "stop", "cut database", "cut bucket", "slow bucket", "rotate"))
        self.did[what] += 1
        if what == "kill":
            node.kill()
            time.sleep(self.random.uniform(0, 0.5))
            node.start()
        elif what == "stop":
            node.signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.5, 7.0))
            node.signal(signal.SIGCONT)
        elif what == "rotate":
            self.rotate(node)
        elif what == "slow bucket":
            node.bucket.delay_seconds = 0.3
            time.sleep(1.5)
            node.bucket.delay_seconds = 0.0
        else:
            for proxy in node.database if what == "cut database" else [node.bucket]:
                proxy.refusing = True
                proxy.cut()
            time.sleep(self.random.uniform(0.2, 2.0))
            for proxy in (*node.database, node.bucket):
                proxy.refusing = False

    def rotate(self, node: Node) -> None:
        """Another key signs from now on, on all nodes; or not yet, where the node that was asked is cut off."""
        use = self.random.choice(("issuer", "receipt"))
        done = subprocess.run(
            [sys.executable, "-m", "memory.cli", "log", "rotate", use, "--home", str(node.home)],
            capture_output=True,
            cwd=REPOSITORY,
            env=node.environment,
            timeout=60,
        )
        self.did["rotated" if done.returncode == 0 else "rotate later"] += 1

    def fail_over(self) -> None:
        """The primary is killed, and its standby takes its place."""
        if self.standbys:
            self.did["kill primary"] += 1
            self.primary.kill()
            self.primary = self.standbys.pop(0)
            self.primary.promote()

    def heal(self) -> None:
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            for proxy in (*node.database, node.bucket):
                proxy.refusing, proxy.delay_seconds = False, 0.0
            if node.process is None or node.process.poll() is not None:
                node.start()
        for node in self.nodes:
            node.wait()


Judge = Callable[[Storm, Path, list[Written], list[bytes]], None]

ROLES = (
    "CREATE ROLE muniment LOGIN NOINHERIT",
    "CREATE ROLE muniment_whole NOLOGIN",
    "GRANT muniment_whole TO muniment",
    "CREATE DATABASE memory OWNER muniment",
)


def gather(stack: ExitStack, folder: Path, seed: int, count: int = 4) -> Storm:
    """Everything that a storm needs, started."""
    primary, standbys = stack.enter_context(postgres_cluster.with_standbys(("one",)))
    with primary.connect() as connection:
        for statement in ROLES:
            connection.execute(statement)
    server = stack.enter_context(seaweed.running(folder / "seaweed"))
    os.environ.update(server.environment)
    ports = [primary.port, standbys[0].port]
    homes = make_homes(folder / "homes", count, dsn(ports), f"s3://{seaweed.BUCKET}/log")
    nodes = []
    for home in homes:
        database = [Proxy(port) for port in ports]
        bucket = Proxy(int(server.endpoint.rpartition(":")[2]))
        config = parse_config((home / "config.toml").read_bytes())
        settings = replace(config, database=dsn([proxy.port for proxy in database]))
        (home / "config.toml").write_bytes(format_config(settings))
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{bucket.port}",
            "PYTHONPATH": str(REPOSITORY),
            "MUNIMENT_TENANT": "storm",
        }
        nodes.append(Node(home, free_port(), database, bucket, environment))
        for proxy in (*database, bucket):
            stack.callback(proxy.close)
        stack.callback(nodes[-1].kill)
    bucket = seaweed.store_of(server, seaweed.BUCKET, "log")
    storm = Storm(nodes, primary, standbys, bucket, random.Random(seed))
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait()
    return storm


def nothing_more(_storm: Storm, _folder: Path, _written: list[Written], _seen: list[bytes]) -> None:
    return None


def run_storm(
    folder: Path, seed: int, seconds: float, clients: int = 8, afterwards: Judge = nothing_more
) -> dict[str, Any]:
    """What there was of it, once all that has to be true afterwards was found to be."""
    with ExitStack() as stack:
        storm = gather(stack, folder, seed)
        over, watched = threading.Event(), threading.Event()
        writers = [Client(number, storm.nodes, over.is_set, seed + number) for number in range(clients)]
        watcher = Watcher(storm.bucket, watched.is_set)
        for thread in (*writers, watcher):
            thread.start()
        until = time.monotonic() + seconds
        middle = time.monotonic() + seconds / 2
        while time.monotonic() < until:
            if time.monotonic() > middle:
                storm.fail_over()
            storm.strike()
        over.set()
        storm.heal()
        for writer in writers:
            writer.join(120)
            assert not writer.is_alive(), "a client still waits for its answer"
        last_publication(storm)
        watched.set()
        watcher.join()
        for node in storm.nodes:
            node.kill()
        seen = [*watcher.seen, storm.bucket.get("checkpoint").data]
        written = [one for writer in writers for one in writer.written]
        require_right(storm, folder, written, seen)
        afterwards(storm, folder, written, seen)
        return {
            "writes": sum(len(writer.written) for writer in writers),
            "retries": sum(writer.retries for writer in writers),
            "checkpoints": len(watcher.seen),
            **storm.did,
        }


def last_publication(storm: Storm) -> None:
    """Returns once somebody has published all that there is."""
    for _ in range(120):
        with suppress(OSError, http.client.HTTPException):
            if storm.random.choice(storm.nodes).ask("POST", "/v1/publish", {})[0] == 200:
                return
        time.sleep(0.5)
    raise AssertionError("nobody could publish once all was well again")
