"""What the tests of memory share lies beside them, in modules that they import by name, and a home."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import storing
from postgres_server import Server, running
from ticking import Clock

from memory import wiring

ENGINE = os.environ.get("MUNIMENT_TEST_ENGINE", "sqlite")
LIST = Path(__file__).resolve().parent / "on_postgres.txt"


def of_sqlite_alone() -> set[str]:
    """The tests that the list excepts, by file and name."""
    lines = LIST.read_text("utf-8").splitlines()
    return {line.split()[1] for line in lines if line.startswith("not ")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL what the list excepts is left out; on SQLite all that needs a server but one test."""
    excepted = of_sqlite_alone()

    def is_left_out(item: pytest.Item) -> bool:
        if ENGINE == "postgres":
            return item.nodeid.split("[")[0] in excepted
        return item.get_closest_marker("postgres") is not None

    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
        storing.SERVERS.append(server)
        yield server


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
