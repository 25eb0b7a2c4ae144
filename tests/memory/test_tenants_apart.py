"""No query reads a row of another tenant: its rows are rewritten to match every look-up, and nothing changes.

What keeps tenants apart is in each statement of SQL, beside the keyed hashes. So the hashes are taken away: the rows
of the other tenant get the tags of the asked one, and contents that cannot be decoded. A statement without its tenant
would find them, and either answer something else or fail.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import vfs
from memory.principal import make_principal, with_all_scopes
from memory.search import make_document, scope_token
from memory.store_read import Snapshot
from memory.wiring import Home, open_home

START = 1_790_000_000_000_000
HOUR = 3600 * 1_000_000
ASKED = with_all_scopes(make_principal("asked", "bot", "desk"))
OTHER = with_all_scopes(make_principal("other", "bot", "desk"))
KEYS = ("plain", "changed", "disputed", "gone", "kept", "lost")


def fill(home: Home, who: Any, tick: Callable[[], None]) -> None:
    """A record of every kind under one principal."""
    me, phone = home.memory(who), home.memory(with_all_scopes(make_principal(who.tenant, who.agent, "phone")))
    me.remember("plain words", key="plain", value="p", subject="Ann", idempotency_key="1")
    me.remember("words changed", key="changed", value="old", subject="Ann")
    tick()
    me.remember("words changed again", key="changed", value="new")
    me.remember("words changed back", key="changed", value="old")
    me.remember("words of the desk", key="disputed", value="one")
    phone.remember("words of the phone", key="disputed", value="two")
    me.remember("words without a key, about the harbour")
    me.remember("a guess at words", key="plain", value="q", provisional=True)
    me.retract(me.remember("words gone", key="gone", value="g")["id"])
    lost = me.remember("words lost", key="lost", value="l")["id"]
    me.remember("words found", key="lost", value="f")
    me.forget(id=lost, confirm=me.forget_preview(id=lost)["confirm"])
    kept = me.remember("words kept", key="kept", value="k")["id"]
    me.hold(id=kept, authority="a court", review_by="2100-01-01T00:00:00Z")
    tick()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tenants") / "home"
    now = [START]

    def tick() -> None:
        now[0] += HOUR

    with open_home(folder, clock=lambda: now[0]) as home:
        for who in (ASKED, OTHER):
            fill(home, who, tick)
        home.publish()
    return folder


def answers(home: Home) -> Iterator[tuple[str, str]]:
    """What every read answers to the asked tenant, by what was asked."""
    me = home.memory(ASKED)
    times: list[dict[str, Any]] = [{}]
    times += [{name: (START + HOUR // 2) // 1_000_000} for name in ("as_of", "as_recorded")]
    asked: list[tuple[str, Callable[[], object]]] = [
        ("conflicts", me.conflicts),
        ("review", me.review),
        ("holds", me.holds),
        ("facts", lambda: me.status()["facts"]),
        ("open", lambda: me.status()["conflicts"]),
    ]
    ids: set[str] = set()
    for key in KEYS:
        for time in times:
            asked.append((f"get {key} {time}", lambda key=key, time=time: me.get(key, **time)))  # type: ignore[misc]
            asked.append((f"history {key} {time}", lambda key=key, time=time: me.history(key, **time)))  # type: ignore[misc]
        ids |= {fact["id"] for fact in me.history(key)["facts"]}
    for query in ("words", "harbour", *KEYS):
        for past in (False, True):
            asked.append(
                (
                    f"recall {query} {past}",
                    lambda query=query, past=past: me.recall(query, limit=100, include_history=past),  # type: ignore[misc]
                )
            )
    for id in sorted(ids):
        asked.append((f"provenance {id}", lambda id=id: me.provenance(id)))  # type: ignore[misc]
    for selector in ({"key": "changed"}, {"subject": "Ann"}, {"all": True}):
        asked.append(
            (f"preview {selector}", lambda selector=selector: me.forget_preview(**selector)["preview"])
        )  # type: ignore[misc]
    # Whoever may purge sweeps what the rules end in every tenant; this caller may not.
    agent = home.memory(replace(ASKED, scopes=ASKED.scopes - {"memory:purge"}))
    asked.append(("retention", lambda: agent.retention("0s")))
    # Writes read, too: what the key says, whether the value is retired, what the request was.
    asked.append(("agree", lambda: told(me.remember("plain words", key="plain", value="p"))))
    asked.append(("echo", lambda: told(me.remember("back", key="changed", value="old"))))
    asked.append(("unkeyed", lambda: told(me.remember("the changed one is old"))))
    asked.append(
        (
            "again",
            lambda: told(
                me.remember("plain words", key="plain", value="p", subject="Ann", idempotency_key="1")
            ),
        )
    )
    for name, act in asked:
        yield name, json.dumps(act(), sort_keys=True, default=str)


def told(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("outcome", "reason", "retired", "conflict_with")}


def rewrite(home: Path) -> int:
    """Gives each row of the other tenant the tags of the asked one's, and contents that nobody can decode."""
    connection = apsw.Connection(str(home / "store.db"), vfs=vfs.register())
    run = connection.execute
    asked, other = (row[0] for row in run("SELECT id FROM tenants ORDER BY id"))
    columns = {
        "facts": ("agent_tag", "key_tag", "subject_tag", "text_tag"),
        "ledger": ("agent_tag", "key_tag", "value_tag", "name_tags"),
        "conflicts": ("agent_tag", "key_tag"),
        "idempotency": ("request_tag", "body_tag"),
    }
    changed = 0
    with connection:
        for table, names in columns.items():
            order = "id" if table in ("ledger", "idempotency") else "seq"
            own = list(
                run(f"SELECT {', '.join(names)} FROM {table} WHERE tenant = ? ORDER BY {order}", (asked,))
            )
            theirs = [
                row[0]
                for row in run(f"SELECT {order} FROM {table} WHERE tenant = ? ORDER BY {order}", (other,))
            ]
            sets = ", ".join(f"{name} = ?" for name in names)
            for values, place in zip(own, theirs, strict=False):
                run(f"UPDATE OR IGNORE {table} SET {sets} WHERE {order} = ?", (*values, place))
                changed += connection.changes()
        run(
            "UPDATE facts SET status = 'active', valid_from = 0 WHERE tenant = ? AND status <> 'held'",
            (other,),
        )
        run(
            "UPDATE contents SET content = x'ff' WHERE seq IN (SELECT seq FROM events WHERE tenant = ?)",
            (other,),
        )
    connection.close()
    return changed


def test_rows_of_another_tenant_change_no_answer_whatever_their_tags(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled, tmp_path / "plain")
    shutil.copytree(filled, tmp_path / "rewritten")
    assert rewrite(tmp_path / "rewritten") > 15
    with open_home(tmp_path / "plain", clock=lambda: START + 9 * HOUR) as home:
        expected = dict(answers(home))
    with open_home(tmp_path / "rewritten", clock=lambda: START + 9 * HOUR) as home:
        found = dict(answers(home))
    assert len(expected) > 60
    assert found == expected


@pytest.mark.parametrize("table", ["f.tenant = ? AND", "f.tenant = ?"])
def test_a_statement_without_its_tenant_is_caught(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    shutil.copytree(filled, tmp_path / "home")
    rewrite(tmp_path / "home")
    with open_home(filled, clock=lambda: START + 9 * HOUR) as home:
        expected = home.memory(ASKED).history("changed")
    real = Snapshot.rows

    def without(self: Snapshot, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return real(self, sql.replace(table, table.replace("f.tenant = ?", "f.tenant <> ? + 1000")), *values)

    monkeypatch.setattr(Snapshot, "rows", without)
    with open_home(tmp_path / "home", clock=lambda: START + 9 * HOUR) as home:
        try:
            assert home.memory(ASKED).history("changed") != expected
        except Exception as error:  # noqa: BLE001 -- contents of the other tenant cannot be decoded
            assert "CBOR" in str(error) or "content" in str(error)


def test_words_of_another_tenant_are_not_found_even_under_the_scope_of_the_asked(
    filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled, tmp_path / "home")
    with open_home(tmp_path / "home", clock=lambda: START + 9 * HOUR) as home:
        before = home.memory(ASKED).recall("harbour")
        connection = apsw.Connection(str(tmp_path / "home" / "store.db"), vfs=vfs.register())
        asked, other = (row[0] for row in connection.execute("SELECT id FROM tenants ORDER BY id"))
        (tag,) = next(iter(connection.execute("SELECT agent_tag FROM facts WHERE tenant = ?", (asked,))))
        # A held fact has no words in the index yet: it gets some, as the asked tenant's, and the status to be served.
        (seq,) = next(
            iter(connection.execute("SELECT seq FROM facts WHERE tenant = ? AND status = 'held'", (other,)))
        )
        document = make_document(scope_token(tag), {"text": "harbour harbour", "key": None, "value": None})
        with connection:
            connection.execute(
                "INSERT INTO search (rowid, key, value, body) VALUES (?, ?, ?, ?)", (seq, *document.columns)
            )
            connection.execute("UPDATE facts SET status = 'active', agent_tag = ? WHERE seq = ?", (tag, seq))
        connection.close()
        after = home.memory(ASKED).recall("harbour")
    assert [fact["id"] for fact in after["facts"]] == [fact["id"] for fact in before["facts"]]
