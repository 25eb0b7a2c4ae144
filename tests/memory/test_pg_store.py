"""What the store in PostgreSQL promises beyond the contract: walls, one history on many nodes, sealed contents."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from erasing import manifest_of
from postgres_server import Server, pg_home
from ticking import Clock

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import doctor, pg_connection, pg_schema, store_grants, wiring
from memory.model import Principal
from memory.principal import make_principal, with_all_scopes
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError


def owner(tenant: str = "default", agent: str = "default") -> Principal:
    return with_all_scopes(make_principal(tenant, agent, "desk"))


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        yield opened
    postgres.drop_databases()


def audited(home: wiring.Home) -> Any:
    """What an audit by the auditor's own code says, with the clock of the home."""
    return audit(Places(home.path), Asked(home.trust(), home.clock()), tenant=None, needles=None).outcome


def another_node(home: wiring.Home, folder: Path) -> wiring.Home:
    """A home with the same keys and settings on what could be another machine."""
    shutil.copytree(home.path, folder)
    return wiring.open_home(folder, clock=home.clock)


def everything_in(server: Server, home: wiring.Home) -> bytes:
    """All that the tables of a database have in their rows, as the administrator sees them."""
    database = psycopg.conninfo.conninfo_to_dict(home.config.database or "")["dbname"]
    with server.connect(str(database)) as connection:
        tables = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'muniment' AND c.relkind = 'r'"
        ).fetchall()
        assert len(tables) > 20
        found = []
        for (table,) in tables:
            for row in connection.cursor(binary=True).execute(f"SELECT * FROM muniment.{table}"):
                found += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    return b"\n".join(found)


def test_a_life_in_a_database_is_audited_clean(home: wiring.Home, clock: Clock) -> None:
    me = home.memory(owner())
    assert me.remember("Anna lives in Bern", key="anna/city", value="Bern")["outcome"] == "stored"
    assert me.remember("Anna lives in Basel", key="anna/city", value="Basel")["outcome"] == "superseded"
    assert me.remember("Anna lives in Bern", key="anna/city", value="Bern")["outcome"] == "refused"
    assert me.remember("東京の天気は晴れ")["outcome"] == "stored"
    home.memory(owner(tenant="umbrella")).remember("a thing of others", subject="Otto")
    assert [fact["value"] for fact in me.recall("where does Anna live")["facts"]] == ["Basel"]
    assert len(me.recall("京")["facts"]) == len(me.recall("天気")["facts"]) == 1
    assert home.publish()["size"] == 5
    preview = me.forget_preview(key="anna/city")
    done = me.forget(key="anna/city", confirm=preview["confirm"])
    assert done["erased"] == 3
    assert me.get("anna/city")["current"] is None
    home.publish()
    clock.now += 25 * 3_600_000_000
    me.remember("a day later")
    home.publish()
    outcome = audited(home)
    assert outcome.findings == ()
    assert outcome.counts["states"] == 1


@pytest.mark.postgres
def test_an_audit_finds_a_row_that_was_changed(home: wiring.Home, postgres: Server) -> None:
    home.memory(owner()).remember("Anna lives in Bern", key="anna/city", value="Bern")
    home.publish()
    assert audited(home).findings == ()
    database = str(psycopg.conninfo.conninfo_to_dict(home.config.database or "")["dbname"])
    for change in (
        "UPDATE muniment.facts SET status = 'retracted'",
        "UPDATE muniment.content_boxes SET content = set_byte(content, 20, get_byte(content, 20) # 1)",
        "UPDATE muniment.content_keys SET wrapped = set_byte(wrapped, 20, get_byte(wrapped, 20) # 1)",
        "UPDATE muniment.tenants SET last_seq = 7",
        "DELETE FROM muniment.events",
    ):
        with postgres.connect(database) as connection, connection.transaction(force_rollback=False):
            connection.execute(change)
        assert audited(home).findings, change


@pytest.mark.postgres
def test_without_the_first_wall_the_second_stands(home: wiring.Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for tenant in ("acme", "umbrella"):
        home.memory(owner(tenant=tenant)).remember(f"a thing of {tenant}", key="thing", value=tenant)
    run = pg_connection.PgConnection.run

    def without_tenant(self: Any, sql: str, values: Any = ()) -> Any:
        return run(self, re.sub(r"\b(?:\w\.)?tenant = %s", "%s::bigint IS NOT NULL", sql), values)

    monkeypatch.setattr(pg_connection.PgConnection, "run", without_tenant)
    store = home.parts().store
    tag = store.vault.tag_of_name(b"", "tenant", "acme")
    with store.read_whole() as view:
        assert {row.tenant_id for row in view.events(1, 0, 10)} == {1, 2}, "the first wall is gone"
    with store.read() as view:
        assert view.events(1, 0, 10) == ()
        acme = view.tenant(tag)
        assert acme is not None
        assert {row.tenant_id for row in view.events(acme.id, 0, 10)} == {acme.id}
        assert {row.tenant_id for row in view.events(3 - acme.id, 0, 10)} == {acme.id}
        with pytest.raises(RefusedError):
            view.enter(3 - acme.id)
    with pytest.raises(MalformedError), store.write() as txn:
        txn.find_tenant(tag)
        store_grants.add_grant(txn, 3 - acme.id, 99, b"o", b"r")
    with store.read_whole() as view:
        assert view.rows("SELECT * FROM grants") == []


@pytest.mark.postgres
def test_two_nodes_write_one_history_of_a_key(home: wiring.Home, tmp_path: Path) -> None:
    home.memory(owner()).remember("it begins", key="counter", value="start")
    nodes = [home, another_node(home, tmp_path / "two"), another_node(home, tmp_path / "three")]
    outcomes: list[str] = []

    def work(place: int) -> None:
        me = nodes[place % 3].memory(owner())
        for step in range(5):
            value = f"value {place} {step}"
            answer = me.remember(f"the counter is {value}", key="counter", value=value)
            outcomes.append(answer["outcome"])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["superseded"] * 30
    history = home.memory(owner()).history("counter")["facts"]
    assert [fact["status"] for fact in history] == ["superseded"] * 30 + ["active"]
    with home.parts().store.read_whole() as view:
        rows = view.rows("SELECT seq, replaced_by FROM facts ORDER BY seq")
        assert [replaced for _, replaced in rows] == [*(seq for seq, _ in rows[1:]), None]
        numbers = view.rows("SELECT tenant_seq FROM events ORDER BY seq")
        assert [number for (number,) in numbers] == list(range(1, 32))
    home.publish()
    assert audited(home).findings == ()
    for node in nodes[1:]:
        node.close()


@pytest.mark.postgres
def test_tenants_do_not_wait_for_each_other(home: wiring.Home) -> None:
    for tenant in ("acme", "umbrella"):
        home.memory(owner(tenant=tenant)).remember("a thing")
    store = home.parts().store
    with store.write() as txn:
        txn.find_tenant(store.vault.tag_of_name(b"", "tenant", "acme"))
        assert home.memory(owner(tenant="umbrella")).remember("another")["outcome"] == "stored"


@pytest.mark.postgres
def test_the_database_sees_no_content(home: wiring.Home, postgres: Server) -> None:
    me = home.memory(owner(tenant="Quarzfels GmbH", agent="Wendelin"))
    me.remember(
        "Ottilie Brandmeyer wohnt in Xanten",
        key="ottilie/wohnort",
        value="Xanten",
        subject="Ottilie Brandmeyer",
    )
    me.recall("Ottilie")
    rows = everything_in(postgres, home).lower()
    for word in ("ottilie", "brandmeyer", "xanten", "wohn", "quarzfels", "wendelin"):
        assert word.encode() not in rows
    logged = (postgres.folder / "server.log").read_bytes().lower()
    assert b"ottilie" not in logged
    with home.parts().store.read_whole() as view:
        stored = view.rows("SELECT content, salt FROM contents")
    assert len(stored) == 1 and b"Xanten" in stored[0][0], "the words are there for whoever has the key"


@pytest.mark.postgres
def test_an_erasure_destroys_the_keys_down_to_the_pages(home: wiring.Home, postgres: Server) -> None:
    me = home.memory(owner())
    # The row that goes lies behind the one that stays: a vacuum alone would move nothing over it.
    me.remember("something else", key="other", value="1", subject="Xaver")
    me.remember("Otto wohnt in Xanten", key="otto", value="Xanten", subject="Otto")
    home.write_config(replace(home.config, database_copies="35d"))
    store = home.parts().store
    with store.read_whole() as view:
        wrapped = [row[0] for row in view.rows("SELECT wrapped FROM content_keys ORDER BY seq")]
        subject = view.rows(
            "SELECT s.wrapped FROM subject_keys s, content_keys k WHERE k.subject = s.subject AND k.seq = 2"
        )[0][0]

    def on_disk(key: bytes) -> bool:
        with postgres.connect() as connection:
            connection.execute("CHECKPOINT")
        return any(
            key in path.read_bytes() for path in (postgres.folder / "base").rglob("*") if path.is_file()
        )

    assert on_disk(wrapped[0]) and on_disk(wrapped[1]) and on_disk(subject)
    answer = me.forget(subject="Otto", confirm=me.forget_preview(subject="Otto")["confirm"])
    assert answer["erased"] == 1
    manifest = manifest_of(home, answer)
    assert manifest.document["state"] == "inconclusive"
    assert {(one["kind"], one["result"]) for one in manifest.document["systems"]} == {
        ("store", "verified"),
        ("ledger", "verified"),
        ("heap", "verified"),
        ("wal", "not_verified"),
        ("replica", "not_verified"),
    }
    untils = {one["until"] for one in manifest.document["systems"] if "until" in one}
    assert untils == {-(-(home.clock() + 35 * 86_400_000_000) // 3_600_000_000) * 3_600_000_000}
    assert not on_disk(wrapped[1]) and not on_disk(subject)
    assert on_disk(wrapped[0])
    with store.read_whole() as view:
        assert view.rows("SELECT 1 FROM words WHERE seq = 2") == []
        assert view.rows("SELECT count(*) FROM subject_keys") == [(1,)]
    assert [fact["value"] for fact in me.recall("something else")["facts"]] == ["1"]


@pytest.mark.postgres
def test_an_open_view_keeps_dead_rows_and_the_erasure_says_so(home: wiring.Home) -> None:
    me = home.memory(owner())
    me.remember("Otto wohnt in Xanten", key="otto", value="Xanten")
    store = home.parts().store
    with store.read_whole() as view:
        view.counts()
        with store.write() as txn:
            txn.find_tenant(store.vault.tag_of_name(b"", "tenant", "default"))
            txn.drop_content(1, 1)
        assert not store.checkpoint_truncate(0.2)
    assert store.checkpoint_truncate(0.2)


@pytest.mark.postgres
def test_a_lost_connection_is_temporary_and_loses_nothing(home: wiring.Home, postgres: Server) -> None:
    me = home.memory(owner())
    me.remember("before", key="a", value="1")
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muniment'"
    with postgres.connect() as connection:
        connection.execute(kill)
    assert me.remember("idle connections are made anew", key="b", value="1")["outcome"] == "stored"
    store = home.parts().store
    with pytest.raises(UnavailableError) as caught, store.write() as txn:
        txn.find_tenant(store.vault.tag_of_name(b"", "tenant", "default"))
        with postgres.connect() as connection:
            connection.execute(kill)
        txn.view.last_recorded_at()
    assert caught.value.code == "database_unavailable"
    assert me.get("a")["current"] == "1"


@pytest.mark.postgres
def test_what_others_have_undone_is_run_again(home: wiring.Home) -> None:
    home.memory(owner()).remember("before", key="a", value="1")
    store, runs = home.parts().store, []

    def work(txn: Any) -> str:
        runs.append(1)
        if len(runs) < 3:
            txn.pg.run("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$")
        return "done"

    assert store.write_together(work) == "done"
    assert len(runs) == 3


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("user", "code"),
    [
        ("postgres", "role_unsafe"),
        ("heir", "role_unsafe"),
        ("bypasser", "role_unsafe"),
        ("stranger", "role_missing"),
    ],
)
def test_a_role_that_slips_through_the_policies_is_refused(
    postgres: Server, tmp_path: Path, user: str, code: str
) -> None:
    with postgres.connect() as connection:
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (user,)).fetchone()
        if known is None:
            connection.execute(f"CREATE ROLE {user} LOGIN")
        if user == "heir":
            connection.execute("GRANT muniment_whole TO heir")
        if user == "bypasser":
            connection.execute("ALTER ROLE bypasser BYPASSRLS NOINHERIT")
            connection.execute("GRANT muniment_whole TO bypasser")
    dsn = postgres.new_database().replace("user=muniment", f"user={user}")
    with pytest.raises((RefusedError, MalformedError)) as caught:
        wiring.init_home(tmp_path / "home", database=dsn)
    assert caught.value.code == code
    postgres.drop_databases()


@pytest.mark.postgres
def test_a_home_with_another_key_is_refused(home: wiring.Home, tmp_path: Path) -> None:
    home.memory(owner()).remember("a thing")
    other = another_node(home, tmp_path / "other")
    (other.path / "keys" / "seal.key").write_bytes(os.urandom(32))
    with pytest.raises(UnavailableError) as caught:
        other.parts()
    assert caught.value.code == "key_mismatch"


def test_words_of_an_older_version_are_made_anew(home: wiring.Home, postgres: Server) -> None:
    me, other = home.memory(owner()), home.memory(owner("umbrella"))
    for memory in (me, other):
        memory.remember("The wi-fi of the Stra\u00dfe is off", key="wi-fi/state", value="off")
    me.remember("nothing of that")
    words = "SELECT tenant, term, seq, places FROM muniment.words ORDER BY 1, 2, 3"
    database = psycopg.conninfo.conninfo_to_dict(home.config.database or "")["dbname"]
    with postgres.connect(str(database)) as connection:
        wanted = connection.execute(words).fetchall()
        # As if each word had been hashed under another spelling.
        connection.execute("UPDATE muniment.words SET term = term # 1")
        connection.execute("UPDATE muniment.schema_version SET version = 1")
        connection.execute("ALTER TABLE muniment.content_keys ALTER COLUMN wrapped SET STATISTICS -1")
        assert connection.execute(words).fetchall() != wanted
        with wiring.open_home(home.path, clock=home.clock) as again:
            found = again.memory(owner()).recall("wifi strasse")["facts"]
            assert [fact["key"] for fact in found] == ["wi-fi/state"]
        assert connection.execute(words).fetchall() == wanted
        versions = connection.execute("SELECT version FROM muniment.schema_version").fetchall()
        assert versions == [(pg_schema.VERSION,)]
        sampled = """SELECT attstattarget FROM pg_attribute WHERE attname = 'wrapped'
                     AND attrelid::regclass::text LIKE 'muniment.content_keys%'"""
        assert {row[0] for row in connection.execute(sampled)} == {0}


@pytest.mark.postgres
def test_the_schema_is_made_once_by_many_and_shown_before(postgres: Server) -> None:
    with postgres.connect() as connection:
        connection.execute("DROP DATABASE IF EXISTS bare")
        connection.execute("CREATE DATABASE bare OWNER muniment")
    dsn = postgres.dsn("bare")
    assert any("CREATE POLICY own" in one for one in pg_schema.plan(dsn, 2))
    errors: list[Error] = []

    def make() -> None:
        try:
            pg_schema.ensure_schema(dsn, 2)
        except Error as error:
            errors.append(error)

    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    threads = [threading.Thread(target=make) for _ in range(3)]
    with postgres.connect("bare") as held:
        held.execute("SELECT pg_advisory_lock(%s)", (pg_schema._MIGRATION_LOCK,))
        for thread in threads:
            thread.start()
        for _ in range(400):
            if held.execute(waiting).fetchone() == (3,):
                break
            time.sleep(0.025)
        else:
            pytest.fail("they do not wait for each other")
    for thread in threads:
        thread.join()
    assert errors == []
    assert pg_schema.plan(dsn, 2) == ()
    with postgres.connect() as connection:
        connection.execute("DROP DATABASE bare WITH (FORCE)")


@pytest.mark.postgres
def test_the_doctor_looks_at_the_database(home: wiring.Home, postgres: Server, tmp_path: Path) -> None:
    home.memory(owner()).remember("a thing")

    def said() -> dict[str, Any]:
        return {one.check: one for one in doctor.examine(home.path)}

    found = said()
    assert found["store"].result == "ok", found["store"]
    assert found["store_settings"].result == "fail", "the server of the tests does not flush"
    assert found["database_log"].result == found["database_copies"].result == "ok"
    with postgres.connect() as connection:
        connection.execute("ALTER ROLE muniment SET log_statement = 'all'")
        connection.execute("ALTER ROLE muniment SET log_parameter_max_length_on_error = -1")
        connection.execute("SELECT pg_create_physical_replication_slot('kept')")
        try:
            found = said()
        finally:
            connection.execute("ALTER ROLE muniment RESET ALL")
            connection.execute("SELECT pg_drop_replication_slot('kept')")
    assert found["database_log"].result == found["database_copies"].result == "warn"
    assert "log_parameter_max_length and log_parameter_max_length_on_error" in found["database_log"].text


def test_settings_have_no_password(tmp_path: Path) -> None:
    for dsn in ("host=h password=secret", "postgresql://me:secret@h/db"):
        with pytest.raises(MalformedError) as caught:
            wiring.init_home(tmp_path / "home", database=dsn)
        assert caught.value.code == "password_in_settings"
        assert "secret" not in str(caught.value)


def test_the_list_of_tests_names_what_there_is() -> None:
    root = Path(__file__).resolve().parent
    lines = (root / "on_postgres.txt").read_text("utf-8").splitlines()
    for line in lines:
        if line.startswith("run "):
            assert (root.parent.parent / line.split()[1]).is_file(), line
        elif line.startswith("not "):
            _, test, reason = line.split(maxsplit=2)
            file, _, name = test.partition("::")
            assert f"def {name}(" in (root.parent.parent / file).read_text("utf-8"), line
            assert f"run {file}" in lines and len(reason) > 10, line
