"""Servers of MCP as processes of their own, over stdio and over HTTP, and clients that speak to them line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
MODERN: Final = "2026-07-28"
SECRET: Final = "a secret of this test alone"
_PREFIX: Final = "io.modelcontextprotocol/"
HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "MUNIMENT_MCP_SECRET": SECRET, **more}


class Stdio:
    """A server over stdio, and one client that speaks to it line by line."""

    def __init__(self, home: Path, *command: str) -> None:
        run = command or ("-m", "memory.cli", "mcp", "--home", str(home))
        self.process = subprocess.Popen(
            [sys.executable, *run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        self.lines: list[bytes] = []

    def write(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server ended"
        self.lines.append(line)
        return dict(json.loads(line))

    def ask(self, method: str, params: dict[str, Any], id: int = 1) -> Any:
        self.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        answer = self.read()
        assert answer["id"] == id
        return answer["result"]

    def begin(self) -> Any:
        found = self.ask("initialize", HELLO, 0)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return found

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
        return dict(answer["structuredContent"])

    def end(self) -> tuple[bytes, bytes]:
        return self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()


@contextmanager
def stdio(home: Path, *command: str) -> Iterator[Stdio]:
    server = Stdio(home, *command)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


class Http:
    """A server over HTTP, and a client that sends each request by itself."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memory.cli", "mcp", "--http", "127.0.0.1:0", "--home", str(home)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self.process.stderr is not None
        self.url = self.process.stderr.readline().split()[-1]
        self.client = httpx.Client(timeout=60, headers={"Authorization": f"Bearer {SECRET}"})

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        meta = {
            f"{_PREFIX}protocolVersion": MODERN,
            f"{_PREFIX}clientCapabilities": {},
            f"{_PREFIX}clientInfo": {"name": "web", "version": "1"},
        }
        params = {"name": name, "arguments": arguments, "_meta": meta}
        headers = {
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
            "Accept": "application/json, text/event-stream",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = self.client.post(self.url, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["result"]["structuredContent"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.client.close()
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
