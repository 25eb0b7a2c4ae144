"""A store in a database, backed up, lost and put back, put back by others, and handed out: as one in a file is."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import backup, cli, doctor, restore, store_backup, tokens, wiring
from memory.export_evidence import export_evidence
from memory.operator import Operator
from memory.principal import make_principal, with_all_scopes
from tlog.errors import Error, RefusedError, UnavailableError, VerificationError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, forget, lose_store, write
from postgres_server import Server, name_of, pg_home
from ticking import Clock

DANA, FOX = "Dana Scully", "Fox Mulder"
KEEP = 90 * 86_400_000_000
ACME = with_all_scopes(make_principal("acme", "default", "desk"))
pytestmark = pytest.mark.postgres


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        write(opened, "Dana is in Elm Street.", key="dana/address", value="Elm Street", subject=DANA)
        write(opened, "Dana is in Oak Lane.", key="dana/address", value="Oak Lane", subject=DANA)
        write(opened, "Fox has the basement.", key="fox/office", value="basement", subject=FOX)
        write(opened, "Acme has a garden.", ACME, key="garden", value="yes")
        opened.publish()
        yield opened
    postgres.drop_databases()


def findings(home: wiring.Home, folder: Path | None = None) -> list[Any]:
    asked = Asked(home.trust(), home.clock() + 10_000_000)
    made = audit(Places(folder or home.path), asked, tenant=None, needles=None)
    return [(one.code, one.where, one.what) for one in made.outcome.findings]


# Evidence


@pytest.mark.parametrize("scope", ["all", "tenant", "links"])
def test_a_bundle_of_a_database_is_one_that_an_audit_reads(
    home: wiring.Home, tmp_path: Path, scope: Any
) -> None:
    with home.parts().store.write_whole() as txn:
        txn.view.rows("SELECT nextval('event_seqs')")  # as an undone write does: its number stays unused
    forget(home, subject=FOX)
    home.publish()
    folder = tmp_path / "bundle"
    done = export_evidence(home, folder, scope, "acme" if scope == "tenant" else None)
    assert findings(home, folder) == []
    with home.parts().store.read_whole() as view:
        assert done.statements == store_backup.last_seq(view) - 1
        given = view.rows("SELECT count(*) FROM openings")[0][0]
    assert done.openings == given
    data = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert (b"garden" in data, b"Oak Lane" in data) == (scope != "links", scope == "all")
    assert not (folder / "store.db-wal").exists() and b"basement" not in data


# A database that is lost


def test_a_lost_database_is_restored_with_its_erasures(home: wiring.Home, tmp_path: Path) -> None:
    before = home.memory(ACME).get("garden")["active"]
    file = Path(backup.backup(home, tmp_path, KEEP)["file"])
    forget(home, subject=FOX)
    home.publish()
    lose_store(home, with_schema=True)
    with pytest.raises(UnavailableError) as lost:
        home.memory(ME).get("dana/address")
    assert lost.value.code == "store_missing"
    done = restore.restore(home, file, restore.refuse)
    assert (done["manifests"], done["lost"], done["unreadable"]) == (1, 0, 1)
    memory = home.memory(ME)
    assert memory.get("dana/address")["current"] == "Oak Lane"
    assert memory.get("fox/office")["active"] == []
    assert home.memory(ACME).get("garden")["active"] == before
    # What was retired is refused: the keys of hashes came with the backup.
    assert write(home, "It is Elm Street.", key="dana/address", value="Elm Street")["reason"] == "echo"
    write(home, "Fox has the attic.", key="fox/office", value="attic", subject=FOX)
    home.publish()
    assert findings(home) == []
    with pytest.raises(RefusedError) as there:
        restore.restore(home, file, restore.refuse)
    assert there.value.code == "store_exists"


def test_a_restore_that_was_given_up_leaves_a_home_that_is_not_opened(
    home: wiring.Home, tmp_path: Path
) -> None:
    """The log is back by then, so that it is not what tells any more that the database is empty."""
    file = Path(backup.backup(home, tmp_path, KEEP)["file"])
    write(home, "Came later.")
    home.publish()
    lose_store(home)
    for _ in range(2):
        with pytest.raises(RefusedError) as caught:
            restore.restore(home, file, restore.refuse)
        assert caught.value.code == "statements_missing"
        with pytest.raises(UnavailableError) as empty:
            home.memory(ME).get("fox/office")
        assert empty.value.code == "store_missing"
    assert Operator(home).restore_log(None)["missing"] == 5
    assert restore.restore(home, file, restore.declare)["lost"] == 1
    assert home.memory(ME).get("fox/office")["current"] == "basement"


def test_gaps_in_numbers_are_no_loss(home: wiring.Home, tmp_path: Path) -> None:
    """A transaction that was undone has used up a number of the database, and none of its tenant."""
    file = Path(backup.backup(home, tmp_path, KEEP)["file"])
    with home.parts().store.write_whole() as txn:
        txn.view.rows("SELECT nextval('event_seqs') FROM generate_series(1, 7)")
    forget(home, subject=FOX)
    lose_store(home)
    assert restore.restore(home, file, restore.refuse)["lost"] == 0
    with home.parts().store.read_whole() as view:
        last = store_backup.last_seq(view)
    write(home, "What comes next.")
    home.publish()
    assert last > 11 and findings(home) == []


def test_a_backup_of_a_file_is_not_put_into_a_database(
    home: wiring.Home, tmp_path: Path, postgres: Server, clock: Clock
) -> None:
    from memory.migrate import migrate

    wiring.make_home(tmp_path / "file", None, None, "on", clock() // 1_000_000, database=None)
    with wiring.open_home(tmp_path / "file", clock=clock) as other:
        write(other, "Something.")
        other.publish()
        file = Path(backup.backup(other, tmp_path, KEEP)["file"])
        migrate(other, postgres.new_database())
        lose_store(other)
        with pytest.raises(RefusedError) as caught:
            restore.restore(other, file, restore.refuse)
    assert caught.value.code == "other_engine"


def test_every_table_of_the_database_is_thought_of(home: wiring.Home) -> None:
    sealed = {"subject_keys", "content_keys", "content_boxes", "tenant_keys", "words", "schema_version"}
    hashed = {table for table, _ in store_backup.HASHED.values()}
    left_out = {name for name in store_backup.LEFT_OUT if not name.startswith("search")}
    known = {*store_backup.OPEN, *hashed, *left_out, *store_backup.WHOLE, *sealed} - {"contents"}
    with home.parts().store.read_whole() as view:
        there = view.rows(
            """SELECT relname::text FROM pg_class WHERE relnamespace = 'muniment'::regnamespace
               AND relkind IN ('r', 'p') AND NOT relispartition"""
        )
    assert {name for (name,) in there} == known


def test_the_keys_of_backups_of_another_node_leave_a_request_open(home: wiring.Home, tmp_path: Path) -> None:
    backup.backup(home, tmp_path, KEEP)
    shutil.copytree(home.path, tmp_path / "node")
    shutil.rmtree(tmp_path / "node" / "keys" / "backup")
    with wiring.open_home(tmp_path / "node", clock=home.clock) as node:
        answer = forget(node, subject=FOX)
        assert "backups_remain" in {why["code"] for why in answer["why"]}
    # Where they are, the request is followed.
    answer = home.memory(ME).look_again(answer["request"], ["Fox Mulder"])
    assert "backups_remain" not in {why["code"] for why in answer["why"]}


def test_the_commands_back_up_and_restore_a_database(
    home: wiring.Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--home", str(home.path), "--json"]

    def run(*words: str) -> Any:
        code = cli.main([*words, *where])
        return code, json.loads(capsys.readouterr().out)

    code, made = run("backup", str(tmp_path), "--keep", "30d")
    assert (code, made["statements"]) == (0, 4)
    assert run("restore", made["file"])[1]["error"]["code"] == "store_exists"
    lose_store(home)
    assert run("get", "fox/office")[1]["error"]["code"] == "store_missing"
    assert run("restore", made["file"])[1]["statements"] == 4
    assert run("get", "fox/office")[1]["current"] == "basement"


# A database that others have put back


def saved(home: wiring.Home, server: Server) -> str:
    """The name of a copy of the database as it is now."""
    database = name_of(home)
    home.close()
    wiring.log_places.private_storage(home.path, home.config).close()
    with server.connect() as connection:
        end_all(connection, database)
        connection.execute(f"CREATE DATABASE {database}_saved TEMPLATE {database} OWNER muniment")
    return f"{database}_saved"


def put_back(home: wiring.Home, server: Server, copy: str) -> None:
    database = name_of(home)
    home.close()
    wiring.log_places.private_storage(home.path, home.config).close()
    with server.connect() as connection:
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
        connection.execute(f"ALTER DATABASE {copy} RENAME TO {database}")


def end_all(connection: Any, database: str) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (database,)
    )


@pytest.mark.parametrize("published", [True, False])
def test_a_database_put_back_to_before_an_erasure_is_not_served_until_it_is_erased_again(
    home: wiring.Home, postgres: Server, tmp_path: Path, published: bool
) -> None:
    if published:
        backup.backup(home, tmp_path, KEEP)
    copy = saved(home, postgres)
    forget(home, subject=FOX)
    if published:
        home.publish()
    put_back(home, postgres, copy)
    with pytest.raises(VerificationError) as caught:
        home.memory(ME).get("fox/office")
    assert caught.value.code == "rolled_back" and "muniment log restore" in caught.value.message
    said = [one for one in doctor.examine(home.path) if one.result == "fail"]
    assert said and any("muniment log restore" in one.text + one.do for one in said)
    Operator(home).restore_log(None)
    assert home.memory(ME).get("fox/office")["active"] == []
    assert home.memory(ME).get("dana/address")["current"] == "Oak Lane"
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM subject_keys") == [(1,)]
    write(home, "Fox has the attic.", key="fox/office", value="attic", subject=FOX)
    forget(home, subject=FOX)
    home.publish()
    # The exact times of what was done again are gone, which a backup of ours explains, and nothing else.
    assert {code for code, _, _ in findings(home)} == (set() if published else {"WRITE_MISSING"})


def test_what_a_database_that_was_put_back_lacks_is_counted_and_found(
    home: wiring.Home, postgres: Server
) -> None:
    copy = saved(home, postgres)
    write(home, "Came later.")
    home.publish()
    put_back(home, postgres, copy)
    assert "rolled_back" in {one.check for one in doctor.examine(home.path) if one.result == "fail"}
    write(home, "Another past.")
    with pytest.raises(Error) as caught:
        home.publish()
    assert caught.value.code == "rolled_back"
    assert Operator(home).restore_log(None)["missing"] == 1
    home.publish()
    assert {code for code, _, _ in findings(home)} == {"WRITE_MISSING"}
    assert "rolled_back" not in {one.check for one in doctor.examine(home.path) if one.result == "fail"}


def test_a_tenant_that_was_erased_does_not_come_back_with_a_database(
    home: wiring.Home, postgres: Server
) -> None:
    """Neither its name nor the key of its hashes, nor a token that was revoked since."""
    made = tokens.create(home, ME, None)
    copy = saved(home, postgres)
    with home.parts().store.read_whole() as view:
        before = {number: home.parts().vault.keys_of(number) for number in numbers_of(view)}
    forget(home, ACME, tenant=True)
    put_back(home, postgres, copy)
    Operator(home).restore_log(None)
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM tenants WHERE name <> ''") == [(1,)]
        assert view.rows("SELECT count(*) FROM access") == [(0,)]
        (gone,) = store_backup.nameless(view)
    assert home.parts().vault.keys_of(gone) not in (None, before[gone])
    assert made["token"]
    home.publish()
    assert {code for code, _, _ in findings(home)} == {"WRITE_MISSING"}


def numbers_of(view: Any) -> list[bytes]:
    return [number for (number,) in view.rows("SELECT number FROM tenants")]
