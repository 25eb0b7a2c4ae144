"""A home with a history in it, made once, and copies of it to spoil."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from auditor.audit import Audited, Places, audit
from auditor.evidence import Asked
from memory import vfs
from memory.model import SCOPES, Principal
from memory.wiring import init_home
from tlog.trust import Trust, parse_trust

ERASED = "Zqxv Kumquat"


@dataclass(frozen=True)
class Copy:
    """A copy of the home, with what its owner knew."""

    home: Path
    trust: Trust

    def audit(self, **options: Any) -> Audited:
        """An audit of the copy; `trust`, `now`, `tenant`, `needles` and the fields of Places may be given."""
        asked = Asked(options.pop("trust", self.trust), options.pop("now", time.time_ns() // 1000))
        tenant, needles = options.pop("tenant", None), options.pop("needles", None)
        return audit(Places(self.home, **options), asked, tenant=tenant, needles=needles)

    def codes(self, **options: Any) -> set[str]:
        """The codes of the findings."""
        return {finding.code for finding in self.audit(**options).outcome.findings}

    def sql(self, *statements: str | tuple[str, tuple[object, ...]]) -> None:
        """Statements run on the store as its owner would run them, leaving no free byte behind."""
        connection = apsw.Connection(str(self.home / "store.db"), vfs=vfs.register())
        connection.execute("PRAGMA secure_delete = ON").fetchall()
        for statement in statements:
            sql, bound = (statement, ()) if isinstance(statement, str) else statement
            connection.execute(sql, bound)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()

    def ask(self, sql: str) -> list[Any]:
        """The rows of a query."""
        connection = apsw.Connection(str(self.home / "store.db"), vfs=vfs.register())
        rows: list[Any] = connection.execute(sql).fetchall()
        connection.close()
        return rows


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
    home = tmp_path / "home"
    shutil.copytree(original, home)
    return Copy(home, parse_trust((home / "trust.toml").read_text()))


@pytest.fixture
def make_copy(original: Path, tmp_path: Path) -> Callable[[], Copy]:
    """More copies than one."""

    def make() -> Copy:
        home = tmp_path / f"home-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(original, home)
        return Copy(home, parse_trust((home / "trust.toml").read_text()))

    return make
