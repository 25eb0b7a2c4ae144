"""MCP below /mcp of `muniment serve`: the same home, the same callers, the same tokens."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from serving import client_for, served, token_for

from memory import http_server, tokens, wiring

if find_spec(http_server.MCP_MODULE) is not None:

    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    def test_what_is_written_over_mcp_is_read_over_the_api(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        with wiring.open_home(tmp_path / "home") as home, served(home, monkeypatch) as found:
            token = token_for(home)

            async def story() -> Any:
                headers = {"authorization": f"Bearer {token}"}
                async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
                    transport = streamable_http_client(f"{found['listening']}/mcp", http_client=http)
                    async with Client(transport, mode=mode) as client:
                        fact = {"text": "is blue", "key": "door/colour", "value": "blue"}
                        return (await client.call_tool("remember", fact)).structured_content

            made = anyio.run(story)
            assert made["outcome"] == "stored"
            with client_for(found["listening"], token) as client:
                read = client.post("/v1/get", json={"key": "door/colour"}).json()["active"][0]
                assert (read["id"], read["client"], read["trust"]) == (made["id"], "desk", "authenticated")
                call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
                tokens.revoke(home, token)
                assert client.post("/mcp", json=call).status_code == 401
            with client_for(found["listening"]) as client:
                refused = client.post("/mcp", json=call)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"].startswith('Bearer realm="muniment"')
                assert client.post("/mcp", json=call, headers={"host": "evil.example"}).status_code == 421

    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    def test_a_client_is_told_which_scope_a_call_needs(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        (tmp_path / "oauth.toml").write_text(
            'issuer = "https://login.example"\njwks = "/nowhere"\naudience = "a"\ntenant = "acme"\n'
        )
        oauth = {"oauth_file": str(tmp_path / "oauth.toml")}
        with wiring.open_home(tmp_path / "home") as home, served(home, monkeypatch, **oauth) as found:
            token = token_for(home, scopes=frozenset({"memory:read"}))
            answers: list[httpx2.Response] = []

            async def keep(response: httpx2.Response) -> None:
                answers.append(response)

            async def story() -> None:
                headers, hooks = {"authorization": f"Bearer {token}"}, {"response": [keep]}
                async with httpx2.AsyncClient(headers=headers, trust_env=False, event_hooks=hooks) as http:
                    transport = streamable_http_client(f"{found['listening']}/mcp", http_client=http)
                    async with Client(transport, mode=mode) as client:
                        with pytest.raises(MCPError, match="memory:forget"):
                            await client.call_tool("forget", {"key": "door/colour"})

            anyio.run(story)
            (refused,) = [one for one in answers if one.status_code == 403]
            told = refused.headers["www-authenticate"]
            assert 'error="insufficient_scope", scope="memory:forget"' in told
            assert f'resource_metadata="{found["listening"]}/.well-known/' in told
