"""What SQLite does for each statement: it seeks, never scans, and stays within one tenant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import memory.store
from memory import wiring
from memory.model import SCOPES, Principal
from memory.wiring import Home

ME = Principal("acme", "ops", "desk", SCOPES)
IDE = Principal("acme", "ops", "ide", SCOPES)
GROWING = ("events", "contents", "facts", "acts", "ledger", "conflicts", "idempotency", "tokens")
# Counts of the whole store, for `status` and `doctor` alone; the reads of a preview say so where they are.
MAY_SCAN = (
    "SELECT (SELECT count(*) FROM events)",
    "SELECT status, count(*) FROM facts",
    # Whose memory there is, for a sweep of all of it.
    "SELECT t.number, t.name, c.content\n",
    # What names somebody without being a record of theirs, and what explains a hit: an erasure reads everything.
    "SELECT seq, content FROM contents ORDER BY seq",
    "SELECT c.content FROM contents c CROSS JOIN events e ON e.seq = c.seq WHERE e.tenant = ?",
)
# Found by a number or a commitment that a row of the tenant has already given, or of the store as a whole; or by
# words, each of which begins with the token of its scope.
WITHOUT_TENANT = re.compile(
    r"WHERE e?\.?seq = |WHERE commitment|entry_index|max\(seq\)|count\(\*\) FROM events|FROM meta|INTO |"
    r"WHERE id = |WHERE number = |name_tag = |FROM tenants WHERE name |expires_at <= |a\.seq = \?|FROM erasures|"
    r"sqlite_schema|WHERE e\.seq IN|FROM backups|"
    r"DELETE FROM (facts|contents) WHERE seq|UPDATE (erasures|ledger)|search MATCH|FROM search_idx|FROM search_config|"
    r"FROM \(SELECT tenant, min\(seq\)|FROM temp\.words|FROM contents ORDER BY seq|SELECT id FROM tenants ORDER BY id"
)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that is run from now on, once."""
    found: list[str] = []
    connect = memory.store._connect

    def traced(path: Path, *more: Any) -> apsw.Connection:
        connection = connect(path, *more)

        def note(_: Any, sql: str, __: Any) -> bool:
            if sql not in found:
                found.append(sql)
            return True

        connection.exec_trace = note
        return connection

    monkeypatch.setattr(memory.store, "_connect", traced)
    return found


@pytest.fixture
def home(tmp_path: Path, statements: list[str]) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def use(home: Home) -> None:
    """Something of everything."""
    me, ide = home.memory(ME), home.memory(IDE)
    first = me.remember("it runs in a", key="k", value="a", subject="Ann", idempotency_key="1")
    me.remember("it runs in a", key="k", value="a", subject="Ann", idempotency_key="1")
    me.remember("it runs in b", key="k", value="b", subject="Ann")
    token = me.remember("it runs in a", key="k", value="a")["reaffirm"]
    me.remember("it runs in a", key="k", value="a", reaffirm=token, reason="moved back")
    me.remember("k runs in b")
    me.remember("about the past", key="k", value="z", valid_from="2001-01-01T00:00:00Z")
    ide.remember("it runs in c", key="k", value="c")
    me.get("k")
    me.get("k", as_of="2020-01-01T00:00:00Z")
    me.recall("runs")
    me.recall("runs", as_of="2020-01-01T00:00:00Z", include_history=True)
    me.history("k")
    (conflict,) = me.conflicts()["conflicts"]
    me.resolve(conflict["id"], conflict["facts"][0]["id"])
    held = me.remember("maybe d", key="other", value="d", provisional=True)
    me.review()
    me.confirm(held["id"])
    me.retract(held["id"])
    me.discard(me.remember("maybe e", key="other", value="e", provisional=True)["id"])
    me.status()
    grant = me.grant("reader")["id"]
    home.memory(Principal("acme", "reader", "desk", SCOPES)).get("k", owner="ops")
    me.grants()
    me.revoke(grant)
    home.publish()
    me.provenance(first["id"])
    me.opening(first["id"])
    me.forget(id=first["id"], confirm=me.forget_preview(id=first["id"])["confirm"])
    me.get("k", as_of="now")
    me.retention("0s", apply=True)
    me.remember("Ann lives there", key="ann/city", value="there", subject="Ann")
    me.forget(subject="Ann", confirm=me.forget_preview(subject="Ann")["confirm"])
    me.forget(all=True, confirm=me.forget_preview(all=True)["confirm"])


def queries(statements: list[str]) -> list[str]:
    return [sql for sql in statements if re.match(r"\s*(SELECT|WITH|UPDATE|DELETE)", sql)]


def scans(home: Home, sql: str) -> list[str]:
    with home.parts().store.read() as view:
        values = (None,) * 40
        count = 0
        for count in range(40):
            try:
                plan = view.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values[:count]).fetchall()
                break
            except apsw.BindingsError:
                continue
        else:
            raise AssertionError(sql)
    lines = [str(row[3]) for row in plan]
    names = "|".join(GROWING)
    # The outbox is what its partial index holds, and all of it is asked for.
    return [
        line for line in lines if re.match(rf"SCAN ({names}|[acef])\b", line) and "events_outbox" not in line
    ]


def test_no_statement_scans_a_table_that_grows(home: Home, statements: list[str]) -> None:
    use(home)
    asked = queries(statements)
    assert len(asked) > 40
    for sql in asked:
        if not sql.strip().startswith(MAY_SCAN):
            assert scans(home, sql) == [], sql


def test_the_check_sees_a_scan(home: Home) -> None:
    assert scans(home, "SELECT 1 FROM facts WHERE recorded_at = ?") != []


def test_every_statement_carries_the_tenant(home: Home, statements: list[str]) -> None:
    use(home)
    for sql in queries(statements):
        assert re.search(r"tenant\b\s*(=|\))", sql) or WITHOUT_TENANT.search(sql), sql
