"""A home with a history in it, made once, and copies of it to spoil."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor import audit as audits
from memory.model import SCOPES, Principal
from memory.wiring import init_home
from tlog.trust import parse_trust

sys.path.insert(0, str(Path(__file__).resolve().parent))
from copies import Copy, copy_of

ERASED = "Zqxv Kumquat"


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home: two clients, two tenants, every kind of act, an erasure, everything published but one write."""
    folder = tmp_path_factory.mktemp("audited") / "home"
    with init_home(folder) as home:
        one = home.memory(Principal("acme", "bot", "one", SCOPES))
        two = home.memory(Principal("acme", "bot", "two", SCOPES))
        other = home.memory(Principal("globex", "bot", "one", SCOPES))
        one.remember("the office is in Berlin", key="office/city", value="Berlin")
        one.remember("the office is in Hamburg", key="office/city", value="Hamburg", idempotency_key="move")
        refused = one.remember("the office is in Berlin", key="office/city", value="Berlin")
        one.remember(
            "Berlin again", key="office/city", value="Berlin", reaffirm=refused["reaffirm"], reason="back"
        )
        held = one.remember("perhaps Friday", key="release/day", value="Friday", provisional=True)
        one.confirm(held["id"])
        one.remember("perhaps lime", key="logo/colour", value="lime", provisional=True)
        dropped = one.remember("perhaps teal", key="door/colour", value="teal", provisional=True)
        one.discard(dropped["id"])
        one.remember("deploys go to k8s", key="deploy/target", value="k8s")
        two.remember("deploys go to nomad", key="deploy/target", value="nomad")
        one.remember("tests run on make", key="test/tool", value="make")
        two.remember("tests run on tox", key="test/tool", value="tox")
        conflict = next(each for each in one.conflicts()["conflicts"] if each["key"] == "test/tool")
        one.resolve(conflict["id"], conflict["facts"][0]["id"])
        gone = one.remember("the fax number is 555", key="fax", value="555")
        one.retract(gone["id"])
        for number in range(12):
            one.remember(f"note {number} about the garden 庭の話", subject="garden")
        other.remember("their secret plan", key="plan", value="secret")
        one.remember(f"{ERASED} likes green tea", subject=ERASED, key="tea", value="sencha of Uji")
        home.publish()
        for subject in (ERASED,):
            preview = one.forget_preview(subject=subject)
            one.forget(subject=subject, confirm=preview["confirm"])
        home.publish()
        one.remember("not published yet", key="late", value="1")
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Copy:
    """A copy of the home."""
    return copy_of(tmp_path, original)


@pytest.fixture
def make_copy(original: Path, tmp_path: Path) -> Callable[[], Copy]:
    """More copies than one."""

    def make() -> Copy:
        home = tmp_path / f"home-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(original, home)
        return Copy(home, parse_trust((home / "trust.toml").read_text()))

    return make


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One more item each time that rows are read to be judged."""
    read, seen = audits.read_rows, []

    def counting(*arguments: Any) -> Any:
        seen.append(1)
        return read(*arguments)

    monkeypatch.setattr(audits, "read_rows", counting)
    yield seen
