"""The audit's probe of pages, on a real server: what an erasure took is gone from them, and what is not is seen."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server, name_of, owner, pg_home
from ticking import Clock

from auditor.audit import Places, audit
from auditor.checks_pg_log import check_log
from auditor.evidence import Asked
from auditor.pg_indexes import check_indexes
from memory import cli, pg_vacuum, wiring

pytestmark = pytest.mark.postgres


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    # An audit by command goes by the time that it is.
    clock.now = time.time_ns() // 1000 - 60_000_000
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        yield opened
    postgres.drop_databases()


def admin_of(server: Server, home: wiring.Home, user: str = "postgres") -> str:
    return server.dsn(name_of(home), user)


def probed(home: wiring.Home, pages: str | None) -> Any:
    """What an audit says, with that connection."""
    asked = Asked(home.trust(), home.clock())
    return audit(Places(home.path, pages=pages), asked, tenant=None, needles=None).outcome


def codes(outcome: Any) -> set[tuple[str, str]]:
    return {(one.code, one.where) for one in outcome.findings}


def counted(outcome: Any, begins: str) -> int:
    (count,) = [note.count for note in outcome.checked if note.text.startswith(begins)]
    return int(count)


def live_and_erase(home: wiring.Home) -> None:
    me = home.memory(owner())
    me.remember("something else", key="other", value="1", subject="Xaver")
    me.remember("and a second", key="second", value="2", subject="Ida")
    # The last lies in front of its page, where a vacuum moves nothing over it.
    me.remember("Otto wohnt in Xanten", key="otto", value="Xanten", subject="Otto")
    answer = me.forget(subject="Otto", confirm=me.forget_preview(subject="Otto")["confirm"])
    assert answer["erased"] == 1


def test_pages_are_looked_at_and_what_came_back_is_found(home: wiring.Home, postgres: Server) -> None:
    admin = admin_of(postgres, home)
    with postgres.connect(name_of(home)) as connection:
        connection.execute("CREATE EXTENSION pageinspect")
    live_and_erase(home)
    before = probed(home, None)
    assert codes(before) == set()
    assert "database pages" in {note.check for note in before.not_checked}

    outcome = probed(home, admin)
    assert codes(outcome) == set()
    assert "database pages" not in {note.check for note in outcome.not_checked}
    assert counted(outcome, "pages of the tables") > 5
    assert counted(outcome, "rows planted") == 3
    # The boxes are sealed under a key that is gone, and their bytes stay until others take the place.
    assert counted(outcome, "places of erased records") > 0

    with postgres.connect(name_of(home)) as connection:
        # As a node would that put rows back, and took them away as a plain delete does.
        for columns, table in (("seq, wrapped", "content_keys"), ("seq, content, salt", "content_boxes")):
            values = "3, '\\x0102'" + (", '\\x03'" if table == "content_boxes" else "")
            connection.execute(f"INSERT INTO muniment.{table} (tenant, {columns}) VALUES (1, {values})")
            connection.execute(f"DELETE FROM muniment.{table} WHERE tenant = 1 AND seq = 3")
    rows = {("RESIDUE_ROW", "database content_keys"), ("RESIDUE_ROW", "database content_boxes")}
    assert codes(probed(home, None)) == set()
    assert codes(probed(home, admin)) == rows
    with postgres.connect(name_of(home)) as connection:
        connection.execute("VACUUM muniment.content_keys, muniment.content_boxes")
    assert codes(probed(home, admin)) == {("RESIDUE_FREE_SPACE", "database content_keys")}
    with postgres.connect(name_of(home)) as connection:
        connection.execute("VACUUM FULL muniment.content_keys")
    assert codes(probed(home, admin)) == set()


def test_where_it_may_not_look_the_audit_shows_nothing(
    home: wiring.Home, postgres: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live_and_erase(home)

    def why(pages: str) -> str:
        (finding,) = probed(home, pages).findings
        assert (finding.code, finding.where) == ("CONTROL_FAILED", "database pages")
        return str(finding.what)

    assert "no superuser" in why(admin_of(postgres, home, "muniment"))
    assert "no extension pageinspect" in why(admin_of(postgres, home))
    assert "another database" in why(postgres.dsn("postgres", "postgres"))
    told = ["audit", "--home", str(home.path), "--json"]
    assert cli.main([*told, "--pages", admin_of(postgres, home)]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "inconclusive"
    assert cli.main([*told, "--pages", "host=127.0.0.1 port=1 dbname=x"]) == 3
    plain = tmp_path / "plain"
    shutil.copytree(home.path, plain)
    config = (plain / "config.toml").read_text()
    (plain / "config.toml").write_text("\n".join(x for x in config.splitlines() if "database" not in x))
    assert cli.main(["audit", "--home", str(plain), "--pages", admin_of(postgres, home)]) == 2


def test_a_page_that_somebody_reads_keeps_its_dead_rows_and_the_vacuum_says_so(
    home: wiring.Home, postgres: Server
) -> None:
    live_and_erase(home)

    def left() -> int:
        with postgres.connect(name_of(home), "muniment") as connection:
            connection.execute("SET search_path = muniment")
            return pg_vacuum.clear(connection).pinned

    with postgres.connect(name_of(home)) as connection, postgres.connect(name_of(home)) as reader:
        assert left() == 0
        connection.execute("DELETE FROM muniment.content_boxes WHERE seq = 2")
        # It sees the row no more, and holds the page of another.
        reader.execute("BEGIN")
        reader.execute("DECLARE held CURSOR FOR SELECT ctid FROM muniment.content_boxes")
        assert reader.execute("FETCH 1 FROM held").fetchall()
        assert left() > 0
        reader.execute("ROLLBACK")
        assert left() == 0


def test_what_manifests_say_of_indexes_and_of_the_log_is_looked_at(
    home: wiring.Home, postgres: Server, clock: Clock
) -> None:
    admin = admin_of(postgres, home)
    with postgres.connect(name_of(home)) as connection:
        for extension in ("pageinspect", "amcheck", "pg_walinspect"):
            connection.execute(f"CREATE EXTENSION {extension}")
    home.write_config(replace(home.config, database_checker=admin))
    live_and_erase(home)
    outcome = probed(home, admin)
    assert codes(outcome) == set()
    assert counted(outcome, "pages of their indexes") > 20
    assert counted(outcome, "indexes of the database that have an entry") > 20
    assert counted(outcome, "oldest transaction of it") == 1

    with postgres.connect(name_of(home)) as connection:
        connection.execute("INSERT INTO muniment.words (tenant, term, seq, places) VALUES (1, 7, 3, 1)")
        connection.execute("DELETE FROM muniment.words WHERE term = 7")
        dead = {("RESIDUE_ROW", "database words"), ("RESIDUE_INDEX", "database words")}
        assert codes(probed(home, admin)) == dead
        connection.execute("VACUUM muniment.words")
        found = codes(probed(home, admin))
        # Between neighbours a vacuum closes the gap and may leave nothing of an entry, so the page of the table tells.
        assert ("RESIDUE_FREE_SPACE", "database words") in found
        connection.execute("VACUUM FULL muniment.words")
        connection.execute("ALTER TABLE muniment.content_keys ALTER COLUMN wrapped SET STATISTICS 100")
        connection.execute("ANALYZE muniment.content_keys")
    assert codes(probed(home, admin)) == {("RESIDUE_INDEX", "database statistics")}


def test_a_log_that_goes_back_further_than_a_manifest_says_is_found(
    home: wiring.Home, postgres: Server
) -> None:
    with postgres.connect(name_of(home)) as connection:
        connection.execute("CREATE EXTENSION pg_walinspect")
        now = time.time_ns() // 1000
        assert check_log(connection, now - 86_400_000_000).findings == ()
        (finding,) = check_log(connection, now + 86_400_000_000).findings
        assert finding.code == "RESIDUE_WAL"


def test_an_index_that_lacks_an_entry_is_found(home: wiring.Home, postgres: Server) -> None:
    home.memory(owner()).remember("something", key="other", value="1", subject="Xaver")
    with postgres.connect(name_of(home)) as connection:
        connection.execute("SET search_path = pg_catalog")
        assert check_indexes(connection).not_checked, "without the extension it says so"
        connection.execute("CREATE EXTENSION amcheck")
        assert check_indexes(connection).findings == ()
        # A row that the index was not told of.
        ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 'muniment.grants_0_pkey'::regclass"
        connection.execute(ready.format(False))
        connection.execute(
            "INSERT INTO muniment.grants SELECT n, n, 'x', 'x' FROM generate_series(1, 20) AS n"
        )
        connection.execute(ready.format(True))
        assert {one.code for one in check_indexes(connection).findings} == {"FACT_ALTERED"}


def test_rows_of_access_tokens_and_keys_of_subjects_are_looked_at(
    home: wiring.Home, postgres: Server
) -> None:
    me = home.memory(owner())
    me.remember("something", key="other", value="1", subject="Xaver")
    me.remember("and a second", key="second", value="2", subject="Ida")
    assert codes(probed(home, None)) == set()
    zeros = "decode(repeat('00', {}), 'hex')".format
    columns = "number, token_hash, tenant_tag, sealed, scopes, made_at"
    changes = (
        (
            f"access ({columns}) VALUES ({zeros(16)}, {zeros(32)}, {zeros(32)}, 'Xaver', 1, 0)",
            "database access row 1",
        ),
        ("subject_keys (tenant, subject, wrapped) VALUES (1, 'x', 'y')", "database subject_keys"),
    )
    for row, where in changes:
        with postgres.connect(name_of(home)) as connection:
            connection.execute(f"INSERT INTO muniment.{row}")
            assert ("RESIDUE_ROW", where) in codes(probed(home, None))
            connection.execute("DELETE FROM muniment.access")
            connection.execute("DELETE FROM muniment.subject_keys WHERE subject = 'x'")
    assert codes(probed(home, None)) == set()
    with postgres.connect(name_of(home)) as connection:
        # Both records hang on one key: that of the first outlives an erasure of the second.
        connection.execute(
            "UPDATE muniment.content_keys SET subject = (SELECT subject FROM muniment.content_keys WHERE seq = 1) "
            "WHERE seq = 2"
        )
    assert ("FACT_ALTERED", "database content_keys seq 1") in codes(probed(home, None))
