"""Servers as processes: killed under load, stopped in the middle, several on one home, very many calls at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import REPOSITORY, client_for, process, served, token_for

import memory.http_work as http_work
from memory import wiring
from memory.cli import main
from memory.model import SCOPES
from memory.principal import make_principal

CALLS = 1000


def make_token(folder: Path, **options: Any) -> str:
    with wiring.open_home(folder) as home:
        return token_for(home, **options)


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until, "it did not come to that within a minute"
        time.sleep(0.05)


def write_until_it_ends(url: str, token: str, name: str, written: list[str], stop: threading.Event) -> None:
    """Writes fact after fact, and notes each that was acknowledged."""
    with client_for(url, token) as client:
        number = 0
        while not stop.is_set():
            fact = {"text": f"{name} {number}", "key": f"{name}/{number}", "value": str(number)}
            try:
                response = client.post("/v1/facts", json=fact)
            except httpx.HTTPError:
                return
            if response.status_code == 201:
                written.append(response.json()["id"])
            number += 1


def ids_of(folder: Path, agent: str = "agent") -> list[str]:
    with wiring.open_home(folder) as home:
        memory = home.memory(make_principal("acme", agent, "desk", SCOPES))
        found: list[dict[str, Any]] = memory.recall("w0 w1 w2", limit=1000)["facts"]
        assert memory.publish()["size"] >= len(found)
    return [fact["id"] for fact in found]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_end_of_a_server_loses_what_it_acknowledged(tmp_path: Path, end: signal.Signals) -> None:
    folder = tmp_path / "home"
    token = make_token(folder)
    written: list[str] = []
    stop = threading.Event()
    with process(folder, "--publish-every", "0.2", "--rate", "100000", "--burst", "100000") as (server, url):
        threads = [
            threading.Thread(target=write_until_it_ends, args=(url, token, f"w{n}", written, stop))
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(written) >= 30)
        server.send_signal(end)
        assert server.wait(timeout=60) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
        stop.set()
        for thread in threads:
            thread.join()
    kept = Counter(ids_of(folder))
    assert not set(written) - set(kept), "something acknowledged is lost"
    assert set(kept.values()) == {1}


def test_a_stop_lets_what_is_under_way_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_go_on = threading.Event(), threading.Event()
    with wiring.open_home(tmp_path / "home") as home:
        token = token_for(home)
        answers: list[int] = []

        def slow(*arguments: Any) -> Any:
            began.set()
            assert may_go_on.wait(30)
            return original(*arguments)

        original = http_work.run_operation
        monkeypatch.setattr(http_work, "run_operation", slow)

        def ask(url: str) -> None:
            with client_for(url, token) as client:
                answers.append(client.post("/v1/facts", json={"text": "a fact"}).status_code)

        with served(home, monkeypatch) as found:
            thread = threading.Thread(target=ask, args=(found["listening"],))
            thread.start()
            assert began.wait(30)
            threading.Timer(0.3, may_go_on.set).start()
        thread.join()
    assert answers == [201]


def test_a_thousand_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    token = make_token(folder)
    with process(folder, "--rate", "100000", "--burst", "100000", "--publish-every", "1") as (_, url):
        statuses = asyncio.run(call_at_once(url, token))
        assert statuses == Counter({201: CALLS // 2, 200: CALLS // 2})
        with client_for(url, token) as client:
            assert client.get("/v1/status").json()["facts"] == {"active": CALLS // 2}


async def call_at_once(url: str, token: str) -> Counter[int]:
    """The statuses of all calls, each over a connection of its own: a client's pool would queue them."""
    host, port = url.removeprefix("http://").split(":")

    async def call(path: str, body: dict[str, str]) -> int:
        data = json.dumps(body)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n\r\n{data}".encode()
        )
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1])

    writes = [
        call("/v1/facts", {"text": f"fact {n}", "key": f"k/{n}", "value": str(n)}) for n in range(CALLS // 2)
    ]
    reads = [call("/v1/get", {"key": f"k/{n}"}) for n in range(CALLS // 2)]
    return Counter(await asyncio.gather(*writes, *reads))


class Stdio:
    """An MCP server over stdio, spoken to line by line."""

    def __init__(self, home: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "MUNIMENT_TENANT": "acme",
            "MUNIMENT_AGENT": "agent",
            "MUNIMENT_CLIENT": "desk",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memory.cli", "mcp", "--home", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.number = 0
        self.ask(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "desk", "version": "1"},
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.number:
                return dict(answer)

    def remember(self, name: str, number: int) -> str:
        arguments = {"text": f"{name} {number}", "key": f"{name}/{number}", "value": str(number)}
        answer = self.ask("tools/call", name="remember", arguments=arguments)
        return str(answer["result"]["structuredContent"]["id"])

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_two_servers_over_stdio_and_two_over_http_work_on_one_home(tmp_path: Path) -> None:
    folder, each = tmp_path / "home", 12
    token = make_token(folder)
    wide = ("--rate", "100000", "--burst", "100000", "--publish-every", "0.2")
    written: list[str] = []
    stdio = [Stdio(folder), Stdio(folder)]

    def over_http(url: str, name: str) -> None:
        with client_for(url, token) as client:
            for number in range(each):
                fact = {"text": f"{name} {number}", "key": f"{name}/{number}", "value": str(number)}
                written.append(client.post("/v1/facts", json=fact).json()["id"])

    def over_stdio(server: Stdio, name: str) -> None:
        for number in range(each):
            written.append(server.remember(name, number))

    try:
        with process(folder, *wide) as (_, first), process(folder, *wide) as (_, second):
            threads = [
                threading.Thread(target=over_http, args=(first, "w0")),
                threading.Thread(target=over_http, args=(second, "w1")),
                threading.Thread(target=over_stdio, args=(stdio[0], "w2")),
                threading.Thread(target=over_stdio, args=(stdio[1], "w1 w2")),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with client_for(first, token) as client:
                wait_for(lambda: client.get("/v1/status").json()["log"]["pending"] == 0)
                one = client.post("/v1/get", json={"key": "w2/3"}).json()["active"][0]
                assert one["receipt"]["state"] == "logged"
    finally:
        for server in stdio:
            server.close()
    assert len(set(written)) == 4 * each
    assert Counter(ids_of(folder)) == Counter(written)


def test_what_one_server_is_told_the_other_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wiring.open_home(tmp_path / "home") as home, wiring.open_home(tmp_path / "home") as same:
        token = token_for(home)
        with (
            served(home, monkeypatch) as one,
            served(same, monkeypatch) as two,
            client_for(one["listening"], token) as first,
            client_for(two["listening"], token) as second,
        ):
            body = {"text": "is blue", "key": "door/colour", "value": "blue"}
            key = {"idempotency-key": "k"}
            made = first.post("/v1/facts", json=body, headers=key).json()
            again = second.post("/v1/facts", json=body, headers=key).json()
            assert made["id"] == again["id"]
            preview = first.post("/v1/forget/preview", json={"key": "door/colour"}).json()
            asked = {"key": "door/colour", "confirm": preview["confirm"]}
            assert second.post("/v1/forget", json=asked).json()["erased"] == 1
            assert first.post("/v1/get", json={"key": "door/colour"}).json()["active"] == []


def test_a_home_that_is_served_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        token = token_for(home)
        with (
            served(home, monkeypatch, publish_seconds=0.2) as found,
            client_for(found["listening"], token) as client,
        ):
            client.post("/v1/facts", json={"text": "a fact"})
            wait_for(lambda: client.get("/v1/status").json()["log"]["published"] == 1)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--listen", "0.0.0.0:0"), 1),
        (("--listen", "127.0.0.1:0", "--no-auth", "--url", "https://a.example"), 1),
        (("--listen", "here"), 2),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_its_code(
    tmp_path: Path, capsys: Any, options: tuple[str, ...], code: int
) -> None:
    assert main(["serve", "--home", str(tmp_path / "home"), "--json", *options]) == code
    assert "error" in json.loads(capsys.readouterr().out)
