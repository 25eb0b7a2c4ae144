"""Who gets in over HTTP and who does not: tokens, scopes, hosts, pages of other sites, rates, places to listen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from serving import client_for, served, token_for

from memory import tokens, wiring
from memory.http_guard import reached_by
from memory.http_server import Serving, serve_home
from memory.principal import agent_from_environment
from memory.wiring import Home
from tlog.errors import Error, MalformedError

SECRET = "quincemarmalade"
READ = frozenset({"memory:read"})
EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module")
def patched() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
        monkeypatch.setattr("memory.http_server.tracer_of_process", lambda: provider.get_tracer("test"))
        yield monkeypatch


@pytest.fixture(scope="module")
def home(tmp_path_factory: Any) -> Iterator[Home]:
    with wiring.open_home(tmp_path_factory.mktemp("access") / "home") as opened:
        yield opened


@pytest.fixture(scope="module")
def addresses(home: Home, patched: Any) -> Iterator[dict[str, str]]:
    settings = {"metrics": "127.0.0.1:0", "publish_seconds": 3600.0, "origins": ("https://app.example",)}
    with served(home, patched, **settings) as found:
        yield found


@pytest.fixture
def url(addresses: dict[str, str]) -> str:
    return addresses["listening"]


def code(response: httpx.Response) -> tuple[int, str]:
    assert SECRET not in response.text and SECRET not in str(response.headers)
    return response.status_code, response.json()["code"]


# Tokens


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Basic {SECRET}",
        f"Bearer {SECRET}",
        f"Bearer mun_{'0' * 32}_{'A' * 43}",
        f"Bearer a.{SECRET}.c",
        "Bearer two words",
    ],
)
def test_nothing_is_answered_without_a_token_that_holds(url: str, header: str | None) -> None:
    with client_for(url) as client:
        response = client.get("/v1/status", headers={} if header is None else {"authorization": header})
    assert code(response) == (401, "unauthorized")
    challenge = response.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="muniment"') and 'scope="memory:read"' in challenge
    assert ('error="invalid_token"' in challenge) == (header is not None)


def test_every_operation_asks_for_a_token(url: str) -> None:
    with client_for(url) as client:
        paths = client.get("/openapi.json").json()["paths"]
        asked = [
            (method, path.replace("{id}", "a" * 26)) for path, methods in paths.items() for method in methods
        ]
        assert len(asked) > 25
        for method, path in asked:
            assert code(client.request(method, path)) == (401, "unauthorized"), (method, path)


def test_a_revoked_token_is_refused_by_the_very_next_request(home: Home, url: str) -> None:
    token = token_for(home)
    with client_for(url, token) as client:
        assert client.get("/v1/status").status_code == 200
        with wiring.open_home(home.path) as elsewhere:
            tokens.revoke(elsewhere, token)
        assert code(client.get("/v1/status")) == (401, "unauthorized")


def test_a_token_in_a_query_is_nobodys(home: Home, url: str) -> None:
    with client_for(url) as client:
        response = client.get("/v1/status", params={"access_token": token_for(home)})
        assert code(response) == (401, "unauthorized")


def test_two_tokens_at_once_are_none(home: Home, url: str) -> None:
    given = [("authorization", f"Bearer {token_for(home)}")] * 2
    with client_for(url) as client:
        assert code(client.get("/v1/status", headers=given)) == (400, "bad_input")


def test_each_scope_is_asked_for_and_named(home: Home, url: str) -> None:
    needed = {
        ("POST", "/v1/facts"): "memory:write",
        ("POST", "/v1/forget/preview"): "memory:forget",
        ("GET", "/v1/review"): "memory:review",
        ("GET", "/v1/holds"): "memory:purge",
        ("POST", "/v1/grants"): "memory:grant",
        ("POST", f"/v1/review/{'a' * 26}/reaffirm"): "memory:reaffirm",
        ("POST", f"/v1/conflicts/{'a' * 26}/resolve"): "memory:review",
    }
    bodies = {"/v1/facts": {"text": SECRET}, "/v1/forget/preview": {"key": SECRET}}
    with client_for(url, token_for(home, scopes=READ)) as client:
        for (method, path), scope in needed.items():
            response = client.request(method, path, json=bodies.get(path))
            assert code(response) == (403, "forbidden"), path
            challenge = response.headers["www-authenticate"]
            assert f'error="insufficient_scope", scope="{scope}"' in challenge
        assert client.get("/v1/status").status_code == 200


def test_to_erase_everything_takes_the_right_to_purge(home: Home, url: str) -> None:
    scopes = frozenset({"memory:read", "memory:write", "memory:forget"})
    with client_for(url, token_for(home, agent="purged", scopes=scopes)) as client:
        client.post("/v1/facts", json={"text": "a fact"})
        response = client.post("/v1/forget/preview", json={"all": True})
        assert code(response) == (403, "forbidden")
        assert 'scope="memory:purge"' in response.headers["www-authenticate"]


def test_tenants_and_agents_see_nothing_of_each_other(home: Home, url: str) -> None:
    mine = client_for(url, token_for(home, agent="user1", tenant="t1"))
    made = mine.post("/v1/facts", json={"text": "hers alone", "key": "a/key", "value": SECRET}).json()
    others = [("t1", "user10"), ("t1", "user"), ("t10", "user1"), ("t2", "user1")]
    for tenant, agent in others:
        with client_for(url, token_for(home, tenant=tenant, agent=agent)) as other:
            assert other.post("/v1/recall", json={"query": "hers alone"}).json()["facts"] == []
            assert other.post("/v1/get", json={"key": "a/key"}).json()["active"] == []
            assert other.post("/v1/history", json={"key": "a/key"}).json()["facts"] == []
            for method, path in (
                ("GET", f"/v1/facts/{made['id']}/provenance"),
                ("GET", f"/v1/facts/{made['id']}/receipt"),
                ("POST", f"/v1/facts/{made['id']}/retract"),
            ):
                assert code(other.request(method, path)) == (404, "unknown_id")
    mine.close()


# Hosts and pages


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "evil.example"}, (421, "wrong_host")),
        ({"host": "127.0.0.1"}, (421, "wrong_host")),
        ({"host": "localhost:1"}, (421, "wrong_host")),
        ({"origin": "https://evil.example"}, (403, "forbidden")),
        ({"origin": "null"}, (403, "forbidden")),
        ({"origin": "https://app.example.evil.example"}, (403, "forbidden")),
        ({"origin": "http://app.example"}, (403, "forbidden")),
        ({"sec-fetch-site": "cross-site"}, (403, "forbidden")),
    ],
)
def test_a_page_of_another_site_reaches_nothing(home: Home, url: str, headers: Any, expected: Any) -> None:
    with client_for(url, token_for(home)) as client:
        response = client.get("/v1/status", headers=headers)
        assert code(response) == expected
        assert "access-control-allow-origin" not in response.headers
        assert client.get("/healthz", headers=headers).status_code == 200


@pytest.mark.parametrize("origin", ["https://app.example", None])
def test_an_origin_that_was_named_and_every_name_of_this_machine_are_taken(
    home: Home, url: str, origin: str | None
) -> None:
    port = url.rpartition(":")[2]
    with client_for(url, token_for(home)) as client:
        for host in (f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
            headers = {"host": host} | ({"origin": origin} if origin else {})
            assert client.get("/v1/status", headers=headers).status_code == 200


def test_behind_a_proxy_the_host_is_that_of_the_address_clients_use() -> None:
    reached = reached_by("http://10.0.0.1:8080", "https://memory.example", ())
    assert reached.hosts == {"10.0.0.1:8080", "memory.example", "memory.example:443"}
    assert reached.origins == {"https://memory.example"}


# Without tokens


def test_without_tokens_a_caller_is_who_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = agent_from_environment({"MUNIMENT_AGENT": "here"})
    with (
        wiring.open_home(tmp_path / "home") as home,
        served(home, monkeypatch, nobody=nobody) as found,
        client_for(found["listening"]) as client,
    ):
        assert client.get("/v1/status").json()["scope"] == {"tenant": "default", "agent": "here"}
        assert code(client.get("/v1/review")) == (403, "forbidden")
        wrong = client.get("/v1/status", headers={"authorization": f"Bearer {SECRET}"})
        assert code(wrong) == (401, "unauthorized")
        assert code(client.get("/v1/status", headers={"origin": "https://evil.example"})) == (
            403,
            "forbidden",
        )
        simple = client.post("/v1/facts", content="{}", headers={"content-type": "text/plain"})
        assert code(simple) == (415, "unsupported_media_type")
        assert "security" not in client.get("/openapi.json").json()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"listen": "0.0.0.0:0"}, "not_loopback"),
        ({"listen": "0.0.0.0:0", "url": "https://memory.example"}, "no_tokens"),
        ({"listen": "0.0.0.0:0", "nobody": agent_from_environment({})}, "no_auth"),
        (
            {"listen": "127.0.0.1:0", "url": "https://a.example", "nobody": agent_from_environment({})},
            "no_auth",
        ),
        ({"listen": "127.0.0.1:0", "metrics": "0.0.0.0:0"}, "not_loopback"),
        ({"listen": "127.0.0.1:0", "url": "https://a.example/path"}, "bad_input"),
        ({"listen": "127.0.0.1:0", "url": "ftp://a.example"}, "bad_input"),
        ({"listen": "127.0.0.1:0", "origins": ("app.example",)}, "bad_input"),
        ({"listen": "127.0.0.1:0", "publish_seconds": 0.0}, "bad_input"),
        ({"listen": "127.0.0.1:0", "per_second": 0.0}, "bad_input"),
        ({"listen": "127.0.0.1:0", "oauth_file": "/nowhere"}, "bad_input"),
        ({"listen": "nowhere"}, "bad_input"),
    ],
)
def test_a_server_that_would_be_open_or_unsound_does_not_begin(
    tmp_path: Path, settings: Any, error: str
) -> None:
    with wiring.open_home(tmp_path / "home") as home, pytest.raises(Error) as refused:
        serve_home(home, Serving(**settings), lambda found: pytest.fail("it began"))
    assert refused.value.code == error


def test_beyond_this_machine_a_token_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        token = token_for(home)
        settings = {"listen": "0.0.0.0:0", "url": "https://memory.example"}
        with served(home, monkeypatch, **settings) as found:
            port = found["listening"].rpartition(":")[2]
            with client_for(f"http://127.0.0.1:{port}", token) as client:
                assert code(client.get("/v1/status")) == (421, "wrong_host")
                there = client.get("/v1/status", headers={"host": "memory.example"})
                assert there.status_code == 200


# Rates


def test_each_caller_has_a_rate_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        wiring.open_home(tmp_path / "home") as home,
        served(home, monkeypatch, per_second=0.01, burst=2) as found,
        client_for(found["listening"], token_for(home)) as client,
    ):
        answers = [client.get("/v1/status") for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert code(answers[2]) == (429, "too_many_requests")
        assert 1 <= int(answers[2].headers["retry-after"]) <= 100
        with client_for(found["listening"], token_for(home)) as again:
            assert again.get("/v1/status").status_code == 429, (
                "another token of the same caller is the same caller"
            )
        with client_for(found["listening"], token_for(home, agent="other")) as other:
            assert other.get("/v1/status").status_code == 200
        assert client.get("/healthz").status_code == 200


# MCP beside the API


def test_mcp_is_reached_by_those_who_are_known_and_at_their_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.http_server.MCP_MODULE", "mcp_stand_in")
    (tmp_path / "oauth.toml").write_text(
        'issuer = "https://login.example"\njwks = "/nowhere"\naudience = "a"\ntenant = "acme"\n'
    )
    settings = {"per_second": 0.01, "burst": 2, "oauth_file": str(tmp_path / "oauth.toml")}
    with wiring.open_home(tmp_path / "home") as home, served(home, monkeypatch, **settings) as found:
        with client_for(found["listening"]) as client:
            refused = client.post("/mcp", json={})
            metadata = f'resource_metadata="{found["listening"]}/.well-known/oauth-protected-resource/mcp"'
            assert code(refused) == (401, "unauthorized") and metadata in refused.headers["www-authenticate"]
            assert code(client.post("/mcp", headers={"host": "evil.example"})) == (421, "wrong_host")
            assert client.post("/mcpx").status_code == 404
        with client_for(found["listening"], token_for(home)) as client:
            answer = client.post("/mcp/", json={}).json()
            assert (answer["agent"], answer["path"]) == ("agent", "/mcp/") and "127.0.0.1:*" in answer[
                "hosts"
            ]
            assert client.get("/v1/status").status_code == 200
            assert code(client.post("/mcp", json={})) == (429, "too_many_requests")


# What the operator sees


def ask_about_a_secret(home: Home, url: str) -> str:
    """The token that it was asked with."""
    token = token_for(home, agent=SECRET, client=SECRET, tenant=SECRET)
    with client_for(url, token) as client:
        made = client.post(
            "/v1/facts",
            json={"text": SECRET, "key": SECRET, "value": SECRET},
            headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        ).json()
        client.post("/v1/recall", json={"query": SECRET})
        client.get(f"/v1/facts/{made['id']}/provenance")
        client.post("/v1/get", json={"key": SECRET, "as_of": SECRET})
        client.get(f"/v1/facts/{SECRET}/provenance", params={SECRET: SECRET})
        client.get(f"/{SECRET}")
    return token


def test_metrics_and_spans_and_output_hold_nothing_of_what_was_asked(
    home: Home, addresses: dict[str, str], capsys: Any
) -> None:
    EXPORTER.clear()
    token = ask_about_a_secret(home, addresses["listening"])
    text = httpx.get(f"{addresses['metrics']}/metrics", trust_env=False).text
    spans = EXPORTER.get_finished_spans()
    said = capsys.readouterr()
    assert {span.name for span in spans} == {
        "POST /v1/facts",
        "POST /v1/recall",
        "GET /v1/facts/{id}/provenance",
        "POST /v1/get",
    }
    first = next(span for span in spans if span.name == "POST /v1/facts")
    assert format(first.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert first.attributes["http.response.status_code"] == 201
    failed = next(span for span in spans if span.attributes.get("error.type"))
    assert failed.attributes["error.type"] == "bad_input" and not failed.events
    told = "".join(span.to_json() for span in spans) + text + said.out + said.err
    assert 'muniment_operations_total{operation="get",outcome="bad_input"} 1' in text
    assert 'operation="remember",outcome="stored"' in text
    assert SECRET not in told and token.rpartition("_")[2] not in told
    assert not re.search(r"\b[a-z2-7]{26}\b", told), "the id of a fact is nobody's either"


def test_a_server_is_ready_while_its_store_and_its_keys_are_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tlog.web.READY_SECONDS", 0.0)
    with (
        wiring.open_home(tmp_path / "home") as home,
        served(home, monkeypatch) as found,
        client_for(found["listening"]) as client,
    ):
        assert client.get("/readyz").status_code == 200
        key = home.path / "keys" / "manifest.key"
        key.rename(tmp_path / "manifest.key")
        assert code(client.get("/readyz")) == (503, "not_ready")
        (tmp_path / "manifest.key").rename(key)
        assert client.get("/readyz").status_code == 200

        def full() -> None:
            raise MalformedError("the disk is full")

        monkeypatch.setattr(home.parts().store, "write", full)
        assert code(client.get("/readyz")) == (503, "not_ready")
        assert client.get("/healthz").status_code == 200
