"""What nothing owns, in the store and beside it: each is found, and none of it is repeated."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from auditor import home_files

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
    }
    unknown = []
    for path in re.findall(r"^\| `([^`]+)` \| 0600 \|", text, re.MULTILINE):
        for name, example in examples.items():
            path = path.replace(name, example)
        path = path.replace("<space>", "events").replace("subjects/2", f"subjects/{'0a' * 16}")
        path = path.replace("staging/abcd", f"staging/1.2.{'a' * 43}.{'b' * 43}")
        path = path.replace("guard/2", f"guard/{'0a' * 16}").replace("log/tile/tile", "log/tile")
        path = path.replace("log-state-2/tile/0/x001/002.p/7", "log-state-2/head")
        path = re.sub(r"(witnesses/(?:lies/)?)abcd", rf"\1{'ab' * 32}", path)
        if not (home_files._KNOWN.fullmatch(path) or home_files._TEMPORARY.fullmatch(path)):
            unknown.append(path)
    assert unknown == []
