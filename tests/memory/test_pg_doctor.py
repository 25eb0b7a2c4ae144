"""What the doctor says of a server's settings, against what the server really puts into its log and its statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import Server, name_of, owner, pg_home
from ticking import Clock

from memory import doctor, wiring

pytestmark = pytest.mark.postgres

# Settings, and whether values come into the log by them.
LOGGED: tuple[tuple[dict[str, str], bool], ...] = (
    ({}, False),
    ({"log_statement": "all", "log_parameter_max_length": "0"}, False),
    ({"log_min_duration_statement": "0", "log_parameter_max_length": "0"}, False),
    ({"log_statement": "mod"}, True),
    ({"log_min_duration_statement": "0"}, True),
    ({"log_min_duration_sample": "0", "log_statement_sample_rate": "1"}, True),
    ({"log_transaction_sample_rate": "1"}, True),
    ({"log_parameter_max_length_on_error": "-1"}, True),
    ({"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0"}, True),
    ({"debug_print_plan": "on"}, True),
)


@pytest.fixture
def home(postgres: Server, tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    with pg_home(postgres, tmp_path / "home", clock) as opened:
        yield opened
    postgres.drop_databases()


def said(home: wiring.Home) -> dict[str, Any]:
    return {one.check: one for one in doctor.examine(home.path)}


@contextmanager
def set_for_nodes(server: Server, settings: dict[str, str]) -> Iterator[None]:
    with server.connect() as connection:
        for name, value in settings.items():
            connection.execute(f"ALTER ROLE muniment SET {name} = '{value}'")
        try:
            yield
        finally:
            connection.execute("ALTER ROLE muniment RESET ALL")


def values_of(server: Server, home: wiring.Home) -> list[bytes]:
    """What a write has put into the database, sealed or hashed."""
    with server.connect(name_of(home)) as connection:
        rows = connection.execute(
            "SELECT f.key_tag, f.text_tag, b.content FROM muniment.facts f JOIN muniment.content_boxes b USING (seq)"
        ).fetchall()
    return [bytes(value) for row in rows for value in row]


def is_told(told: str, values: list[bytes]) -> bool:
    """Whether one of the values stands in a log, as text or as a plan prints it."""
    forms = [value.hex()[:40] for value in values]
    forms += [" ".join(str(byte - 256 if byte > 127 else byte) for byte in value[:16]) for value in values]
    # A plan is printed in lines that end anywhere.
    line = " ".join(told.split())
    return any(form in line for form in forms)


def test_values_are_in_the_log_where_the_doctor_says_so(home: wiring.Home, postgres: Server) -> None:
    log = postgres.folder / "server.log"
    for number, (settings, expected) in enumerate(LOGGED):
        home.parts().store.close()
        at = log.stat().st_size
        with set_for_nodes(postgres, settings):
            home.memory(owner()).remember(f"thing {number}", key=f"key/{number}", value=str(number))
            home.memory(owner()).get(f"key/{number}")
            values = values_of(postgres, home)
            # Wrong in itself, with a value beside it.
            with suppress(psycopg.Error), psycopg.connect(home.config.database or "") as connection:
                connection.execute("SELECT 1 / (length(%s::bytea) * 0)", (values[-1],), binary=True)
            found = said(home)["database_log"]
            home.parts().store.close()
        told = log.read_bytes()[at:].decode("utf-8", "replace")
        assert is_told(told, values) == expected, settings
        assert found.result == ("warn" if expected else "ok"), settings
        assert all(name in found.text for name in list(settings)[-1:] if "max_length_on" in name)


def test_the_text_of_a_statement_has_no_values(home: wiring.Home, postgres: Server) -> None:
    home.memory(owner()).remember("a thing", key="thing", value="one")
    values = values_of(postgres, home)
    store = home.parts().store
    with store.write() as txn, postgres.connect() as connection:
        txn.connection.execute("SELECT 1 FROM facts WHERE key_tag = ?", (values[0],))
        rows = connection.execute("SELECT query FROM pg_stat_activity WHERE application_name = 'muniment'")
        told = "\n".join(query for (query,) in rows)
    assert "key_tag = $1" in told and not is_told(told, values)


def test_samples_and_a_checker_that_may_not_look_are_named(home: wiring.Home, postgres: Server) -> None:
    found = said(home)
    assert found["database_statistics"].result == "ok"
    assert found["database_checker"].result == "warn"
    name = name_of(home)
    with postgres.connect(name) as connection:
        for statement in ("content_keys ALTER COLUMN wrapped", "vectors_1 ALTER COLUMN vector"):
            connection.execute(f"ALTER TABLE muniment.{statement} SET STATISTICS 100")
            warned = said(home)["database_statistics"]
            assert warned.result == "warn" and statement.split("_1")[0].split()[0] in warned.text
        for statement in ("content_keys ALTER COLUMN wrapped", "vectors ALTER COLUMN vector"):
            connection.execute(f"ALTER TABLE muniment.{statement} SET STATISTICS 0")
        home.write_config(replace(home.config, database_checker=postgres.dsn(name, "postgres")))
        assert said(home)["database_checker"].result == "warn"
        connection.execute("CREATE EXTENSION pageinspect")
    found = said(home)
    assert found["database_statistics"].result == found["database_checker"].result == "ok"
    home.write_config(replace(home.config, database_checker=home.config.database))
    assert said(home)["database_checker"].result == "warn"


def test_a_row_that_a_constraint_refuses_is_in_the_log_unless_it_is_terse(
    home: wiring.Home, postgres: Server
) -> None:
    home.memory(owner()).remember("a thing", key="thing", value="one")
    log, tag = postgres.folder / "server.log", bytes(range(200, 232))
    for settings, expected in (({}, True), ({"log_error_verbosity": "terse"}, False)):
        at = log.stat().st_size
        with set_for_nodes(postgres, settings):
            assert ("terse" in said(home)["database_log"].text) == expected
            with suppress(psycopg.Error), psycopg.connect(home.config.database or "") as connection:
                connection.execute("SELECT set_config('muniment.tenant', '1', false)")
                for _ in range(2):
                    connection.execute(
                        "INSERT INTO muniment.idempotency (tenant, request_tag, body_tag, seq, answer) "
                        "VALUES (1, %s, '', 1, '')",
                        (tag,),
                    )
        assert is_told(log.read_bytes()[at:].decode(), [tag]) == expected
