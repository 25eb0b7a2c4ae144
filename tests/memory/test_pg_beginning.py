"""How a home in a database begins: what is refused before there is one, and what a failed beginning leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import Server, pg_home
from ticking import Clock

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import cli, doctor, wiring
from memory.layout import CONFIG
from memory.pg_locks import WRITERS
from memory.pg_store import PgStore
from memory.principal import owner_from_environment
from tlog.errors import Error, MalformedError, RefusedError, UnavailableError

NOBODY = "host=127.0.0.1 port=1 dbname=nothing user=nobody"


@pytest.mark.parametrize(
    "dsn",
    [
        "host=h Password = 'hunter2'",
        "host=h sslpassword=hunter2",
        "host=h oauth_client_secret=hunter2",
        "postgresql://me:hunter2@h/db",
        "postgresql://me@h/db?pass%77ord=hunter2",
    ],
)
def test_no_spelling_of_a_password_is_kept_or_repeated(tmp_path: Path, dsn: str) -> None:
    with pytest.raises(MalformedError) as caught:
        wiring.init_home(tmp_path / "home", database=dsn)
    assert caught.value.code == "password_in_settings"
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / "home" / CONFIG).exists()


def test_a_host_may_be_called_as_a_password_is(tmp_path: Path) -> None:
    with pytest.raises(Error) as caught:
        wiring.init_home(tmp_path / "home", database=f"{NOBODY} application_name=password")
    assert caught.value.code == "database_unavailable"


@pytest.mark.parametrize("dsn", [NOBODY, "no settings", "", "x" * 5000])
def test_a_beginning_that_fails_leaves_no_home(tmp_path: Path, dsn: str) -> None:
    folder = tmp_path / "home"
    with pytest.raises(Error):
        wiring.init_home(folder, database=dsn)
    assert not (folder / CONFIG).exists()
    key = (folder / "keys" / "log.key").read_bytes()
    with wiring.init_home(folder) as home:
        assert home.config.database is None
    assert (folder / "keys" / "log.key").read_bytes() == key


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("status",),
        ("log", "publish"),
        ("audit",),
        ("migrate", "--database", NOBODY),
        ("migrate", "--database", NOBODY, "--dry-run"),
    ],
)
def test_without_the_extra_each_command_names_it(
    tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with wiring.init_home(tmp_path / "home") as home:
        settings = home.path / CONFIG
    settings.write_text(f'{settings.read_text()}database = "{NOBODY}"\n')
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "psycopg", None)
        assert cli.main([*arguments, "--home", str(home.path)]) != 0
    said = "".join(capsys.readouterr())
    assert "muniment[postgres]" in said and "internal" not in said


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        yield opened
    postgres.drop_databases()


@pytest.mark.postgres
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE muniment.facts DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE muniment.words NO FORCE ROW LEVEL SECURITY",
        "CREATE POLICY more ON muniment.events USING (true)",
        "DROP POLICY own ON muniment.ledger",
        "ALTER POLICY own ON muniment.facts USING (true)",
        "ALTER POLICY whole ON muniment.facts TO public",
    ],
)
def test_a_wall_that_was_taken_down_is_told(home: wiring.Home, postgres: Server, change: str) -> None:
    def told() -> str:
        return next(one.result for one in doctor.examine(home.path) if one.check == "store")

    home.parts().store.require_promises()
    assert told() == "ok"
    database = str(psycopg.conninfo.conninfo_to_dict(home.config.database or "")["dbname"])
    with postgres.connect(database) as connection:
        connection.execute(change)
    with pytest.raises(RefusedError) as caught:
        home.parts().store.require_promises()
    assert caught.value.code == "policies_changed"
    assert told() == "fail"


@pytest.mark.postgres
def test_a_transaction_that_the_server_undid_is_not_told_as_stored(home: wiring.Home) -> None:
    store = home.parts().store
    with pytest.raises(UnavailableError) as caught, store.write() as txn, suppress(psycopg.Error):
        txn.pg.run("SELECT 1 / 0").fetchone()  # type: ignore[attr-defined]
    assert caught.value.code in ("busy", "database_unavailable")


@pytest.mark.postgres
def test_a_statement_that_fails_after_it_was_sent_undoes_the_transaction(home: wiring.Home) -> None:
    store = home.parts().store
    with pytest.raises(psycopg.errors.DivisionByZero), store.write_whole() as txn:
        txn.set_meta("before", 1)
        txn.pg.run("SELECT 1 / 0")  # type: ignore[attr-defined]
    with store.write_whole() as txn:
        assert txn.view.meta("before") is None
        txn.set_meta("after", 1)
    with store.read_whole() as view:
        assert view.meta("after") == 1


@pytest.mark.postgres
def test_of_writes_of_one_transaction_a_refused_one_leaves_nothing(home: wiring.Home) -> None:
    store = home.parts().store
    began: list[int] = []

    def note(name: str, refused: bool = False) -> Callable[[Any], int]:
        def work(txn: Any) -> int:
            began.append(txn.pg.run("SELECT txid_current()").fetchone()[0])
            txn.set_meta(name, 1)
            if refused:
                raise RefusedError("expected another", code="refused")
            return 1

        return work

    made = store.write_all_together([note("a"), note("b", refused=True), note("c")])
    assert made[::2] == [1, 1] and isinstance(made[1], RefusedError)
    with store.read_whole() as view:
        assert [view.meta(name) for name in "abc"] == [1, None, 1]
    assert len(set(began)) == 1


@pytest.mark.postgres
def test_writes_whose_transaction_the_server_undid_are_each_run_again(home: wiring.Home) -> None:
    store, ran = home.parts().store, []

    def note(name: str, fails: bool = False) -> Callable[[Any], str]:
        def work(txn: Any) -> str:
            ran.append(name)
            txn.set_meta(name, ran.count(name))
            if fails and ran.count(name) == 1:
                # Sent, and answered only once this write has given what it gives.
                txn.pg.run("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$")
            return name

        return work

    assert store.write_all_together([note("a"), note("b", fails=True), note("c")]) == ["a", "b", "c"]
    with store.read_whole() as view:
        assert (
            [view.meta(name) for name in "abc"]
            == [ran.count(name) for name in "abc"]
            == [2, 2, ran.count("c")]
        )


@pytest.mark.postgres
def test_a_write_that_the_server_refuses_leaves_the_others_of_its_transaction(home: wiring.Home) -> None:
    store = home.parts().store

    def note(name: str, what: str = "SELECT 1") -> Callable[[Any], str]:
        def work(txn: Any) -> str:
            txn.set_meta(name, 1)
            txn.pg.run(what)
            return name

        return work

    made = store.write_all_together([note("a"), note("b", "SELECT 1 / 0"), note("c")])
    assert made[::2] == ["a", "c"] and isinstance(made[1], psycopg.errors.DivisionByZero)
    with store.read_whole() as view:
        assert [view.meta(name) for name in "abc"] == [1, None, 1]


@pytest.mark.postgres
def test_who_waited_for_a_lock_in_vain_does_not_wait_again_over_another_connection(
    home: wiring.Home, postgres: Server
) -> None:
    store = home.parts().store
    assert isinstance(store, PgStore)
    with store.write(), store.write():
        pass
    idle = list(store._free)
    assert len(idle) == 2
    for one in idle:
        one.execute("SET lock_timeout = 50")
    with postgres.connect(str(idle[0].info.dbname)) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (WRITERS,))
        with pytest.raises(UnavailableError) as caught, store.write():
            pass
    assert caught.value.code == "busy"
    assert [one.closed for one in idle] == [False, True], "one was tried"
    # One that was lost while it lay there is another matter.
    with postgres.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s)", (idle[0].info.backend_pid,))
    with store.write_whole() as txn:
        txn.set_meta("after", 1)


@pytest.mark.postgres
def test_what_was_given_out_is_audited_as_well(home: wiring.Home) -> None:
    me = home.memory(owner_from_environment({}))
    written = me.remember("Anna lives in Bern", key="anna/city", value="Bern")
    me.opening(written["id"])
    home.publish()
    outcome = audit(Places(home.path), Asked(home.trust(), home.clock()), tenant=None, needles=None).outcome
    assert outcome.findings == ()
    assert [note.count for note in outcome.checked if note.check == "given"] == [1]
