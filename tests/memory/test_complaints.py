"""What users of other memory servers complain about, each tried on real processes of this one.

The rows that need several servers, kills or floods stand in test_mcp_processes and test_http_processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from speaking import Stdio, environment, stdio


class Checked:
    """A server over stdio whose every answer is held against the schema that its tool promises."""

    def __init__(self, server: Stdio) -> None:
        self.server = server
        server.begin()
        tools = server.ask("tools/list", {})["tools"]
        self.promised = {
            tool["name"]: jsonschema.Draft202012Validator(tool["outputSchema"]) for tool in tools
        }

    def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        answer = self.server.tool(name, **arguments)
        assert self.promised[name].is_valid(answer), (name, answer)
        return answer

    def code(self, name: str, **arguments: Any) -> str:
        return str(self(name, **arguments)["error"]["code"])


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    """One server for all that needs none of its own: whatever a test asked before, it goes on answering."""
    with stdio(tmp_path_factory.mktemp("complaints") / "home") as server:
        yield Checked(server)


def test_an_empty_scope_is_named(ask: Checked) -> None:
    found = ask("recall", query="anything at all")
    assert (found["facts"], found["scope"]) == ([], {"tenant": "default", "agent": "default"})


@pytest.mark.parametrize("name", ["tenant", "user_id", "agent", "project", "scope", "client"])
def test_who_asks_and_where_is_no_argument(ask: Checked, name: str) -> None:
    for tool, given in (("recall", {"query": "x"}), ("remember", {"text": "x"}), ("forget", {"key": "x"})):
        assert ask.code(tool, **given, **{name: "somebody"}) == "unknown_argument"


def test_what_is_left_out_of_a_fact_breaks_no_search(ask: Checked) -> None:
    id = ask("remember", text="the cellar is dry")["id"]
    (fact,) = ask("recall", query="cellar", detail="detailed")["facts"]
    assert (fact["id"], fact["key"], fact["value"], fact["subject"]) == (id, None, None, None)


def test_a_tag_is_a_word_and_no_piece_of_one(ask: Checked) -> None:
    ask("remember", text="[CORRECTION] the gate opens inwards")
    ask("remember", text="autocorrections of the gate log are off")
    assert [fact["text"] for fact in ask("recall", query="[CORRECTION]")["facts"]] == [
        "[CORRECTION] the gate opens inwards"
    ]


@pytest.mark.parametrize("query", ["a/b", '"', "***", "NEAR(", "", "key:x OR value:y", "x" * 1_000_000])
def test_any_query_has_an_answer_or_a_clear_error(ask: Checked, query: str) -> None:
    answer = ask("recall", query=query)
    assert "facts" in answer or answer["error"]["code"] == "bad_input"
    assert "xxx" not in json.dumps(answer)


def test_a_broad_query_stays_within_its_budget_and_leads_on(ask: Checked) -> None:
    ids = {
        ask("remember", text=f"ledger note {number}: " + "lorem ipsum " * 50)["id"] for number in range(40)
    }
    seen: list[str] = []
    given: dict[str, Any] = {"query": "ledger note", "limit": 50}
    while True:
        page = ask("recall", **given)
        assert len(json.dumps(page)) <= 4000 * 3
        seen += [fact["id"] for fact in page["facts"]]
        if "cursor" not in page:
            break
        assert page["omitted"] > 0
        given["cursor"] = page["cursor"]
    assert set(seen) >= ids and len(seen) == len(set(seen))
    # A limit counts facts, and a budget tokens.
    few = ask("recall", query="ledger note", limit=10, budget=20_000)
    assert len(few["facts"]) == 10 and few["omitted"] >= 30


def test_a_text_as_long_as_may_be_is_answered_in_part(ask: Checked) -> None:
    text = "epic " * 50_000
    ask("remember", text=text, key="poem")
    (fact,) = ask("recall", query="epic")["facts"]
    assert fact["cut"] > 0 and len(json.dumps(fact)) < 4000 * 3
    assert ask.code("remember", text=text * 2) == "bad_input"


def test_what_is_not_there_is_no_success(ask: Checked) -> None:
    assert ask.code("provenance", id="nonexistent") == "bad_input"
    assert ask.code("provenance", id="a" * 26) == "unknown_id"
    for selector in ({"id": ["a" * 26]}, {"key": "no/such"}, {"subject": "nobody"}):
        assert ask.code("forget", **selector) in {"nothing_matched", "unknown_id"}
    assert "list" in ask("forget", id='["a"]')["error"]["message"]


def test_a_correction_replaces_and_keeps_the_story(ask: Checked) -> None:
    first = ask("remember", text="drinks coffee in the morning", key="me/drink", value="coffee")["id"]
    for _ in range(2):
        ask("remember", text="drinks tea instead by now", key="me/drink", value="tea")
    assert ask("get", key="me/drink")["current"] == "tea"
    assert [fact.get("value") for fact in ask("recall", query="what to drink in the morning")["facts"]] == [
        "tea"
    ]
    story = ask("history", key="me/drink")["facts"]
    assert [(fact["value"], fact["status"]) for fact in story] == [
        ("coffee", "superseded"),
        ("tea", "active"),
    ]
    # Where it came from is told of the older one too: a correction is no erasure.
    assert ask("provenance", id=first)["fact"]["text"] == "drinks coffee in the morning"
    # A stale client that says the old one again changes nothing.
    assert ask("remember", text="has coffee", key="me/drink", value="Coffee")["outcome"] == "refused"


def test_a_request_that_is_sent_again_is_one_fact(ask: Checked) -> None:
    given = {"text": "my name is Bo", "key": "me/name", "value": "Bo", "idempotency_key": "one"}
    first = ask("remember", **given)
    assert [ask("remember", **given)["id"] for _ in range(3)] == [first["id"]] * 3
    assert ask.code("remember", **{**given, "text": "my name is Bob"}) == "idempotency_conflict"
    assert len(ask("history", key="me/name")["facts"]) == 1


def test_scripts_without_spaces_are_found(ask: Checked) -> None:
    ask("remember", text="今日は成語しりとりをした")
    ask("remember", text="设备清单 A1")
    for query, text in (("しりとり", "今日は成語しりとりをした"), ("设备", "设备清单 A1")):
        assert [fact["text"] for fact in ask("recall", query=query)["facts"]] == [text]


def test_what_is_erased_is_in_no_answer_of_the_same_process(ask: Checked) -> None:
    ask("remember", text="the alibi is a cinema ticket", key="case/alibi", value="cinema ticket")
    other = ask("remember", text="the case is closed", key="case/state", value="closed")["id"]
    assert ask("recall", query="alibi")["facts"]
    # A client that can't ask a person: the token of the preview, and nothing before it.
    token = ask("forget", key="case/alibi")["confirm"]
    assert (
        ask("recall", query="alibi")["facts"]
        and ask("forget", key="case/alibi", confirm=token)["erased"] == 1
    )
    for tool, given in (("recall", {"query": "alibi"}), ("get", {"key": "case/alibi"})):
        assert "cinema" not in json.dumps(ask(tool, **given))
    assert ask("get", key="case/state")["active"][0]["id"] == other


def test_no_address_has_content(ask: Checked) -> None:
    for uri in ("muniment://facts", "muniment://default/default", "file:///etc/passwd"):
        ask.server.write({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": uri}})
        assert "error" in ask.server.read()


# Others than one server over stdio


def run(home: str, *words: str, cwd: Path | None = None, check: bool = True) -> str:
    command = [sys.executable, "-m", "memory.cli", *words, "--home", home]
    done = subprocess.run(command, capture_output=True, check=check, text=True, cwd=cwd, env=environment())
    return done.stdout


def test_a_home_may_be_called_and_lie_anywhere(tmp_path: Path) -> None:
    run("no such yet/ein Häuschen 家", "remember", "it stands", cwd=tmp_path)
    assert (tmp_path / "no such yet" / "ein Häuschen 家" / "store.db").is_file()
    assert "it stands" in run("no such yet/ein Häuschen 家", "recall", "stands", cwd=tmp_path)


def test_a_write_that_was_torn_takes_no_earlier_one_with_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with stdio(home) as server:
        server.begin()
        for number in range(5):
            assert server.tool("remember", text=f"note {number}")["outcome"] == "stored"
        server.kill()
    log = home / "store.db-wal"
    torn = log.read_bytes()[:-7]
    log.write_bytes(torn)
    with stdio(home) as server:
        server.begin()
        found = {fact["text"] for fact in server.tool("recall", query="note", limit=50)["facts"]}
        assert {f"note {number}" for number in range(4)} <= found
        assert server.tool("remember", text="note of after")["outcome"] == "stored"


def test_over_http_each_has_what_is_theirs_and_no_more(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    tokens = {}
    for agent, scopes in (("test_user", "read,write,forget"), ("test_user1", "read")):
        made = run(
            home,
            "token",
            "create",
            "--tenant",
            "acme",
            "--agent",
            agent,
            "--client",
            "w",
            "--scopes",
            scopes,
            "--json",
        )
        tokens[agent] = {"Authorization": f"Bearer {json.loads(made)['token']}"}
    command = [sys.executable, "-m", "memory.cli", "serve", "--listen", "127.0.0.1:0", "--home", home]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as server:
        try:
            assert server.stderr is not None
            url = server.stderr.readline().split()[-1]
            with httpx.Client(base_url=url, timeout=60) as client:
                mine, other = tokens["test_user"], tokens["test_user1"]
                made = client.post("/v1/facts", json={"text": "the plan is secret"}, headers=mine).json()
                found = client.post("/v1/recall", json={"query": "secret"}, headers=other).json()
                assert (found["facts"], found["scope"]["agent"]) == ([], "test_user1")
                place = f"/v1/facts/{made['id']}/provenance"
                assert client.get(place, headers=mine).status_code == 200
                assert client.get(place, headers=other).status_code == 404
                # A token that may only read erases nothing, and is told so.
                asked = client.post("/v1/forget/preview", json={"all": True}, headers=other)
                assert (asked.status_code, asked.json()["code"]) == (403, "forbidden")
                # The name that a client gives itself, and a tenant in its words, change nothing.
                asked = client.post("/v1/recall", json={"query": "secret", "tenant": "acme"}, headers=other)
                assert (asked.status_code, asked.json()["code"]) == (400, "unknown_argument")
                assert client.post("/v1/recall", json={"query": "secret"}).status_code == 401
        finally:
            server.terminate()
