"""An erasure takes what was confirmed, leaves no byte of it, proves what it did, and admits what it could not."""

from __future__ import annotations

import multiprocessing
import random
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory import erase, erase_record, erase_run, scan_process, wiring
from memory.event import decode_content, decode_link
from memory.manifest import Manifest, decode_manifest, verify_manifest, verify_successor
from memory.model import AGENT_SCOPES, Principal, parse_fact_id
from memory.principal import make_principal, owner_from_environment, with_all_scopes
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError
from tlog.storage import DirectoryStorage

ME = owner_from_environment({})
DANA = "Dana Scully"
WORDS = ("Dana Scully", "Elm Street", "Oak Lane", "dana/address")


class Killed(BaseException):
    """What a kill -9 looks like from inside: nothing but the process's own end catches it."""


class Clock:
    def __init__(self) -> None:
        self.now = 1_900_000_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


def write(home: wiring.Home, text: str, caller: Principal = ME, **more: Any) -> Any:
    return home.memory(caller).remember(text, **more)


def write_week(home: wiring.Home) -> dict[str, Any]:
    """Two addresses of Dana, an echo of the first that was refused, and a colleague."""
    return {
        "old": write(
            home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street", subject=DANA
        ),
        "new": write(
            home, "Dana Scully moved to Oak Lane.", key="dana/address", value="Oak Lane", subject=DANA
        ),
        "echo": write(home, "She is in Elm Street.", key="dana/address", value="Elm Street"),
        "fox": write(
            home, "Fox Mulder has the basement.", key="fox/office", value="basement", subject="Fox Mulder"
        ),
    }


def forget(home: wiring.Home, caller: Principal = ME, **selector: Any) -> Any:
    memory = home.memory(caller)
    return memory.forget(confirm=memory.forget_preview(**selector)["confirm"], **selector)


def found_in(home: wiring.Home, *needles: str) -> set[str]:
    """Which needles stand, in whatever case, in any file of the home: a plain scan that shares no code."""
    found = set()
    for path in home.path.rglob("*"):
        if path.is_file():
            data = path.read_bytes().lower()
            found |= {needle for needle in needles if needle.lower().encode() in data}
    return found


def manifest_of(home: wiring.Home, answer: Any) -> Manifest:
    return verify_manifest(Path(answer["manifest"]).read_bytes(), home.manifest_signer().key)


def result_of(manifest: Manifest, check: str) -> str:
    return str(next(one["result"] for one in manifest.document["checks"] if one["check"] == check))


# Preview and confirmation


def test_a_preview_tells_what_would_go_and_deletes_nothing(home: wiring.Home) -> None:
    week = write_week(home)
    answer = home.memory(ME).forget_preview(subject=DANA)
    assert answer["preview"] == {
        "count": 2,
        "ids": [week["old"]["id"], week["new"]["id"]],
        "by_status": {"active": 1, "superseded": 1},
        "derived": 1,
        "held": 0,
        "mentions": [],
        "guard": "erase",
        "ledger": 1,
        "openings": 0,
    }
    assert answer["confirm"] and answer["expires_at"].endswith("Z")
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"


@pytest.mark.parametrize(
    ("selector", "count", "guard"),
    [
        ({"id": "old"}, 1, "keep"),
        ({"id": ["old", "fox", "old"]}, 2, "keep"),
        ({"key": "Dana/Address"}, 3, "keep"),
        ({"subject": "dana scully"}, 2, "erase"),
        ({"all": True}, 4, "erase"),
    ],
)
def test_each_selector_takes_exactly_its_scope(
    home: wiring.Home, selector: dict[str, Any], count: int, guard: str
) -> None:
    week = write_week(home)
    if "id" in selector:
        names = selector["id"] if isinstance(selector["id"], list) else [selector["id"]]
        ids = [week[name]["id"] for name in names]
        selector = {"id": ids if isinstance(selector["id"], list) else ids[0]}
    preview = home.memory(ME).forget_preview(**selector)["preview"]
    assert (preview["count"], preview["guard"]) == (count, guard)
    answer = forget(home, **selector)
    assert (answer["erased"], answer["state"]) == (count, "closed_complete")


def test_a_subject_never_takes_one_whose_name_it_begins(home: wiring.Home) -> None:
    for name in ("user-1", "user-10", "user-11"):
        write(
            home,
            f"The locker of {name} is the blue one.",
            key=f"{name}/locker",
            value="blue one",
            subject=name,
        )
    preview = home.memory(ME).forget_preview(subject="user-1")["preview"]
    assert (preview["count"], preview["mentions"]) == (1, [])
    assert forget(home, subject="user-1")["state"] == "closed_complete"
    assert home.memory(ME).get("user-1/locker")["active"] == []
    assert home.memory(ME).get("user-10/locker")["current"] == "blue one"


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"all": False},
        {"id": "a" * 26, "subject": "b"},
        {"all": True, "subject": "b"},
        {"key": "a", "identifiers": ["b"]},
        {"value": "a", "recorded_from": 20, "recorded_until": 20},
        {"id": []},
        {"id": "nonsense"},
        {"id": ["a" * 26, 7]},
        {"key": "  "},
        {"subject": "a\ud800"},
        {"key": "k" * 5000},
        {"all": "yes"},
        {"key": "a", "guard": "maybe"},
        {"key": "a", "guard": "expire=yesterday"},
        {"key": "a", "guard": "expire=2000-01-01T00:00:00Z"},
        {"key": "a", "reason": "because Dana asked"},
    ],
)
def test_a_request_that_is_not_understood_is_an_error(home: wiring.Home, selector: dict[str, Any]) -> None:
    write_week(home)
    with pytest.raises(MalformedError) as caught:
        home.memory(ME).forget_preview(**selector)
    assert "Dana" not in caught.value.message


@pytest.mark.parametrize("selector", [{"key": "nobody/here"}, {"subject": "Nobody"}])
def test_an_empty_scope_is_refused_and_never_a_success(home: wiring.Home, selector: dict[str, Any]) -> None:
    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            home.memory(ME).forget_preview(**selector)
        assert caught.value.code == "nothing_matched"
        write_week(home)
    stranger = with_all_scopes(make_principal("nobody", "default", "cli"))
    with pytest.raises(RefusedError):
        home.memory(stranger).forget_preview(all=True)


def test_ids_are_known_unknown_or_erased(home: wiring.Home) -> None:
    week = write_week(home)
    with pytest.raises(MalformedError) as caught:
        home.memory(ME).forget_preview(id=[week["old"]["id"], "a" * 26])
    assert caught.value.code == "unknown_id"
    other = with_all_scopes(make_principal("default", "other", "cli"))
    with pytest.raises(MalformedError):
        home.memory(other).forget_preview(id=week["old"]["id"])
    forget(home, id=week["old"]["id"])
    with pytest.raises(RefusedError) as refused:
        home.memory(ME).forget_preview(id=week["old"]["id"])
    assert refused.value.code == "erased"


def test_mentions_of_a_person_elsewhere_are_shown_and_keep_the_request_open(home: wiring.Home) -> None:
    write_week(home)
    note = write(home, "Fox Mulder had lunch with dana scully.", subject="Fox Mulder")
    preview = home.memory(ME).forget_preview(subject=DANA)
    assert preview["preview"]["mentions"] == [{"id": note["id"], "status": "active"}]
    answer = forget(home, subject=DANA)
    assert answer["state"] == "closed_partial"
    assert [why["code"] for why in answer["why"]] == ["mentions_elsewhere"]
    assert manifest_of(home, answer).document["scope"]["mentions"] == 1
    assert forget(home, id=note["id"])["state"] == "closed_complete"
    assert found_in(home, "scully", "Fox Mulder") == {"Fox Mulder"}


def test_values_that_stand_elsewhere_are_shown(home: wiring.Home) -> None:
    week = write_week(home)
    note = write(home, "Parcels for the office go to Oak Lane too.")
    write(home, "Oak Lanes are many.")
    preview = home.memory(ME).forget_preview(id=week["new"]["id"])
    assert preview["preview"]["mentions"] == [{"id": note["id"], "status": "active"}]
    # Only somebody's own request stays open for what is said of them elsewhere.
    assert forget(home, id=week["new"]["id"])["state"] == "closed_complete"


def test_a_subject_is_looked_for_in_every_spelling_it_was_written_in(home: wiring.Home) -> None:
    write(home, "The badge is red.", key="badge", value="red", subject="dana-scully")
    note = write(home, "Ask dana-scully about it.")
    other = write(home, "Ask Dana Scully about it.")
    preview = home.memory(ME).forget_preview(subject=DANA)["preview"]
    assert (preview["count"], {one["id"] for one in preview["mentions"]}) == (1, {note["id"], other["id"]})


ZOE = "Zoë Åkesson-Müller"
SPELLINGS = {
    "decomposed": unicodedata.normalize("NFD", ZOE),
    "capitals": ZOE.upper(),
    "wide": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in ZOE),
    "other white space": ZOE.replace(" ", "\u00a0\n "),
    "other hyphen": ZOE.replace("-", "\u2010"),
    "invisible characters": ZOE.replace("k", "\u200bk\u00ad"),
    "another separator": ZOE.replace("-", "_"),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_subject_is_found_in_every_form_of_unicode(home: wiring.Home, spelling: str) -> None:
    write(home, "The badge is red.", key="badge", value="red", subject=ZOE)
    note = write(home, f"Ask {spelling}, who has the badge.")
    write(home, "Ask Zoë Åkesson-Müllerová about it.")
    for asked in (ZOE, spelling):
        preview = home.memory(ME).forget_preview(subject=asked)["preview"]
        assert (preview["count"], preview["mentions"]) == (1, [{"id": note["id"], "status": "active"}])
    assert forget(home, subject=ZOE)["state"] == "closed_partial"


def test_a_name_is_one_field_s_and_not_put_together_of_two(home: wiring.Home) -> None:
    write(home, "The badge is red.", key="badge", value="red", subject=DANA)
    write(home, "It was said by Dana", key="scully", value="Scully", source="Dana")
    write(home, "Dana = Scully, he wrote.")
    assert home.memory(ME).forget_preview(subject=DANA)["preview"]["mentions"] == []
    note = write(home, "The call was short.", source="Dana Scully, by telephone")
    mentions = home.memory(ME).forget_preview(subject=DANA)["preview"]["mentions"]
    assert [one["id"] for one in mentions] == [note["id"]]


def test_a_name_in_a_script_without_spaces_is_found_in_all_widths(home: wiring.Home) -> None:
    write(home, "名札は赤い。", key="名札", value="赤", subject="山田ﾀﾛｳ")
    note = write(home, "今日は山田タロウさんが来た。")
    preview = home.memory(ME).forget_preview(subject="山田タロウ")["preview"]
    assert (preview["count"], [one["id"] for one in preview["mentions"]]) == (1, [note["id"]])


def test_a_token_holds_once(home: wiring.Home) -> None:
    write_week(home)
    memory = home.memory(ME)
    token = memory.forget_preview(subject=DANA)["confirm"]
    memory.forget(subject=DANA, confirm=token)
    write_week(home)
    with pytest.raises(RefusedError) as caught:
        memory.forget(subject=DANA, confirm=token)
    assert caught.value.code == "token_invalid"


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("keep", "erase"),
        ("erase", "keep"),
        (None, "erase"),
        ("keep", "expire=2040-01-01T00:00:00Z"),
        ("expire=2040-01-01T00:00:00Z", "expire=2041-01-01T00:00:00Z"),
    ],
)
def test_a_token_confirms_no_other_choice_than_what_was_shown(
    home: wiring.Home, shown: str | None, said: str
) -> None:
    """The default of a key is to keep."""
    write_week(home)
    memory = home.memory(ME)
    token = memory.forget_preview(key="dana/address", guard=shown)["confirm"]
    with pytest.raises(RefusedError) as caught:
        memory.forget(key="dana/address", guard=said, confirm=token)
    assert caught.value.code == "token_invalid"
    assert memory.get("dana/address")["current"] == "Oak Lane"


@pytest.mark.parametrize(("shown", "made"), [("keep", "keep"), ("erase", "erase"), (None, "keep")])
def test_a_confirmation_without_a_choice_is_for_the_one_that_was_shown(
    home: wiring.Home, shown: str | None, made: str
) -> None:
    write_week(home)
    memory = home.memory(ME)
    token = memory.forget_preview(key="dana/address", guard=shown)["confirm"]
    assert memory.forget(key="dana/address", confirm=token)["guard"] == made


@pytest.mark.parametrize("seconds", [119, 121])
def test_a_token_holds_for_120_seconds(home: wiring.Home, clock: Clock, seconds: int) -> None:
    write_week(home)
    memory = home.memory(ME)
    token = memory.forget_preview(subject=DANA)["confirm"]
    clock.now += seconds * 1_000_000
    if seconds < 120:
        assert memory.forget(subject=DANA, confirm=token)["erased"] == 2
    else:
        with pytest.raises(RefusedError):
            memory.forget(subject=DANA, confirm=token)


@pytest.mark.parametrize("token", ["", "x", "x" * 5000, None, 7, True, "ü\ud800"])
def test_a_token_that_is_none_confirms_nothing(home: wiring.Home, token: Any) -> None:
    write_week(home)
    home.memory(ME).forget_preview(subject=DANA)
    with pytest.raises(Error):
        home.memory(ME).forget(subject=DANA, confirm=token)
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"


def test_a_token_is_bound_to_the_caller_and_the_selection(home: wiring.Home) -> None:
    week = write_week(home)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]
    others = [make_principal(*names) for names in (("default", "other", "cli"), ("other", "default", "cli"))]
    for caller in map(with_all_scopes, others):
        write(home, "Something of its own.", caller, subject=DANA)
    desk = make_principal("default", "default", "desk")
    for caller in map(with_all_scopes, (desk, *others)):
        with pytest.raises(RefusedError):
            home.memory(caller).forget(subject=DANA, confirm=token)
    token = home.memory(ME).forget_preview(key="dana/address")["confirm"]
    for selector in ({"subject": DANA}, {"all": True}, {"id": week["old"]["id"]}):
        with pytest.raises(RefusedError):
            home.memory(ME).forget(confirm=token, **selector)
    assert home.memory(ME).forget(key="dana/address", confirm=token)["erased"] == 3


def test_what_was_confirmed_goes_or_nothing_does(home: wiring.Home) -> None:
    """A record that joins, leaves or changes its status after the preview needs a new one."""
    week = write_week(home)
    memory = home.memory(ME)
    changes: list[Callable[[], Any]] = [
        lambda: write(home, "Dana Scully has a dog.", subject=DANA),
        lambda: memory.retract(week["new"]["id"]),
    ]
    for change in changes:
        token = memory.forget_preview(subject=DANA)["confirm"]
        change()
        with pytest.raises(RefusedError) as caught:
            memory.forget(subject=DANA, confirm=token)
        assert caught.value.code == "token_invalid"
        assert found_in(home, *WORDS) == set(WORDS)
    assert forget(home, subject=DANA)["erased"] == 3


def test_a_change_between_the_record_and_the_transaction_undoes_the_erasure(home: wiring.Home) -> None:
    write_week(home)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]

    def join(step: str) -> None:
        if step == "started":
            write(home, "Dana Scully has a dog.", subject=DANA)

    with pytest.raises(RefusedError):
        erase.execute(home.parts(), ME, token, failpoint=join, subject=DANA)
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"
    assert forget(home, subject=DANA)["number"] == 1


def test_other_writes_do_not_disturb_a_confirmation(home: wiring.Home) -> None:
    write_week(home)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]
    write(home, "Fox Mulder moved to the attic.", key="fox/office", value="attic", subject="Fox Mulder")
    assert home.memory(ME).forget(subject=DANA, confirm=token)["state"] == "closed_complete"


def test_a_token_is_kept_as_a_hash_alone(home: wiring.Home) -> None:
    write_week(home)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]
    assert found_in(home, token) == set()


def test_the_rights_to_forget_and_to_purge_are_two(home: wiring.Home) -> None:
    write_week(home)
    agent = replace(ME, scopes=AGENT_SCOPES)
    with pytest.raises(RefusedError) as caught:
        home.memory(agent).forget_preview(all=True)
    assert caught.value.code == "forbidden"
    token = home.memory(ME).forget_preview(all=True)["confirm"]
    with pytest.raises(RefusedError):
        home.memory(agent).forget(all=True, confirm=token)
    with pytest.raises(RefusedError):
        home.memory(replace(ME, scopes=frozenset({"memory:read"}))).forget_preview(subject=DANA)
    assert forget(home, agent, subject=DANA)["erased"] == 2


# What goes


def test_no_byte_of_an_erased_person_is_left_in_any_file(home: wiring.Home) -> None:
    write_week(home)
    home.publish()
    assert found_in(home, *WORDS, "basement") == {*WORDS, "basement"}
    answer = forget(home, subject=DANA)
    home.publish()
    assert found_in(home, *WORDS, "basement") == {"basement"}
    assert (answer["erased"], answer["derived"], answer["state"]) == (2, 1, "closed_complete")
    assert answer["residue"]["result"] == "clean" and answer["residue"]["controls_found"] == 1


def test_salts_and_reads_of_the_erased_are_gone_and_others_intact(home: wiring.Home) -> None:
    week = write_week(home)
    forget(home, subject=DANA)
    memory = home.memory(ME)
    assert memory.get("dana/address")["current"] is None
    assert memory.recall("Scully Elm Oak")["facts"] == []
    assert memory.get("fox/office")["current"] == "basement"
    with home.parts().store.read_whole() as view:
        for name in ("old", "new", "echo"):
            row = view.event(1, parse_fact_id(week[name]["id"]))
            assert row is not None and (row.content, row.content_salt) == (None, None)
    assert memory.provenance(week["fox"]["id"])["fact"]["value"] == "basement"


def test_the_same_words_of_another_tenant_stay(home: wiring.Home) -> None:
    other = with_all_scopes(make_principal("other", "default", "cli"))
    for caller in (ME, other):
        write(
            home,
            "Dana Scully lives in Elm Street.",
            caller,
            key="dana/address",
            value="Elm Street",
            subject=DANA,
        )
    answer = forget(home, subject=DANA)
    assert home.memory(other).get("dana/address")["current"] == "Elm Street"
    assert answer["residue"]["needles_shared"] > 0
    # Its own salt tells that the row is gone, though its words prove nothing.
    assert answer["state"] == "closed_complete"


def test_copies_that_were_refused_or_held_go_along(home: wiring.Home) -> None:
    write_week(home)
    write(home, "Dana Scully moved to Oak Lane.", provisional=True, key="dana/guess", value="Oak Lane")
    preview = home.memory(ME).forget_preview(key="dana/address")["preview"]
    assert preview["by_status"] == {"active": 1, "refused": 1, "superseded": 1}
    assert preview["derived"] == 1
    forget(home, key="dana/address")
    assert found_in(home, "Elm Street", "Oak Lane") == set()


def test_what_was_done_to_a_record_goes_with_it(home: wiring.Home) -> None:
    week = write_week(home)
    home.memory(ME).reaffirm(week["echo"]["id"], "Dana rang from the Xanadu hotel.")
    home.memory(ME).retract(week["echo"]["id"])
    assert found_in(home, "Xanadu") == {"Xanadu"}
    answer = forget(home, key="dana/address")
    assert answer["derived"] == 2
    assert found_in(home, "Xanadu", "Elm Street") == set()


def test_an_idempotency_key_of_the_erased_does_not_bring_it_back(home: wiring.Home) -> None:
    request = {"key": "dana/address", "value": "Elm Street", "subject": DANA, "idempotency_key": "one"}
    write(home, "Dana Scully lives in Elm Street.", **request)
    forget(home, subject=DANA, guard="keep")
    with pytest.raises(RefusedError) as caught:
        write(home, "Dana Scully lives in Elm Street.", **request)
    assert caught.value.code == "erased"
    assert found_in(home, *WORDS) == set()


@pytest.mark.parametrize(
    ("guard", "outcome", "entries"),
    [("erase", "stored", 1), ("keep", "refused", 1), ("expire=2031-01-01T00:00:00Z", "refused", 1)],
)
def test_the_request_says_whether_retired_values_stay_refused(
    home: wiring.Home, clock: Clock, guard: str, outcome: str, entries: int
) -> None:
    write_week(home)
    memory = home.memory(ME)
    token = memory.forget_preview(key="dana/address", guard=guard)["confirm"]
    answer = memory.forget(key="dana/address", guard=guard, confirm=token)
    document = manifest_of(home, answer).document
    assert document["guard"]["disposition"] == guard.split("=")[0]
    assert document["guard"]["entries"] == entries
    assert ("ledger_kept" in document["limits"]) == (guard != "erase")
    again = {"key": "dana/address", "value": "elm  street"}
    assert write(home, "It is Elm Street.", **again)["outcome"] == outcome
    if guard.startswith("expire"):
        clock.now = 2_000_000_000_000_000
        assert write(home, "It is Elm Street then.", **again)["outcome"] == "stored"


def test_old_superseded_facts_go_the_same_way(home: wiring.Home, clock: Clock) -> None:
    week = write_week(home)
    assert home.memory(ME).retention("0s")["matched"] == 1
    answer = home.memory(ME).retention("0s", apply=True)
    document = manifest_of(home, answer).document
    assert (document["scope"]["count"], document["scope"]["derived"]) == (1, 1)
    assert (document["scope"]["kind"], document["basis"]) == ("retention", "retention")
    assert home.memory(ME).retention("0s", apply=True)["removed"] == 0
    assert found_in(home, "lives in Elm Street") == set()
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"
    assert write(home, "Elm Street!", key="dana/address", value="Elm Street")["reason"] == "echo"
    assert week["new"]["id"]


def test_random_histories_leave_no_value_that_was_ever_erased(home: wiring.Home) -> None:
    """Mixed sizes, interleaved updates, several rounds: every value ever erased is looked for at the end."""
    chance = random.Random(7)
    erased: list[str] = []
    for number in range(3):
        marks: dict[str, list[str]] = {}
        for turn in range(40):
            person = f"person-{number}-{chance.randrange(5)}"
            mark = "".join(chance.choices("bcdfghjklmnpqrstvwxz", k=14))
            filler = " ".join(chance.choices(["amber", "birch", "cedar"], k=chance.choice([1, 3, 40, 400])))
            key = f"{person}/thing-{chance.randrange(4)}"
            text = f"{mark} is said in turn {turn}: {filler}."
            write(home, text, key=key, value=f"{mark} {turn}", subject=person)
            marks.setdefault(person, []).append(mark)
        for person in sorted(marks)[:3]:
            assert found_in(home, *marks[person]) == set(marks[person])
            assert forget(home, subject=person)["state"] == "closed_complete"
            erased += marks[person]
            write(home, f"Something else after {person}.", key=f"other/{number}", value=filler)
        assert found_in(home, *erased) == set()


# The proof of it


def test_the_manifest_is_signed_logged_and_says_what_the_tombstone_says(home: wiring.Home) -> None:
    week = write_week(home)
    answer = forget(home, subject=DANA, reason="consent")
    size = home.publish()["size"]
    manifest = manifest_of(home, answer)
    log = home.log()
    entries = [log.read_entry(index) for index in range(size)]
    assert manifest.tombstone.entry in entries
    with home.parts().store.read_whole() as view:
        links = view.links(range(1, size + 1))
        announced = view.event_by_seq(next(seq for seq, one in links.items() if one.kind == "manifest"))
        tombstone = view.event(1, manifest.tombstone.commitment)
        erased = [view.event(1, parse_fact_id(week[name]["id"])) for name in ("old", "new", "echo")]
    assert announced is not None and tombstone is not None
    link = decode_link(announced.link)
    assert (link.kind, link.details["number"]) == ("manifest", 1)
    assert link.details["digest"] == manifest.digest
    assert link.details["erasure"] == manifest.tombstone.commitment
    assert manifest.tombstone.targets == tuple(row.commitment for row in erased if row is not None)
    details = decode_link(tombstone.link).details
    assert (details["number"], details["guard"], details["basis"], details["count"]) == (
        1,
        "erase",
        "consent",
        3,
    )
    assert "previous" not in details
    document = manifest.document
    assert document["scope"] == {
        "kind": "subject",
        "count": 2,
        "derived": 1,
        "by_status": {"active": 1, "superseded": 1},
        "mentions": 0,
    }
    assert [system["kind"] for system in document["systems"]] == ["store", "wal", "ledger"]
    checks = {check["check"]: check["result"] for check in document["checks"]}
    assert checks == dict.fromkeys(("structure", "bystanders", "residue", "free_space"), "clean")
    assert answer["checks"] == checks
    times = document["times"]
    assert times["started_at"] <= times["erased_at"] <= times["closed_at"]
    assert tombstone.content is not None and tombstone.content_salt is not None
    data = Path(answer["manifest"]).read_bytes()
    exactly = decode_content(tombstone.content)["recorded_at"]
    assert times["erased_at"] == exactly - exactly % 3_600_000_000
    assert tombstone.content_salt not in data and exactly.to_bytes(8, "big") not in data


def test_a_manifest_holds_nothing_of_the_content(home: wiring.Home) -> None:
    write_week(home)
    with home.parts().store.read_whole() as view:
        rows = [view.event_by_seq(seq) for seq in (1, 2, 3)]
    data = Path(forget(home, subject=DANA)["manifest"]).read_bytes()
    for needle in (*WORDS, "default"):
        assert needle.lower().encode() not in data.lower()
    for row in rows:
        assert row is not None and row.content_salt is not None
        assert row.content_salt not in data and row.content_hash not in data


def test_the_manifest_carries_the_checkpoint_of_its_time(home: wiring.Home) -> None:
    write_week(home)
    assert "checkpoint" not in manifest_of(home, forget(home, key="fox/office")).document["log"]
    home.publish()
    public = home.public_storage().read("checkpoint")
    document = manifest_of(home, forget(home, subject=DANA)).document
    assert document["log"] == {"origin": home.origin, "before": public, "checkpoint": public}


def test_tombstones_and_manifests_are_numbered_and_chained(home: wiring.Home) -> None:
    other = with_all_scopes(make_principal("other", "default", "cli"))
    previous: Manifest | None = None
    tombstone = None
    for number, caller in enumerate((ME, other, ME), start=1):
        write(home, f"Dana Scully said {number}.", caller, subject=DANA)
        answer = forget(home, caller, subject=DANA)
        manifest = manifest_of(home, answer)
        assert (answer["number"], manifest.number) == (number, number)
        assert Path(answer["manifest"]).name == f"{number}.cose"
        verify_successor(manifest, previous)
        assert manifest.tombstone.link.details.get("previous") == tombstone
        assert manifest.tombstone.link.details["number"] == number
        previous, tombstone = manifest, manifest.tombstone.commitment


def test_a_tombstone_is_never_a_target(home: wiring.Home) -> None:
    write_week(home)
    first = manifest_of(home, forget(home, all=True))
    with pytest.raises(RefusedError):
        home.memory(ME).forget_preview(all=True)
    write(home, "Something new.")
    second = manifest_of(home, forget(home, all=True))
    assert first.tombstone.commitment not in second.tombstone.targets
    assert len(second.tombstone.targets) == 1


def test_an_erased_statement_is_logged_before_its_tombstone(home: wiring.Home) -> None:
    week = write_week(home)
    forget(home, subject=DANA)
    home.publish()
    with home.parts().store.read_whole() as view:
        rows = [view.event_by_seq(seq) for seq in range(1, 7)]
    assert [row.entry_index for row in rows if row is not None] == list(range(6))
    assert home.memory(ME).provenance(week["old"]["id"])["receipt"]["state"] == "logged"


# What cannot be proved is said


def planted(step_wanted: str, act: Callable[[], Any]) -> Callable[[str], None]:
    def failpoint(step: str) -> None:
        if step == step_wanted:
            act()

    return failpoint


def forget_with(home: wiring.Home, failpoint: Callable[[str], None], **selector: Any) -> Any:
    token = home.memory(ME).forget_preview(**selector)["confirm"]
    return erase.execute(home.parts(), ME, token, failpoint=failpoint, **selector)


def test_residue_in_another_file_of_the_home_is_found_and_said(home: wiring.Home) -> None:
    write_week(home)
    (home.path / "notes.txt").write_text("remember: DANA SCULLY, Oak Lane")
    answer = forget(home, subject=DANA)
    assert (answer["state"], answer["residue"]["result"]) == ("inconclusive", "found")
    assert [why["code"] for why in answer["why"]] == ["residue_found"]
    assert answer["residue"]["found"] == [{"class": "RESIDUE_FILE", "count": answer["residue"]["hits"]}]
    assert b"scully" not in Path(answer["manifest"]).read_bytes().lower()


def test_words_of_a_kept_record_explain_only_what_is_in_the_store(home: wiring.Home) -> None:
    write_week(home)
    write(home, "Nobody else lives in Oak Lane.", key="oak-lane/other", value="nobody")
    (home.path / "notes.txt").write_text("Oak Lane")
    assert forget(home, subject=DANA)["residue"]["result"] == "found"
    (home.path / "notes.txt").unlink()
    write(home, "Dana Scully moved to Oak Lane.", subject=DANA)
    answer = forget(home, subject=DANA)
    assert (answer["residue"]["result"], answer["state"]) == ("clean", "closed_complete")


def test_a_file_that_cannot_be_searched_leaves_the_scan_inconclusive(home: wiring.Home) -> None:
    write_week(home)
    (home.path / "link").symlink_to("/etc/hostname")
    answer = forget(home, subject=DANA)
    assert (answer["state"], answer["residue"]["result"]) == ("inconclusive", "inconclusive")
    assert [why["code"] for why in answer["why"]] == ["control_failed"]


def test_a_canary_that_is_not_found_makes_the_scan_worth_nothing(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_week(home)
    monkeypatch.setattr(erase_run, "new_canary", lambda: "q" * 24)
    start = erase_record.start
    monkeypatch.setattr(erase_record, "start", lambda txn, draft, canary: start(txn, draft, "z" * 24))
    answer = forget(home, subject=DANA)
    assert (answer["state"], answer["residue"]["controls_found"]) == ("inconclusive", 0)


def test_a_row_that_came_back_is_found(home: wiring.Home) -> None:
    week = write_week(home)
    with home.parts().store.read_whole() as view:
        row = view.event(1, parse_fact_id(week["old"]["id"]))
    assert row is not None

    def put_back() -> None:
        with home.parts().store.write() as txn:
            txn.connection.execute(
                "INSERT INTO contents (seq, content, salt) VALUES (?, ?, ?)",
                (row.seq, row.content, row.content_salt),
            )

    answer = forget_with(home, planted("erased", put_back), subject=DANA)
    codes = [why["code"] for why in answer["why"]]
    assert answer["state"] == "failed" and "content_present" in codes
    document = manifest_of(home, answer).document
    assert document["systems"][0]["result"] == "failed"


def test_a_bystander_that_was_touched_is_found(home: wiring.Home) -> None:
    week = write_week(home)

    def touch() -> None:
        with home.parts().store.write() as txn:
            txn.connection.execute("DELETE FROM contents WHERE seq = 4")

    answer = forget_with(home, planted("erased", touch), subject=DANA)
    assert answer["state"] == "inconclusive"
    assert [why["code"] for why in answer["why"]] == ["bystander_damaged"]
    assert week["fox"]["id"]


def test_a_reader_that_pins_the_write_ahead_log_is_said(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_week(home)
    monkeypatch.setattr(erase_record, "CHECKPOINT_SECONDS", 0.2)
    with home.parts().store.read_whole() as view:
        assert view.counts()["facts"] == 4
        answer = forget(home, subject=DANA)
    assert answer["state"] == "inconclusive"
    assert {why["code"] for why in answer["why"]} == {"wal_pinned", "residue_found"}
    assert {one["class"] for one in answer["residue"]["found"]} == {"RESIDUE_WAL"}


def test_a_reader_that_ends_in_time_is_waited_for(home: wiring.Home) -> None:
    write_week(home)
    reading = threading.Event()

    def read() -> None:
        with home.parts().store.read_whole() as view:
            assert view.counts()["facts"] == 4
            reading.set()
            time.sleep(0.4)

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    assert forget(home, subject=DANA)["state"] == "closed_complete"
    reader.join()


def test_a_scan_that_cannot_be_made_ends_inconclusive(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch, scans_anew: None
) -> None:
    write_week(home)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    answer = forget(home, subject=DANA)
    assert (answer["state"], answer["residue"]["result"]) == ("inconclusive", "not_run")
    assert [why["code"] for why in answer["why"]] == ["scan_not_available"]
    assert found_in(home, *WORDS) == set()


def test_the_scan_runs_in_a_process_of_its_own(tmp_path: Path, scans_anew: None) -> None:
    """In this process it would close descriptors of the store, and with them drop the locks of connections."""
    (tmp_path / "a").write_bytes(b"\x00\x01Elm Street\xff" + bytes(range(200, 232)) + b"canary-of-this-test")
    needles = ["Elm Street", bytes(range(200, 232)), "not there", "ünïcødé 名前"]
    loaded = "ahocorasick_rs" in sys.modules
    result = scan_process.scan_apart(tmp_path, needles, canary="canary-of-this-test")
    assert ("ahocorasick_rs" in sys.modules) == loaded
    assert (result.files, result.control_found, result.not_read) == (1, True, ())
    assert {hit.needle for hit in result.hits} == {0, 1}
    with pytest.raises(UnavailableError):
        scan_process.scan_apart(tmp_path / "missing", needles, canary="canary-of-this-test")


@pytest.mark.parametrize("value", ["7", "on", "blue", "active", "value", "muniment"])
def test_short_and_common_words_do_not_raise_a_false_alarm(home: wiring.Home, value: str) -> None:
    write(home, "A blue flag, active and on, of value 7 to muniment.", key="flag/one", value=value)
    write(home, "Another flag.", key="flag/two", value="green")
    answer = forget(home, key="flag/one")
    assert (answer["state"], answer["why"]) == ("closed_complete", [])
    assert answer["residue"]["needles_shared"] + answer["residue"]["needles_not_searchable"] > 0


def test_a_long_text_is_looked_for_in_pieces(home: wiring.Home) -> None:
    text = " ".join(f"word{number:05d}" for number in range(20_000))
    write(home, text, subject=DANA)
    with home.parts().store.write() as txn:
        # One page of the text, left behind by a store that does not clean up.
        txn.set_meta("left", text[len(text) // 2 : len(text) // 2 + 16_000].encode())
    answer = forget(home, subject=DANA)
    assert answer["residue"]["result"] == "found"


# Crashes


def crash_at(step_wanted: str) -> Callable[[str], None]:
    def failpoint(step: str) -> None:
        if step == step_wanted:
            raise Killed

    return failpoint


def kill_during_forget(home: wiring.Home, step: str) -> None:
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]
    with pytest.raises(Killed):
        erase.execute(home.parts(), ME, token, failpoint=crash_at(step), subject=DANA)
    home.close()


def test_a_crash_before_the_transaction_deletes_nothing(tmp_path: Path) -> None:
    home = wiring.open_home(tmp_path / "home")
    write_week(home)
    kill_during_forget(home, "started")
    with wiring.open_home(tmp_path / "home") as again:
        assert again.memory(ME).get("dana/address")["current"] == "Oak Lane"
        assert not list((tmp_path / "home" / "log" / "erasures").glob("*"))
        answer = forget(again, subject=DANA)
        assert (answer["number"], answer["state"]) == (1, "closed_complete")


@pytest.mark.parametrize("step", ["erased", "verified"])
def test_a_crash_after_the_transaction_is_finished_by_whoever_opens_next(tmp_path: Path, step: str) -> None:
    home = wiring.open_home(tmp_path / "home")
    write_week(home)
    kill_during_forget(home, step)
    with wiring.open_home(tmp_path / "home") as again:
        again.parts()
        data = (tmp_path / "home" / "log" / "erasures" / "1.cose").read_bytes()
        manifest = verify_manifest(data, again.manifest_signer().key)
        assert (manifest.state, manifest.document["why"]) == ("inconclusive", ["crash_before_scan"])
        assert result_of(manifest, "residue") == "not_run"
        assert result_of(manifest, "structure") == "clean"
        assert len(manifest.tombstone.targets) == 3
        assert again.memory(ME).get("dana/address")["current"] is None
        assert found_in(again, *WORDS) == set()
        write(again, "Dana Scully is back.", subject=DANA)
        second = manifest_of(again, forget(again, subject=DANA))
        verify_successor(second, manifest)
        assert again.publish()["size"] == 9


def test_a_crash_before_the_manifest_lies_beside_the_tiles_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = wiring.open_home(tmp_path / "home")
    write_week(home)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]
    create = DirectoryStorage.create

    def kill(self: DirectoryStorage, path: str, data: bytes) -> None:
        if path.startswith("erasures/"):
            raise Killed
        create(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStorage, "create", kill)
        with pytest.raises(Killed):
            home.memory(ME).forget(subject=DANA, confirm=token)
    home.close()
    with wiring.open_home(tmp_path / "home") as again:
        again.parts()
        manifest = decode_manifest((tmp_path / "home" / "log" / "erasures" / "1.cose").read_bytes())
        assert manifest.state == "closed_complete"
        with again.parts().store.read_whole() as view:
            row = view.erasure(1)
        assert row is not None and row.manifest == manifest.raw


def test_nobody_finishes_an_erasure_that_is_still_running(tmp_path: Path) -> None:
    home = wiring.open_home(tmp_path / "home")
    write_week(home)
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]

    def open_meanwhile() -> None:
        with wiring.open_home(tmp_path / "home") as other:
            assert other.memory(ME).get("dana/address")["current"] is None
        assert not (tmp_path / "home" / "log" / "erasures" / "1.cose").exists()

    answer = erase.execute(home.parts(), ME, token, failpoint=planted("erased", open_meanwhile), subject=DANA)
    assert (answer["state"], answer["number"]) == ("closed_complete", 1)
    home.close()


def _forget_own(path: str, name: str) -> None:
    with wiring.open_home(path) as home:
        for number in range(4):
            write(home, f"{name} said number {number}.", subject=name)
            assert forget(home, subject=name)["erased"] == 1


def test_two_processes_erase_one_after_the_other(tmp_path: Path) -> None:
    wiring.open_home(tmp_path / "home").close()
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_forget_own, args=(str(tmp_path / "home"), name)) for name in ("Ada", "Bob")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    previous: Manifest | None = None
    for number in range(1, 9):
        manifest = decode_manifest((tmp_path / "home" / "log" / "erasures" / f"{number}.cose").read_bytes())
        verify_successor(manifest, previous)
        previous = manifest


def _forget_until_killed(path: str, start: int) -> None:
    with wiring.open_home(path) as home:
        for number in range(start, start + 1000):
            write(
                home, f"Subject{number:06d} has the locker.", key=f"k{number}", subject=f"Subject{number:06d}"
            )
            forget(home, subject=f"Subject{number:06d}")


def _wait_for_an_erasure(folder: Path) -> None:
    """Returns once one more manifest lies beside the log: a slow machine only takes longer to get there."""
    manifests = folder / "log" / "erasures"
    before = len(list(manifests.glob("*.cose")))
    deadline = time.monotonic() + 60
    while len(list(manifests.glob("*.cose"))) == before and time.monotonic() < deadline:
        time.sleep(0.02)


def test_kill_9_at_any_instant_leaves_whole_erasures(tmp_path: Path) -> None:
    """Whatever the instant: a record is there and served, or gone with a tombstone and its manifest."""
    chance = random.Random(11)
    wiring.open_home(tmp_path / "home").close()
    context = multiprocessing.get_context("spawn")
    for number in range(6):
        process = context.Process(target=_forget_until_killed, args=(str(tmp_path / "home"), number * 1000))
        process.start()
        _wait_for_an_erasure(tmp_path / "home")
        time.sleep(chance.random())
        process.kill()
        process.join()
        with wiring.open_home(tmp_path / "home") as home:
            assert home.parts().store.check() == ()
            with home.parts().store.read_whole() as view:
                erasures = view.erasures()
                statements = view.counts()["statements"]
                rows = [view.event_by_seq(seq) for seq in range(1, statements + 1)]
            kinds = [decode_link(row.link).kind for row in rows if row is not None]
            previous: Manifest | None = None
            for erasure in erasures:
                file = tmp_path / "home" / "log" / "erasures" / f"{erasure.number}.cose"
                manifest = decode_manifest(file.read_bytes())
                assert manifest.state in ("closed_complete", "inconclusive")
                verify_successor(manifest, previous)
                previous = manifest
            assert kinds.count("erase") == kinds.count("manifest") == len(erasures)
            served = {fact["subject"] for fact in home.memory(ME).recall("locker", limit=1000)["facts"]}
            assert len(served) == kinds.count("write") - kinds.count("erase")
            assert home.publish()["size"] == statements
    assert len(erasures) > 3
