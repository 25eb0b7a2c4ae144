"""What has gone wrong in other memory servers, on real processes: several on one home, killed, flooded, printed to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from speaking import Http, Stdio, environment, stdio

from memory import wiring
from memory.model import AGENT_SCOPES, Principal


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def recalled(home: Path, query: str) -> set[str]:
    with wiring.open_home(home) as opened:
        memory = opened.memory(Principal("default", "default", "cli", AGENT_SCOPES))
        return {fact["text"] for fact in memory.recall(query, limit=1000)["facts"]}


def test_two_over_stdio_and_one_over_http_on_one_home_lose_nothing(home: Path) -> None:
    """Twenty writes each at once; each of the three reads all sixty without a restart."""
    web = Http(home)
    with stdio(home) as first, stdio(home) as second:
        for one in (first, second):
            one.begin()

        def write(server: Any, name: str) -> None:
            for number in range(20):
                assert server.tool("remember", text=f"note {number} of {name}")["outcome"] == "stored"

        jobs = [(first, "first"), (second, "second"), (web, "web")]
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda job: write(*job), jobs))
        for server, _ in jobs:
            found = server.tool("recall", query="note", limit=50, budget=20_000)
            assert len(found["facts"]) + found["omitted"] == 60
        # What one corrects, the others see at once.
        first.tool("remember", text="it is blue", key="door", value="blue")
        first.tool("remember", text="it is red", key="door", value="red")
        for server, _ in jobs:
            assert server.tool("get", key="door")["current"] == "red"
            assert server.tool("remember", text="blue", key="door", value="blue")["outcome"] == "refused"
    web.stop()
    assert web.process.returncode == 0


def test_what_was_answered_before_a_kill_is_there_after_it(home: Path) -> None:
    """kill -9 of each while they write: no answered write is lost, and the next server starts."""
    web, first = Http(home), Stdio(home)
    first.begin()
    answered: list[str] = []

    def write(server: Any, name: str) -> None:
        for number in range(1000):
            text = f"note {number} of {name}"
            try:
                if server.tool("remember", text=text)["outcome"] == "stored":
                    answered.append(text)
            except (AssertionError, OSError, ValueError, httpx.HTTPError):
                return

    threads = [threading.Thread(target=write, args=job) for job in ((web, "web"), (first, "first"))]
    for thread in threads:
        thread.start()
    while sum("web" in one for one in answered) < 25 or sum("first" in one for one in answered) < 25:
        assert any(thread.is_alive() for thread in threads), "the writers ended before they were killed"
    web.process.kill()
    first.process.kill()
    for thread in threads:
        thread.join()
    web.stop()
    first.end()
    assert set(answered) <= recalled(home, "note")
    with stdio(home) as again:
        again.begin()
        assert again.tool("remember", text="after the kill")["outcome"] == "stored"


def test_a_thousand_calls_at_once_are_each_answered(home: Path) -> None:
    """All are sent before one answer is read; the same hundred facts ten times over are there once."""
    with stdio(home) as server:
        server.begin()
        calls = [
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {
                    "name": "remember",
                    "arguments": {
                        "text": f"value of {number % 100}",
                        "key": f"k/{number % 100}",
                        "value": str(number % 100),
                        "idempotency_key": f"i-{number % 100}",
                    },
                },
            }
            for number in range(1, 1001)
        ]
        writer = threading.Thread(target=server.write, args=calls)
        writer.start()
        answers = [server.read() for _ in range(1000)]
        writer.join()
        assert sorted(one["id"] for one in answers) == list(range(1, 1001))
        found = [one["result"]["structuredContent"] for one in answers]
        assert len({one["id"] for one in found}) == 100
        assert server.tool("status")["facts"] == {"active": 100}


PRINTS: Final = """
import logging, os, sys
from memory.service import Memory
from memory.cli import main
def status(self):
    print("a stray word")
    sys.stdout.write("half a line")
    os.write(1, b"bytes past the buffer")
    os.system("echo a child speaks")
    logging.warning("a warning")
    return {"facts": {}, "log": {"size": 0, "published": 0, "root": None, "witnessed": False, "pending": 0}}
Memory.status = status
sys.exit(main(sys.argv[1:]))
"""


def test_standard_output_carries_the_protocol_alone(home: Path) -> None:
    with stdio(home, "-c", PRINTS, "mcp", "--home", str(home)) as server:
        server.begin()
        for _ in range(3):
            assert "facts" in server.tool("status")
        rest, said = server.end()
    assert rest == b"" and server.process.returncode == 0
    for words in (b"a stray word", b"half a line", b"bytes past the buffer", b"a child speaks", b"a warning"):
        assert said.count(words) == 3, words


OPENED: Final = """
import sys
from memory import wiring
from memory.cli import main
def parts(self):
    raise SystemExit("the store was opened")
wiring.Home.parts = parts
wiring.Home.publish = parts
sys.modules["numpy"] = sys.modules["wordllama"] = None  # to load a model would fail
sys.exit(main(sys.argv[1:]))
"""


def test_the_first_requests_are_answered_before_anything_is_opened_or_published(home: Path) -> None:
    with stdio(home, "-c", OPENED, "mcp", "--home", str(home)) as server:
        assert server.begin()["serverInfo"]["name"] == "muniment"
        assert len(server.ask("tools/list", {})["tools"]) == 12
        assert len(server.ask("resources/list", {})["resources"]) == 3
        # The check can fail: a call needs the store.
        server.write({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "status"}})
        _, said = server.end()
    assert b"the store was opened" in said


def test_a_restart_and_the_command_line_give_the_same_answer(home: Path) -> None:
    with stdio(home) as server:
        server.begin()
        server.tool("remember", text="the lift is broken", key="lift", value="broken")
        before = server.tool("recall", query="lift")
        server.kill()
    with stdio(home) as server:
        server.begin()
        assert server.tool("recall", query="lift") == before
        done = subprocess.run(
            [sys.executable, "-m", "memory.cli", "get", "lift", "--json", "--home", str(home)],
            capture_output=True,
            check=True,
            env=environment(),
            timeout=60,
        )
    said = json.loads(done.stdout)
    assert (said["current"], said["active"][0]["id"]) == ("broken", before["facts"][0]["id"])


def test_a_written_fact_is_readable_at_once_and_an_erased_one_gone_in_the_same_process(home: Path) -> None:
    with stdio(home) as server:
        server.begin()
        id = server.tool("remember", text="her jam is quince")["id"]
        assert server.tool("recall", query="quince")["facts"][0]["id"] == id
        token = server.tool("forget", id=[id])["confirm"]
        assert server.tool("forget", id=[id], confirm=token)["erased"] == 1
        for tool, given in (("recall", {"query": "quince"}), ("provenance", {"id": id})):
            assert "quince" not in json.dumps(server.tool(tool, **given))
