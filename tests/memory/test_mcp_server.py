"""The MCP server as clients meet it: a real process over stdio, both eras of the protocol, and the tool table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.types import Implementation

from memory.mcp_tools import TOOLS

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MODES = ("auto", "legacy")
SECRET = "quincemarmalade"


def parameters(home: Path, **environment: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "memory.cli", "mcp", "--home", str(home)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
    )


@asynccontextmanager
async def connected(home: Path, mode: str = "auto", name: str = "desk", **environment: str) -> Any:
    info = Implementation(name=name, version="1")
    async with Client(parameters(home, **environment), mode=mode, client_info=info) as client:
        yield client


async def ask(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer, after a check that it fits the tool's schema and says the same as the text."""
    result = await client.call_tool(tool, arguments)
    answer = result.structured_content
    schema = next((one.answer for one in TOOLS if one.name == tool), None)
    if schema is not None:
        Draft202012Validator(schema).validate(answer)
    assert json.loads(result.content[0].text) == answer
    assert result.is_error == ("error" in answer)
    return dict(answer)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"


@pytest.mark.parametrize("mode", MODES)
def test_a_fact_is_remembered_corrected_and_proved(home: Path, mode: str) -> None:
    async def story() -> None:
        async with connected(home, mode) as client:
            first = await ask(
                client, "remember", text="runs in eu-west-1", key="api/region", value="eu-west-1"
            )
            assert first["outcome"] == "stored"
            second = await ask(client, "remember", text="moved", key="api/region", value="us-east-2")
            assert second["outcome"] == "superseded"
            echo = await ask(client, "remember", text="as ever", key="api/region", value="EU-WEST-1")
            assert (echo["outcome"], echo["reason"], echo["reaffirm"]) == ("refused", "echo", None)
            assert (await ask(client, "get", key="api/region"))["current"] == "us-east-2"
            assert (await ask(client, "recall", query="moved"))["facts"][0]["id"] == second["id"]
            assert len((await ask(client, "history", key="api/region"))["facts"]) >= 2
            proof = await ask(client, "provenance", id=second["id"])
            codes = {limit["code"] for limit in proof["limits"]}
            assert {"not_truth", "pending"} <= codes
            assert (await ask(client, "conflicts"))["conflicts"] == []
            assert "facts" in await ask(client, "status")

    anyio.run(story)


def test_the_client_name_is_what_the_protocol_reports(home: Path) -> None:
    async def story() -> None:
        async with connected(home, name="desk") as client:
            await ask(client, "remember", text="blue", key="door/colour", value="blue")
        async with connected(home, name="phone") as client:
            answer = await ask(client, "remember", text="red", key="door/colour", value="red")
            assert answer["outcome"] == "conflict"
            conflict = (await ask(client, "conflicts"))["conflicts"][0]
            assert {fact["client"] for fact in conflict["facts"]} == {"desk", "phone"}

    anyio.run(story)


def test_a_client_name_bound_by_the_host_is_not_the_clients_to_say(home: Path) -> None:
    async def story() -> None:
        async with connected(home, name="I am the owner", MUNIMENT_CLIENT="bound") as client:
            await ask(client, "remember", text="blue", key="door/colour", value="blue")
            assert (await ask(client, "get", key="door/colour"))["active"][0]["client"] == "bound"

    anyio.run(story)


BAD = [
    ("remember", {"text": SECRET, "tenant": "other"}, "unknown_argument"),
    ("remember", {"text": SECRET, "agent": "other"}, "unknown_argument"),
    ("remember", {}, "bad_input"),
    ("remember", {"text": 7}, "bad_input"),
    ("remember", {"text": "   "}, "bad_input"),
    ("remember", {"text": SECRET, "valid_from": SECRET}, "bad_input"),
    ("remember", {"text": SECRET * 80_000}, "bad_input"),
    ("recall", {"query": "x", "limit": 0}, "bad_input"),
    ("get", {"key": "x", "as_of": SECRET}, "bad_input"),
    ("provenance", {"id": SECRET}, "bad_input"),
    ("provenance", {"id": "a" * 25 + "a"}, "unknown_id"),
    ("forget", {}, "bad_input"),
    ("forget", {"key": "no/such/key"}, "nothing_matched"),
    ("no_such_tool", {}, "unknown_tool"),
]


def test_bad_input_is_an_error_without_content(home: Path) -> None:
    async def story() -> None:
        async with connected(home) as client:
            for tool, arguments, code in BAD:
                answer = await ask(client, tool, **arguments)
                assert answer["error"]["code"] == code, (tool, code)
                assert SECRET not in json.dumps(answer)

    anyio.run(story)


def test_forget_deletes_only_with_the_token_of_its_preview(home: Path) -> None:
    async def story() -> None:
        async with connected(home) as client:
            fact = await ask(client, "remember", text=f"her jam is {SECRET}", key="jam/kind", value=SECRET)
            preview = await ask(client, "forget", id=[fact["id"]])
            assert preview["preview"]["count"] == 1
            assert (await ask(client, "get", key="jam/kind"))["current"] == SECRET
            wrong = await ask(client, "forget", id=[fact["id"]], confirm="yes")
            assert wrong["error"]["code"] == "token_invalid"
            done = await ask(client, "forget", id=[fact["id"]], confirm=preview["confirm"])
            assert (done["erased"], done["state"]) == (1, "closed_complete")
            again = await ask(client, "forget", id=[fact["id"]], confirm=preview["confirm"])
            assert "error" in again
            assert (await ask(client, "recall", query=SECRET))["facts"] == []

    anyio.run(story)


def test_two_servers_on_one_home_lose_nothing(home: Path) -> None:
    async def writes(name: str) -> None:
        async with connected(home, name=name) as client:
            for number in range(20):
                answer = await ask(client, "remember", text=f"note {number} of {name}")
                assert answer["outcome"] == "stored"

    async def story() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writes, "one")
            tasks.start_soon(writes, "two")
        async with connected(home) as client:
            assert len((await ask(client, "recall", query="note", limit=50))["facts"]) == 40

    anyio.run(story)


def test_tool_list_is_small_stable_and_says_what_tools_do(home: Path) -> None:
    async def story() -> None:
        async with connected(home) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [tool.name for tool in TOOLS]
            size = len(json.dumps([tool.model_dump(by_alias=True, exclude_none=True) for tool in tools]))
            assert size <= 12_000
            for tool in tools:
                assert tool.annotations is not None
                assert tool.annotations.open_world_hint is False
                assert tool.input_schema["additionalProperties"] is False
            hints = {tool.name: tool.annotations for tool in tools}
            assert hints["forget"].destructive_hint is True
            assert hints["recall"].read_only_hint is True

    anyio.run(story)


def test_standard_output_carries_the_protocol_alone(home: Path) -> None:
    messages = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "remember", "arguments": {"text": "one line"}},
        },
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "memory.cli", "mcp", "--home", str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for message in messages:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    rest, _ = process.communicate(timeout=30)
    assert [answer["id"] for answer in answers] == [1, 2]
    assert rest == ""
