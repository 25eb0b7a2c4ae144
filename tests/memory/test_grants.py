"""Reading rights between agents of a tenant: read-only, said in the answer, and over as soon as they are revoked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import cli
from memory.batch import run_batch
from memory.principal import make_principal, narrowed, with_all_scopes
from memory.service import Memory
from memory.wiring import Home, open_home
from tlog.errors import Error, MalformedError, RefusedError

REPOSITORY = Path(__file__).resolve().parent.parent.parent
OWNER = with_all_scopes(make_principal("acme", "owner", "desk"))
READER = with_all_scopes(make_principal("acme", "reader", "phone"))
WORD = "quincemarmalade"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def owner(home: Home) -> Memory:
    return home.memory(OWNER)


@pytest.fixture
def reader(home: Home) -> Memory:
    return home.memory(READER)


@pytest.fixture
def ids(owner: Memory) -> dict[str, str]:
    """Facts of the owner: one that is current, one that was, one that is held."""
    old = owner.remember(f"{WORD} of old", key="jam/kind", value="old")["id"]
    new = owner.remember(f"{WORD} of now", key="jam/kind", value=WORD)["id"]
    held = owner.remember(f"maybe {WORD}", key="jam/guess", value=WORD, provisional=True)["id"]
    return {"old": old, "new": new, "held": held}


def reads(memory: Memory, ids: dict[str, str], **owner: Any) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "get": lambda: memory.get("jam/kind", **owner),
        "get then": lambda: memory.get("jam/kind", as_of="now", as_recorded="now", **owner),
        "recall": lambda: memory.recall(WORD, **owner),
        "recall past": lambda: memory.recall(WORD, include_history=True, **owner),
        "history": lambda: memory.history("jam/kind", **owner),
        "provenance": lambda: memory.provenance(ids["new"], **owner),
        "conflicts": lambda: memory.conflicts(**owner),
    }


def test_a_grant_lets_another_agent_read_on_every_path(
    owner: Memory, reader: Memory, ids: dict[str, str]
) -> None:
    grant = owner.grant("reader")
    assert grant["status"] == "granted"
    own = {name: act() for name, act in reads(owner, ids).items()}
    for name, act in reads(reader, ids, owner="owner").items():
        answer = act()
        assert answer["scope"] == {"tenant": "acme", "agent": "owner", "grant": grant["id"]}, name
        for part in ("facts", "active", "conflicts", "fact"):
            assert answer.get(part) == own[name].get(part), name
        assert WORD in json.dumps(answer) or name == "conflicts"
    assert "grant" not in reader.get("jam/kind")["scope"]


def test_without_a_grant_nothing_is_read_and_nobody_learns_who_there_is(
    owner: Memory, reader: Memory, ids: dict[str, str]
) -> None:
    said = set()
    for name in ("owner", "nobody"):
        for act in reads(reader, ids, owner=name).values():
            with pytest.raises(RefusedError) as raised:
                act()
            assert raised.value.code == "forbidden"
            said.add(raised.value.message)
    assert len(said) == 1
    assert reader.get("jam/kind")["active"] == [] and reader.recall(WORD)["facts"] == []


def test_a_revocation_counts_at_once_on_every_path_and_in_every_handle(
    home: Home, tmp_path: Path, owner: Memory, reader: Memory, ids: dict[str, str]
) -> None:
    grant = owner.grant("reader")["id"]
    with open_home(home.path) as second:
        elsewhere = second.memory(READER)
        assert elsewhere.get("jam/kind", owner="owner")["current"] == WORD
        assert owner.revoke(grant)["status"] == "revoked"
        for memory in (reader, elsewhere):
            for act in reads(memory, ids, owner="owner").values():
                with pytest.raises(RefusedError):
                    act()
    with pytest.raises(MalformedError, match="in force"):
        owner.revoke(grant)
    again = owner.grant("reader")["id"]
    assert again != grant and reader.get("jam/kind", owner="owner")["current"] == WORD


def test_what_is_withheld_is_withheld_from_a_reader_whatever_rights_it_has_at_home(
    owner: Memory, reader: Memory, ids: dict[str, str]
) -> None:
    owner.remember("no", key="jam/kind", value="old")
    owner.grant("reader")
    told = reader.history("jam/kind", owner="owner")["facts"]
    assert {fact["status"] for fact in told} == {"active", "superseded"}
    assert reader.history("jam/guess", owner="owner")["facts"] == []
    assert reader.provenance(ids["held"], owner="owner")["fact"].keys() == {"id", "status", "receipt"}


def test_a_grant_is_for_reading_alone(owner: Memory, reader: Memory, ids: dict[str, str]) -> None:
    owner.grant("reader")
    for act in (
        lambda: reader.retract(ids["new"]),
        lambda: reader.confirm(ids["held"]),
        lambda: reader.discard(ids["held"]),
        lambda: reader.opening(ids["new"]),
        lambda: reader.receipt(ids["new"]),
        lambda: reader.forget_preview(id=ids["new"]),
        lambda: reader.provenance(ids["new"]),
    ):
        with pytest.raises(Error):
            act()
    reader.remember("mine", key="jam/kind", value="mine")
    assert owner.get("jam/kind")["current"] == WORD
    assert reader.get("jam/kind")["current"] == "mine"
    assert reader.get("jam/kind", owner="owner")["current"] == WORD


def test_a_grant_goes_one_way_and_no_further(
    home: Home, owner: Memory, reader: Memory, ids: dict[str, str]
) -> None:
    owner.grant("reader")
    reader.remember("its own", key="own", value="own")
    reader.grant("third")
    third = home.memory(with_all_scopes(make_principal("acme", "third", "x")))
    assert third.get("own", owner="reader")["current"] == "own"
    for memory, name in ((owner, "reader"), (third, "owner")):
        with pytest.raises(RefusedError):
            memory.get("own", owner=name)
    stranger = home.memory(with_all_scopes(make_principal("other", "reader", "x")))
    stranger.remember("so that the tenant is there")
    with pytest.raises(RefusedError):
        stranger.get("jam/kind", owner="owner")


@pytest.mark.parametrize("name", ["owner ", "Owner", "owne", "owner\u200b"])
def test_names_are_compared_exactly(owner: Memory, reader: Memory, ids: dict[str, str], name: str) -> None:
    owner.grant("reader")
    with pytest.raises(RefusedError):
        reader.get("jam/kind", owner=name)


@pytest.mark.parametrize("name", ["*", "", "x" * 257, 7, "\ud800"])
def test_what_cannot_be_a_name_is_neither_granted_to_nor_read(
    owner: Memory, reader: Memory, name: Any
) -> None:
    with pytest.raises(MalformedError):
        owner.grant(name)
    with pytest.raises(MalformedError):
        reader.get("jam/kind", owner=name)


def test_granting_takes_its_own_right(home: Home, owner: Memory, ids: dict[str, str]) -> None:
    grant = owner.grant("reader")["id"]
    for principal in (make_principal("acme", "owner", "desk"), narrowed(OWNER, frozenset({"memory:write"}))):
        with pytest.raises(RefusedError):
            home.memory(principal).grant("spy")
        with pytest.raises(RefusedError):
            home.memory(principal).revoke(grant)
    with pytest.raises(MalformedError):
        home.memory(READER).revoke(grant)
    with pytest.raises(MalformedError, match="another agent"):
        owner.grant("owner")
    unread = home.memory(narrowed(READER, frozenset({"memory:write"})))
    with pytest.raises(RefusedError):
        unread.get("jam/kind", owner="owner")


def test_grants_are_listed_and_granting_twice_is_granting_once(owner: Memory, reader: Memory) -> None:
    first, second = owner.grant("reader"), owner.grant("reader")
    assert first["id"] == second["id"]
    (made,), (given,) = owner.grants()["made"], reader.grants()["given"]
    assert made == given and (made["owner"], made["reader"], made["id"]) == ("owner", "reader", first["id"])
    assert owner.grants()["given"] == reader.grants()["made"] == []
    owner.revoke(first["id"])
    assert owner.grants()["made"] == []


def test_a_row_that_was_altered_grants_nothing(home: Home, owner: Memory, ids: dict[str, str]) -> None:
    owner.grant("reader")
    home.memory(READER).remember("a fact of the reader")
    spy = with_all_scopes(make_principal("acme", "spy", "x"))
    home.memory(spy).remember("a fact of the spy")
    with home.parts().store.write_whole() as txn:
        txn.connection.execute(
            "UPDATE grants SET reader_tag = (SELECT agent_tag FROM facts ORDER BY seq DESC LIMIT 1)"
        )
    for principal in (spy, READER):
        with pytest.raises(RefusedError):
            home.memory(principal).get("jam/kind", owner="owner")


def test_an_audit_of_grants_is_clean(home: Home, owner: Memory, ids: dict[str, str], capsys: Any) -> None:
    owner.revoke(owner.grant("reader")["id"])
    owner.grant("another")
    home.publish()
    home.close()
    trust = home.path / "trust.toml"
    assert cli.main(["audit", "--home", str(home.path), "--trust", str(trust), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "clean"


def test_an_erasure_of_everything_takes_the_names_in_grants(
    home: Home, owner: Memory, ids: dict[str, str]
) -> None:
    reading = "the-very-special-reader"
    owner.revoke(owner.grant(reading)["id"])
    owner.grant(reading)
    done = owner.forget(all=True, confirm=owner.forget_preview(all=True)["confirm"])
    assert done["state"] == "closed_complete"
    assert owner.grants()["made"] == []
    home.close()
    found = [
        path for path in home.path.rglob("*") if path.is_file() and reading.encode() in path.read_bytes()
    ]
    assert found == []


def test_the_command_and_a_batch_grant_too(
    home: Home, owner: Memory, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def run(agent: str, *arguments: str) -> tuple[int, Any]:
        monkeypatch.setenv("MUNIMENT_AGENT", agent)
        code = cli.main([*arguments, "--home", str(home.path), "--json"])
        return code, json.loads(capsys.readouterr().out)

    monkeypatch.setenv("MUNIMENT_TENANT", "acme")
    assert run("reader", "get", "jam/kind", "--owner", "owner")[0] == 1
    id = run("owner", "grant", "reader")[1]["id"]
    assert run("reader", "get", "jam/kind", "--owner", "owner")[1]["current"] == WORD
    assert run("owner", "grant")[1]["made"][0]["id"] == id
    for command in (["recall", WORD], ["history", "jam/kind"], ["provenance", ids["new"]], ["conflicts"]):
        assert run("reader", *command, "--owner", "owner")[1]["scope"]["grant"] == id
    lines = [
        {"op": "get", "key": "jam/kind", "owner": "owner"},
        {"op": "grants"},
        {"op": "grant", "reader": "x"},
    ]
    answers: list[str] = []
    run_batch([json.dumps(line) for line in lines], answers.append, home, False, READER)
    assert [json.loads(answer)["ok"] for answer in answers] == [True, True, True]
    assert run("owner", "revoke", id)[1]["status"] == "revoked"
    assert run("reader", "get", "jam/kind", "--owner", "owner")[0] == 1
