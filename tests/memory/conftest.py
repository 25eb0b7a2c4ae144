"""What the tests of memory share lies beside them, in modules that they import by name, and a home."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from postgres_server import Server, running
from ticking import Clock

from memory import wiring

ENGINE = os.environ.get("MUNIMENT_TEST_ENGINE", "sqlite")


@pytest.fixture
def clock() -> Clock:
    """A clock that the test sets."""
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    """An empty home under that clock."""
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened


# The same tests on the other engine: every home that a test makes in its own process keeps its store in a database of
# its own. What a test starts as another process makes homes as it always did.


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server for this run."""
    with running() as server:
        yield server


def pg_home(server: Server, folder: Path, clock: Clock) -> wiring.Home:
    """A new home whose store is in a database of its own."""
    wiring.make_home(folder, None, None, "on", clock() // 1_000_000, database=server.new_database())
    return wiring.open_home(folder, clock=clock)


@pytest.fixture(autouse=ENGINE == "postgres")
def homes_in_databases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has every new home keep its store in a database."""
    server: Server = request.getfixturevalue("postgres")
    make = wiring.make_home

    def make_home(*args: Any, **options: Any) -> bool:
        return make(*args, **{"database": server.new_database(), **options})

    monkeypatch.setattr(wiring, "make_home", make_home)
    yield
    server.drop_databases()
