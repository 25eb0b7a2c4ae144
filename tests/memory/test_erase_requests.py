"""A request goes on after its first manifest: each step is one more, by somebody's word, and an audit reads it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import cli, erase_follow, wiring
from memory.claim import parse_claim, verify_claim
from memory.manifest import Manifest, verify_manifest, verify_successor
from memory.manifest_fields import DENIALS
from memory.operator import Operator
from memory.principal import make_principal, narrowed, with_all_scopes
from memory.times import format_time, month_after, parse_time
from tlog.errors import Error, MalformedError, RefusedError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, forget, found_in, manifest_of, write

DANA = "Dana Scully"
HOUR, DAY = 3_600_000_000, 86_400_000_000
LATER = "2100-01-01T00:00:00Z"


class Killed(BaseException):
    """A kill -9, seen from inside."""


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time_ns() // 1000)


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


def fill(home: wiring.Home) -> tuple[Any, Any]:
    """What goes, and what a hold keeps until it is released."""
    gone = write(home, "Dana has a dog, Queequeg.", key="dana/dog", value="Queequeg", subject=DANA)
    kept = write(home, "Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
    return gone, kept


def hold(home: wiring.Home, **selector: Any) -> Any:
    return home.memory(ME).hold(authority="Court", review_by=LATER, **selector)


def chain(home: wiring.Home) -> list[Manifest]:
    """Every manifest there is, each the successor of the one before."""
    found: list[Manifest] = []
    while (path := home.path / "log" / "erasures" / f"{len(found) + 1}.cose").exists():
        manifest = verify_manifest(path.read_bytes(), home.manifest_signer().key)
        verify_successor(manifest, found[-1] if found else None)
        found.append(manifest)
    return found


def findings(home: wiring.Home, ahead: int = 0) -> list[Any]:
    home.publish()
    home.close()
    asked = Asked(home.trust(), home.clock() + 10_000_000 + ahead)
    made = audit(Places(home.path), asked, tenant=None, needles=None)
    return [(one.code, one.where, one.what) for one in made.outcome.findings]


# What a hold kept


def test_a_partly_held_request_goes_on_once_the_hold_is_released(home: wiring.Home) -> None:
    gone, kept = fill(home)
    other = write(home, "Somebody else's record on hold.", subject="Fox Mulder")
    held = hold(home, id=[kept["id"], other["id"]])
    memory = home.memory(ME)
    answer = forget(home, subject=DANA)
    assert answer["state"] == "closed_partial"
    shown = memory.request(answer["request"])
    assert (shown["left"], "confirm" in shown) == ({"ids": [], "held": 1}, False)
    with pytest.raises(RefusedError):
        memory.forget_rest(answer["request"], confirm="x")
    memory.release(held["id"], "the same court")
    shown = memory.request(answer["request"])
    assert shown["left"] == {"ids": [kept["id"]], "held": 0}
    done = memory.forget_rest(answer["request"], confirm=shown["confirm"])
    assert (done["state"], done["erased"], done["request"]) == ("closed_complete", 1, answer["request"])
    with pytest.raises(RefusedError):
        memory.forget_rest(answer["request"], confirm=shown["confirm"])
    first, second = chain(home)
    assert first.document["request"] == second.document["request"]
    assert second.document["guard"]["disposition"] == "erase"
    # The claim of the requester is on both.
    for manifest in (first, second):
        verify_claim(parse_claim(answer["claim"]), manifest.document["claim"], manifest.document["request"])
    assert found_in(home, "Queequeg", "Elm Street") == set()
    assert memory.recall("Somebody record")["facts"] != []
    assert memory.request(answer["request"])["state"] == "closed_complete"
    assert findings(home) == []
    assert gone


@pytest.mark.parametrize("step", ["started", "erased", "verified"])
def test_a_crash_while_it_goes_on_is_made_up_for(home: wiring.Home, step: str) -> None:
    _, kept = fill(home)
    held = hold(home, id=kept["id"])
    answer = forget(home, subject=DANA)
    home.memory(ME).release(held["id"], "the same court")
    shown = home.memory(ME).request(answer["request"])

    def kill(reached: str) -> None:
        if reached == step:
            raise Killed

    with pytest.raises(Killed):
        erase_follow.go_on(home.parts(), ME, answer["request"], shown["confirm"], failpoint=kill)
    home.close()
    shown = home.memory(ME).request(answer["request"])
    if step == "started":
        assert shown["left"]["ids"] == [kept["id"]]
        done = home.memory(ME).forget_rest(answer["request"], confirm=shown["confirm"])
    else:
        assert (shown["state"], shown["left"]["ids"]) == ("inconclusive", [])
        done = home.memory(ME).look_again(answer["request"], ["Elm Street"])
    assert done["state"] == "closed_complete"
    assert len({one.document["request"] for one in chain(home)}) == 1
    assert found_in(home, "Elm Street") == set()
    assert findings(home) == []


def test_a_token_for_the_rest_is_for_what_was_shown(home: wiring.Home) -> None:
    _, kept = fill(home)
    second = write(home, "Dana is at the Bureau.", key="dana/work", value="Bureau", subject=DANA)
    holds = [hold(home, id=one["id"]) for one in (kept, second)]
    memory = home.memory(ME)
    answer = forget(home, subject=DANA)
    memory.release(holds[0]["id"], "the same court")
    token = memory.request(answer["request"])["confirm"]
    memory.release(holds[1]["id"], "the same court")
    with pytest.raises(RefusedError) as caught:
        memory.forget_rest(answer["request"], confirm=token)
    assert caught.value.code == "token_invalid"
    desk = home.memory(with_all_scopes(make_principal("default", "default", "desk")))
    mine = memory.request(answer["request"])["confirm"]
    with pytest.raises(RefusedError):
        desk.forget_rest(answer["request"], confirm=mine)


def test_a_subject_named_elsewhere_keeps_the_rest_partial(home: wiring.Home) -> None:
    _, kept = fill(home)
    held = hold(home, id=kept["id"])
    answer = forget(home, subject=DANA)
    write(home, "The desk next to Dana Scully is free.", key="desk", value="free")
    home.memory(ME).release(held["id"], "the same court")
    token = home.memory(ME).request(answer["request"])["confirm"]
    done = home.memory(ME).forget_rest(answer["request"], confirm=token)
    assert (done["state"], [why["code"] for why in done["why"]]) == ("closed_partial", ["mentions_elsewhere"])


# Denied, withdrawn


def test_a_request_may_be_denied_as_a_whole(home: wiring.Home) -> None:
    fill(home)
    answer = home.memory(ME).deny("legal_claims", subject=DANA)
    assert (answer["state"], answer["erased"]) == ("closed_denied", 0)
    (manifest,) = chain(home)
    assert (manifest.state, manifest.document["why"]) == ("closed_denied", ["legal_claims"])
    (line,) = manifest.document["exceptions"]
    assert (line["why"], line["count"], len(line["items"])) == ("legal_claims", 2, 2)
    verify_claim(parse_claim(answer["claim"]), manifest.document["claim"], manifest.document["request"])
    assert found_in(home, "Queequeg", "Elm Street") == {"Queequeg", "Elm Street"}
    assert findings(home) == []
    for code in ("because", "legal_hold", 7):
        with pytest.raises(MalformedError):
            home.memory(ME).deny(code, subject=DANA)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        home.memory(ME).deny("unfounded", subject="Nobody")


def test_a_denial_that_a_crash_cut_short_is_finished(home: wiring.Home, monkeypatch: Any) -> None:
    from memory import erase_record

    fill(home)

    def kill(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(erase_record, "close_denied", kill)
        with pytest.raises(Killed):
            home.memory(ME).deny("unfounded", subject=DANA)
    home.close()
    home.parts()
    (manifest,) = chain(home)
    assert (manifest.state, manifest.document["why"]) == ("closed_denied", ["unfounded"])
    assert (manifest.document["systems"], manifest.document["checks"]) == ([], [])
    assert findings(home) == []


def test_what_a_hold_keeps_may_be_denied(home: wiring.Home) -> None:
    _, kept = fill(home)
    hold(home, id=kept["id"])
    answer = forget(home, subject=DANA)
    done = home.memory(ME).deny_rest(answer["request"], "legal_obligation")
    assert (done["state"], [why["code"] for why in done["why"]]) == ("closed_partial", ["legal_obligation"])
    assert home.memory(ME).request(answer["request"])["left"] == {"ids": [], "held": 0}
    with pytest.raises(RefusedError):
        home.memory(ME).deny_rest(answer["request"], "legal_obligation")
    assert findings(home) == []


def test_a_request_may_be_withdrawn_while_it_is_open(home: wiring.Home) -> None:
    _, kept = fill(home)
    hold(home, id=kept["id"])
    answer = forget(home, subject=DANA)
    assert home.memory(ME).withdraw(answer["request"])["state"] == "withdrawn"
    with pytest.raises(RefusedError):
        home.memory(ME).withdraw(answer["request"])
    assert findings(home) == []


def test_a_request_goes_on_in_the_log_that_took_over(home: wiring.Home) -> None:
    """What its further manifest shows of before the erasure is of the old log, and what is public now of the new."""
    _, kept = fill(home)
    hold(home, id=kept["id"])
    home.publish()
    before = home.origin
    answer = forget(home, subject=DANA)
    Operator(home).succeed(None, 5)
    assert home.memory(ME).withdraw(answer["request"])["state"] == "withdrawn"
    last = sorted((home.path / "log-2" / "erasures").iterdir())[-1]
    log = verify_manifest(last.read_bytes(), home.manifest_signer().key).document["log"]
    assert log["origin"] == home.origin != before
    assert [log[name].decode().split("\n")[0] for name in ("before", "checkpoint")] == [before, home.origin]
    assert findings(home) == []


# Recipients


def test_recipients_are_told_one_after_the_other(home: wiring.Home, clock: Clock) -> None:
    gone, kept = fill(home)
    memory = home.memory(ME)
    first = memory.give_opening(gone["id"]).recipient
    second = memory.give_opening(kept["id"]).recipient
    answer = forget(home, subject=DANA)
    assert answer["state"] == "awaiting_recipients"
    assert {one["recipient"]: one["told"] for one in memory.request(answer["request"])["recipients"]} == {
        first: False,
        second: False,
    }
    assert memory.told(answer["request"], [first])["state"] == "awaiting_recipients"
    clock.now += DAY
    assert memory.told(answer["request"], [second])["state"] == "closed_complete"
    last = chain(home)[-1].document["recipients"]
    assert all(one["told"] and one["told_at"] % HOUR == 0 for one in last)
    assert len({one["told_at"] for one in last}) == 2
    with pytest.raises(RefusedError):
        memory.told(answer["request"], [first])
    for wrong in ("00" * 16, "Fox"):
        with pytest.raises(MalformedError):
            memory.told(answer["request"], [wrong])
    assert findings(home) == []


def test_what_nobody_asked_for_waits_for_no_recipient(home: wiring.Home) -> None:
    gone, _ = fill(home)
    home.memory(ME).give_opening(gone["id"])
    assert forget(home, id=gone["id"])["state"] == "closed_complete"


# When it is due


def test_a_request_of_a_person_is_due_within_a_month(home: wiring.Home, clock: Clock) -> None:
    gone, _ = fill(home)
    home.memory(ME).give_opening(gone["id"])
    answer = forget(home, subject=DANA)
    times = manifest_of(home, answer).document["times"]
    assert times["received_at"] == times["started_at"]
    assert 27 * DAY < times["due_at"] - times["received_at"] < 32 * DAY
    assert home.memory(ME).status()["requests"]["open"] == 1
    assert home.memory(ME).status()["requests"]["overdue"] == 0
    clock.now += 40 * DAY
    status = home.memory(ME).status()["requests"]
    assert (status["overdue"], status["next_due"]) == (1, None)
    assert home.memory(ME).request(answer["request"])["overdue"] is True
    assert "REQUEST_OVERDUE" in {code for code, _, _ in findings(home)}


def test_the_requester_s_date_and_the_term_may_be_given(home: wiring.Home, clock: Clock) -> None:
    gone, _ = fill(home)
    home.memory(ME).give_opening(gone["id"])
    received, due = format_time(clock.now - 3 * DAY), format_time(clock.now + DAY)
    answer = forget(home, subject=DANA, received_at=received, due_at=due)
    times = manifest_of(home, answer).document["times"]
    for name, said in (("received_at", received), ("due_at", due)):
        assert times[name] == parse_time(said, 0) // HOUR * HOUR
    assert findings(home, ahead=2 * DAY)[0][0] == "REQUEST_OVERDUE"
    for wrong in (
        {"received_at": format_time(clock.now + DAY)},
        {"due_at": received},
        {"received_at": "monday"},
    ):
        with pytest.raises(MalformedError):
            home.memory(ME).forget_preview(subject=DANA, **wrong)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-01-31T10:00:00Z", "2026-02-28T10:00:00Z"),
        ("2028-01-31T10:00:00Z", "2028-02-29T10:00:00Z"),
        ("2026-12-05T00:00:00Z", "2027-01-05T00:00:00Z"),
        ("2026-04-30T23:59:59Z", "2026-05-30T23:59:59Z"),
    ],
)
def test_a_month_ends_on_a_day_that_there_is(start: str, end: str) -> None:
    assert month_after(parse_time(start, 0)) == parse_time(end, 0)


def test_retention_is_due_to_nobody(home: wiring.Home) -> None:
    write(home, "Dana is in Elm Street.", key="dana/address", value="Elm Street")
    write(home, "Dana is in Oak Lane.", key="dana/address", value="Oak Lane")
    answer = home.memory(ME).retention("0s", apply=True)
    assert set(manifest_of(home, answer).document["times"]) == {"started_at", "erased_at", "closed_at"}


def test_heads_of_before_and_after_are_in_the_manifest(home: wiring.Home) -> None:
    fill(home)
    home.publish()
    before = (home.path / "log" / "checkpoint").read_bytes()
    document = manifest_of(home, forget(home, subject=DANA)).document
    assert document["log"]["before"] == before
    assert findings(home) == []


# Whose request it is, and by the command line


def test_a_request_of_another_tenant_is_unknown(home: wiring.Home) -> None:
    fill(home)
    answer = forget(home, subject=DANA)
    acme = home.memory(with_all_scopes(make_principal("acme", "default", "cli")))
    calls = (
        lambda: acme.request(answer["request"]),
        lambda: acme.withdraw(answer["request"]),
        lambda: acme.told(answer["request"], ["00" * 16]),
        lambda: acme.deny_rest(answer["request"], "unfounded"),
    )
    for call in calls:
        with pytest.raises(Error):
            call()
    agent = home.memory(narrowed(ME, frozenset({"memory:read"})))
    with pytest.raises(RefusedError):
        agent.request(answer["request"])


def test_what_a_hold_kept_of_an_agent_goes_by_that_agent_or_by_whoever_may_purge(home: wiring.Home) -> None:
    """A request is found by its number, and its reference is public: neither gives another agent a right to it."""
    _, kept = fill(home)
    held = hold(home, id=kept["id"])
    answer = forget(home, subject=DANA)
    home.memory(ME).release(held["id"], "Court")
    other = make_principal("default", "another", "cli")
    write(home, "Something of its own.", other)
    seen = home.memory(other).request("1")
    assert (seen["left"], "confirm" in seen) == ({"ids": [], "held": 0}, False)
    told = home.memory(ME).request("1")
    assert told["left"]["ids"] == [kept["id"]]
    with pytest.raises(RefusedError):
        home.memory(other).forget_rest(answer["request"], confirm=told["confirm"])
    assert home.memory(ME).get("dana/address")["current"] == "Elm Street"
    owner = home.memory(with_all_scopes(other))
    owner.forget_rest(answer["request"], confirm=owner.request("1")["confirm"])
    assert found_in(home, "Elm Street") == set()
    after = home.memory(ME).request("1")
    assert (after["state"], after["why"]) == ("closed_complete", [])


def test_the_command_line_walks_through_a_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str, expected: int = 0) -> Any:
        assert cli.main([*words, "--home", str(tmp_path / "home"), "--json"]) == expected
        return json.loads(capsys.readouterr().out)

    run("remember", "Dana has a dog.", "--key", "dana/dog", "--value", "Queequeg", "--subject", DANA)
    kept = run("remember", "Dana is in Elm Street.", "--key", "dana/a", "--value", "Elm", "--subject", DANA)
    held = run("hold", "--id", kept["id"], "--authority", "Court", "--review-by", LATER)
    term = ["--received-at", "now", "--due-at", LATER]
    token = run("forget", "--subject", DANA, *term)["confirm"]
    answer = run("forget", "--subject", DANA, *term, "--confirm", token, expected=1)
    assert (answer["state"], answer["held"]) == ("closed_partial", 1)
    assert cli.main(["forget", "--request", answer["request"], "--home", str(tmp_path / "home")]) == 0
    said = capsys.readouterr().out
    assert "closed_partial" in said and "under a legal hold still" in said and LATER[:10] in said
    run("release", held["id"], "--authority", "Court")
    shown = run("forget", "--request", answer["request"])
    done = run("forget", "--request", answer["request"], "--confirm", shown["confirm"])
    assert done["state"] == "closed_complete"
    run("remember", "Dana is back.", "--key", "dana/b", "--value", "back", "--subject", DANA)
    assert run("forget", "--subject", DANA, "--deny", "unfounded")["state"] == "closed_denied"
    where = ["--home", str(tmp_path / "home")]
    for wrong in (
        ["--request", answer["request"], "--told", "x", "--withdraw"],
        ["--request", answer["request"], "--key", "k"],
        ["--told", "00" * 16],
        ["--withdraw"],
        ["--subject", DANA, "--deny", "no"],
        ["--subject", DANA, "--deny", "unfounded", "--confirm", "x"],
    ):
        assert cli.main(["forget", *wrong, *where]) == 2
    assert set(DENIALS) >= {"unfounded"}
