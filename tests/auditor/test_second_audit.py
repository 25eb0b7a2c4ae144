"""An audit with the state of an earlier one verifies what is new, and still finds what was changed since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tampering as by

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
