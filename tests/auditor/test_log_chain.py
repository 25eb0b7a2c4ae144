"""A folder of several logs, each the successor of the one before, audited without its store."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import tampering as by
from copies import Copy

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import succession
from memory.operator import Operator
from memory.wiring import init_home, open_home
from tlog.tile import encode_bundle
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


@pytest.fixture
def begun(tmp_path: Path) -> Copy:
    """A home whose log was succeeded a moment ago: its witnesses do not know the new one yet."""
    with init_home(tmp_path / "home") as home:
        home.memory(by.ONE).remember("the office is in Berlin", key="city", value="Berlin")
        home.publish()
        succession.succeed(home, None, 1.0)
        home.memory(by.ONE).remember("the office is in Hamburg", key="city", value="Hamburg")
    return Copy(tmp_path / "home", parse_trust((tmp_path / "home" / "trust.toml").read_text()))


def test_a_successor_that_was_not_published_yet_is_no_finding(begun: Copy, tmp_path: Path) -> None:
    for _ in range(2):
        assert begun.audit(state=tmp_path / "state").outcome.findings == ()


def test_a_successor_without_a_checkpoint_that_does_not_follow_is_found(begun: Copy) -> None:
    (bundle,) = (begun.home / "log-2" / "tile" / "entries").rglob("1")
    entry = by.own_entry(begun, bytes(32))
    bundle.write_bytes(encode_bundle([entry]))
    assert {"LOG_FORK", "LOG_TRUNCATED"} <= begun.codes()


def test_a_successor_that_was_public_and_is_no_more_is_found(begun: Copy, tmp_path: Path) -> None:
    with open_home(begun.home) as home:
        home.publish()
    assert begun.codes(state=tmp_path / "state") == set()
    shutil.rmtree(begun.home / "log-2")
    (begun.home / "log-2").mkdir()
    begun.sql("UPDATE events SET entry_index = NULL WHERE entry_index > 0")
    assert "LOG_ROLLED_BACK" in begun.codes(state=tmp_path / "state")


def test_a_manifest_behind_another_of_its_number_is_looked_at(copy: Copy) -> None:
    """The newer log has it as it was, so that of the older one nobody would ask."""
    with open_home(copy.home) as home:
        Operator(home).succeed(None, 1.0)
    copy = Copy(copy.home, parse_trust((copy.home / "trust.toml").read_text()))
    (copy.home / "log-2" / "erasures").mkdir(exist_ok=True)
    first = copy.home / "log" / "erasures" / "1.cose"
    shutil.copy(first, copy.home / "log-2" / "erasures" / "1.cose")
    assert copy.codes() == set()
    first.write_bytes(b"content that was erased")
    (one,) = copy.audit().outcome.findings
    assert (one.code, one.where) == ("MANIFEST_ALTERED", "log erasures/1.cose")
