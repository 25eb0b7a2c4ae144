"""A copy of a home to spoil, and what an audit says of it."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from auditor.audit import Audited, Places, audit
from auditor.evidence import Asked
from memory import vfs
from tlog.trust import Trust, parse_trust


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

    def sql_unchecked(self, *statements: str) -> None:
        """The same past every guard of SQLite's own, as somebody with a hex editor could."""
        connection = apsw.Connection(str(self.home / "store.db"), vfs=vfs.register())
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        for statement in ("PRAGMA secure_delete = ON", "PRAGMA foreign_keys = OFF", *statements):
            connection.execute(statement).fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()

    def ask(self, sql: str) -> list[Any]:
        """The rows of a query."""
        connection = apsw.Connection(str(self.home / "store.db"), vfs=vfs.register())
        rows: list[Any] = connection.execute(sql).fetchall()
        connection.close()
        return rows


def copy_of(folder: Path, *sources: Path) -> Copy:
    """Copies of these folders in another, of which the one called `home` is the home."""
    for source in sources:
        shutil.copytree(source, folder / source.name)
    return Copy(folder / "home", parse_trust((folder / "home" / "trust.toml").read_text()))
