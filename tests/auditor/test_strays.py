"""What nothing owns, in the store and beside it: each is found, and none of it is repeated."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from copies import Copy

from auditor import checks_caches, home_files
from memory import admission, guard
from memory.model import SCOPES, Principal
from memory.wiring import init_home, open_home
from tlog.trust import parse_trust

SECRET = "zqxvsecret"
REPOSITORY = Path(__file__).resolve().parent.parent.parent


def findings(copy: Any) -> set[tuple[str, str]]:
    found = copy.audit().outcome.findings
    assert not [one for one in found if SECRET in f"{one.where}{one.what}{dict(one.evidence)}"]
    return {(one.code, one.where) for one in found}


@pytest.mark.parametrize(
    ("statement", "code", "where"),
    [
        (f"INSERT INTO meta VALUES ('{SECRET}', 1)", "RESIDUE_ROW", "store.db meta row"),
        (
            f"UPDATE meta SET value = '{SECRET}' WHERE name = 'erasure.canary'",
            "RESIDUE_ROW",
            "store.db meta row",
        ),
        (
            f"UPDATE meta SET value = '{SECRET}' WHERE name = 'erasure.executing'",
            "RESIDUE_ROW",
            "store.db meta",
        ),
        (f"UPDATE ledger SET value_tag = '{SECRET}' WHERE id = 3", "RESIDUE_ROW", "store.db ledger row 3"),
        (
            f"UPDATE tenants SET name_tag = CAST('{SECRET}' AS BLOB) WHERE id = 1",
            "RESIDUE_ROW",
            "store.db tenants row 1",
        ),
        (
            f"UPDATE idempotency SET request_tag = CAST('{SECRET}' AS BLOB)",
            "RESIDUE_ROW",
            "store.db idempotency row 1",
        ),
        (
            f"INSERT INTO tokens (tenant, token_hash, purpose, bound, expires_at)"
            f" VALUES (1, randomblob(32), '{SECRET}', randomblob(32), 1)",
            "RESIDUE_ROW",
            "store.db tokens row",
        ),
        (
            "INSERT INTO openings (tenant, seq, recipient, given_at) VALUES (1, 999, randomblob(16), 0)",
            "RESIDUE_ROW",
            "store.db openings row",
        ),
        (
            "INSERT INTO acts (tenant, target, seq, act) VALUES (77, 1, 2, 'retires')",
            "RESIDUE_ROW",
            "store.db acts row",
        ),
        (f"CREATE TABLE {SECRET} (x)", "RESIDUE_ROW", "store.db"),
        (f"CREATE VIEW {SECRET} AS SELECT 1", "RESIDUE_ROW", "store.db"),
        (
            f"CREATE TRIGGER {SECRET} AFTER INSERT ON meta BEGIN SELECT 1; END",
            "RESIDUE_ROW",
            "store.db",
        ),
        (f"CREATE INDEX {SECRET} ON meta (value)", "RESIDUE_INDEX", "store.db schema"),
        ("DROP INDEX facts_text", "FACT_ALTERED", "store.db schema"),
        (
            f"ALTER TABLE openings ADD COLUMN {SECRET} TEXT",
            "FACT_ALTERED",
            "store.db schema",
        ),
        (
            f"INSERT INTO search_data VALUES ((999 << 37) + 1, CAST('{SECRET}' AS BLOB))",
            "RESIDUE_INDEX",
            "store.db search_data row",
        ),
        (
            f"INSERT INTO search_data VALUES (7, CAST('{SECRET}' AS BLOB))",
            "RESIDUE_INDEX",
            "store.db search_data row 7",
        ),
        (
            f"INSERT INTO search_idx VALUES (999, CAST('{SECRET}' AS BLOB), 2)",
            "RESIDUE_INDEX",
            "store.db search_idx segment 999",
        ),
        (
            f"INSERT INTO search_config VALUES ('{SECRET}', 1)",
            "RESIDUE_INDEX",
            "store.db search_config",
        ),
    ],
)
def test_what_nothing_owns_in_the_store_is_found(copy: Any, statement: str, code: str, where: str) -> None:
    copy.sql_unchecked(statement)
    found = findings(copy)
    assert any(one == code and place.startswith(where) for one, place in found), found


def test_a_schema_that_says_something_in_a_comment_is_found(copy: Any) -> None:
    copy.sql_unchecked(
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_schema SET sql = sql || ' -- {SECRET}' WHERE name = 'facts_text'",
    )
    assert ("FACT_ALTERED", "store.db schema") in findings(copy)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("store.db-journal", "store.db-journal"),
        ("store.db.bak", "store.db.bak"),
        ("trust.toml~", "trust.toml~"),
        (f"{SECRET}.txt", "(name withheld)"),
        (f"keys/{SECRET}.key", "keys/(name withheld)"),
        (f"keys/guard/{SECRET}", "keys/guard/(name withheld)"),
        ("log/erasures/1.cose.orig", "log/erasures/1.cose.orig"),
        (f"log/tile/entries/{SECRET}", "log/tile/entries/(name withheld)"),
        (f"log-state/{SECRET}.json", "log-state/(name withheld)"),
        ("log-state/identities.sqlite-journal", "log-state/identities.sqlite-journal"),
        (f"{SECRET}/notes.txt", "(name withheld)"),
        (f".tmp/{SECRET[:4]}", ".tmp/(name withheld)"),
    ],
)
def test_a_file_that_no_home_has_is_found(copy: Any, path: str, where: str) -> None:
    file = copy.home / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(SECRET)
    os.utime(file, (time.time() - 86_400,) * 2)
    assert findings(copy) == {("RESIDUE_FILE", where)}


def test_a_link_in_a_home_is_found(copy: Any, tmp_path: Path) -> None:
    (copy.home / "log" / "extra").symlink_to(tmp_path)
    assert findings(copy) == {("RESIDUE_FILE", "log/(name withheld)")}


SPOILED = {
    "restoring.db": "restoring.db",
    ".locks/erase": ".locks/erase",
    "log-state/.locks/publish": "log-state/.locks/publish",
    f"log-state/staging/1.2.{'A' * 43}.{'A' * 43}": "log-state/staging/",
    f"log-state/witnesses/{'ab' * 32}.json": "log-state/witnesses/",
    f"log-state/witnesses/lies/{'ab' * 32}.json": "log-state/witnesses/lies/",
    "log-state/identities.sqlite": "log-state/identities.sqlite",
    "log-state/entry-ids.sqlite": "log-state/entry-ids.sqlite",
    "log-state/pruned": "log-state/pruned",
    "keys/issuer.next.key": "keys/issuer.next.key",
    "keys/receipt.key": "keys/receipt.key",
    f"keys/guard/{'ab' * 16}.key": "keys/guard/",
    "keys.cbor": "keys.cbor",
    "log/keys.cose": "log/keys.cose",
    "log/scitt-keys/abab.cose": "log/scitt-keys/",
    "log/tile/entries/001": "log/tile/entries/",
    "log/tile/5/000.p/1": "log/tile/5/000.p/",
    "log-7/checkpoint": "(name withheld)",
}


@pytest.mark.parametrize("path", SPOILED)
def test_a_name_of_a_home_does_not_excuse_what_the_file_holds(copy: Any, path: str) -> None:
    file = copy.home / path
    file.parent.mkdir(exist_ok=True, parents=True)
    with file.open("ab") as opened:
        opened.write(SECRET.encode() * 9)
    os.utime(file, (time.time() - 7200,) * 2)
    found = findings(copy)
    assert "RESIDUE_FILE" in {code for code, _ in found}, found


def test_a_lock_of_another_name_is_found(copy: Any) -> None:
    (copy.home / ".locks" / SECRET[:8]).touch()
    assert {code for code, _ in findings(copy)} == {"RESIDUE_FILE"}


def test_a_table_of_nobodys_in_a_cache_is_found(copy: Any) -> None:
    connection = apsw.Connection(str(copy.home / "log-state" / "identities.sqlite"))
    connection.execute(f"CREATE TABLE {SECRET} (x)")
    connection.close()
    assert findings(copy) == {("RESIDUE_FILE", "log-state/identities.sqlite")}


def test_an_index_of_the_write_ahead_log_that_says_something_is_found(copy: Any) -> None:
    (copy.home / "store.db-shm").write_bytes(SECRET.encode() * 3)
    assert findings(copy) == {("RESIDUE_FILE", "store.db-shm")}


def test_a_file_from_the_future_is_found(copy: Any) -> None:
    file = copy.home / ".tmp" / "abcd"
    file.write_text(SECRET)
    os.utime(file, (time.time() + 86_400,) * 2)
    assert {code for code, _ in findings(copy)} == {"RESIDUE_FILE"}


def test_a_second_name_of_a_file_is_found(copy: Any, tmp_path: Path) -> None:
    os.utime(copy.home / "store.db", (time.time() - 7200,) * 2)
    os.link(copy.home / "store.db", tmp_path / "kept")
    assert findings(copy) == {("RESIDUE_FILE", "store.db")}


def test_the_key_of_a_tenant_that_was_destroyed_is_found(copy: Any) -> None:
    with open_home(copy.home) as home:
        memory = home.memory(Principal("globex", "bot", "one", SCOPES))
        (number,) = (row[0] for row in copy.ask("SELECT number FROM tenants WHERE name = 'globex'"))
        path = copy.home / "keys" / "guard" / f"{number.hex()}.key"
        kept = path.read_bytes()
        memory.forget(
            confirm=memory.forget_preview(tenant=True, guard="erase")["confirm"], tenant=True, guard="erase"
        )
        home.publish()
    assert not path.exists()
    assert findings(copy) == set()
    path.write_bytes(kept)
    os.utime(path, (time.time() - 7200,) * 2)
    assert findings(copy) == {("RESIDUE_FILE", f"keys/guard/{path.name}")}


def test_a_tenant_that_never_said_anything_is_found(copy: Any) -> None:
    number = "09" * 16
    copy.sql(f"INSERT INTO tenants VALUES (9, x'{number}', randomblob(32), '{SECRET}', 0)")
    residue = ("RESIDUE_ROW", "store.db tenants row 9")
    assert findings(copy) == {residue, ("GUARD_OFF", f"keys/guard/{number}.key")}


def test_a_home_of_a_whole_tile_published_twice_is_clean(tmp_path: Path) -> None:
    with init_home(tmp_path / "home") as home:
        memory = home.memory(Principal("acme", "bot", "one", SCOPES))
        for number in range(130):
            memory.remember(f"note {number}")
        home.publish()
        for number in range(130):
            memory.remember(f"another note {number}")
        home.publish()
    copy = Copy(tmp_path / "home", parse_trust((tmp_path / "home" / "trust.toml").read_text()))
    assert (copy.home / "log" / "tile" / "entries" / "000").is_file()
    assert findings(copy) == set()


def test_a_file_that_is_being_written_belongs_there(copy: Any) -> None:
    (copy.home / ".tmp" / "abcd").write_text("half")
    (copy.home / "keys" / f".issuer.key.{'ab' * 8}.new").write_text("half")
    assert findings(copy) == set()


def test_every_file_that_the_documents_name_is_known() -> None:
    """The table of docs/formats/home.md, against what the audit takes for a file of a home."""
    text = (REPOSITORY / "docs" / "formats" / "home.md").read_text()
    examples = {
        "<path>": "tile/0/x001/002.p/7",
        "<number>": "2",
        "<use>": "issuer",
        "<name>": "abcd",
        "<SHA-256>": "ab" * 32,
        "<hash>": "ab" * 32,
    }
    unknown = []
    for path in re.findall(r"^\| `([^`]+)` \| 0600 \|", text, re.MULTILINE):
        for name, example in examples.items():
            path = path.replace(name, example)
        path = path.replace("<space>", "record").replace("subjects/2", f"subjects/{'0a' * 16}")
        path = path.replace("staging/abcd", f"staging/1.2.{'a' * 43}.{'b' * 43}")
        path = path.replace("guard/2", f"guard/{'0a' * 16}").replace("log/tile/tile", "log/tile")
        path = path.replace("log-state-2/tile/0/x001/002.p/7", "log-state-2/head")
        path = re.sub(r"(witnesses/(?:lies/)?)abcd", rf"\1{'ab' * 32}", path)
        if not (home_files._KNOWN.fullmatch(path) or home_files._TEMPORARY.fullmatch(path)):
            unknown.append(path)
    assert unknown == []


@pytest.mark.parametrize(
    "said",
    [
        """replace(answer, '{"outcome"', '{"outcome": "likes green tea", "outcome"')""",
        """replace(answer, 'Stored as', 'Likes green tea:')""",
        """answer || ' '""",
        """replace(answer, '"message": "', '"message": "\\ud800')""",
        """'[' || answer || ']'""",
    ],
)
def test_an_answer_says_nothing_but_what_was_answered(copy: Copy, said: str) -> None:
    copy.sql(f"UPDATE idempotency SET answer = {said}")
    assert copy.codes() == {"FACT_ALTERED"}


def test_an_audit_knows_every_sentence_that_a_write_is_answered_with() -> None:
    said = [
        value
        for module in (guard, admission)
        for name, value in vars(module).items()
        if (name.isupper() and isinstance(value, str) and " " in value) or name == "STORED"
    ]
    assert len(said) > 20
    assert [one for one in said if not checks_caches._is_message(one)] == []
