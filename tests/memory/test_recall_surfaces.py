"""The same question has the same answer wherever it is asked: facts, order, and how many are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from serving import client_for, served, token_for

from memory import wiring
from memory.batch import run_batch
from memory.model import SCOPES, Principal

QUERIES = ("harbour lantern", "who painted the harbour", "lantern oil price", "nobody says this")


def fill(memory: Any) -> None:
    for number in range(12):
        memory.remember(f"the lantern at the harbour burns {number} hours")
        memory.remember(
            f"the price of lantern oil rose {number} times", key=f"oil/{number}", value=str(number)
        )
    memory.remember("Ilse painted the harbour in autumn")


def test_every_surface_finds_the_same_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wiring.open_home(tmp_path / "home") as home, served(home, monkeypatch) as found:
        token = token_for(home)
        with client_for(found["listening"], token) as client:
            scope = client.post("/v1/recall", json={"query": "x"}).json()["scope"]
            me = Principal(scope["tenant"], scope["agent"], "desk", SCOPES)
            fill(home.memory(me))
            over_http = [
                client.post("/v1/recall", json={"query": query, "limit": 7}).json() for query in QUERIES
            ]

        async def over_mcp() -> list[Any]:
            headers = {"authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
                transport = streamable_http_client(f"{found['listening']}/mcp", http_client=http)
                async with Client(transport) as mcp:
                    asked = [{"query": query, "limit": 7} for query in QUERIES]
                    return [(await mcp.call_tool("recall", one)).structured_content for one in asked]

        lines: list[str] = []
        run_batch(
            [json.dumps({"op": "recall", "query": query, "limit": 7}) for query in QUERIES],
            lines.append,
            home,
            False,
            me,
        )
        inside = [home.memory(me).recall(query, limit=7) for query in QUERIES]
        over_batch = [json.loads(line)["result"] for line in lines]
        for answers in (over_http, anyio.run(over_mcp), over_batch):
            assert list(map(told, answers)) == list(map(told, inside))
        assert [len(answer["facts"]) for answer in inside] == [7, 7, 7, 0]


def told(answer: Any) -> tuple[list[tuple[str, str]], int]:
    return [(fact["id"], fact["text"]) for fact in answer["facts"]], answer["omitted"]
