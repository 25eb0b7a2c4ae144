"""What a request selects by, alone and together: exactly that, and nothing that merely looks like it; and its claim."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import cli, tokens, wiring
from memory.claim import claim_hash, parse_claim, verify_claim
from memory.model import AGENT_SCOPES, SCOPES
from memory.principal import make_principal, narrowed, with_all_scopes
from memory.times import format_time
from tlog.errors import Error, MalformedError, RefusedError, VerificationError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, files_of, forget, found_in, manifest_of, write

DANA = "Dana Scully"
DAY = 86_400_000_000
OTHER_AGENT = with_all_scopes(make_principal("default", "other", "cli"))
OTHER_TENANT = with_all_scopes(make_principal("other", "default", "cli"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


@pytest.fixture
def times(home: wiring.Home, clock: Clock) -> dict[str, str]:
    """Three days, in each of which something is said about Dana and about Fox."""
    found = {}
    for name, street, room in (
        ("first", "Elm Street", "basement"),
        ("second", "Oak Lane", "attic"),
        ("third", "Ash Road", "basement"),
    ):
        found[name] = format_time(clock.now)
        write(home, f"Dana is in {street}.", key=f"dana/{name}", value=street, subject=DANA)
        write(home, f"Fox has the {room}.", key=f"fox/{name}", value=room, subject="Fox")
        clock.now += DAY
    return found


def counted(home: wiring.Home, **selector: Any) -> int:
    return int(home.memory(ME).forget_preview(**selector)["preview"]["count"])


def kind_of(home: wiring.Home, **selector: Any) -> str:
    return str(manifest_of(home, forget(home, **selector)).document["scope"]["kind"])


def code_of(home: wiring.Home, **selector: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        home.memory(ME).forget_preview(**selector)
    return caught.value.code


# One selector


def test_a_value_is_selected_wherever_it_is_the_value(home: wiring.Home, times: dict[str, str]) -> None:
    note = write(home, "The basement is damp.")
    write(home, "Basement.")
    assert counted(home, value=" BASEMENT ") == 3
    preview = home.memory(ME).forget_preview(value="basement")
    assert note["id"] in {one["id"] for one in preview["preview"]["mentions"]}
    answer = forget(home, value="basement")
    assert manifest_of(home, answer).document["scope"]["kind"] == "value"
    assert home.memory(ME).get("fox/second")["current"] == "attic"
    assert times


def test_a_time_is_selected_from_then_until_before(home: wiring.Home, times: dict[str, str]) -> None:
    assert counted(home, recorded_from=times["second"], recorded_until=times["third"]) == 2
    assert counted(home, recorded_until=times["second"]) == 2
    assert counted(home, recorded_from=times["second"]) == 4
    assert code_of(home, recorded_until=times["first"]) == "nothing_matched"
    assert kind_of(home, recorded_from=times["third"]) == "time"
    assert found_in(home, "Elm Street", "Oak Lane", "Ash Road") == {"Elm Street", "Oak Lane"}


def test_the_bounds_of_a_time_are_exact(home: wiring.Home, times: dict[str, str]) -> None:
    (fact,) = home.memory(ME).history("dana/second")["facts"]
    assert counted(home, key="dana/second", recorded_from=fact["recorded_at"]) == 1
    assert code_of(home, key="dana/second", recorded_until=fact["recorded_at"]) == "nothing_matched"
    assert times


def test_a_tenant_is_all_its_agents_and_no_other_tenant(home: wiring.Home, times: dict[str, str]) -> None:
    write(home, "The other agent has a cat.", OTHER_AGENT, key="cat", value="cat")
    write(home, "The other tenant has a fish.", OTHER_TENANT, key="fish", value="fish")
    assert (counted(home, all=True), counted(home, tenant=True)) == (6, 7)
    answer = forget(home, tenant=True)
    assert (answer["state"], manifest_of(home, answer).document["scope"]["kind"]) == (
        "closed_complete",
        "tenant",
    )
    assert found_in(home, DANA, "has a cat", "has a fish") == {"has a fish"}
    assert home.memory(OTHER_TENANT).get("fish")["current"] == "fish"
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger WHERE tenant = 1") == [(0,)]
    assert times


def test_a_tenant_takes_the_ledger_that_retention_left(home: wiring.Home) -> None:
    write(home, "Dana is in Elm Street.", OTHER_AGENT, key="a", value="Elm Street")
    write(home, "Dana is in Oak Lane.", OTHER_AGENT, key="a", value="Oak Lane")
    home.memory(OTHER_AGENT).retention("0s", apply=True)
    write(home, "Something of mine.")
    assert home.memory(ME).forget_preview(tenant=True)["preview"]["ledger"] == 1
    assert home.memory(ME).forget_preview(all=True)["preview"]["ledger"] == 0


@pytest.mark.parametrize("left", ["nothing", "a retired value", "a fact"])
def test_a_tenant_takes_what_earlier_requests_have_kept_of_it(tmp_path: Path, left: str) -> None:
    """Its name, the hash of an idempotency key and access to it outlived what was forgotten piece by piece."""
    with wiring.open_home(tmp_path / "home") as home:
        _forget_piece_by_piece(home, left)
        home.publish()
    assert cli.main(["audit", "--home", str(tmp_path / "home")]) == 0


def _forget_piece_by_piece(home: wiring.Home, left: str) -> None:
    made = write(
        home, "The fish is red.", OTHER_TENANT, key="fish/colour", value="red", idempotency_key="f-1"
    )
    if left == "a retired value":
        write(home, "The fish is blue.", OTHER_TENANT, key="fish/colour", value="blue")
        forget(home, OTHER_TENANT, key="fish/colour", guard="keep")
    else:
        forget(home, OTHER_TENANT, id=made["id"])
    if left == "a fact":
        write(home, "There is a cat.", OTHER_TENANT)
    tokens.create(home, OTHER_TENANT, None)
    tables = ("idempotency", "access", "ledger")

    def rows() -> list[int]:
        with home.parts().store.read_whole() as view:
            return [view.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables]

    assert rows()[:2] == [1, 1]
    if left != "a fact":
        with pytest.raises(RefusedError, match="this request keeps them"):
            home.memory(OTHER_TENANT).forget_preview(tenant=True, guard="keep")
    answer = forget(home, OTHER_TENANT, tenant=True)
    assert (answer["state"], rows()) == ("closed_complete", [0, 0, 0])
    document = manifest_of(home, answer).document
    assert (document["guard"]["requests"], document["keys"][0]["destroyed"]) == (1, True)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM tenants WHERE name = 'other'") == [(0,)]
    with pytest.raises(RefusedError):
        home.memory(OTHER_TENANT).forget_preview(tenant=True)


# Several together


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"subject": DANA, "recorded_from": "second"}, 2),
        ({"subject": DANA, "value": "oak lane"}, 1),
        ({"key": "fox/second", "subject": "fox"}, 1),
        ({"key": "fox/second", "subject": DANA}, 0),
        ({"value": "basement", "recorded_until": "second"}, 1),
        ({"all": True, "recorded_from": "third"}, 2),
        ({"tenant": True, "value": "attic"}, 1),
        ({"subject": DANA, "value": "basement"}, 0),
    ],
)
def test_selectors_narrow_each_other(
    home: wiring.Home, times: dict[str, str], selector: dict[str, Any], expected: int
) -> None:
    given = {name: times.get(str(value), value) for name, value in selector.items()}
    if not expected:
        assert code_of(home, **given) == "nothing_matched"
        return
    assert counted(home, **given) == expected
    answer = forget(home, **given)
    assert (answer["erased"], manifest_of(home, answer).document["scope"]["kind"]) == (expected, "combined")


def test_a_narrowed_request_leaves_the_hashes_of_what_it_leaves(home: wiring.Home, clock: Clock) -> None:
    for street in ("Elm Street", "Oak Lane", "Ash Road"):
        write(home, f"Dana is in {street}.", key="dana/address", value=street, subject=DANA)
        clock.now += DAY
    forget(home, subject=DANA, recorded_until=format_time(clock.now - 5 * DAY // 2), guard="erase")
    assert write(home, "Elm?", key="dana/address", value="Elm Street")["outcome"] == "superseded"
    assert write(home, "Oak?", key="dana/address", value="Oak Lane")["reason"] == "echo"


def test_what_nobody_named_takes_the_right_to_purge(home: wiring.Home, times: dict[str, str]) -> None:
    agent = narrowed(ME, AGENT_SCOPES)
    for selector in ({"value": "attic"}, {"recorded_from": 0}, {"all": True}, {"tenant": True}):
        with pytest.raises(RefusedError):
            home.memory(agent).forget_preview(**selector)
    named = {"subject": DANA, "recorded_from": times["second"]}
    assert home.memory(agent).forget_preview(**named)["preview"]["count"] == 2
    assert "memory:purge" in SCOPES - AGENT_SCOPES


def test_a_token_for_one_selection_confirms_no_other(home: wiring.Home, times: dict[str, str]) -> None:
    memory = home.memory(ME)
    selector: dict[str, Any] = {"subject": DANA, "recorded_from": times["second"]}
    token = memory.forget_preview(**selector, identifiers=["agent 42"])["confirm"]
    for other in (selector, {"subject": DANA}, {**selector, "identifiers": ["agent 43"]}):
        with pytest.raises(RefusedError):
            memory.forget(confirm=token, **other)
    token = memory.forget_preview(**selector, identifiers=["agent 42"])["confirm"]
    assert memory.forget(confirm=token, **selector, identifiers=["agent 42"])["erased"] == 2


# Subjects


def test_a_part_of_several_names_is_nobody(home: wiring.Home) -> None:
    for name in ("Dana Scully", "Dana Katherine Fox", "user-1", "user-10"):
        write(home, f"{name} has a locker.", key=f"{name}/locker", value=name, subject=name)
    for part in ("Dana", "user", "Scully"):
        assert code_of(home, subject=part) == "ambiguous_subject"
    for nobody in ("user-", "Dan", "user-100"):
        assert code_of(home, subject=nobody) in ("nothing_matched", "ambiguous_subject")
    assert counted(home, subject="user-1") == 1
    assert len(found_in(home, "Dana Scully", "Katherine", "user-10")) == 3


def test_other_names_of_a_person_are_looked_for(home: wiring.Home) -> None:
    write(home, "The badge is red.", key="badge", value="red", subject=DANA)
    number = write(home, "Call 202-555-0143 after six.")
    mail = write(home, "Write to d.scully@example.org.")
    assert home.memory(ME).forget_preview(subject=DANA)["preview"]["mentions"] == []
    known = {"subject": DANA, "identifiers": ["202-555-0143", "d.scully@example.org"]}
    mentions = home.memory(ME).forget_preview(**known)["preview"]["mentions"]
    assert {one["id"] for one in mentions} == {number["id"], mail["id"]}
    answer = forget(home, **known)
    assert answer["state"] == "closed_partial"
    assert forget(home, id=[number["id"], mail["id"]])["state"] == "closed_complete"
    for bad in ([], [""], "one", ["x"] * 65, [7]):
        with pytest.raises(MalformedError):
            home.memory(ME).forget_preview(subject=DANA, identifiers=bad)


# The claim


def test_a_claim_is_shown_once_and_kept_nowhere(home: wiring.Home, times: dict[str, str]) -> None:
    answer, other = forget(home, subject=DANA), forget(home, subject="Fox")
    document = manifest_of(home, answer).document
    salt = parse_claim(answer["claim"])
    assert document["claim"] == claim_hash(salt, document["request"])
    verify_claim(salt, document["claim"], document["request"])
    whole = b"".join(files_of(home.path).values())
    assert salt not in whole and answer["claim"].encode() not in whole
    assert document["claim"] in whole
    theirs = manifest_of(home, other).document
    for stated, request in (
        (theirs["claim"], theirs["request"]),
        (document["claim"], theirs["request"]),
        (None, document["request"]),
    ):
        with pytest.raises(VerificationError):
            verify_claim(salt, stated, request)
    for bad in (None, "", "ab", "g" * 64, "A" * 64):
        with pytest.raises(Error):
            parse_claim(bad)
    assert times


def test_a_manifest_is_verified_with_its_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"

    def run(*words: str) -> Any:
        code = cli.main([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    where = ("--home", str(home))
    run("remember", "Dana has a dog.", "--subject", DANA, *where)
    token = run("forget", "--subject", DANA, *where)[1]["confirm"]
    _, answer = run("forget", "--subject", DANA, "--confirm", token, *where)
    verify = ("verify", answer["manifest"], "--trust", str(home / "trust.toml"), *where)
    code, plain = run(*verify)
    claimed_code, claimed = run(*verify, "--claim", answer["claim"])
    assert (code, claimed_code) == (0, 0)
    assert '"claim"' not in json.dumps(plain) and '"claim"' in json.dumps(claimed)
    assert run(*verify, "--claim", "0" * 64)[0] == 1
    assert run(*verify, "--claim", "mine")[0] == 2
