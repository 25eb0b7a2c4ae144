"""A home that moves to a database: the same answers, the same log, every receipt valid, nothing left in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from erasing import found_in
from postgres_server import Server
from ticking import Clock

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import cli, pg_migrate, wiring
from memory import migrate as moving
from memory.migrate import migrate
from memory.principal import make_principal, with_all_scopes
from tlog.errors import RefusedError, UnavailableError, VerificationError

pytestmark = pytest.mark.postgres
ME = with_all_scopes(make_principal("acme", "ops", "desk"))
OTHER = with_all_scopes(make_principal("umbrella", "ops", "desk"))
HOUR = 3_600_000_000


@pytest.fixture
def home(tmp_path: Path, clock: Clock, postgres: Server) -> Iterator[wiring.Home]:
    """A home with its store in a file, and a life behind it."""
    folder = tmp_path / "home"
    wiring.make_home(folder, None, None, "on", clock() // 1_000_000, database=None)
    with wiring.open_home(folder, clock=clock) as opened:
        me = opened.memory(ME)
        me.remember("Ottilie lives in Bern", key="ottilie/city", value="Bern", subject="Ottilie")
        me.remember("Ottilie lives in Xanten", key="ottilie/city", value="Xanten", subject="Ottilie")
        me.remember("Ottilie lives in Bern", key="ottilie/city", value="Bern", subject="Ottilie")
        me.remember("Queequeg wrote this", idempotency_key="once", subject="Queequeg")
        me.remember("東京の天気は晴れ")
        me.hold(authority="court", review_by="2040-01-01T00:00:00Z", subject="Queequeg")
        me.grant("reader")
        opened.memory(OTHER).remember("a thing of others", key="thing", value="1")
        opened.publish()
        me.remember("gone", key="gone", value="soon")
        me.forget(key="gone", confirm=me.forget_preview(key="gone")["confirm"])
        opened.publish()
        yield opened
    postgres.drop_databases()


def answers(home: wiring.Home) -> list[Any]:
    me = home.memory(ME)
    told: list[Any] = [me.recall(query)["facts"] for query in ("where does Ottilie live", "京", "天気")]
    told += [me.get("ottilie/city"), me.history("ottilie/city"), me.holds(), me.grants(), me.review()]
    return timeless([*told, me.status(), home.memory(OTHER).get("thing")])


def timeless(answer: Any) -> Any:
    """An answer without the time at which it was given."""
    if isinstance(answer, list):
        return [timeless(one) for one in answer]
    if isinstance(answer, dict):
        return {name: timeless(one) for name, one in answer.items() if name not in ("as_of", "as_recorded")}
    return answer


def audited(home: wiring.Home) -> Any:
    return audit(Places(home.path), Asked(home.trust(), home.clock()), tenant=None, needles=None).outcome


def test_a_home_that_has_moved_is_the_same_and_goes_on(home: wiring.Home, postgres: Server) -> None:
    before = answers(home)
    fact = before[0][0]["id"]
    receipt = home.memory(ME).receipt(fact)
    done = migrate(home, postgres.new_database())
    assert done["statements"] == 11
    assert answers(home) == before
    assert home.memory(ME).receipt(fact) == receipt
    again = home.memory(ME).remember("Queequeg wrote this", idempotency_key="once", subject="Queequeg")
    assert again["outcome"] == "stored"
    assert home.memory(ME).remember("Bern it is", key="ottilie/city", value="Bern")["outcome"] == "refused"
    assert home.publish()["size"] == 12
    assert audited(home).findings == ()
    assert not (home.path / "store.db").exists()
    assert list((home.path / "keys" / "guard").iterdir()) == []
    assert found_in(home, "Ottilie", "Xanten", "Queequeg") == set()


def test_a_move_that_is_cut_short_changes_nothing_and_goes_on(
    home: wiring.Home, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, dsn = answers(home), postgres.new_database()
    for step in ("add_tenant", "replace_rows", "replace_meta", "rows"):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):

            def stop(*_: Any) -> Any:
                raise KeyboardInterrupt

            patched.setattr(pg_migrate.Target, step, stop)
            migrate(home, dsn)
        assert home.config.database is None
        assert answers(home) == before, step
    home.memory(ME).remember("a further one meanwhile")
    assert migrate(home, dsn)["statements"] == 12
    assert home.memory(ME).recall("further one")["facts"]


def test_a_file_that_a_crash_left_goes_with_the_next_attempt(
    home: wiring.Home, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, dsn = answers(home), postgres.new_database()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):

        def stop(_: Path) -> None:
            raise KeyboardInterrupt

        patched.setattr(moving, "_destroy", stop)
        migrate(home, dsn)
    with pytest.raises(UnavailableError) as caught:
        home.memory(ME)
    assert caught.value.code == "store_left"
    migrate(home, dsn)
    assert answers(home) == before
    assert not (home.path / "store.db").exists()


def test_a_row_that_differs_ends_the_move(
    home: wiring.Home, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = pg_migrate.Target.replace_rows

    def lossy(self: Any, table: str, columns: Any, rows: Any) -> None:
        replace(self, table, columns, rows[:-1] if table == "grants" else rows)

    monkeypatch.setattr(pg_migrate.Target, "replace_rows", lossy)
    with pytest.raises(VerificationError) as caught:
        migrate(home, postgres.new_database())
    assert caught.value.code == "move_differs"
    assert home.config.database is None and (home.path / "store.db").exists()


def test_a_home_that_is_open_elsewhere_does_not_move(home: wiring.Home, postgres: Server) -> None:
    with wiring.open_home(home.path) as other:
        other.memory(ME).recall("anything")
        with pytest.raises(UnavailableError) as caught:
            migrate(home, postgres.new_database())
    assert caught.value.code == "busy"


def test_a_database_of_another_home_is_not_taken(home: wiring.Home, postgres: Server, tmp_path: Path) -> None:
    dsn = postgres.new_database()
    with wiring.init_home(tmp_path / "first", database=dsn) as first:
        first.memory(ME).remember("a thing")
    with pytest.raises((RefusedError, UnavailableError)) as caught:
        migrate(home, dsn)
    assert caught.value.code in ("database_in_use", "key_mismatch")
    assert home.config.database is None


def test_the_command_shows_its_statements_and_moves(
    home: wiring.Home, postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = postgres.new_database()
    home.close()
    assert cli.main(["migrate", "--home", str(home.path), "--database", dsn, "--dry-run"]) == 0
    assert "has the schema" in capsys.readouterr().out
    assert cli.main(["migrate", "--home", str(home.path), "--database", dsn]) == 0
    assert "moved 11 statements" in capsys.readouterr().out
    assert cli.main(["migrate", "--home", str(home.path), "--database", dsn]) == 2


def test_a_home_that_was_just_made_moves_as_well(tmp_path: Path, clock: Clock, postgres: Server) -> None:
    """It has no store before something is remembered; one whose store is gone is told from it by its log."""
    wiring.make_home(tmp_path / "home", None, None, "on", clock() // 1_000_000, database=None)
    with wiring.open_home(tmp_path / "home", clock=clock) as home:
        assert migrate(home, postgres.new_database())["statements"] == 0
        home.memory(ME).remember("Ottilie lives in Bern", key="ottilie/city", value="Bern")
        home.publish()
        assert audited(home).findings == () and not (home.path / "store.db").exists()
    wiring.make_home(tmp_path / "lost", None, None, "on", clock() // 1_000_000, database=None)
    with wiring.open_home(tmp_path / "lost", clock=clock) as home:
        home.memory(ME).remember("Ottilie lives in Bern")
        home.publish()
        home.close()
        (home.path / "store.db").unlink()
        with pytest.raises(UnavailableError) as caught:
            migrate(home, postgres.new_database())
    assert caught.value.code == "store_missing"
    postgres.drop_databases()
