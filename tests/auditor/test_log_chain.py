"""A folder of several logs, each the successor of the one before, audited without its store."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import tampering as by

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory.operator import Operator
from memory.wiring import init_home
from tlog.trust import Trust, parse_trust


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Trust]:
    """The public folders of a home whose log was succeeded, as somebody copies them, and the trust in them."""
    with init_home(tmp_path / "home") as home:
        home.memory(by.ONE).remember("the office is in Berlin", key="city", value="Berlin")
        home.publish()
        Operator(home).succeed(None, 1.0)
        home.memory(by.ONE).remember("the office is in Hamburg", key="city", value="Hamburg")
        home.publish()
    for name in ("log", "log-2"):
        shutil.copytree(tmp_path / "home" / name, tmp_path / "copied" / name)
    return tmp_path / "copied", parse_trust((tmp_path / "home" / "trust.toml").read_text())


def found(folder: Path, trust: Trust) -> tuple[set[str], dict[str, int | None]]:
    asked = Asked(trust, time.time_ns() // 1000)
    outcome = audit(Places(None, log=str(folder)), asked, tenant=None, needles=None).outcome
    return {one.code for one in outcome.findings}, {note.check: note.count for note in outcome.checked}


def test_a_folder_of_logs_is_read_as_one(logs: tuple[Path, Trust]) -> None:
    codes, checked = found(*logs)
    assert codes == set()
    assert checked["logs"] == 1
    # The write of each log, and the statement with which the second begins.
    assert checked["signatures"] == 3


def test_a_successor_that_does_not_follow_is_found(logs: tuple[Path, Trust]) -> None:
    folder, trust = logs
    (bundle,) = (folder / "log" / "tile" / "entries").rglob("1")
    by.flip(bundle)
    assert found(folder, trust)[0]
    shutil.rmtree(folder / "log")
    shutil.copytree(folder / "log-2", folder / "log")
    assert "LOG_FORK" in found(folder, trust)[0]
