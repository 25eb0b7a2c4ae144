"""The log of a home that moves to a database goes on there, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server
from ticking import Clock

from memory import wiring
from memory.log_move import copy_private
from memory.log_places import private_of
from memory.migrate import migrate
from memory.principal import owner_from_environment
from tlog.errors import RefusedError
from tlog.staging import HEAD

pytestmark = pytest.mark.postgres


@pytest.fixture
def home(tmp_path: Path, clock: Clock, postgres: Server) -> Iterator[wiring.Home]:
    """A home with its store in a file, and two statements in its log."""
    wiring.make_home(tmp_path / "home", None, None, "on", clock() // 1_000_000, database=None)
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        write(opened, 2)
        opened.publish()
        yield opened
    postgres.drop_databases()


def write(home: wiring.Home, count: int) -> None:
    memory = home.memory(owner_from_environment({}))
    for _ in range(count):
        number = memory.status()["store"]["statements"]
        memory.remember(f"fact {number}", key=f"k{number}", value=str(number))


def test_a_move_that_ends_before_the_settings_goes_on_though_the_log_grew(
    home: wiring.Home, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = postgres.new_database()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):

        def stop(*_: Any) -> Any:
            raise KeyboardInterrupt

        patched.setattr(home, "write_config", stop)
        migrate(home, dsn)
    write(home, 1)
    assert home.publish()["size"] == 3
    migrate(home, dsn)
    write(home, 1)
    assert home.publish()["size"] == 4
    left = [name for name in ("head", "integrated", "signed") if (home.path / "log-state" / name).exists()]
    assert left == []
    assert home.log().private.read(HEAD) is not None


def test_another_log_in_the_database_is_not_written_over(home: wiring.Home, postgres: Server) -> None:
    dsn = postgres.new_database()
    copy_private(home.path, home.config, dsn)
    moved = private_of(home.path, replace(home.config, database=dsn), 1, home.origin)
    before = moved.read(HEAD)
    assert before is not None and before == home.log().private.read(HEAD)
    for size in (b"2", b"3"):
        other = b"\n".join((before.split(b"\n")[0], size, b"A" * 43 + b"=", b""))
        with moved.lock("append"):
            moved.replace(HEAD, other)
        with pytest.raises(RefusedError) as caught:
            copy_private(home.path, home.config, dsn)
        assert caught.value.code == "database_in_use"
        assert moved.read(HEAD) == other
