"""An inconclusive erasure is looked after again, by whoever still knows what was erased: a further manifest says so."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import cli, erase, erase_again, wiring
from memory.manifest import Manifest, decode_manifest, verify_successor
from memory.principal import make_principal, with_all_scopes
from tlog.errors import MalformedError, RefusedError
from tlog.storage import DirectoryStorage

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, check_of, forget, found_in, manifest_of, write

DANA = "Dana Scully"
SELECTOR: dict[str, Any] = {"key": "dana/address", "guard": "erase"}


class Killed(BaseException):
    """A kill -9, seen from inside."""


def crashed(path: Path) -> wiring.Home:
    """A home whose first erasure a crash left without its scan, opened again."""

    def kill(step: str) -> None:
        if step == "erased":
            raise Killed

    home = wiring.open_home(path)
    write(home, "Fox Mulder has the basement.", key="fox/office", value="basement")
    write(home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
    write(home, "Dana Scully moved to Oak Lane.", key="dana/address", value="Oak Lane", subject=DANA)
    token = home.memory(ME).forget_preview(**SELECTOR)["confirm"]
    with pytest.raises(Killed):
        erase.execute(home.parts(), ME, token, failpoint=kill, **SELECTOR)
    home.close()
    again = wiring.open_home(path)
    again.parts()
    return again


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    opened = crashed(tmp_path / "home")
    yield opened
    opened.close()


def manifests(home: wiring.Home) -> list[Manifest]:
    files = sorted((home.path / "log" / "erasures").glob("*.cose"), key=lambda path: int(path.stem))
    return [decode_manifest(path.read_bytes()) for path in files]


def reference(home: wiring.Home) -> str:
    return str(manifests(home)[0].document["request"].hex())


def audited(home: wiring.Home, capsys: pytest.CaptureFixture[str]) -> Any:
    """The findings of an audit of the home by its own trust, as a user has them made."""
    home.publish()
    home.close()
    capsys.readouterr()
    cli.main(["audit", "--home", str(home.path), "--json"])
    return [(one["code"], one["where"]) for one in json.loads(capsys.readouterr().out)["findings"]]


def test_a_crashed_erasure_is_complete_once_its_words_are_looked_for(
    home: wiring.Home, capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = manifests(home)
    assert (first.state, first.document["why"]) == ("inconclusive", ["crash_before_scan"])
    answer = home.memory(ME).look_again(reference(home), [DANA, "Elm Street", "Oak Lane"])
    assert (answer["state"], answer["why"], answer["number"]) == ("closed_complete", [], 2)
    first, second = manifests(home)
    verify_successor(second, first)
    assert second.tombstone == first.tombstone
    for name in ("request", "scope", "guard", "erased", "basis"):
        assert second.document[name] == first.document[name]
    assert second.document["times"]["started_at"] == first.document["times"]["started_at"]
    counts = check_of(second, "residue")["counts"]
    assert (counts["needles_given"], counts["hits"], counts["controls_found"]) == (3, 0, 1)
    assert [one["check"] for one in second.document["checks"]] == ["structure", "residue", "free_space"]
    with home.parts().store.read_whole() as view:
        row = view.erasure(1)
    assert row is not None and (row.state, row.manifest) == ("closed_complete", second.raw)
    assert found_in(home, DANA, "Elm Street") == set()
    assert audited(home, capsys) == []


def test_manifests_go_on_after_a_second_one_of_a_request(
    home: wiring.Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.memory(ME).look_again(reference(home), ["Elm Street"])
    answer = forget(home, key="fox/office")
    assert (answer["number"], answer["state"]) == (3, "closed_complete")
    assert manifest_of(home, answer).tombstone.link.details["number"] == 2
    previous: Manifest | None = None
    for manifest in manifests(home):
        verify_successor(manifest, previous)
        previous = manifest
    assert audited(home, capsys) == []


def test_a_second_manifest_that_is_gone_or_changed_is_found_by_an_audit(
    home: wiring.Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.memory(ME).look_again(reference(home), ["Elm Street"])
    file = home.path / "log" / "erasures" / "2.cose"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert ("MANIFEST_ALTERED", "log erasures/2.cose") in audited(home, capsys)
    file.unlink()
    home.close()
    cli.main(["audit", "--home", str(home.path), "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert "TOMBSTONE_WITHOUT_MANIFEST" in {one["code"] for one in findings}


def test_what_is_still_there_is_found_and_it_can_be_looked_for_once_more(home: wiring.Home) -> None:
    (home.path / "notes.txt").write_text("Elm Street")
    answer = home.memory(ME).look_again("1", ["Elm Street"])
    assert answer["state"] == "inconclusive" and "residue_found" in {why["code"] for why in answer["why"]}
    with pytest.raises(MalformedError):
        home.memory(ME).look_again("1", ["Elm Street"])
    # Other words find nothing, and whether it is their fault nobody can tell while the file is there.
    answer = home.memory(ME).look_again("2", ["umbrella"])
    assert (answer["state"], [why["code"] for why in answer["why"]]) == (
        "inconclusive",
        ["needles_unconfirmed"],
    )
    assert answer["residue"]["result"] == "inconclusive"
    (home.path / "notes.txt").unlink()
    assert home.memory(ME).look_again("3", ["umbrella"])["state"] == "closed_complete"
    last = manifests(home)[-1]
    assert last.number == 4 and "needles_unconfirmed" in last.document["limits"]


def test_what_was_written_since_explains_what_is_found(home: wiring.Home) -> None:
    write(home, "The bakery is in Elm Street.")
    answer = home.memory(ME).look_again(reference(home), ["Elm Street"])
    # The one word proves nothing now, so it rests on the pages.
    assert (answer["state"], answer["residue"]["records_not_covered"]) == ("closed_complete", 1)


def test_words_too_short_to_be_looked_for_rest_on_the_pages(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory import scan_process
    from tlog.errors import UnavailableError

    def fail(folder: Path) -> Any:
        raise UnavailableError("it could not be looked at", code="scan_failed")

    with monkeypatch.context() as patch:
        patch.setattr(scan_process, "pages_apart", fail)
        answer = home.memory(ME).look_again(reference(home), ["7"])
    codes = {why["code"] for why in answer["why"]}
    assert codes == {"scan_not_available", "needles_not_searchable", "needles_unconfirmed"}
    assert home.memory(ME).look_again(reference(home), ["7"])["state"] == "closed_complete"


def test_a_damaged_bystander_stays_a_reason(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        write(home, "Dana Scully lives in Elm Street.", key="dana/address", value="Elm Street")
        write(home, "Next to it.")

        def touch(step: str) -> None:
            if step == "erased":
                with home.parts().store.write() as txn:
                    txn.connection.execute("DELETE FROM contents WHERE seq = 2")

        token = home.memory(ME).forget_preview(**SELECTOR)["confirm"]
        first = erase.execute(home.parts(), ME, token, failpoint=touch, **SELECTOR)
        answer = home.memory(ME).look_again(first["request"], ["Elm Street"])
        assert [why["code"] for why in answer["why"]] == ["bystander_damaged"]


def test_a_closed_request_is_not_opened_again(home: wiring.Home) -> None:
    complete = forget(home, key="fox/office")
    write(home, "Dana Scully called.", subject="Fox Mulder")
    write(home, "Dana Scully is back.", subject=DANA)
    partial = forget(home, subject=DANA)
    assert partial["state"] == "closed_partial"
    for answer in (complete, partial):
        with pytest.raises(RefusedError) as caught:
            home.memory(ME).look_again(answer["request"], ["basement"])
        assert caught.value.code == "wrong_status"


@pytest.mark.parametrize("request_", ["", "x", "0", "9" * 19, "A" * 32, "a" * 31, None, 1, "99", "f" * 32])
def test_a_request_that_is_none_is_an_error(home: wiring.Home, request_: Any) -> None:
    with pytest.raises(MalformedError):
        home.memory(ME).look_again(request_, ["Elm Street"])


@pytest.mark.parametrize("needles", [[], [""], ["  "], ["ok", ""], ["a\ud800"], ["x" * 5000], [7]])
def test_words_that_are_none_are_an_error(home: wiring.Home, needles: Any) -> None:
    with pytest.raises(MalformedError) as caught:
        home.memory(ME).look_again(reference(home), needles)
    assert "ok" not in caught.value.message


def test_only_somebody_of_the_tenant_with_the_right_to_forget_may_look(home: wiring.Home) -> None:
    stranger = with_all_scopes(make_principal("other", "default", "cli"))
    write(home, "Of another tenant.", stranger)
    with pytest.raises(MalformedError) as caught:
        home.memory(stranger).look_again(reference(home), ["Elm Street"])
    assert caught.value.code == "unknown_id"
    reader = make_principal("default", "default", "cli", frozenset({"memory:read"}))
    with pytest.raises(RefusedError):
        home.memory(reader).look_again(reference(home), ["Elm Street"])


def test_the_owner_may_look_after_a_tenant_that_has_no_name_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans_anew: None
) -> None:
    acme = with_all_scopes(make_principal("acme-of-quimby", "default", "cli"))
    with wiring.open_home(tmp_path / "home") as home:
        write(home, "Elm Street is closed.", acme)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/nonexistent/python")
            answer = forget(home, acme, all=True)
        assert answer["state"] == "inconclusive"
        agent = make_principal("acme-of-quimby", "default", "cli")
        with pytest.raises(MalformedError):
            home.memory(agent).look_again(answer["request"], ["Elm Street"])
        again = home.memory(ME).look_again(answer["request"], ["Elm Street", "acme-of-quimby"])
        assert (again["state"], again["number"]) == ("closed_complete", 2)


def test_a_crash_before_a_further_manifest_lies_beside_the_tiles_is_repaired(
    home: wiring.Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not that of the newest erasure, and still the one that has to be there."""
    forget(home, key="fox/office")
    create = DirectoryStorage.create

    def kill(self: DirectoryStorage, path: str, data: bytes) -> None:
        if path.startswith("erasures/"):
            raise Killed
        create(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStorage, "create", kill)
        with pytest.raises(Killed):
            home.memory(ME).look_again(reference(home), ["Elm Street"])
    home.close()
    with wiring.open_home(home.path) as again:
        again.parts()
        last = manifests(again)[-1]
        assert (last.number, last.state) == (3, "closed_complete")
        assert last.tombstone == manifests(again)[0].tombstone


def test_the_command_looks_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    crashed(tmp_path / "home").close()
    where = ["--home", str(tmp_path / "home")]
    (tmp_path / "words.txt").write_text("Elm Street\n\n  Oak Lane \n")
    assert cli.main(["forget", "--request", "1", *where]) == 0
    assert cli.main(["forget", "--needles", "-", *where]) == 2
    assert cli.main(["forget", "--request", "1", "--needles", str(tmp_path / "none"), *where]) == 2
    for more in (["--key", "k"], ["--guard", "keep"], ["--confirm", "x"]):
        assert cli.main(["forget", "--request", "1", "--needles", "-", *more, *where]) == 2
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Oak Lane\n")))
    (tmp_path / "home" / "notes.txt").write_text("Oak Lane")
    assert cli.main(["forget", "--request", "1", "--needles", "-", *where]) == 1
    said = capsys.readouterr().out
    request = decode_manifest((tmp_path / "home/log/erasures/2.cose").read_bytes()).document["request"].hex()
    assert f"muniment forget --request {request} --needles -" in said
    (tmp_path / "home" / "notes.txt").unlink()
    words = ["--needles", str(tmp_path / "words.txt")]
    assert cli.main(["forget", "--request", request, *words, *where, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["residue"]["needles_given"]) == ("closed_complete", 2)


def test_a_limit_on_words_is_kept() -> None:
    with pytest.raises(MalformedError):
        erase_again._check_needles(["x"] * (erase_again.MAX_NEEDLES + 1))
