"""What an erasure says where it cannot look, where little is left to erase, and where others have a copy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import cli, erase, manifest_text, scan_process, wiring
from memory.manifest import decode_manifest
from memory.manifest_fields import LIMITS, REASONS
from memory.opening import open_with, parse_opening
from memory.principal import make_principal, with_all_scopes
from tlog.errors import MalformedError, RefusedError, UnavailableError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, Clock, check_of, forget, found_in, manifest_of, write

DANA = "Dana Scully"
HOUR = 3_600_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


def codes(answer: Any) -> list[str]:
    return [why["code"] for why in answer["why"]]


def leave_residue(home: wiring.Home, text: bytes) -> None:
    """Copies of something in gaps of live pages, as a store leaves them that does not clean up."""
    home.close()
    path = home.path / "store.db"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for start in range(size, len(data), size):
        if data[start] not in (10, 13):
            continue
        array_end = start + 8 + 2 * int.from_bytes(data[start + 3 : start + 5], "big")
        content_start = start + int.from_bytes(data[start + 5 : start + 7], "big")
        if content_start - array_end > len(text) + 8:
            data[array_end + 4 : array_end + 4 + len(text)] = text
    path.write_bytes(data)


# What is too short to be looked for


def test_a_record_that_cannot_be_looked_for_is_covered_by_the_check_of_free_space(home: wiring.Home) -> None:
    write(home, "A 7.", key="a", value="7")
    write(home, "Something else altogether.")
    answer = forget(home, key="a")
    manifest = manifest_of(home, answer)
    counts = check_of(manifest, "residue")["counts"]
    assert counts["records_not_covered"] == 1 and counts["needles_not_searchable"] >= 2
    free_space = check_of(manifest, "free_space")
    assert free_space["result"] == "clean"
    assert free_space["counts"]["free_bytes"] > 0 and free_space["counts"]["pages"] > 10
    assert free_space["counts"]["controls_found"] == free_space["counts"]["controls_planted"] == 2
    assert (answer["state"], answer["why"]) == ("closed_complete", [])
    assert "needles_not_searchable" in manifest.document["limits"]


@pytest.mark.parametrize("place", ["notes.txt", ".tmp/notes", "log/tile.old"])
def test_a_record_that_cannot_be_looked_for_is_not_clean_beside_a_file_that_could_have_it(
    home: wiring.Home, place: str
) -> None:
    write(home, "A 7.", key="a", value="7")
    file = home.path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("A 7.")
    if place.startswith("log"):
        home.publish()
    answer = forget(home, key="a")
    assert (answer["state"], codes(answer)) == ("inconclusive", ["needles_not_searchable"])
    manifest = manifest_of(home, answer)
    assert check_of(manifest, "residue")["result"] == "inconclusive"
    assert check_of(manifest, "free_space")["counts"]["files_not_known"] == 1
    file.unlink()
    assert home.memory(ME).look_again(answer["request"], ["A 7."])["state"] == "closed_complete"


def test_a_file_beside_the_store_is_searched_for_what_can_be_looked_for(home: wiring.Home) -> None:
    write(home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street")
    (home.path / "notes.txt").write_text("nothing of it")
    assert forget(home, key="dana/address")["state"] == "closed_complete"


def test_each_record_is_covered_by_its_own_words_or_not_at_all(home: wiring.Home) -> None:
    ids = [
        write(home, text, key=key, value=value)["id"]
        for text, key, value in (
            ("Dana Scully lives in Elm Street.", "dana/address", "Elm Street"),
            ("A 7.", "a", "7"),
            ("A 9.", "b", "9"),
            ("Dana Scully has a dog.", "dana/pet", "a dog"),
        )
    ]
    counts = check_of(manifest_of(home, forget(home, id=ids)), "residue")["counts"]
    assert counts["records_not_covered"] == 2


def test_a_record_that_can_be_looked_for_is_not_called_uncovered(home: wiring.Home) -> None:
    write(home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street")
    manifest = manifest_of(home, forget(home, key="dana/address"))
    assert "records_not_covered" not in check_of(manifest, "residue")["counts"]
    assert "needles_not_searchable" not in manifest.document["limits"]


def test_a_record_that_only_says_what_others_say_is_not_covered_by_the_scan(home: wiring.Home) -> None:
    """Its words are found, and explained: whether a copy of the record itself is left, they do not tell."""
    other = with_all_scopes(make_principal(ME.tenant, "other", "cli"))
    for caller in (ME, other):
        write(home, "Elm Street is closed.", caller, key="elm", value="closed today")
    counts = check_of(manifest_of(home, forget(home, key="elm")), "residue")["counts"]
    assert counts["records_not_covered"] == 1


def test_that_another_tenant_says_the_same_is_told_to_nobody(home: wiring.Home) -> None:
    other = with_all_scopes(make_principal("other", "default", "cli"))
    for caller in (ME, other):
        write(home, "Elm Street is closed.", caller, key="elm", value="closed today")
    counts = check_of(manifest_of(home, forget(home, key="elm")), "residue")["counts"]
    assert "records_not_covered" not in counts


@pytest.mark.parametrize("needle", ["7", "Elm Street"])
def test_without_the_check_of_free_space_nothing_is_complete(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch, needle: str
) -> None:
    def fail(folder: Path) -> Any:
        raise UnavailableError("it could not be looked at", code="scan_failed")

    write(home, f"A {needle}.", key="a", value=needle)
    monkeypatch.setattr(scan_process, "pages_apart", fail)
    answer = forget(home, key="a")
    short = needle == "7"
    assert answer["state"] == "inconclusive"
    assert set(codes(answer)) == {"scan_not_available", *(["needles_not_searchable"] if short else [])}
    manifest = manifest_of(home, answer)
    assert check_of(manifest, "free_space")["result"] == "not_run"
    assert check_of(manifest, "residue")["result"] == ("inconclusive" if short else "clean")


def test_what_a_careless_store_leaves_in_its_free_space_is_found_without_knowing_it(
    home: wiring.Home,
) -> None:
    write(home, "A 7.", key="a", value="7")
    for number in range(20):
        write(home, f"Other fact number {number}.")
    leave_residue(home, b"7")
    answer = forget(home, key="a")
    assert answer["state"] == "inconclusive"
    assert set(codes(answer)) == {"residue_found", "needles_not_searchable"}
    free_space = check_of(manifest_of(home, answer), "free_space")
    # Pages that the erasure itself wrote are clean again.
    assert [one["class"] for one in free_space["residue"]] == ["RESIDUE_FREE_SPACE"]
    assert answer["checks"]["residue"] == "inconclusive" and answer["checks"]["free_space"] == "found"


def test_a_control_that_finds_nothing_makes_the_check_worth_nothing(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, "A 7.", key="a", value="7")
    found = scan_process.pages_apart(home.path)
    assert (found.controls_found, found.damaged, dict(found.residue)) == (2, 0, {})
    from dataclasses import replace

    monkeypatch.setattr(scan_process, "pages_apart", lambda folder: replace(found, controls_found=1))
    answer = forget(home, key="a")
    assert set(codes(answer)) == {"control_failed", "needles_not_searchable"}


def test_the_check_of_free_space_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        scan_process.pages_apart(tmp_path)


def test_a_crash_leaves_the_check_of_free_space_to_whoever_opens_next(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(step: str) -> None:
        if step == "erased":
            raise Killed

    home = wiring.open_home(tmp_path / "home")
    write(home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street")
    token = home.memory(ME).forget_preview(key="dana/address")["confirm"]
    with pytest.raises(Killed):
        erase.execute(home.parts(), ME, token, failpoint=kill, key="dana/address")
    home.close()
    with wiring.open_home(tmp_path / "home") as again:
        again.parts()
        manifest = decode_manifest((tmp_path / "home" / "log" / "erasures" / "1.cose").read_bytes())
        results = {one["check"]: one["result"] for one in manifest.document["checks"]}
        assert results == {"structure": "clean", "residue": "not_run", "free_space": "clean"}


# Where only hashes are left


def leave_hashes(home: wiring.Home, clock: Clock) -> None:
    """A retired value of Dana's whose fact went by retention: its hashes are all that is left of her."""
    request = {"key": "dana/address", "subject": DANA}
    write(home, "Dana Scully lives in Elm Street.", value="Elm Street", **request)
    write(home, "Dana Scully moved to Oak Lane.", value="Oak Lane", **request)
    last = home.memory(ME).retract(home.memory(ME).get("dana/address")["active"][0]["id"])
    assert last["status"] == "retracted"
    assert home.memory(ME).retention("0s", apply=True)["removed"] == 1
    forget(home, id=last["id"])


@pytest.mark.parametrize("selector", [{"subject": "dana scully"}, {"key": "Dana/Address"}, {"all": True}])
def test_hashes_that_outlived_their_facts_can_be_erased(
    home: wiring.Home, clock: Clock, selector: dict[str, Any]
) -> None:
    leave_hashes(home, clock)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger") == [(2,)]
        assert view.counts()["facts"] == 0
    again = {"key": "dana/address", "subject": DANA, "value": "Elm Street"}
    assert write(home, "In Elm Street again.", **again)["reason"] == "echo"
    # The refusal says nothing and goes along where it is of the key or the scope.
    preview = home.memory(ME).forget_preview(guard="erase", **selector)["preview"]
    assert (preview["count"], preview["ledger"]) == (0 if "subject" in selector else 1, 2)
    answer = forget(home, guard="erase", **selector)
    assert (answer["state"], answer["ledger"]) == ("closed_complete", 2), answer["why"]
    manifest = manifest_of(home, answer)
    assert manifest.document["guard"] == {"disposition": "erase", "entries": 2}
    assert manifest.document["scope"]["count"] == len(manifest.tombstone.targets) == preview["count"]
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger") == [(0,)]
    assert write(home, "In Elm Street again.", **again)["outcome"] == "stored"
    with pytest.raises(RefusedError):
        home.memory(ME).forget_preview(subject="Somebody Else", guard="erase")
    home.publish()


@pytest.mark.parametrize("guard", ["keep", "expire=2040-01-01T00:00:00Z"])
def test_to_keep_what_alone_is_left_is_to_do_nothing(home: wiring.Home, clock: Clock, guard: str) -> None:
    leave_hashes(home, clock)
    for call in (
        lambda: home.memory(ME).forget_preview(subject=DANA, guard=guard),
        lambda: home.memory(ME).forget_preview(key="dana/address"),
        lambda: home.memory(ME).forget(
            subject=DANA, guard=guard, confirm=home.memory(ME).forget_preview(subject=DANA)["confirm"]
        ),
    ):
        with pytest.raises(RefusedError) as caught:
            call()
        assert caught.value.code in ("nothing_matched", "token_invalid")
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger") == [(2,)]


def test_a_token_for_hashes_alone_is_for_those_hashes(home: wiring.Home, clock: Clock) -> None:
    leave_hashes(home, clock)
    fox = {"key": "fox/office", "subject": "Fox Mulder"}
    write(home, "Fox Mulder has the basement.", value="basement", **fox)
    write(home, "Fox Mulder has the attic.", value="attic", **fox)
    home.memory(ME).retention("0s", apply=True)
    forget(home, id=home.memory(ME).get("fox/office")["active"][0]["id"])
    token = home.memory(ME).forget_preview(subject=DANA)["confirm"]
    with pytest.raises(RefusedError) as caught:
        home.memory(ME).forget(subject="Fox Mulder", confirm=token)
    assert caught.value.code == "token_invalid"


def test_hashes_that_have_expired_go(home: wiring.Home, clock: Clock) -> None:
    write(home, "It is in eu-west-1.", key="api/region", value="eu-west-1")
    write(home, "It is in us-east-2.", key="api/region", value="us-east-2")
    answer = forget(home, key="api/region", guard="expire=2035-01-01T00:20:00Z")
    # A manifest says no time that is finer than an hour, so that is how long it holds.
    expires_at = manifest_of(home, answer).document["guard"]["expires_at"]
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT expires_at FROM ledger") == [(expires_at,)]
    assert expires_at % HOUR == 0
    clock.now = expires_at - 1_000_000
    assert write(home, "Back in eu-west-1.", key="api/region", value="eu-west-1")["outcome"] == "refused"
    clock.now = expires_at + 1
    home.memory(ME).retention("900d", apply=True)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM ledger") == [(0,)]


# Who has a copy


def test_an_opening_is_noted_before_it_is_given(home: wiring.Home) -> None:
    made = write(
        home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street", subject=DANA
    )
    memory = home.memory(ME)
    first, second = memory.give_opening(made["id"]), memory.give_opening(made["id"])
    assert first.file == second.file == memory.opening(made["id"])
    assert first.recipient != second.recipient
    with home.parts().store.read_whole() as view:
        rows = view.rows("SELECT seq, recipient, given_at FROM openings")
    assert [seq for seq, _, _ in rows] == [1, 1, 1]
    assert [one.hex() for _, one, _ in rows][:2] == [first.recipient, second.recipient]
    assert not any(given_at % HOUR for _, _, given_at in rows)
    commitment = parse_opening(first.file)["commitment"]
    answer = forget(home, subject=DANA)
    manifest = manifest_of(home, answer)
    assert manifest.document["recipients"] == [
        {"recipient": recipient, "told": False, "kind": "opening", "count": 1} for _, recipient, _ in rows
    ]
    assert manifest.document["scope"]["openings"] == answer["openings"] == 3
    assert "openings_given" in manifest.document["limits"]
    # It opens the statement for ever: this is why it is noted.
    assert open_with(first.file, commitment)["content"]["value"] == "Elm Street"
    assert found_in(home, "Elm Street") == set()


def test_without_an_opening_nobody_is_listed(home: wiring.Home) -> None:
    one, other = write(home, "Nobody was told this."), write(home, "Somebody was.")
    home.memory(ME).opening(other["id"])
    document = manifest_of(home, forget(home, id=one["id"])).document
    assert "recipients" not in document and "openings" not in document["scope"]
    assert "openings_given" not in document["limits"]
    assert home.memory(ME).forget_preview(id=other["id"])["preview"]["openings"] == 1


def test_an_opening_that_is_not_given_is_not_noted(home: wiring.Home) -> None:
    held = write(home, "A guess.", provisional=True)
    agent = make_principal("default", "default", "cli")
    with pytest.raises(RefusedError):
        home.memory(agent).opening(held["id"])
    for id in ("a" * 26, "x"):
        with pytest.raises(MalformedError):
            home.memory(ME).opening(id)
    forget(home, id=held["id"])
    with pytest.raises(MalformedError):
        home.memory(ME).opening(held["id"])
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM openings") == [(0,)]


def test_more_openings_than_a_manifest_lists_are_counted(home: wiring.Home) -> None:
    made = write(home, "Dana Scully lives in Elm Street.", subject=DANA)
    with home.parts().store.write() as txn:
        for number in range(1001):
            txn.connection.execute(
                "INSERT INTO openings (tenant, seq, recipient, given_at) VALUES (1, 1, ?, 0)",
                (number.to_bytes(16, "big"),),
            )
    document = manifest_of(home, forget(home, id=made["id"])).document
    assert (len(document["recipients"]), document["scope"]["openings"]) == (1000, 1001)


# In words


def test_every_word_has_a_sentence() -> None:
    assert manifest_text.LIMITS.keys() == LIMITS
    assert manifest_text.REASONS.keys() == REASONS


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main([*arguments, "--home", str(tmp_path / "home")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_the_command_says_what_is_left_and_how_to_finish(
    shell: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    shell("remember", "Dana Scully lives in Elm Street.", "--subject", DANA)
    notes = [
        json.loads(shell("remember", text, "--json")[1])["id"]
        for text in ("Lunch with Dana Scully.", "Dana Scully called.")
    ]
    shell("opening", notes[0], "-o", str(tmp_path / "opening.json"))
    token = json.loads(shell("forget", "--subject", DANA, "--json")[1])["confirm"]
    code, said, _ = shell("forget", "--subject", DANA, "--confirm", token)
    assert code == 1 and "closed_partial" in said
    assert "2 other records name the subject and were kept" in said
    finish = f"muniment forget --id {notes[0]} --id {notes[1]}"
    assert f"to erase them, too: {finish}" in said
    code, said, _ = shell(*finish.split()[1:])
    assert code == 0 and "1 opening of these was given out" in said
    token = said.split()[-1]
    code, said, _ = shell(*finish.split()[1:], "--confirm", token)
    assert code == 0 and "state closed_complete" in said
    assert "1 opening of these was given out" in said


def test_the_command_says_why_it_is_not_complete(
    shell: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    shell("remember", "Dana Scully lives in Elm Street.", "--key", "dana/address", "--value", "Elm Street")
    (tmp_path / "home" / "notes.txt").write_text("Elm Street")
    token = json.loads(shell("forget", "--key", "dana/address", "--json")[1])["confirm"]
    code, said, _ = shell("forget", "--key", "dana/address", "--confirm", token)
    assert code == 1
    assert manifest_text.REASONS["residue_found"] in said
    assert "free_space clean" in said and "residue found" in said


def test_the_command_notes_who_was_given_an_opening(
    shell: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    id = json.loads(shell("remember", "The sky is blue.", "--json")[1])["id"]
    code, said, note = shell("opening", id, "-o", str(tmp_path / "opening.json"), "--json")
    recipient = json.loads(said)["recipient"]
    assert code == 0 and len(recipient) == 32 and recipient in note


def test_nothing_of_it_is_in_an_argument_list_or_environment(home: wiring.Home, scans_anew: None) -> None:
    """The check of pages is told where the home is, and nothing else, and that down the pipe."""
    called: list[Any] = []
    run = subprocess.run

    def spy(arguments: Any, **options: Any) -> Any:
        called.append((arguments, json.loads(options["input"])))
        return run(arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", spy)
        home.parts()
        scan_process.pages_apart(home.path)
    assert called == [
        ([sys.executable, "-m", "memory.scan_process"], {"task": "pages", "folder": str(home.path)})
    ]
