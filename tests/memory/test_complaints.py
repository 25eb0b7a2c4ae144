"""What users of other memory servers complain about, each tried on real servers of this one.

The rows that need several servers, kills or floods stand in test_mcp_processes and test_http_processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from serving import client_for, served
from speaking import Stdio, environment, stdio

from memory import tokens, wiring
from memory.model import AGENT_SCOPES, Principal


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
    # Also when it comes late: as a new write it would be refused by now.
    ask("remember", text="my name is Ada", key="me/name", value="Ada")
    late = ask("remember", **given)
    assert (late["outcome"], late["id"]) == (first["outcome"], first["id"])
    assert len(ask("history", key="me/name")["facts"]) == 2


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


def test_a_home_may_be_called_and_lie_anywhere(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "memory.cli",
        "remember",
        "it stands",
        "--home",
        "no such/ein Häuschen 家",
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, env=environment())
    assert (tmp_path / "no such" / "ein Häuschen 家" / "store.db").is_file()


def batch(home: Path, *lines: dict[str, Any]) -> subprocess.Popen[str]:
    """A process that does what the lines say, and answers each in a line."""
    command = [sys.executable, "-m", "memory.cli", "batch", "--home", str(home)]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert started.stdin is not None
    started.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
    started.stdin.flush()
    return started


def test_a_correction_that_is_killed_and_torn_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    home = tmp_path / "home"
    takes = [
        {"op": "remember", "text": f"take {number}", "key": "take", "value": str(number)}
        for number in range(500)
    ]
    writer = batch(home, *takes)
    assert writer.stdout is not None
    answered = [json.loads(writer.stdout.readline()) for _ in range(15)]
    assert all(one["ok"] for one in answered), answered
    writer.kill()
    # From where the lines above were read: that has read ahead.
    left = writer.stdout.read().splitlines()
    writer.communicate()
    count = len(answered) + sum(line.endswith("}") for line in left)
    # And what the disk had of the last write is cut, as when a machine loses its power with a disk that lies.
    log = home / "store.db-wal"
    log.write_bytes(log.read_bytes()[:-7])
    reader = batch(home, {"op": "get", "key": "take"}, {"op": "history", "key": "take"})
    now, story = (json.loads(line)["result"] for line in reader.communicate()[0].splitlines())
    current = int(now["current"])
    assert count - 2 <= current <= count
    assert [fact["status"] for fact in story["facts"]] == ["superseded"] * current + ["active"]


def test_over_http_each_has_what_is_theirs_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {}
    rights = (
        ("test_user", AGENT_SCOPES | {"memory:purge"}),
        ("test_user1", AGENT_SCOPES - {"memory:forget"}),
    )
    with wiring.open_home(tmp_path / "home") as home:
        for agent, scopes in rights:
            made = tokens.create(home, Principal("acme", agent, "w", scopes), None)
            held[agent] = {"Authorization": f"Bearer {made['token']}"}
        with served(home, monkeypatch) as found_at, client_for(found_at["listening"]) as client:
            mine, other = held["test_user"], held["test_user1"]
            made = client.post("/v1/facts", json={"text": "the plan is secret"}, headers=mine).json()
            found = client.post("/v1/recall", json={"query": "secret"}, headers=other).json()
            assert (found["facts"], found["scope"]["agent"]) == ([], "test_user1")
            place = f"/v1/facts/{made['id']}/provenance"
            assert client.get(place, headers=mine).status_code == 200
            assert client.get(place, headers=other).status_code == 404
            kept = client.post("/v1/facts", json={"text": "the dog is fed"}, headers=other).json()
            everything = {"all": True}
            preview = client.post("/v1/forget/preview", json=everything, headers=mine).json()
            asked = client.post("/v1/forget", json=everything | {"confirm": preview["confirm"]}, headers=mine)
            assert asked.json()["erased"] == 1
            found = client.post("/v1/recall", json={"query": "dog"}, headers=other).json()
            assert [fact["id"] for fact in found["facts"]] == [kept["id"]]
            # A token that may not erases nothing, and is told so.
            asked = client.post("/v1/forget/preview", json={"all": True}, headers=other)
            assert (asked.status_code, asked.json()["code"]) == (403, "forbidden")
            # The name that a client gives itself, and a tenant in its words, change nothing.
            asked = client.post("/v1/recall", json={"query": "secret", "tenant": "acme"}, headers=other)
            assert (asked.status_code, asked.json()["code"]) == (400, "unknown_argument")
            assert client.post("/v1/recall", json={"query": "secret"}).status_code == 401
