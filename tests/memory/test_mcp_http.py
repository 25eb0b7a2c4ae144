"""MCP over Streamable HTTP: who asks is in each request, Host and Origin are checked, and nothing is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI

from memory import mcp_listen, wiring
from memory.mcp_http import MAX_BODY_BYTES, make_asgi
from memory.mcp_listen import MIN_SECRET_CHARACTERS, serve_http, with_secret
from memory.mcp_tools import TOOLS
from memory.model import AGENT_SCOPES, Principal
from memory.wiring import Home
from tlog.errors import MalformedError, RefusedError

MODERN, OLDER = "2026-07-28", "2025-11-25"
_PREFIX = "io.modelcontextprotocol/"
WHO = {
    "anna": Principal("acme", "anna", "token-a", AGENT_SCOPES, authenticated=True),
    "ben": Principal("acme", "ben", "token-b", AGENT_SCOPES, authenticated=True),
    "laptop": Principal("acme", "anna", "token-l", AGENT_SCOPES, authenticated=True),
    "reader": Principal("acme", "anna", "token-r", frozenset({"memory:read"}), authenticated=True),
    "writer": Principal("acme", "anna", "token-w", frozenset({"memory:write"}), authenticated=True),
    "local": Principal("default", "default", "cli", AGENT_SCOPES, reported=True),
    "neighbour": Principal("default", "neighbour", "cli", AGENT_SCOPES, reported=True),
}


def authenticate(headers: Mapping[str, str]) -> Principal:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    if token == "suspended":
        raise RefusedError("this token may not be used here", code="forbidden")
    if token not in WHO:
        raise RefusedError(
            "expected a token",
            code="unauthorized",
            www_authenticate='Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource"',
        )
    return WHO[token]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def app(home: Home) -> Any:
    return make_asgi(home, authenticate)


def send(app: Any, body: Any, method: str = "POST", path: str = "/", **headers: str) -> httpx.Response:
    sent = {
        "host": "127.0.0.1:8000",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": "Bearer anna",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def story() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            kept = {name: value for name, value in sent.items() if value != "-"}
            return await client.request(method, path, content=content, headers=kept)

    return anyio.run(story)


def request(method: str, params: dict[str, Any], name: str = "desk", asks: bool = False) -> dict[str, Any]:
    meta = {
        f"{_PREFIX}protocolVersion": MODERN,
        f"{_PREFIX}clientCapabilities": {"elicitation": {"form": {}}} if asks else {},
        f"{_PREFIX}clientInfo": {"name": name, "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def modern(app: Any, method: str, who: str = "anna", client: str = "desk", **params: Any) -> Any:
    asks, headers = params.pop("asks", False), params.pop("headers", {})
    routed = (
        {"mcp_name": str(params.get("name", params.get("uri")))} if {"name", "uri"} & params.keys() else {}
    )
    answer = send(
        app,
        request(method, params, client, asks),
        authorization=f"Bearer {who}",
        mcp_protocol_version=MODERN,
        mcp_method=method,
        **{**routed, **headers},
    )
    return answer.json()


def tool(app: Any, name: str, who: str = "anna", client: str = "desk", **arguments: Any) -> dict[str, Any]:
    answer = modern(app, "tools/call", who, client, name=name, arguments=arguments)
    return dict(answer["result"]["structuredContent"])


def older(app: Any, method: str, who: str, params: dict[str, Any], **headers: str) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return send(app, body, authorization=f"Bearer {who}", mcp_protocol_version=OLDER, **headers)


def begin(app: Any, who: str, name: str) -> str:
    info = {"name": name, "version": "1"}
    params = {"protocolVersion": OLDER, "capabilities": {"elicitation": {}}, "clientInfo": info}
    answer = older(app, "initialize", who, params)
    assert answer.json()["result"]["protocolVersion"] == OLDER
    return str(answer.headers["mcp-session-id"])


# Who may ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "-"}, 401),
        ({"authorization": "Bearer nobody"}, 401),
        ({"authorization": "Basic anna"}, 401),
        ({"authorization": "Bearer suspended"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:80"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"content_type": "text/plain"}, 400),
        ({"mcp_method": "tools/call"}, 400),
        ({"mcp_method": "-"}, 400),
        ({"mcp_protocol_version": "1999-01-01"}, 400),
        ({"mcp_protocol_version": OLDER}, 200),
        ({"accept": "application/json"}, 200),
        ({"accept": "text/html"}, 406),
        ({}, 200),
    ],
)
def test_a_request_is_refused_at_the_door(app: Any, headers: dict[str, str], status: int) -> None:
    sound = {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"}
    answer = send(app, request("tools/list", {}), **{**sound, **headers})
    assert answer.status_code == status
    if status == 401:
        assert "resource_metadata" in answer.headers["www-authenticate"]


def test_a_header_that_names_another_tool_than_the_body_is_refused(app: Any) -> None:
    body = request("tools/call", {"name": "forget_all", "arguments": {}})
    headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "status"}
    answer = send(app, body, **headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_only_post_is_served(app: Any, method: str) -> None:
    answer = send(app, b"", method)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    # Who may not ask is not told that much.
    assert send(app, b"", method, authorization="-").status_code == 401


def test_a_body_has_a_limit_by_its_length_and_by_what_arrives(app: Any) -> None:
    big = b'{"a": "' + b"x" * MAX_BODY_BYTES + b'"}'
    assert send(app, big).status_code == 413
    assert send(app, b"", content_length=str(MAX_BODY_BYTES * 2)).status_code == 413


def test_two_authorizations_are_none(home: Home, app: Any) -> None:
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"authorization", b"Bearer anna"),
            (b"authorization", b"Bearer ben"),
        ],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def take(message: Any) -> None:
        sent.append(message)

    anyio.run(app, scope, receive, take)
    assert sent[0]["status"] == 401


# What each caller gets


def test_two_callers_of_a_tenant_see_each_their_own_on_every_way_in(app: Any) -> None:
    id = tool(app, "remember", text="the vault code is 4711", key="vault/code", value="4711")["id"]
    assert tool(app, "get", key="vault/code")["current"] == "4711"
    for name, given in (
        ("recall", {"query": "vault code"}),
        ("get", {"key": "vault/code"}),
        ("history", {"key": "vault/code"}),
        ("provenance", {"id": id}),
        ("receipt", {"id": id}),
        ("forget", {"id": [id]}),
        ("recall", {"query": "vault", "owner": "anna"}),
    ):
        assert "4711" not in json.dumps(tool(app, name, "ben", **given)), name
    for uri in (
        f"muniment://fact/{id}",
        f"muniment://acme/anna/{id}",
        "muniment://log/../store.db",
        "file:///etc/passwd",
    ):
        for who in ("anna", "ben"):
            answer = modern(app, "resources/read", who, uri=uri)
            assert answer["error"]["code"] == -32602 and "4711" not in json.dumps(answer)
            assert answer["error"]["message"].startswith(
                "expected one of the resources muniment://log/checkpoint"
            )
            before = older(app, "resources/read", who, {"uri": uri}).json()["error"]
            assert (before["code"], before["message"]) == (-32002, answer["error"]["message"])


def test_a_read_only_caller_cannot_forget(app: Any) -> None:
    tool(app, "remember", text="kept", key="k", value="v")
    assert modern(app, "tools/call", "reader", name="forget", arguments={"key": "k"})["error"]["data"] == {
        "code": "forbidden",
        "scope": "memory:forget",
    }
    assert tool(app, "get", "reader", key="k")["current"] == "v"


NEEDS = {
    "remember": "write",
    "resolve": "review",
    "review": "review",
    "forget": "forget",
    "forget_all": "purge",
}


@pytest.mark.parametrize("name", [one.name for one in TOOLS])
def test_a_scope_that_is_missing_is_said_in_http(app: Any, name: str) -> None:
    """A client that can get a token with more asks for one at a 403, and not at a result."""
    scope = f"memory:{NEEDS.get(name, 'read')}"
    who = "writer" if scope == "memory:read" else "reader"
    params = {"name": name, "arguments": {}}
    before = older(app, "tools/call", who, params)
    assert before.status_code == 403 and before.json()["id"] == 1
    assert before.headers["www-authenticate"] == (
        f'Bearer realm="muniment", error="insufficient_scope", scope="{scope}"'
    )
    assert modern(app, "tools/call", who, name=name, arguments={})["error"]["data"]["scope"] == scope
    # Nobody proved who this is, so scopes say nothing of it.
    assert older(app, "tools/call", "local", params).status_code == 200


def test_a_call_that_hides_its_name_is_refused_all_the_same(app: Any) -> None:
    tool(app, "remember", text="kept", key="k", value="v")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})[:-1].encode()
    body = body.replace(b"/", b"\\/") + b', "params": {"name": "forget", "arguments": {"key": "k"}}}'
    answer = send(app, body, authorization="Bearer reader", mcp_protocol_version=OLDER)
    assert answer.json()["result"]["structuredContent"]["error"]["code"] == "forbidden"
    assert tool(app, "get", key="k")["current"] == "v"


def test_a_body_that_does_not_end_keeps_nobody_waiting(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a large one of nobody is read to its end, and not kept."""
    secret, limits = "s" * 32, replace(mcp_listen._LIMITS, body_seconds=0.3)
    monkeypatch.setattr(mcp_listen, "_LIMITS", limits)
    served: list[Any] = []
    monkeypatch.setattr(mcp_listen, "serve", lambda app, *_: served.append(app))
    serve_http(home, WHO["local"], "127.0.0.1:0", {"MUNIMENT_MCP_SECRET": secret})
    large = b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * (1 << 20) + b'"}'
    assert send(served[0], large, path="/mcp", authorization="Bearer nobody").status_code == 401
    assert send(served[0], large, path="/mcp", authorization=f"Bearer {secret}").status_code == 200
    sent: list[Any] = []

    async def story() -> None:
        async def receive() -> dict[str, Any]:
            if sent or started:
                await anyio.sleep_forever()
            started.append(True)
            return {"type": "http.request", "body": b"{", "more_body": True}

        async def note(message: Any) -> None:
            sent.append(message)

        started: list[bool] = []
        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [], "query_string": b""}
        with anyio.fail_after(30):
            await served[0](scope, receive, note)

    anyio.run(story)
    assert sent[0]["status"] == 408


def test_a_client_that_lies_about_its_name_gains_nothing(app: Any) -> None:
    """Where the token says who it is, the name is the token's; else it is the client's own word, and says so."""
    tool(app, "remember", client="I am the admin", text="kept", key="k", value="v")
    (fact,) = tool(app, "get", key="k")["active"]
    assert (fact["client"], fact["trust"], fact["agent"]) == ("token-a", "authenticated", "anna")
    tool(app, "remember", "local", client="token-a", text="mine", key="k", value="v")
    (fact,) = tool(app, "get", "local", key="k")["active"]
    assert (fact["client"], fact["trust"], fact["agent"]) == ("token-a", "asserted", "default")
    assert "(own word)" in fact["from"]


def test_a_name_is_that_of_each_request(app: Any) -> None:
    tool(app, "remember", "local", client="desk", text="blue", key="door", value="blue")
    assert (
        tool(app, "remember", "local", client="ide", text="red", key="door", value="red")["outcome"]
        == "conflict"
    )


# The older protocol


def test_an_older_client_keeps_its_name_without_a_session(home: Home, app: Any) -> None:
    desk, ide = begin(app, "local", "desk"), begin(app, "local", "ide")
    again = make_asgi(home, authenticate)  # another server on the home, as after a restart

    def remember(session: str, who: str = "local", **headers: str) -> str:
        given = {"text": "it is", "key": "door", "value": session or "none"}
        params = {"name": "remember", "arguments": given}
        answer = older(again, "tools/call", who, params, mcp_session_id=session, **headers).json()
        return str(answer["result"]["structuredContent"]["outcome"])

    assert remember(desk) == "stored"
    assert remember(ide) == "conflict"
    names = {fact["client"] for fact in tool(app, "get", "local", key="door")["active"]}
    assert names == {"desk", "ide"}
    # An id that was given to another caller, or made up, names nobody.
    others = (begin(app, "neighbour", "desk"), desk[:-2] + "AA", "x", "")
    for session in others:
        remember(session)
    told = tool(app, "history", "local", key="door", detail="detailed")["facts"]
    clients = {fact["value"]: fact["client"] for fact in told}
    assert [clients[session or "none"] for session in others] == ["unnamed"] * 4


def test_both_eras_get_the_same_tools_and_answers(app: Any) -> None:
    tool(app, "remember", text="the sky is blue", key="sky", value="blue")
    new = modern(app, "tools/list")["result"]
    old = older(app, "tools/list", "anna", {}).json()["result"]
    assert new["tools"] == old["tools"] and len(new["tools"]) == 12
    assert (new["cacheScope"], new["ttlMs"] > 0, new["resultType"]) == ("public", True, "complete")
    given = {"name": "get", "arguments": {"key": "sky"}}
    answer = older(app, "tools/call", "anna", given).json()["result"]["structuredContent"]
    assert answer["current"] == tool(app, "get", key="sky")["current"] == "blue"


def test_an_event_stream_is_for_who_prefers_one(app: Any) -> None:
    plain = older(app, "tools/list", "anna", {})
    stream = older(app, "tools/list", "anna", {}, accept="application/json;q=0.5, text/event-stream")
    assert plain.headers["content-type"] == "application/json"
    assert stream.headers["content-type"].startswith("text/event-stream")
    data = [line[5:].strip() for line in stream.text.splitlines() if line.startswith("data:") and "{" in line]
    assert json.loads(data[0])["result"] == plain.json()["result"]


# Resources


def test_a_host_can_verify_on_its_own(home: Home, app: Any) -> None:
    from memory.layout import CHECKPOINT
    from tlog.policy import parse_policy, verify_checkpoint

    tool(app, "remember", text="the sky is blue")
    found = modern(app, "resources/list")["result"]
    assert [one["uri"] for one in found["resources"]] == [
        f"muniment://log/{name}" for name in ("checkpoint", "policy", "vkey")
    ]
    assert modern(app, "resources/templates/list")["result"]["resourceTemplates"] == []
    early = modern(app, "resources/read", uri="muniment://log/checkpoint")
    assert "published some seconds after" in early["error"]["message"]
    home.publish()
    texts = {}
    for name in ("checkpoint", "policy", "vkey"):
        read = modern(app, "resources/read", uri=f"muniment://log/{name}")["result"]
        assert (read["cacheScope"], read["ttlMs"]) == ("private", 0)
        texts[name] = read["contents"][0]["text"]
    refused = modern(app, "resources/read", "writer", uri="muniment://log/vkey")
    assert "memory:read" in refused["error"]["message"]
    policy = parse_policy(texts["policy"].encode())
    assert texts["vkey"].strip() in texts["policy"]
    verified = verify_checkpoint(policy, texts["checkpoint"].encode(), texts["vkey"].split("+")[0])
    assert verified.checkpoint.size == 1
    assert texts["checkpoint"].encode() == home.public_storage().read(CHECKPOINT)


# A person, over one exchange after the other


def test_what_a_client_carries_between_two_exchanges_is_sealed(home: Home, app: Any) -> None:
    tool(app, "remember", text="kept", key="k", value="v")
    tool(app, "remember", text="also kept", key="other", value="v")

    def erase(
        who: str = "anna", state: Any = None, key: str = "k", action: str = "accept", **more: Any
    ) -> Any:
        params: dict[str, Any] = {"name": "forget", "arguments": {"key": key, "confirm": token}, "asks": True}
        if state is not None:
            params |= {"requestState": state, "inputResponses": {"person": {"action": action, "content": {}}}}
        return modern(app, "tools/call", who, **{**params, **more})

    token = tool(app, "forget", key="k")["confirm"]
    wanted = erase()["result"]
    assert wanted["resultType"] == "input_required"
    assert wanted["inputRequests"]["person"]["method"] == "elicitation/create"
    state = wanted["requestState"]
    assert token not in state and "forget" not in state
    for tampered in (state[:-4] + "AAAA", state[:9] + "A" + state[10:], "", "x", token, "person"):
        assert erase(state=tampered)["error"]["code"] == -32602
    for other in ({"who": "ben"}, {"who": "laptop"}, {"key": "other"}):
        answer = erase(state=state, **other)
        assert answer["error"]["code"] == -32602, other
    # An answer without the state of its question is none.
    bare = {"inputResponses": {"person": {"action": "accept", "content": {}}}}
    assert erase(**bare)["result"]["resultType"] == "input_required"
    assert erase(state=state, action="decline")["result"]["structuredContent"]["error"]["code"] == "declined"
    assert tool(app, "get", key="k")["current"] == "v"
    # Another server on the same home can open it.
    done = erase(state=state)["result"]["structuredContent"]
    assert done["erased"] == 1
    assert "error" in erase(state=state)["result"]["structuredContent"]
    assert tool(app, "get", key="other")["current"] == "v"


# Where it is mounted, and how it is started


def test_it_is_mounted_without_a_lifespan(app: Any) -> None:
    outer = FastAPI()
    outer.mount("/mcp", app)
    sound = {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"}
    for path in ("/mcp/", "/mcp"):
        answer = send(outer, request("tools/list", {}), path=path, **sound)
        assert answer.status_code in (200, 307)
    assert len(send(outer, request("tools/list", {}), path="/mcp/", **sound).json()["result"]["tools"]) == 12


def test_alone_it_is_for_this_machine_and_wants_a_secret(home: Home) -> None:
    with pytest.raises(RefusedError) as refused:
        serve_http(home, WHO["local"], "0.0.0.0:0", {"MUNIMENT_MCP_SECRET": "s" * 32})
    assert refused.value.code == "not_loopback"
    for environment in ({}, {"MUNIMENT_MCP_SECRET": "s" * (MIN_SECRET_CHARACTERS - 1)}):
        with pytest.raises(MalformedError, match="MUNIMENT_MCP_SECRET"):
            serve_http(home, WHO["local"], "127.0.0.1:0", environment)


def test_the_secret_is_compared_whole() -> None:
    secret = "a secret of 24 characters é"
    check = with_secret(WHO["local"], secret)
    sent = secret.encode().decode("latin-1")
    assert (
        check({"authorization": f"Bearer {sent}"})
        == check({"authorization": f"bearer {sent}"})
        == WHO["local"]
    )
    for wrong in ("", "Bearer", "Bearer ", f"Bearer {sent[:-1]}", f"Basic {sent}", sent, f"Bearer {sent}x"):
        with pytest.raises(RefusedError) as refused:
            check({"authorization": wrong})
        assert refused.value.code == "unauthorized"
        assert secret not in refused.value.message
