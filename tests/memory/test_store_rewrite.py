"""What an erasure relies on is read back, and a store written without it is written anew, once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import erase, store_rewrite, wiring
from memory.store import APPLICATION_ID
from tlog.errors import UnavailableError

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, forget, found_in, write

OFF = {
    "word index": ("UPDATE search_config SET v = 0 WHERE k = 'secure-delete'",),
    "word index, no setting": ("DELETE FROM search_config WHERE k = 'secure-delete'",),
    "auto_vacuum": ("PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = FULL", "VACUUM"),
}


def filled(path: Path) -> None:
    with wiring.open_home(path) as home:
        for number in range(60):
            write(home, f"zqword{number}x is one of many words.", key=f"k{number}", subject=f"s{number % 6}")


def elsewhere(path: Path, *statements: str) -> None:
    """The store written to by a program that knows nothing of our settings."""
    connection = apsw.Connection(str(path / "store.db"))
    connection.execute("PRAGMA secure_delete = OFF").fetchall()
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def asked(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path / "store.db"))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize("off", OFF.values(), ids=OFF)
def test_a_store_that_lacks_a_promise_is_written_anew_as_it_opens(
    tmp_path: Path, off: tuple[str, ...]
) -> None:
    filled(tmp_path / "home")
    elsewhere(
        tmp_path / "home",
        *off,
        "CREATE TABLE other (x)",
        "INSERT INTO other VALUES (replace(hex(zeroblob(9000)), '00', 'Zqforeign '))",
        "DROP TABLE other",
        "INSERT INTO search (rowid, key, value, body) VALUES (900, '', '', 'zqstray')",
        "INSERT INTO search (search, rowid, key, value, body) VALUES ('delete', 900, '', '', 'zqstray')",
    )
    # Where auto_vacuum is on, the freed pages are cut off the file at once.
    cut_off = "PRAGMA auto_vacuum = FULL" in off
    assert cut_off or b"Zqforeign" in (tmp_path / "home" / "store.db").read_bytes()
    with wiring.open_home(tmp_path / "home") as home:
        home.parts()
        assert found_in(home, "Zqforeign", "zqstray") == set()
        answer = forget(home, subject="s3")
        assert (answer["state"], answer["erased"]) == ("closed_complete", 10)
        assert home.parts().store.check() == ()
        words = [f"zqword{number}x" for number in range(3, 60, 6)]
        assert found_in(home, *words) == set()
    assert asked(tmp_path / "home", "PRAGMA auto_vacuum") == [(0,)]
    assert asked(tmp_path / "home", "SELECT v FROM search_config WHERE k = 'secure-delete'") == [(1,)]


@pytest.mark.parametrize("off", [OFF["word index"], OFF["word index, no setting"]])
def test_what_is_turned_off_while_a_home_is_open_keeps_it_from_erasing(
    tmp_path: Path, off: tuple[str, ...]
) -> None:
    filled(tmp_path / "home")
    with wiring.open_home(tmp_path / "home") as home:
        token = home.memory(ME).forget_preview(subject="s3")["confirm"]
        elsewhere(tmp_path / "home", *off)
        with pytest.raises(UnavailableError) as caught:
            erase.execute(home.parts(), ME, token, subject="s3")
        assert caught.value.code == "store_setting"
        assert found_in(home, "zqword3x") == {"zqword3x"}
    with wiring.open_home(tmp_path / "home") as home:
        assert forget(home, subject="s3")["state"] == "closed_complete"


@pytest.mark.parametrize("pragma", ["secure_delete = OFF", "journal_mode = DELETE"])
def test_a_connection_without_a_setting_promises_nothing(tmp_path: Path, pragma: str) -> None:
    from memory.store import _connect

    filled(tmp_path / "home")
    connection = _connect(tmp_path / "home" / "store.db")
    store_rewrite.require_promises(connection)
    connection.execute(f"PRAGMA {pragma}").fetchall()
    with pytest.raises(UnavailableError):
        store_rewrite.require_promises(connection)
    connection.close()
    plain = apsw.Connection(str(tmp_path / "home" / "store.db"))
    for refuse in (store_rewrite.require_promises, store_rewrite.write_anew):
        with pytest.raises(UnavailableError):
            refuse(plain)
    plain.close()


def test_a_store_that_keeps_them_is_not_written_anew(tmp_path: Path) -> None:
    filled(tmp_path / "home")
    from memory.store import _connect

    connection = _connect(tmp_path / "home" / "store.db")
    told: list[tuple[int, int]] = []
    assert not store_rewrite.rewrite_if_needed(connection, APPLICATION_ID, lambda *at: told.append(at))
    assert not told
    # It goes on until all is done, and never back.
    store_rewrite.write_anew(connection, lambda *at: told.append(at))
    assert told[0][0] == 0 and told[-1][0] == told[-1][1] > 1 and told == sorted(told)
    connection.close()


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA auto_vacuum = FULL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    assert not store_rewrite.rewrite_if_needed(connection, APPLICATION_ID)
    connection.close()


def test_a_request_that_stale_bytes_kept_open_is_finished_by_writing_anew(tmp_path: Path) -> None:
    filled(tmp_path / "home")
    elsewhere(
        tmp_path / "home",
        "CREATE TABLE other (x)",
        "INSERT INTO other VALUES (replace(hex(zeroblob(9000)), '00', 'Zqforeign '))",
        "DROP TABLE other",
    )
    with wiring.open_home(tmp_path / "home") as home:
        answer = forget(home, subject="s3")
        assert (answer["state"], answer["checks"]["free_space"]) == ("inconclusive", "found")
        again = home.memory(ME).look_again(answer["request"], ["zqword3x"])
        assert (again["state"], found_in(home, "Zqforeign")) == ("closed_complete", set())
