"""An audit with the state of an earlier one verifies what is new, and still finds what was changed since."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tampering as by

from auditor import kept, pins
from memory.wiring import open_home
from tlog.trust import make_trust


def counts(copy: Any, **options: Any) -> list[int | None]:
    return [note.count for note in copy.audit(**options).outcome.checked if note.check == "signatures"]


def test_signatures_on_the_same_bytes_are_verified_once(copy: Any, tmp_path: Path) -> None:
    state, size = tmp_path / "state", by.size_of(copy)
    assert counts(copy, state=state) == [size + 1]
    assert counts(copy, state=state) == [1, size]
    with open_home(copy.home) as home:
        home.memory(by.ONE).remember("the lamp is red", key="lamp", value="red")
        home.publish()
    assert counts(copy, state=state) == [2, size]
    assert counts(copy, state=state) == [0, size + 2]


def test_another_trust_verifies_everything_again(copy: Any, tmp_path: Path) -> None:
    state, size = tmp_path / "state", by.size_of(copy)
    assert counts(copy, state=state) == [size + 1]
    keys = tuple(replace(key, not_after=2_000_000_000) for key in copy.trust.keys)
    assert counts(copy, state=state, trust=make_trust(copy.trust.policy.text, keys)) == [size + 1]


def test_a_key_that_has_ended_since_counts_no_more(copy: Any, tmp_path: Path) -> None:
    """What no witness dates counts as signed now, also if it was verified before."""
    state = tmp_path / "state"
    keys = tuple(replace(key, not_after=2_000_000_000) for key in copy.trust.keys)
    trust = make_trust(copy.trust.policy.text, keys)
    assert copy.codes(state=state, trust=trust) == set()
    assert "KEY_NOT_VALID" in copy.codes(state=state, trust=trust, now=2_000_000_001_000_000)


def test_what_was_found_is_not_remembered_as_verified(copy: Any, tmp_path: Path) -> None:
    state, size = tmp_path / "state", by.size_of(copy)
    (copy.home / "notes.txt").write_text("x")
    assert copy.codes(state=state) == {"RESIDUE_FILE"}
    (copy.home / "notes.txt").unlink()
    assert counts(copy, state=state) == [size + 1]


def test_an_audit_of_one_tenant_has_verified_no_others(copy: Any, tmp_path: Path) -> None:
    state, size = tmp_path / "state", by.size_of(copy)
    assert copy.codes(state=state, tenant="globex") == set()
    assert counts(copy, state=state) == [size + 1]


@pytest.mark.parametrize("seq", [2, 9])
def test_a_signature_spoiled_after_a_clean_audit_is_found(copy: Any, tmp_path: Path, seq: int) -> None:
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    entries = by.entries_of(copy)
    spoiled = entries[seq - 1][:-1] + b"\xff"
    copy.sql(("UPDATE events SET entry = ? WHERE seq = ?", (spoiled, seq)))
    assert "FACT_ALTERED" in copy.codes(state=state)
    entries[seq - 1] = spoiled
    by.write_log(copy, entries)
    assert {"LOG_FORK", "FACT_ALTERED"} <= copy.codes(state=state)


def links(copy: Any, **options: Any) -> list[int | None]:
    return [note.count for note in copy.audit(**options).outcome.checked if note.check == "links"]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "BLOCK", 4)


def test_rows_that_are_the_same_bytes_are_opened_once(copy: Any, tmp_path: Path, small_blocks: None) -> None:
    state, size = tmp_path / "state", by.size_of(copy) + 1
    assert links(copy, state=state) == [size]
    assert links(copy, state=state) == [0, size]
    with open_home(copy.home) as home:
        home.memory(by.ONE).remember("the lamp is red", key="lamp", value="red")
        home.publish()
    # The block that grew, and the one whose last row has been logged since.
    new, known = links(copy, state=state)
    assert new is not None and known is not None
    assert new + known == size + 1 and 1 <= new <= 8
    assert links(copy, state=state) == [0, size + 1]


def test_what_an_erasure_took_is_opened_again(copy: Any, tmp_path: Path, small_blocks: None) -> None:
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    with open_home(copy.home) as home:
        memory = home.memory(by.ONE)
        memory.forget(subject="garden", confirm=memory.forget_preview(subject="garden")["confirm"])
        home.publish()
    assert copy.codes(state=state) == set()
    assert links(copy, state=state)[0] == 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET link_salt = zeroblob(32) WHERE seq = 2",
        "UPDATE events SET content_hash = zeroblob(32) WHERE seq = 2",
        "UPDATE events SET commitment = zeroblob(32) WHERE seq = 2",
        "UPDATE contents SET salt = zeroblob(32) WHERE seq = 2",
        "UPDATE contents SET content = x'a0' WHERE seq = 2",
        "UPDATE tenants SET number = zeroblob(16) WHERE id = 1",
        "UPDATE tenants SET name = 'other' WHERE id = 1",
    ],
)
def test_a_row_changed_after_a_clean_audit_is_found(copy: Any, tmp_path: Path, change: str) -> None:
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    copy.sql(change)
    assert "FACT_ALTERED" in copy.codes(state=state)
    assert copy.codes(state=state) == copy.codes()


def test_other_code_opens_everything_again(
    copy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, size = tmp_path / "state", by.size_of(copy) + 1
    assert links(copy, state=state) == [size]
    monkeypatch.setattr(kept, "code", lambda: "other")
    assert links(copy, state=state) == [size]
    assert counts(copy, state=state) == [1, size - 1]


@pytest.mark.parametrize(
    "spoil", [lambda _: b"", lambda _: b"[]", lambda data: data.replace(b'"size":', b'"size": ')]
)
def test_a_damaged_state_is_passed_over_with_a_note(copy: Any, tmp_path: Path, spoil: Any) -> None:
    state, size = tmp_path / "state", by.size_of(copy)
    assert copy.codes(state=state) == set()
    (path,) = state.glob("*.verified")
    path.write_bytes(spoil(path.read_bytes()))
    outcome = copy.audit(state=state).outcome
    assert not outcome.findings
    assert ["damaged" in note.text for note in outcome.not_checked if note.check == "earlier audits"] == [
        True
    ]
    assert counts(copy, state=state) == [1, size]


def test_a_log_that_was_taken_back_whole_is_found(copy: Any, tmp_path: Path) -> None:
    """Nothing is published, and everything is a promise again: as in a home that has just begun."""
    state = tmp_path / "state"
    size = by.size_of(copy)
    assert copy.codes(state=state) == set()
    shutil.rmtree(copy.home / "log" / "tile")
    by.checkpoint_of(copy).unlink()
    copy.sql("UPDATE events SET entry_index = NULL")
    (found,) = [one for one in copy.audit(state=state).outcome.findings if one.code == "LOG_ROLLED_BACK"]
    assert found.where == "log checkpoint" and found.evidence == {"seen_size": size}


def test_the_state_of_another_home_says_nothing_of_this_one(make_copy: Any, tmp_path: Path) -> None:
    """The same log, cut: as a copy of an older day is."""
    one, other, state = make_copy(), make_copy(), tmp_path / "state"
    assert one.codes(state=state) == set()
    by.write_log(other, by.entries_of(other)[:-3])
    assert "LOG_ROLLED_BACK" in other.codes(state=state)


def test_the_form_of_what_is_new_is_looked_at(copy: Any, tmp_path: Path, small_blocks: None) -> None:
    state = tmp_path / "state"
    assert copy.codes(state=state) == set()
    seq = by.state(copy, "reaffirm", {"lifts": [3]}, more="free text")
    found = copy.audit(state=state).outcome.findings
    place = f"store.db contents seq {seq}"
    assert [one.what for one in found if one.where == place and "other fields" in one.what]
