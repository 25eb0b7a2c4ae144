"""What has gone wrong in other memories, each tried on this one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import wiring
from memory.model import SCOPES, Principal
from memory.service import Memory
from memory.wiring import Home
from tlog.errors import MalformedError, RefusedError

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ME = Principal("acme", "ops", "desk", SCOPES)
OTHER = Principal("acme", "ops", "ide", SCOPES)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def me(home: Home) -> Memory:
    return home.memory(ME)


def facts(home: Home) -> int:
    with home.parts().store.read_whole() as view:
        row = view.one("SELECT count(*) FROM facts")
        assert row is not None
        return int(row[0])


def test_the_same_name_five_times_is_there_once(me: Memory, home: Home) -> None:
    outcomes = [me.remember("my name is Bo", key="me/name", value="Bo")["outcome"] for _ in range(5)]
    assert outcomes == ["stored"] + ["agreed"] * 4
    assert facts(home) == 1


def test_the_same_request_again_is_one_fact_with_one_receipt(me: Memory, home: Home) -> None:
    asked: dict[str, Any] = {"key": "me/name", "value": "Bo", "idempotency_key": "one"}
    first, again = (me.remember("my name is Bo", **asked) for _ in range(2))
    assert (first["id"], first["receipt"]) == (again["id"], again["receipt"])
    assert facts(home) == 1
    with pytest.raises(RefusedError) as refused:
        me.remember("my name is Bob", **{**asked, "value": "Bob"})
    assert refused.value.code == "idempotency_conflict"


def test_love_then_hate_on_one_key(me: Memory) -> None:
    me.remember("I love X", key="x")
    me.remember("I hate X", key="x")
    assert me.get("x")["current"] == "I hate X"
    assert [fact["status"] for fact in me.history("x")["facts"]] == ["superseded", "active"]


def test_coffee_is_past_once_it_is_tea(me: Memory) -> None:
    me.remember("drinks coffee in the morning", key="me/drink", value="coffee")
    me.remember("drinks tea in the morning now", key="me/drink", value="tea")
    assert {fact["value"] for fact in me.recall("what to drink in the morning")["facts"]} == {"tea"}


def test_an_answer_that_is_fed_back_is_no_new_fact(me: Memory, home: Home) -> None:
    me.remember("The attic key hangs behind the door")
    me.remember("lives in Porto", key="me/city", value="Porto")
    before = facts(home)
    for _ in range(10):
        for fact in (*me.recall("attic key")["facts"], *me.recall("lives Porto")["facts"]):
            given = {} if fact["key"] is None else {"key": fact["key"], "value": fact["value"]}
            assert me.remember(fact["text"], **given)["outcome"] == "agreed"
    assert facts(home) == before


def test_a_stale_client_does_not_undo_a_correction(me: Memory, home: Home) -> None:
    me.remember("it is blue", key="colour", value="blue")
    me.remember("it is red", key="colour", value="red")
    stale = home.memory(OTHER).remember("it is blue", key="colour", value="blue")
    assert (stale["outcome"], stale["reason"]) == ("refused", "echo")
    assert me.get("colour")["current"] == "red"
    assert [one["reason"] for one in me.review()["facts"]] == ["echo"]


NAMES = ["acme", "acme-evil", "acme_evil", "acme.evil", "ac%", "a/b", "a", "A", "*x", "é", "e\u0301"]


@pytest.mark.parametrize("name", NAMES[1:])
def test_scopes_with_like_names_share_nothing(home: Home, name: str) -> None:
    """Tenant against tenant, and as (tenant, agent) against the same letters cut elsewhere."""
    home.memory(ME).remember("the vault code is 4711", key="vault/code", value="4711")
    others = [Principal(name, "ops", "desk", SCOPES), Principal("acme", name, "desk", SCOPES)]
    for other in others:
        memory = home.memory(other)
        assert memory.get("vault/code")["active"] == []
        assert memory.recall("vault code")["facts"] == []
        assert memory.remember("another", key="vault/code", value="1")["outcome"] == "stored"
    assert home.memory(ME).get("vault/code")["current"] == "4711"


def test_cut_elsewhere_two_names_are_two_scopes(home: Home) -> None:
    first = home.memory(Principal("a", "b:c", "desk", SCOPES))
    first.remember("a secret", key="k", value="1")
    for tenant, agent in (("a:b", "c"), ("a", "b"), ("a/b", "c"), ("a", "b/c")):
        assert home.memory(Principal(tenant, agent, "desk", SCOPES)).get("k")["active"] == []


def test_a_uuid_is_a_tenant_like_any_other(home: Home) -> None:
    memory = home.memory(Principal("0b9c1a52-6a3e-4f0a-9a51-1f6fd7c2b8a4", "ops", "desk", SCOPES))
    memory.remember("the printer is on floor two")
    assert len(memory.recall("printer")["facts"]) == 1


@pytest.mark.parametrize(
    ("text", "query"),
    [("今日は成語しりとりをした", "しりとり"), ("设备清单", "设备"), ("창고에 있다", "창고")],
)
def test_finds_words_in_scripts_without_spaces(me: Memory, text: str, query: str) -> None:
    me.remember(text)
    assert [fact["text"] for fact in me.recall(query)["facts"]] == [text]


QUERIES = ["a/b", '"', "***", "NEAR(", "(", "AND OR NOT", "key:x", "-", "\\", "%_", "x" * 1_000_000]


@pytest.mark.parametrize("query", QUERIES)
def test_any_query_is_answered(me: Memory, query: str) -> None:
    me.remember("a plain fact about a and b")
    try:
        assert isinstance(me.recall(query)["facts"], list)
    except MalformedError as error:
        assert error.message and query not in error.message


def test_an_empty_query_finds_nothing(me: Memory) -> None:
    me.remember("a plain fact")
    assert me.recall("")["facts"] == []


def test_who_may_only_read_erases_nothing(me: Memory, home: Home) -> None:
    made = me.remember("kept", key="k", value="v")["id"]
    reader = home.memory(Principal("acme", "ops", "desk", frozenset({"memory:read"})))
    for asked in (
        lambda: reader.forget_preview(id=made),
        lambda: reader.retract(made),
        lambda: reader.remember("x"),
    ):
        with pytest.raises(RefusedError) as refused:
            asked()
        assert refused.value.code == "forbidden"
    assert me.get("k")["current"] == "v"


def test_an_unknown_id_is_never_erased_with_success(me: Memory) -> None:
    me.remember("kept")
    with pytest.raises(MalformedError) as refused:
        me.forget_preview(id="a" * 26)
    assert refused.value.code in ("unknown_id", "bad_input")


def test_an_empty_scope_says_which_was_searched(me: Memory) -> None:
    assert me.recall("anything")["scope"] == {"tenant": "acme", "agent": "ops"}
    assert me.get("nothing")["scope"] == {"tenant": "acme", "agent": "ops"}


def test_a_restart_changes_no_answer(home: Home) -> None:
    home.memory(ME).remember("the lift is broken", key="lift/state", value="broken")
    before = home.memory(ME).get("lift/state"), home.memory(ME).recall("lift")["facts"]
    home.close()
    after = home.memory(ME).get("lift/state"), home.memory(ME).recall("lift")["facts"]
    for old, new in zip(before, after, strict=True):
        assert (
            json.dumps(old, sort_keys=True).count("broken")
            == json.dumps(new, sort_keys=True).count("broken")
            > 0
        )
    assert before[1] == after[1]


WRITER = """
import sys
from memory import wiring
from memory.model import SCOPES, Principal
with wiring.open_home(sys.argv[1]) as home:
    memory = home.memory(Principal("acme", "ops", sys.argv[2], SCOPES))
    for number in range(20):
        memory.remember(f"{sys.argv[2]} says {number}", key=f"{sys.argv[2]}/{number}", value=str(number))
"""


def test_two_processes_threads_and_an_asyncio_server_on_one_home(home: Home, me: Memory) -> None:
    """Each writes twenty facts; everybody reads all of them without opening the home again."""
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(home.path), name], cwd=REPOSITORY)
        for name in ("first", "second")
    ]

    def write(name: str) -> None:
        for number in range(20):
            me.remember(f"{name} says {number}", key=f"{name}/{number}", value=str(number))

    async def serve() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = json.loads(await reader.readline())
            answer = await asyncio.to_thread(lambda: me.remember(**asked))
            writer.write(json.dumps(answer["outcome"]).encode() + b"\n")
            writer.close()

        async def ask(port: int, number: int) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            asked = {"text": f"server says {number}", "key": f"server/{number}", "value": str(number)}
            writer.write(json.dumps(asked).encode() + b"\n")
            answer = str(json.loads(await reader.readline()))
            writer.close()
            return answer

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert await asyncio.gather(*(ask(port, number) for number in range(20))) == ["stored"] * 20

    threads = [threading.Thread(target=write, args=(name,)) for name in ("third", "fourth")]
    for thread in threads:
        thread.start()
    asyncio.run(serve())
    for thread in threads:
        thread.join()
    assert [process.wait(timeout=60) for process in started] == [0, 0]
    for name in ("first", "second", "third", "fourth", "server"):
        for number in range(20):
            assert me.get(f"{name}/{number}")["current"] == str(number)
    assert facts(home) == 100
