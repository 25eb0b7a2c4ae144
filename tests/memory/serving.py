"""A home served over HTTP in a thread of the test, or in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from memory import http_server, tokens
from memory.http_server import Serving
from memory.model import SCOPES
from memory.principal import make_principal
from memory.wiring import Home
from tlog import listener
from tlog.errors import Error

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PROBLEM = "application/problem+json"


def token_for(
    home: Home,
    agent: str = "agent",
    scopes: frozenset[str] = SCOPES,
    tenant: str = "acme",
    client: str = "desk",
    expires_at: int | None = None,
) -> str:
    principal = make_principal(tenant, agent, client, scopes, authenticated=True)
    return str(tokens.create(home, principal, expires_at)["token"])


def client_for(url: str, token: str | None = None, **options: Any) -> httpx.Client:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, **options)


@contextlib.contextmanager
def served(home: Home, monkeypatch: Any, **settings: Any) -> Iterator[dict[str, str]]:
    """The addresses of a server on this home, which is the one that `muniment serve` runs."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    servers: list[Any] = []
    original = listener.make_server

    def keep(*args: Any, **options: Any) -> Any:
        servers.append(original(*args, **options))
        return servers[-1]

    monkeypatch.setattr(listener, "make_server", keep)
    settings = {"listen": "127.0.0.1:0", "per_second": 1e5, "burst": 10**5, **settings}
    failures: list[Error] = []

    def run() -> None:
        try:
            http_server.serve_home(home, Serving(**settings), found.put)
        except Error as error:
            failures.append(error)
            found.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        addresses = found.get(timeout=30)
        if addresses is None:
            raise failures[0]
        yield addresses
    finally:
        for server in servers:
            server.should_exit = True
        thread.join()


@contextlib.contextmanager
def process(home: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-m", "memory.cli", "serve", "--json", "--home", str(home)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    made = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert made.stdout is not None
        yield made, str(json.loads(made.stdout.readline())["listening"])
    finally:
        made.kill()
        made.communicate()
