"""The store: what one transaction keeps, what a failed one leaves, and that a delete leaves no byte."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import memory.store
from memory import vfs
from memory.search import scope_token
from memory.store import Store, open_store
from memory.vault import Vault

sys.path.insert(0, str(Path(__file__).resolve().parent))
from storing import (
    AGENT,
    OTHER_AGENT,
    erase,
    facts_of,
    found,
    key_tag,
    make_store,
    stored,
)

from memory.model import fact_id
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = make_store(tmp_path)
    yield opened
    opened.close()


# Opening


def test_makes_a_private_enough_file_with_the_settings_of_every_connection(store: Store) -> None:
    with store.read() as view:
        for name, expected in (
            ("journal_mode", "wal"),
            ("synchronous", 2),
            ("secure_delete", 1),
            ("temp_store", 2),
            ("auto_vacuum", 0),
            ("max_page_count", vfs.MAX_PAGES),
        ):
            assert view.rows(f"PRAGMA {name}") == [(expected,)], name
        assert view.connection.open_vfs == vfs.NAME
        assert view.rows("SELECT v FROM search_config WHERE k = 'secure-delete'") == [(1,)]


def test_no_index_holds_plaintext(store: Store) -> None:
    """Only rowid tables, so that content has one place; indexes are on tags, numbers and statuses."""
    allowed = {
        *("tenant", "tenant_seq", "number", "name_tag", "seq", "target", "status", "source", "word_count"),
        *("agent_tag", "key_tag", "subject_tag", "text_tag", "value_tag", "request_tag", "token_hash"),
        *(
            "commitment",
            "expires_at",
            "entry_index",
            "canon_version",
            "owner_tag",
            "reader_tag",
            "tenant_tag",
        ),
    }
    with store.read() as view:
        indexes = [name for (name,) in view.rows("SELECT name FROM sqlite_schema WHERE type = 'index'")]
        for name in indexes:
            if not name.startswith("sqlite_autoindex_search") and not name.startswith(
                "sqlite_autoindex_meta"
            ):
                columns = {row[2] for row in view.rows(f"PRAGMA index_info({name})")}
                assert columns <= allowed, name


def test_a_second_opening_finds_what_the_first_made(tmp_path: Path) -> None:
    first = make_store(tmp_path)
    made = stored(first, "kept")
    first.close()
    second = make_store(tmp_path)
    with second.read() as view:
        row = view.event_by_seq(made.seq)
    assert row is not None
    assert row.commitment == made.commitment
    second.close()


def test_many_first_openings_at_once_make_one_store(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    start = threading.Barrier(6)

    def first_use() -> None:
        start.wait()
        try:
            mine = make_store(tmp_path)
            stored(mine, "one")
            mine.close()
        except (Error, apsw.Error, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=first_use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    last = make_store(tmp_path)
    with last.read() as view:
        assert view.counts()["statements"] == 6
    last.close()


def test_refuses_another_database(tmp_path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(tmp_path / "store.db"))) as other:
        other.execute("CREATE TABLE t (x)")
    with pytest.raises(MalformedError, match="another SQLite database"):
        make_store(tmp_path)


def test_refuses_a_newer_store(tmp_path: Path) -> None:
    make_store(tmp_path).close()
    with contextlib.closing(apsw.Connection(str(tmp_path / "store.db"))) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(MalformedError, match="found version 99"):
        make_store(tmp_path)


def test_refuses_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database, and long enough to be looked at" * 100)
    with pytest.raises(VerificationError):
        make_store(tmp_path)


@pytest.mark.parametrize("make", ["folder", "missing"])
def test_refuses_a_path_that_can_hold_no_file(tmp_path: Path, make: str) -> None:
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    path = tmp_path / ("store.db" if make == "folder" else "nowhere/store.db")
    if make == "folder":
        path.mkdir()
    with pytest.raises(MalformedError, match="expected a home that can be written"):
        open_store(path, Vault(keys))


def unprivileged(act: Callable[[], None]) -> str:
    """What `act` raises when run by somebody who may not write here: root may write anywhere."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        message = "nothing raised"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            act()
        except Error as error:
            message = f"{type(error).__name__}: {error.message}"
        except (apsw.Error, OSError) as error:
            message = repr(error)
        os.write(writing, message.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def test_a_read_only_home_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    make_store(home).close()
    folders = [home, *home.parents][: len(home.parents) - 1]
    before = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in folders}
    try:
        for folder in folders:
            folder.chmod(0o755)
        for path in home.iterdir():
            path.chmod(0o555 if path.is_dir() else 0o444)
        home.chmod(0o555)
        said = unprivileged(lambda: stored(open_store(home / "store.db", Vault(home / "keys")), "x") and None)
    finally:
        for folder, mode in before.items():
            folder.chmod(mode)
    assert said.startswith("MalformedError: expected a home that can be written"), said


# Statements


# Scope


# Words


# Tokens


# Failures


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = make_store(tmp_path)
    first = stored(full, "there before")
    with full.read() as view:
        pages = view.rows("PRAGMA page_count")[0][0]
    full.close()
    settings = [one for one in memory.store._PRAGMAS if one[0] != "max_page_count"]
    settings.append(("max_page_count", str(pages + 2), pages + 2))
    monkeypatch.setattr(memory.store, "_PRAGMAS", tuple(settings))
    with pytest.raises(UnavailableError) as caught:
        stored(full, "z" * 200_000)
    assert caught.value.code == "disk_full"
    assert "zzz" not in caught.value.message
    with full.read() as view:
        assert view.counts()["statements"] == 1
    monkeypatch.undo()
    full.close()
    assert stored(full, "there after").seq == first.seq + 1
    assert full.check() == ()
    full.close()


def test_a_lock_that_is_not_given_up_is_busy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(store, "x")
    monkeypatch.setattr(memory.store, "BUSY_MILLISECONDS", 50)
    store.close()
    with contextlib.closing(apsw.Connection(str(store.path))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError) as caught:
            stored(store, "y")
        assert caught.value.code == "busy"
    assert stored(store, "y").seq == 2


def test_a_reader_that_stays_keeps_the_wal(store: Store) -> None:
    stored(store, "x")
    with store.read() as view:
        view.counts()
        stored(store, "y")
        assert not store.checkpoint_truncate(0.05)
    assert store.checkpoint_truncate()
    assert (store.path.parent / "store.db-wal").stat().st_size == 0


def test_a_torn_wal_loses_only_what_was_torn(tmp_path: Path) -> None:
    """A copy of the files as a crash leaves them: the last bytes of the log are missing."""
    live = make_store(tmp_path)
    for number in range(5):
        stored(live, f"fact {number}")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("store.db", "store.db-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    live.close()
    with (copy / "store.db-wal").open("r+b") as wal:
        wal.truncate((copy / "store.db-wal").stat().st_size - 7)
    torn = make_store(copy)
    with torn.read() as view:
        assert view.counts()["statements"] == 4
    assert torn.check() == ()
    torn.close()


# Erasing


def churn(store: Store, seed: int, rounds: int = 3, writes: int = 150) -> tuple[list[str], list[str]]:
    """Random marks of facts that were erased, and of facts that are still there."""
    choose = random.Random(seed)
    live: dict[int, tuple[str, str, str]] = {}
    dead: list[str] = []
    for _ in range(rounds):
        for _ in range(writes):
            marks = (secrets.token_hex(12), secrets.token_hex(12), secrets.token_hex(12))
            filler = " ".join(secrets.token_hex(4) for _ in range(choose.choice((0, 3, 10, 40, 120))))
            made = stored(store, f"{marks[2]} {filler}", key=marks[0], value=marks[1])
            live[made.seq] = marks
        for _ in range(8):
            seqs = choose.sample(sorted(live), 8)
            assert erase(store, *seqs) == 8
            for seq in seqs:
                dead += live.pop(seq)
    return dead, [mark for marks in live.values() for mark in marks]


def scan(folder: Path, marks: list[str]) -> int:
    """How many marks the files hold, whole or, as an index of words compresses prefixes, their second half."""
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("store.db*")))
    return sum(1 for mark in marks if mark[12:].encode() in data)


def test_what_an_erased_statement_ended_is_known_to_have_a_lost_end(store: Store) -> None:
    old = stored(store, "old", key="k")
    new = stored(store, "new", key="k", acts={"retires": (old.commitment,)})
    with store.read() as view:
        assert not view.is_partly_hidden(1, key_tag("k"))
    erase(store, new.seq)
    with store.read() as view:
        assert view.is_partly_hidden(1, key_tag("k"))
    (fact,) = facts_of(store, "k")
    assert fact.end_erased
    assert fact.id == fact_id(old.commitment)


def test_erasing_leaves_no_byte_of_content(tmp_path: Path) -> None:
    clean = make_store(tmp_path)
    dead, live = churn(clean, seed=1)
    assert clean.checkpoint_truncate()
    clean.close()
    assert scan(tmp_path, dead) == 0
    assert scan(tmp_path, live) == len(live)
    assert clean.check() == ()
    with clean.write() as txn:
        txn.connection.execute("INSERT INTO search (search, rank) VALUES ('integrity-check', 0)")
    clean.close()


def beginnings(store: Store) -> list[bytes]:
    """What the word index notes of the first word of each of its pages."""
    with store.read() as view:
        rows = view.rows("SELECT CAST(term AS BLOB) FROM search_idx")
    return [term[1:] for (term,) in rows if len(term) > 1]


def test_no_page_of_the_index_begins_with_a_word_that_is_gone(store: Store) -> None:
    choose = random.Random(5)

    def name() -> str:
        return "".join(choose.choice("bcdfgklmnprt") + choose.choice("aou") for _ in range(4))

    made: dict[int, list[str]] = {}
    for _ in range(300):
        names = [name() for _ in range(12)]
        made[stored(store, " ".join(names)).seq] = names
    assert len(beginnings(store)) > 5
    gone = choose.sample(sorted(made), 150)
    for at in range(0, len(gone), 10):
        erase(store, *gone[at : at + 10])
    scope = scope_token(AGENT)
    left = [f"{scope}{name}".encode() for seq in made.keys() - set(gone) for name in made[seq]]
    assert len(beginnings(store)) > 2
    for beginning in beginnings(store):
        assert any(name.startswith(beginning) for name in left), beginning
    for number in made.keys() - set(gone):
        assert number in found(store, made[number][0])


def test_a_scope_of_which_all_is_erased_leaves_no_token(store: Store) -> None:
    choose = random.Random(6)
    mine = []
    for number in range(400):
        text = " ".join(f"{choose.getrandbits(32):08x}" for _ in range(8))
        if number % 2:
            mine.append(stored(store, text).seq)
        else:
            stored(store, text, agent=OTHER_AGENT)
    choose.shuffle(mine)
    erase(store, *mine[:-1])
    erase(store, mine[-1])
    assert store.checkpoint_truncate()
    data = store.path.read_bytes()
    assert scope_token(AGENT).encode() not in data
    assert scope_token(OTHER_AGENT).encode() in data


def test_the_scan_finds_what_a_store_without_the_settings_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above: the same writes and erasures, secure_delete and file layer switched off."""
    settings = [one for one in memory.store._PRAGMAS if one[0] != "secure_delete"]
    monkeypatch.setattr(memory.store, "_PRAGMAS", (*settings, ("secure_delete", "OFF", 0)))
    monkeypatch.setattr(memory.store.vfs, "register", lambda: None)
    dirty = make_store(tmp_path)
    with dirty.write() as txn:
        txn.connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 0)")
    dead, live = churn(dirty, seed=1)
    assert dirty.checkpoint_truncate()
    dirty.close()
    assert scan(tmp_path, live) == len(live)
    assert scan(tmp_path, dead) > len(dead) // 10


def test_what_an_open_reader_pins_is_still_in_the_files(store: Store) -> None:
    """Why an erasure waits for the checkpoint: until then the old pages are there."""
    mark = secrets.token_hex(12)
    made = stored(store, mark)
    assert store.checkpoint_truncate()
    with store.read() as view:
        view.counts()
        erase(store, made.seq)
        assert not store.checkpoint_truncate(0.05)
        assert scan(store.path.parent, [mark]) == 1
    assert store.checkpoint_truncate()
    assert scan(store.path.parent, [mark]) == 0


def test_waits_where_sqlite_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.store, "BUSY_MILLISECONDS", 40)
    tries: list[int] = []

    def third_time() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise apsw.BusyError("database is locked")
        return "done"

    def never() -> str:
        raise apsw.BusyError("database is locked")

    assert memory.store._patiently(third_time) == "done"
    with pytest.raises(apsw.BusyError):
        memory.store._patiently(never)
