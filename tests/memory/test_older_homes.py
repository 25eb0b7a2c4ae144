"""Homes that older versions made: each opens, answers as it did, goes on, and what was handed out still holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from memory import tokens
from memory.cli import main
from memory.manifest import SCHEMA, decode_manifest, verify_successor
from memory.store import SCHEMA_VERSION, open_store
from memory.vault import Vault
from memory.wiring import open_existing_home
from tlog.errors import Error

FIXTURES: Final = Path(__file__).resolve().parent / "fixtures"
NAMES: Final = sorted(path.name.split(".")[0] for path in FIXTURES.glob("home-*.tar.xz"))
OLDEST: Final = "home-9a2713a"
LAST: Final = "home-01fe88e"
NEWEST: Final = "home-8c72991"
"""Of version 2, whose word index had no word that hyphens join, and letters with their marks."""
VARIABLES: Final = {"tenant": "MUNIMENT_TENANT", "agent": "MUNIMENT_AGENT", "client": "MUNIMENT_CLIENT"}
# What an answer says of its moment; what ranks are made of; what plans end is told since one version.
CHANGES: Final = frozenset({"as_of", "as_recorded", "score"})
TOLD_SINCE: Final = frozenset({"valid_until", "followed_by"})


class Older:
    """A home of an older version, in a folder of its own, and what it answered then."""

    def __init__(
        self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.name = name
        self.folder, self.home = folder, folder / "home"
        self.monkeypatch, self.capsys = monkeypatch, capsys
        self.known: dict[str, Any] = json.loads((folder / "answers.json").read_text("utf-8"))
        monkeypatch.setenv("MUNIMENT_HOME", str(self.home))

    def run(self, *words: str, **who: str) -> tuple[int, str]:
        """Exit code and standard output of a command of this version; standard error behind it if it failed."""
        for name, variable in VARIABLES.items():
            self.monkeypatch.setenv(variable, who.get(name, "desk" if name == "client" else "default"))
        code = main(list(words))
        out, err = self.capsys.readouterr()
        return code, out if code == 0 or out else err

    def answer(self, *words: str, **who: str) -> Any:
        """What a command says, as JSON."""
        return json.loads(self.run(*words, "--json", **who)[1])

    def user_version(self) -> int:
        connection = apsw.Connection(str(self.home / "store.db"))
        try:
            return int(connection.execute("PRAGMA user_version").fetchall()[0][0])  # type: ignore[arg-type]
        finally:
            connection.close()


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    (folder / "home").chmod(0o700)
    return folder


@pytest.fixture
def older(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Older:
    """The home of the fixture that a test names."""
    return Older(request.param, unpack(request.param, tmp_path), monkeypatch, capsys)


each = pytest.mark.parametrize("older", NAMES, indirect=True)
oldest = pytest.mark.parametrize("older", [OLDEST], indirect=True)
last = pytest.mark.parametrize("older", [LAST], indirect=True)


def differences(then: Any, now: Any, at: str = "") -> Iterator[str]:
    """Where an answer says something else than the older one, or no more; what is new in it is no difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name in then.keys() - CHANGES:
            if then[name] is not None or name not in TOLD_SINCE:
                yield from differences(then[name], now.get(name), f"{at}.{name}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from differences(one, other, f"{at}[{number}]")
    elif then != now:
        yield f"{at}: {then!r}, now {now!r}"


def test_there_are_homes_of_older_versions() -> None:
    assert {OLDEST, LAST} <= set(NAMES) and len(NAMES) >= 4
    assert all((FIXTURES / f"{name}.tar.xz").stat().st_size < 150_000 for name in NAMES)


@each
def test_answers_as_it_did_and_what_was_handed_out_holds(older: Older) -> None:
    assert older.user_version() == (2 if older.name == NEWEST else 1)
    for one in older.known["answers"]:
        code, out = older.run(*one["words"], "--json", **one["who"])
        assert (code, list(differences(one["answer"], json.loads(out)))) == (one["code"], []), one["words"]
    assert older.user_version() == SCHEMA_VERSION
    given = older.folder / "handed-out"
    files = [str(path) for path in sorted(given.iterdir()) if path.suffix in {".cose", ".tlog-proof"}]
    files += [str(path) for path in sorted((older.home / "log" / "erasures").glob("*.cose"))]
    assert len(files) == 10
    code, out = older.run("verify", *files, "--trust", str(older.home / "trust.toml"))
    assert code == 0, out
    if older.name not in (OLDEST, LAST):
        code, out = older.run("audit")
        assert code == 0, out
    if older.name == NEWEST:
        found = older.answer("recall", "wifi backstube heisst")["facts"]
        assert [fact["text"] for fact in found] == ["Das WLAN heißt wi-fi-backstube."]


@pytest.mark.parametrize("older", [OLDEST, LAST], indirect=True)
def test_goes_on_and_an_audit_finds_nothing(older: Older) -> None:
    before = sorted((older.home / "log" / "erasures").glob("*.cose"))
    code, out = older.run("audit")
    assert code == 2 and "older version" in out
    opens = ("--key", "bakery/opening time")
    # The same request gives what it gave, what was retired stays so, and what is new is stored and corrects.
    first = ("The bakery opens at 06:00.", *opens, "--value", "06:00", "--idempotency-key", "first")
    again = older.answer("remember", *first)
    assert again["id"] == older.known["ids"]["six"]
    code, out = older.run("remember", "It opens at 6:00.", *opens, "--value", "6:00", "--json")
    assert code == 1 and json.loads(out)["outcome"] == "refused"
    assert (
        older.answer("remember", "It opens at 08:00.", *opens, "--value", "08:00")["outcome"] == "superseded"
    )
    assert older.run("remember", "The safe code is 7781.", "--key", "safe/code", "--value", "7781")[0] == 1
    assert older.answer("recall", "eight opens 08:00")["facts"][0]["value"] == "08:00"
    token = older.answer("forget", "--key", "shop/lease end")["confirm"]
    assert older.run("forget", "--key", "shop/lease end", "--confirm", token)[0] == 0
    assert older.answer("get", "shop/lease end").get("active") in ([], None)
    assert older.run("export", "--subject", "Corner Shop", "-o", str(older.folder / "out"))[0] == 0
    assert older.run("log", "publish")[0] == 0
    code, out = older.run("audit")
    assert code == 0, out
    previous = None
    for path in sorted((older.home / "log" / "erasures").glob("*.cose"), key=lambda path: int(path.stem)):
        manifest = decode_manifest(path.read_bytes())
        verify_successor(manifest, previous)
        assert manifest.document["schema"] == (1 if path in before else SCHEMA)
        previous = manifest


# What is cut short, and what happens at once

ENDED: Final = """
import os, shutil, signal, sys
from pathlib import Path
from memory import store, store_upgrade
from memory.vault import Vault

home, steps = Path(sys.argv[1]), sys.argv[2:]

def version(folder):
    connection = store.apsw.Connection(str(folder / "store.db"))
    try:
        return connection.execute("PRAGMA user_version").fetchall()[0][0]
    finally:
        connection.close()

def opened(folder):
    store.open_store(folder / "store.db", Vault(folder / "keys")).close()

def apart(work):
    child = os.fork()
    if child:
        return child
    work()
    os._exit(0)

def ending_at(step, folder):
    def reached(name):
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)
    whole = store_upgrade.upgrade
    store_upgrade.upgrade = lambda *args: whole(*args, reached)
    opened(folder)

for step in steps:
    folder = home.with_name(step)
    shutil.copytree(home, folder)
    _, status = os.waitpid(apart(lambda: ending_at(step, folder)), 0)
    print(step, os.WTERMSIG(status), version(folder), flush=True)

folder = home.with_name("at once")
shutil.copytree(home, folder)
both = [apart(lambda: opened(folder)) for _ in range(3)]
print("at once", [os.waitpid(child, 0)[1] for child in both], version(folder))
"""
STEPS: Final = ("rewritten", "indexes", "tables", "tags", "words", "marked", "committed")


@oldest
def test_an_upgrade_that_is_killed_is_done_by_the_next_and_once_by_several(older: Older) -> None:
    command = [sys.executable, "-c", ENDED, str(older.home), *STEPS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = [f"{step} 9 {SCHEMA_VERSION if step == 'committed' else 1}" for step in STEPS]
    assert done.stdout.splitlines() == [*expected, f"at once [0, 0, 0] {SCHEMA_VERSION}"]
    wanted = _rows(older.home)
    for folder in (*STEPS, "at once"):
        assert _rows(older.folder / folder) == wanted, folder


def _rows(home: Path) -> dict[str, list[Any]]:
    """What a store has once it is open: its schema, and each row but for how the word index lies in its pages."""
    store = open_store(home / "store.db", Vault(home / "keys"))
    try:
        with store.read() as view:
            assert store.check() == ()
            schema = view.rows("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
            tables = [name for kind, name, _ in schema if kind == "table" and not name.startswith("search")]
            found = {name: sorted(map(repr, view.rows(f"SELECT * FROM {name}"))) for name in tables}
            view.connection.execute(
                "CREATE VIRTUAL TABLE temp.v USING fts5vocab ('main', 'search', 'instance')"
            )
            words = view.rows("SELECT term, doc, col FROM temp.v ORDER BY 1, 2, 3")
            view.connection.execute("DROP TABLE temp.v")
            return found | {"schema": schema, "words": words}
    finally:
        store.close()


@oldest
def test_a_store_brought_up_is_declared_as_a_new_one_is(older: Older, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = _rows_of_new(tmp_path / "new")
    assert _rows(older.home)["schema"] == new


def _rows_of_new(folder: Path) -> list[Any]:
    (folder / "keys").mkdir()
    return _rows(folder)["schema"]


@last
def test_a_process_that_runs_while_a_newer_version_comes_stops(older: Older) -> None:
    store = open_store(older.home / "store.db", Vault(older.home / "keys"))
    connection = apsw.Connection(str(older.home / "store.db"))
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    for begin in (store.read, store.write):
        with pytest.raises(Error) as refused, begin():
            pass
        assert refused.value.code == "newer_store"
    store.close()
    held = (older.home / "store.db").read_bytes()
    with pytest.raises(Error) as refused:
        open_store(older.home / "store.db", Vault(older.home / "keys"))
    assert refused.value.code == "newer_store"
    assert (older.home / "store.db").read_bytes() == held


# What lies beside the store


@oldest
def test_a_home_that_is_older_than_its_list_of_keys_gets_that_once(older: Older) -> None:
    assert not (older.home / "keys.cbor").exists()
    assert older.run("status")[0] == 0
    (older.home / "keys.cbor").unlink()
    # The store is not older any more: now the list was lost.
    code, out = older.run("status")
    assert code == 3 and "keys.cbor" in out


@oldest
def test_no_list_is_made_of_keys_that_nobody_was_told_of(older: Older) -> None:
    keys = older.home / "keys"
    shutil.copy(keys / "receipt.key", keys / "manifest.key")
    code, out = older.run("status")
    assert code == 3 and "keys.cbor" in out and not (older.home / "keys.cbor").exists()
    assert older.user_version() == 1


@oldest
def test_hashes_are_not_made_under_a_key_that_is_not_the_one_of_the_store(older: Older) -> None:
    for path in (older.home / "keys" / "guard").iterdir():
        path.write_bytes(bytes(32))
    code, out = older.run("status")
    assert code == 3 and "keys/guard" in out
    assert older.user_version() == 1


@last
def test_an_older_backup_is_restored_and_what_was_erased_since_is_not(older: Older) -> None:
    for name in ("store.db", "store.db-wal"):
        (older.home / name).unlink(missing_ok=True)
    code, out = older.run("restore", str(older.folder / "handed-out" / "backup"), "--declare-lost")
    assert code == 0, out
    assert older.answer("get", "bakery/opening time")["active"][0]["value"] == "07:00"
    code, out = older.run("remember", "It opens at 6:00.", "--key", "bakery/opening time", "--value", "6:00")
    assert code == 1
    assert not older.answer("get", "baker/day").get("active")


@last
def test_an_access_token_of_before_still_opens(older: Older) -> None:
    with open_existing_home(older.home) as home:
        principal = tokens.verify(home, older.known["token"])
    assert (principal.tenant, principal.agent, principal.client) == ("default", "default", "web")


@oldest
def test_doctor_tells_the_version_of_the_store(older: Older) -> None:
    _, out = older.run("doctor")
    assert f"the store is of version {SCHEMA_VERSION}" in out


@oldest
def test_what_older_rules_hashed_is_hashed_again(older: Older) -> None:
    """As if the canonical forms of keys, subjects, texts and values had been others then."""
    connection = apsw.Connection(str(older.home / "store.db"))
    for table in ("facts", "ledger", "conflicts"):
        connection.execute(f"UPDATE {table} SET key_tag = unhex(substr(hex(key_tag), 3) || '00')")
    connection.execute("UPDATE facts SET text_tag = randomblob(32), subject_tag = randomblob(32)")
    connection.execute(
        "UPDATE ledger SET value_tag = randomblob(32), name_tags = x'' WHERE source IS NOT NULL"
    )
    connection.close()
    assert older.answer("get", "bakery/opening time")["current"] == "07:00"
    assert older.run("remember", "Six again.", "--key", "bakery/opening time", "--value", "6:00")[0] == 1
    (conflict,) = older.answer("conflicts")["conflicts"]
    assert older.run("resolve", conflict["id"], "--keep", older.known["ids"]["paint2"])[0] == 0
    assert older.answer("get", "door/colour")["current"] == "blue"
    assert older.answer("forget", "--subject", "Corner Shop")["preview"]["count"] == 2
    code, out = older.run("audit")
    assert code == 0, out
