"""Settings that lower what a home promises are said, or found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import auditor.settings
from auditor.settings import is_weaker
from memory.config import Config
from memory.model import SCOPES, Principal
from memory.wiring import open_home
from tlog.keys import make_cosigner_key
from tlog.note import parse_vkey
from tlog.policy import GroupEntry, LogEntry, WitnessEntry, make_policy
from tlog.trust import trust_from_policy

ME = Principal("acme", "bot", "one", SCOPES)


def notes(copy: Any, check: str, **options: Any) -> list[tuple[str, int | None]]:
    outcome = copy.audit(**options).outcome
    return [(note.text, note.count) for note in outcome.not_checked if note.check == check]


def test_a_guard_that_is_on_is_said(copy: Any) -> None:
    assert [note.count for note in copy.audit().outcome.checked if note.check == "guard"] == [1]
    assert notes(copy, "guard") == []


def test_a_guard_that_is_off_is_found_with_the_writes_that_it_let_through(copy: Any) -> None:
    config = copy.home / "config.toml"
    config.write_text(config.read_text().replace('guard = "on"', 'guard = "off"'))
    with open_home(copy.home) as home:
        home.memory(ME).remember("the office is in Hamburg", key="office/city", value="Hamburg")
    assert [count for _, count in notes(copy, "guard")] == [1]
    outcome = copy.audit().outcome
    assert outcome.counts["unguarded_writes"] == 1
    found = {(one.code, one.where, one.severity) for one in outcome.findings}
    assert {("GUARD_OFF", "config.toml", "medium")} <= found
    (returned,) = found - {("GUARD_OFF", "config.toml", "medium")}
    assert (returned[0], returned[1].startswith("store.db events")) == ("GUARD_OFF", True)


def test_a_home_without_settings_is_no_home_that_promises(copy: Any) -> None:
    (copy.home / "config.toml").write_text("guard = [")
    assert len(notes(copy, "settings")) == 1


@pytest.mark.parametrize("lost", ["origin", "issuer", "subject", "all"])
def test_settings_that_were_emptied_are_not_those_of_a_home(copy: Any, lost: str) -> None:
    config = copy.home / "config.toml"
    kept = [line for line in config.read_text().splitlines() if lost != "all" and not line.startswith(lost)]
    config.write_text("\n".join(kept))
    (found,) = copy.audit().outcome.findings
    assert (found.code, found.where) == ("POLICY_CHANGED", "config.toml")


def test_a_setting_that_no_home_has_is_found(copy: Any) -> None:
    with (copy.home / "config.toml").open("a") as file:
        file.write('note = "zqxvsecret"\n')
    (found,) = copy.audit().outcome.findings
    assert (found.code, found.where) == ("RESIDUE_FILE", "config.toml")


def test_every_setting_that_a_home_can_have_is_known() -> None:
    assert {"version", *Config.__dataclass_fields__} == auditor.settings._SETTINGS


def test_remarks_are_counted_and_not_repeated(copy: Any) -> None:
    assert notes(copy, "remarks") == []
    for name in ("config.toml", "policy.txt", "trust.toml"):
        with (copy.home / name).open("a") as file:
            file.write("\n# zqxvsecret\n")
    ((text, count),) = notes(copy, "remarks")
    assert count == 3 and "zqxv" not in text


@pytest.fixture
def witnesses(tmp_path: Path) -> list[WitnessEntry]:
    keys = [make_cosigner_key(tmp_path / f"w{n}", f"w{n}.example") for n in range(3)]
    return [WitnessEntry(f"w{n}", key.verifier_key) for n, key in enumerate(keys)]


def test_a_policy_is_weaker_if_less_satisfies_it(copy: Any, witnesses: list[WitnessEntry]) -> None:
    logs = [LogEntry(parse_vkey(copy_vkey(copy)))]

    def of(count: int, threshold: int) -> Any:
        names = tuple(one.name for one in witnesses[:count])
        return make_policy(logs, witnesses[:count], [GroupEntry("g", threshold, names)], "g")

    none = make_policy(logs, [], [], None)
    renamed = [replace(one, name=f"other{n}") for n, one in enumerate(witnesses)]
    same = make_policy(logs, renamed, [GroupEntry("g", 2, tuple(one.name for one in renamed))], "g")
    assert is_weaker(none, of(1, 1))
    assert is_weaker(of(3, 1), of(3, 2))
    assert is_weaker(of(2, 1), of(1, 1))
    assert not is_weaker(of(3, 2), of(3, 2))
    assert not is_weaker(same, of(3, 2))
    assert not is_weaker(of(3, 3), of(3, 2))
    assert not is_weaker(of(1, 1), none)


def copy_vkey(copy: Any) -> str:
    with open_home(copy.home) as home:
        return str(home.log_vkey())


def test_a_home_that_asks_for_fewer_witnesses_than_the_caller_is_found(
    copy: Any, witnesses: list[WitnessEntry]
) -> None:
    policy = make_policy([LogEntry(parse_vkey(copy_vkey(copy)))], witnesses[:1], [], "w0")
    found = {one.code for one in copy.audit(trust=trust_from_policy(policy.text)).outcome.findings}
    assert "POLICY_CHANGED" in found


def test_a_policy_that_changed_between_audits_is_found_once(copy: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    policy = copy.home / "policy.txt"
    policy.write_text(policy.read_text() + "# looser times\n")
    assert copy.codes(state=state) == {"POLICY_CHANGED"}
    assert copy.codes(state=state) == set()


def test_a_policy_that_is_none_is_found(copy: Any) -> None:
    (copy.home / "policy.txt").write_text("quorum\n")
    assert "POLICY_CHANGED" in copy.codes()
