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

TAMPERS = EVERY if os.environ.get("MUNIMENT_EVERY_TAMPER") else EVERY[::16]
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
