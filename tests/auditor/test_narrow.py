"""An audit that looks at what is new alone finds what one finds that looks at everything."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tampering as by
from copies import Copy
from tamper_catalogue import Tamper
from test_tampers import EVERY

from auditor import audit as audits
from memory.wiring import open_home
from tlog.trust import parse_trust

TAMPERS = EVERY if os.environ.get("MUNIMENT_EVERY_TAMPER") else EVERY[5::48]
OF_STATE = {"LOG_FORK", "LOG_ROLLED_BACK", "POLICY_CHANGED"}


@pytest.fixture(scope="module")
def known(original: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The home with everything in the log, and the folder of one clean audit of it."""
    folder = tmp_path_factory.mktemp("known")
    shutil.copytree(original, folder / "home")
    copy = Copy(folder / "home", parse_trust((folder / "home" / "trust.toml").read_text()))
    with open_home(copy.home) as home:
        home.publish()
    assert copy.codes(state=folder / "state") == set()
    return folder / "home", folder / "state"


@pytest.fixture
def later(known: tuple[Path, Path], tmp_path: Path) -> Copy:
    for source in known:
        shutil.copytree(source, tmp_path / source.name)
    return Copy(tmp_path / "home", parse_trust((tmp_path / "home" / "trust.toml").read_text()))


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One more item each time that all rows are read."""
    read, seen = audits.read_rows, []

    def counting(*arguments: Any) -> Any:
        seen.append(1)
        return read(*arguments)

    monkeypatch.setattr(audits, "read_rows", counting)
    yield seen


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


def test_after_new_statements_only_those_are_judged(later: Copy, tmp_path: Path, whole: list[int]) -> None:
    write(later, 50)
    again = later.audit(state=tmp_path / "state")
    assert not whole
    fresh = later.audit()
    assert again.outcome.findings == fresh.outcome.findings == ()
    assert again.outcome.counts == fresh.outcome.counts
    for name in ("kinds", "statuses", "sample", "cards", "maps"):
        assert getattr(again.exhibits, name) == getattr(fresh.exhibits, name)
    write(later, 3)
    whole.clear()
    assert later.codes(state=tmp_path / "state") == set()
    assert not whole


@pytest.mark.parametrize("more", [0, 9])
def test_a_fact_that_was_changed_is_found_among_those_alone(
    later: Copy, tmp_path: Path, whole: list[int], more: int
) -> None:
    if more:
        write(later, more)
    one = "(SELECT seq FROM facts ORDER BY seq LIMIT 1 OFFSET 12)"
    later.sql(f"UPDATE facts SET recorded_at = recorded_at + 1 WHERE seq = {one}")
    again = found(later, state=tmp_path / "state")
    assert again and not whole
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
    later: Copy, tmp_path: Path, whole: list[int], sql: str
) -> None:
    later.sql_unchecked(sql)
    again = found(later, state=tmp_path / "state")
    assert whole and again
    assert again == found(later)


def test_after_an_erasure_what_was_kept_is_noise(later: Copy, tmp_path: Path, whole: list[int]) -> None:
    with open_home(later.home) as home:
        memory = home.memory(by.ONE)
        memory.forget(key="late", confirm=memory.forget_preview(key="late")["confirm"])
        home.publish()
    assert later.codes(state=tmp_path / "state") == set()
    assert whole == [1]
    write(later, 3)
    assert later.codes(state=tmp_path / "state") == set()
    assert whole == [1]
