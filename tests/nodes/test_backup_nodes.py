"""A home on several nodes, backed up by one, erased from by another, lost, and restored by a third."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory import backup, log_places, restore, wiring
from memory.export_evidence import export_evidence
from memory.operator import Operator
from memory.principal import owner_from_environment
from tlog.errors import Error, RefusedError, UnavailableError, VerificationError

ME = owner_from_environment({})
KEEP = 90 * 86_400_000_000


def write_some(home: wiring.Home) -> None:
    memory = home.memory(ME)
    memory.remember("Anna lives in Bern", key="anna/city", value="Bern", subject="Anna")
    memory.remember("Bodo lives in Basel", key="bodo/city", value="Basel", subject="Bodo")
    home.publish()


def erase(home: wiring.Home, subject: str) -> Any:
    memory = home.memory(ME)
    return memory.forget(subject=subject, confirm=memory.forget_preview(subject=subject)["confirm"])


def findings(home: wiring.Home, folder: Path | None = None) -> list[tuple[str, str]]:
    asked = Asked(home.trust(), home.clock() + 10_000_000)
    made = audit(Places(folder or home.path), asked, tenant=None, needles=None)
    return [(one.code, one.what) for one in made.outcome.findings]


def test_a_backup_of_one_node_loses_what_another_erases(
    homes: list[wiring.Home],
    tmp_path: Path,
) -> None:
    first, second = homes
    write_some(first)
    file = Path(backup.backup(first, tmp_path, KEEP)["file"])
    assert "backups_remain" not in {why["code"] for why in erase(second, "Anna")["why"]}
    second.publish()
    third = tmp_path / "third"
    shutil.copytree(first.path, third)
    stop_all(homes)
    with psycopg.connect(first.config.database or "") as connection:
        connection.execute("DROP SCHEMA muniment CASCADE")
        connection.execute("DROP SCHEMA muniment_log CASCADE")
    with wiring.open_existing_home(third) as home:
        with pytest.raises(Error) as lost:
            home.memory(ME).get("bodo/city")
        assert lost.value.code == "store_missing"
        done = restore.restore(home, file, restore.refuse)
        assert (done["lost"], done["unreadable"], done["manifests"]) == (0, 1, 1)
        memory = home.memory(ME)
        assert memory.get("bodo/city")["current"] == "Basel" and memory.get("anna/city")["active"] == []
        memory.remember("Bodo lives in Olten", key="bodo/city", value="Olten", subject="Bodo")
        home.publish()
        assert findings(home) == []
        export_evidence(home, tmp_path / "bundle", "all", None)
        assert findings(home, tmp_path / "bundle") == []


def test_a_database_that_was_put_back_follows_the_bucket(
    homes: list[wiring.Home],
    database_server: Any,
    tmp_path: Path,
) -> None:
    first, second = homes
    write_some(first)
    backup.backup(first, tmp_path, KEEP)
    database = str(psycopg.conninfo.conninfo_to_dict(first.config.database or "")["dbname"])
    with database_server.connect() as connection:
        stop_all(homes)
        _end_all(connection, database)
        connection.execute(f"CREATE DATABASE {database}_saved TEMPLATE {database} OWNER muniment")
        with wiring.open_existing_home(second.path) as node:
            erase(node, "Anna")
            node.publish()
        stop_all(homes)
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
        connection.execute(f"ALTER DATABASE {database}_saved RENAME TO {database}")
    with wiring.open_existing_home(first.path) as node:
        with pytest.raises(VerificationError) as caught:
            node.memory(ME).get("anna/city")
        assert caught.value.code == "rolled_back"
    with wiring.open_existing_home(second.path) as node:
        assert Operator(node).restore_log(None)["missing"] == 0
    with wiring.open_existing_home(first.path) as node:
        assert node.memory(ME).get("anna/city")["active"] == []
        node.publish()
        assert findings(node) == []


def test_a_node_that_did_not_see_the_bucket_stops_once_it_does(
    homes: list[wiring.Home],
    database_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = homes
    write_some(first)
    backup.backup(first, tmp_path, KEEP)
    database = str(psycopg.conninfo.conninfo_to_dict(first.config.database or "")["dbname"])

    def put_back() -> None:
        stop_all(homes)
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {database} TEMPLATE {database}_saved OWNER muniment")

    with database_server.connect() as connection:
        stop_all(homes)
        _end_all(connection, database)
        connection.execute(f"CREATE DATABASE {database}_saved TEMPLATE {database} OWNER muniment")
        with wiring.open_existing_home(second.path) as node:
            erase(node, "Anna")
        put_back()
        with wiring.open_existing_home(first.path) as node:
            # That the bucket is away is no reason to keep anybody from writing.
            with monkeypatch.context() as away:
                away.setattr(wiring.Home, "has_public_file", _does_not_answer)
                node.memory(ME).remember("Cleo lives in Chur", key="cleo/city", value="Chur", subject="Cleo")
            for use in (node.publish_if_needed, lambda: node.memory(ME).get("anna/city")):
                with pytest.raises(VerificationError) as caught:
                    use()
                assert caught.value.code == "rolled_back"
        # What was written has the number of the tombstone: one of the two has to go.
        with wiring.open_existing_home(second.path) as node, pytest.raises(RefusedError) as refused:
            Operator(node).restore_log(None)
        assert refused.value.code == "written_since"
        put_back()
        with wiring.open_existing_home(second.path) as node:
            assert Operator(node).restore_log(None)["missing"] == 0
            assert node.memory(ME).get("anna/city")["active"] == []
            node.publish()
            assert findings(node) == []


def _does_not_answer(*_: Any) -> bool:
    raise UnavailableError("the bucket did not answer", code="storage_failed")


def stop_all(homes: list[wiring.Home]) -> None:
    """No connection is kept from before: whoever opens one of the folders next is as another process."""
    for home in homes:
        home.close()
    log_places._shared.cache_clear()
    log_places._private.cache_clear()


def _end_all(connection: psycopg.Connection[tuple[object, ...]], database: str) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (database,)
    )
