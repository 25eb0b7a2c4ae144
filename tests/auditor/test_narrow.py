"""An audit that looks at what is new alone finds what one finds that looks at everything."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tampering as by
from copies import Copy, copy_of
from tamper_catalogue import Tamper
from test_tampers import EVERY

from auditor import row_marks
from auditor import touched as touches
from memory.wiring import open_home

TAMPERS = EVERY if os.environ.get("MUNIMENT_EVERY_TAMPER") else EVERY[5::48]
OF_STATE = {"LOG_FORK", "LOG_ROLLED_BACK", "POLICY_CHANGED"}


@pytest.fixture(scope="module")
def known(original: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The home with everything in the log, and the folder of one clean audit of it."""
    folder = tmp_path_factory.mktemp("known")
    copy = copy_of(folder, original)
    with open_home(copy.home) as home:
        home.publish()
    assert copy.codes(state=folder / "state") == set()
    return folder / "home", folder / "state"


@pytest.fixture
def later(known: tuple[Path, Path], tmp_path: Path) -> Copy:
    return copy_of(tmp_path, *known)


def write(copy: Copy, count: int) -> None:
    with open_home(copy.home) as home:
        memory = home.memory(by.ONE)
        for number in range(count):
            text = f"lamp {number // 2} is colour {number}"
            memory.remember(text, key=f"lamp/{number // 2}", value=f"colour {number}")
        home.publish()


def found(copy: Copy, **options: Any) -> Counter[str]:
    outcome = copy.audit(**options).outcome
    return Counter(
        str((one.code, one.where, one.what, sorted(one.evidence.items()))) for one in outcome.findings
    )


def compare(copy: Copy, state: Path, options: dict[str, Any]) -> Counter[str]:
    now = options.pop("now", time.time_ns() // 1000)
    options.pop("state", None)  # of another home
    fresh, again = found(copy, now=now, **options), found(copy, now=now, **{**options, "state": state})
    assert fresh - again == Counter()
    assert all(any(code in one for code in OF_STATE) for one in again - fresh), again - fresh
    return fresh


@pytest.mark.parametrize("more", [0, 50])
@pytest.mark.parametrize("tamper", TAMPERS, ids=[tamper.name for tamper in TAMPERS])
def test_each_change_is_found_as_without_an_earlier_audit(
    later: Copy, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, tamper: Tamper, more: int
) -> None:
    if more:
        write(later, more)
    options = tamper.make(later, tmp_path_factory.mktemp("beside")) or {}
    compare(later, tmp_path / "state", options)


def test_after_new_statements_only_those_are_judged(later: Copy, tmp_path: Path, judged: list[int]) -> None:
    write(later, 50)
    again = later.audit(state=tmp_path / "state")
    assert not judged
    fresh = later.audit()
    assert again.outcome.findings == fresh.outcome.findings == ()
    assert again.outcome.counts == fresh.outcome.counts
    for name in ("kinds", "statuses", "sample", "cards", "maps"):
        assert getattr(again.exhibits, name) == getattr(fresh.exhibits, name)
    write(later, 3)
    judged.clear()
    assert later.codes(state=tmp_path / "state") == set()
    assert not judged


@pytest.mark.parametrize("more", [0, 9])
def test_a_fact_that_was_changed_is_found_among_those_alone(
    later: Copy, tmp_path: Path, judged: list[int], more: int
) -> None:
    if more:
        write(later, more)
    one = "(SELECT seq FROM facts ORDER BY seq LIMIT 1 OFFSET 12)"
    later.sql(f"UPDATE facts SET recorded_at = recorded_at + 1 WHERE seq = {one}")
    again = found(later, state=tmp_path / "state")
    assert again and not judged
    assert again == found(later)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET seq = 1 << 61 WHERE seq = (SELECT max(seq) FROM events)",
        "UPDATE facts SET seq = 1 << 61 WHERE seq = (SELECT max(seq) FROM facts)",
        "UPDATE ledger SET source = source + 1 WHERE id = (SELECT max(id) FROM ledger)",
        "UPDATE contents SET salt = zeroblob(32) WHERE seq = 2",
        "DELETE FROM conflicts",
        "UPDATE facts SET key_tag = randomblob(32) WHERE seq = 1",
    ],
)
def test_what_else_was_changed_is_found_by_a_look_at_everything(
    later: Copy, tmp_path: Path, judged: list[int], sql: str
) -> None:
    later.sql_unchecked(sql)
    again = found(later, state=tmp_path / "state")
    assert judged and again
    assert again == found(later)


def test_after_an_erasure_what_was_kept_is_noise(later: Copy, tmp_path: Path, judged: list[int]) -> None:
    with open_home(later.home) as home:
        memory = home.memory(by.ONE)
        memory.forget(key="late", confirm=memory.forget_preview(key="late")["confirm"])
        home.publish()
    assert later.codes(state=tmp_path / "state") == set()
    assert judged == [1]
    write(later, 3)
    assert later.codes(state=tmp_path / "state") == set()
    assert judged == [1]


def test_a_key_said_anew_again_and_again_costs_what_it_has(
    later: Copy, tmp_path: Path, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its facts has to do with all others, and none is asked for by each of them."""
    with open_home(later.home) as home:
        memory = home.memory(by.ONE)
        for number in range(80):
            memory.remember(f"the build is at {number}", key="build", value=f"step {number}")
        home.publish()
    asked, rows = touches._asked, []

    def counting(*arguments: Any) -> Iterator[int]:
        for seq in asked(*arguments):
            rows.append(seq)
            yield seq

    monkeypatch.setattr(touches, "_asked", counting)
    assert later.codes(state=tmp_path / "state") == set()
    assert not judged
    assert 80 < len(rows) < 20 * 80


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x9b" + b"\xff" * 8,
        b"\x81" * 100_000,
        b"\x87\x61m\x01\x40\x80\x40\x40\x80",
        b"\x87\x61m\x01\x40\xa1\x01\x80\x40\x40\x80",
    ],
)
def test_marks_that_are_none_are_passed_over(tmp_path: Path, body: bytes) -> None:
    """Whatever somebody has sealed: what was kept is of use, or everything is looked at."""
    data = body + hashlib.sha256(row_marks._SEALED + body).digest()
    row_marks.keep_marks(tmp_path, "log.example", data)
    assert row_marks.load_marks(tmp_path, "log.example", "m") is None
