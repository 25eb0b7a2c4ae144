"""Nodes of one log, in a real database and a real bucket. All of it is of the run that has servers."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

TEMPLATE = "home_template"

if not os.environ.get("MUNIMENT_TEST_SERVERS"):
    collect_ignore_glob = ["test_*"]


@pytest.fixture
def place(
    object_store: Any, log_database: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Makes the settings of the nodes of a new log."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    name = secrets.token_hex(8)
    shared = {"dsn": log_database, "bucket": f"s3://tests/{name}", "log": name, "lease": 1.5}
    return lambda **settings: {**shared, **settings}


@pytest.fixture
def crowd() -> Iterator[Any]:
    """Starts nodes, and ends those that still run."""
    from crowd import Crowd

    started = Crowd()
    yield started
    started.end()


@pytest.fixture(scope="session")
def database_of_homes(database_server: Any) -> Any:
    """The server, with the roles of nodes, and a database with the schema to make others from."""
    from storm import ROLES

    from memory.pg_schema import ensure_schema

    with database_server.connect() as connection:
        for statement in (*ROLES[:-1], f"CREATE DATABASE {TEMPLATE} OWNER muniment"):
            connection.execute(statement)
    # As few partitions as there can be of several: making and removing their files is what these tests would wait for.
    ensure_schema(database_server.dsn(TEMPLATE).replace("user=postgres", "user=muniment"), partitions=2)
    return database_server


@pytest.fixture
def dsn(database_of_homes: Any) -> str:
    """A database for a home, without a row, that the role of the nodes owns."""
    name = f"home_{secrets.token_hex(8)}"
    with database_of_homes.connect() as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER muniment STRATEGY file_copy")
    made: str = database_of_homes.dsn(name)
    return made.replace("user=postgres", "user=muniment")


@pytest.fixture
def homes(tmp_path: Path, dsn: str, place: Any) -> Iterator[list[Any]]:
    """Two nodes."""
    from home_nodes import make_homes

    from memory import wiring

    with ExitStack() as stack:
        folders = make_homes(tmp_path / "homes", 2, dsn, place()["bucket"])
        yield [stack.enter_context(wiring.open_existing_home(folder)) for folder in folders]
