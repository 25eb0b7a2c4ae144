"""What answers say of the log: receipt states as they are under the policy of now, `status`, and waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from memory import answers, mcp_tools, wiring
from memory.cli import main
from memory.model import SCOPES, Principal
from memory.service import Memory
from memory.wiring import Home
from tlog.errors import MalformedError, UnavailableError
from tlog.keys import make_cosigner_key
from tlog.note import parse_note

ME = Principal("acme", "ops", "desk", SCOPES)
NOBODY = {"size": 0, "published": 0, "root": None, "witnessed": False, "pending": 0}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def me(home: Home) -> Memory:
    return home.memory(ME)


@pytest.fixture
def ask_witness(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets a policy with a witness of this name, that cosigns or does not, and has no other head."""
    monkeypatch.setattr(wiring, "_witnessed_heads", lambda policy, origin: [])

    def ask(name: str = "one", *, up: bool = True) -> None:
        cosigner = make_cosigner_key(tmp_path / "witness" / f"{name}-{up}.key", f"witness.example/{name}")

        def of(_: Any) -> Any:
            def cosign(note: bytes, *_: Any) -> Any:
                return (cosigner.cosign(parse_note(note).text, 1_790_000_000),) if up else ()

            return cosign

        home.cosign_of = of
        home.set_policy(f"witness {name} {cosigner.verifier_key.vkey} http://127.0.0.1:9\nquorum {name}\n")

    return ask


def state(memory: Memory, key: str) -> str:
    (fact,) = memory.get(key)["active"]
    told: str = fact["receipt"]["state"]
    return told


# Receipts


def test_a_quorum_added_later_makes_no_older_checkpoint_witnessed(
    home: Home, me: Memory, ask_witness: Callable[..., None]
) -> None:
    me.remember("it is a", key="k", value="a")
    me.publish()
    assert state(me, "k") == "logged"
    ask_witness(up=False)
    assert state(me, "k") == "logged"
    assert me.recall("it is")["facts"][0]["receipt"]["state"] == "logged"
    assert me.status()["log"]["witnessed"] is False


def test_what_the_policy_s_witnesses_cosigned_is_witnessed(
    me: Memory, ask_witness: Callable[..., None]
) -> None:
    ask_witness()
    me.remember("it is a", key="k", value="a")
    me.publish()
    me.remember("it is b", key="other", value="b")
    assert (state(me, "k"), state(me, "other")) == ("witnessed", "pending")


def test_what_a_witnessed_checkpoint_does_not_cover_is_not_witnessed(
    me: Memory, ask_witness: Callable[..., None], home: Home
) -> None:
    ask_witness()
    me.remember("it is a", key="k", value="a")
    me.publish()
    me.remember("it is b", key="other", value="b")
    cosign_of, home.cosign_of = home.cosign_of, lambda _: lambda *_: ()
    home.close()
    with pytest.raises(UnavailableError):
        home.publish()
    assert (state(home.memory(ME), "k"), state(home.memory(ME), "other")) == ("witnessed", "logged")
    home.cosign_of = cosign_of
    home.close()
    home.publish()
    assert state(home.memory(ME), "other") == "witnessed"


def test_another_witness_asked_for_later_has_not_cosigned(
    me: Memory, ask_witness: Callable[..., None]
) -> None:
    ask_witness("one")
    me.remember("it is a", key="k", value="a")
    me.publish()
    assert state(me, "k") == "witnessed"
    ask_witness("two")
    assert state(me, "k") == "logged"


def test_a_checkpoint_whose_cosignature_is_broken_is_not_witnessed(
    home: Home, me: Memory, ask_witness: Callable[..., None]
) -> None:
    ask_witness()
    me.remember("it is a", key="k", value="a")
    me.publish()
    path = home.path / "log" / "checkpoint"
    note = path.read_bytes()
    line = note.rstrip(b"\n").rsplit(b"\n", 1)[1]
    other = line[:-8] + (b"AAAAAA==" if not line.endswith(b"AAAAAA==") else b"BAAAAA==")
    path.chmod(0o600)
    path.write_bytes(note.replace(line, other))
    assert state(me, "k") == "logged"
    path.write_bytes(b"not a note at all")
    assert state(me, "k") == "logged"
    path.write_bytes(note)
    assert state(me, "k") == "witnessed"


def test_a_checkpoint_is_judged_once(
    me: Memory, ask_witness: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_witness()
    me.remember("it is a", key="k", value="a")
    me.publish()
    assert state(me, "k") == "witnessed"
    before = answers.judge.cache_info().misses
    for _ in range(5):
        assert state(me, "k") == "witnessed"
    assert answers.judge.cache_info().misses == before


# Status


def test_status_says_how_the_log_stands(home: Home, me: Memory, ask_witness: Callable[..., None]) -> None:
    assert me.status()["log"] == NOBODY
    me.remember("it is a")
    assert me.status()["log"] == NOBODY | {"pending": 1}
    told = me.publish()
    me.remember("it is b")
    assert me.status()["log"] == {
        "size": 1,
        "published": 1,
        "root": told["root"],
        "witnessed": False,
        "pending": 1,
    }
    ask_witness(up=False)
    with pytest.raises(UnavailableError):
        me.publish()
    assert me.status()["log"] == {
        "size": 2,
        "published": 1,
        "root": told["root"],
        "witnessed": False,
        "pending": 0,
    }
    ask_witness(up=True)
    told = me.publish()
    assert me.status()["log"] == {
        "size": 2,
        "published": 2,
        "root": told["root"],
        "witnessed": True,
        "pending": 0,
    }


def test_the_status_tool_promises_what_is_answered(me: Memory) -> None:
    schema = mcp_tools.BY_NAME["status"].answer
    answer = me.status()
    Draft202012Validator(schema).validate(answer)
    del answer["log"]["pending"]
    assert list(Draft202012Validator(schema).iter_errors(answer))


# Waiting


def test_waiting_for_witnesses_that_nobody_asks_for_is_bad_input(home: Home, me: Memory) -> None:
    with pytest.raises(MalformedError, match="no witness"):
        me.remember("it is a", wait="witnessed")
    with home.parts().store.read_whole() as view:
        assert view.counts()["statements"] == 0
    assert me.remember("it is a", wait="logged")["receipt"]["state"] == "logged"


def test_waiting_for_witnesses_says_once_they_have_cosigned(
    me: Memory, ask_witness: Callable[..., None]
) -> None:
    ask_witness()
    answer = me.remember("it is a", wait="witnessed")
    assert (answer["outcome"], answer["waited"]) == ("stored", "published")
    assert answer["receipt"] == {"state": "witnessed", "entry": 0}


def test_waiting_for_witnesses_in_vain_is_temporary_and_the_write_stands(
    me: Memory, ask_witness: Callable[..., None]
) -> None:
    ask_witness(up=False)
    with pytest.raises(UnavailableError) as caught:
        me.remember("it is a", key="k", value="a", wait="witnessed")
    (fact,) = me.get("k")["active"]
    assert caught.value.code == "witness_quorum_not_met"
    assert fact["id"] in caught.value.message
    logged = me.remember("it is b", key="l", value="b", wait="logged")
    assert (logged["outcome"], logged["waited"]) == ("stored", "witness_quorum_not_met")
    assert logged["receipt"]["state"] == "logged"
    with pytest.raises(UnavailableError):
        me.remember("it is a", key="k", value="a", wait="witnessed")


def test_the_command_says_by_its_exit_code_what_became_of_waiting(
    home: Home, ask_witness: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(text: str, wait: str) -> int:
        code = main(["remember", text, "--wait", wait, "--json", "--home", str(home.path)])
        capsys.readouterr()
        return code

    assert (run("it is a", "witnessed"), run("it is a", "logged")) == (2, 0)
    # Nobody answers where this witness is said to be.
    ask_witness()
    assert (run("it is b", "witnessed"), run("it is c", "logged")) == (3, 0)
    assert home.memory(ME).status()["store"]["statements"] == 3
