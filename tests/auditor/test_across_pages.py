"""A text that a page of SQLite cuts is found: at any place of the cut, in use or free, in the file and in its log."""

from __future__ import annotations

import gzip
from pathlib import Path

import apsw
import pytest

from auditor.residue import scan_files

CANARY = "canaryletterswithoutend"
NEEDLE = "Zqxv Kumquat of Nowhere Lane 17"


def made(path: Path, page_bytes: int = 4096, **pragmas: str) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA page_size = {page_bytes}").fetchall()
    for name, value in pragmas.items():
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
    connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body BLOB)")
    connection.execute("INSERT INTO notes VALUES (1, ?)", (CANARY,))
    return connection


def body(before: int, size: int) -> bytes:
    return (b"-" * before + NEEDLE.encode()).ljust(size, b"+")


def found(folder: Path) -> tuple[int, set[str]]:
    result = scan_files(folder, [NEEDLE], canary=CANARY)
    assert result.control_found
    return sum(hit.count for hit in result.hits), {f"{hit.file} {hit.encoding}" for hit in result.hits}


@pytest.mark.parametrize("page_bytes", [512, 4096])
def test_each_place_of_a_cut_is_found_once(tmp_path: Path, page_bytes: int) -> None:
    with made(tmp_path / "a.db", page_bytes) as connection:
        count = 0
        # The first cut of payloads of two sizes, and one between overflow pages, go through the whole needle.
        for size in (5 * page_bytes, 5 * page_bytes + 300):
            for before in range(0, 3 * page_bytes, 5):
                connection.execute("INSERT INTO notes (body) VALUES (?)", (body(before, size),))
                count += 1
    connection.close()
    raw = (tmp_path / "a.db").read_bytes().count(NEEDLE.encode())
    assert raw < count
    times, where = found(tmp_path)
    assert times == count
    assert where == {"a.db utf-8", "a.db across pages, utf-8"}


def cut() -> int:
    """How much stands before the text where the page ends within it."""
    for before in range(3000):
        with apsw.Connection(":memory:") as connection:
            connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body BLOB)")
            connection.execute("INSERT INTO notes VALUES (2, ?)", (body(before, 9000),))
            if NEEDLE.encode() not in connection.serialize("main"):
                return before + 9
    raise AssertionError("no place is cut")


def test_in_an_index_too(tmp_path: Path) -> None:
    with made(tmp_path / "a.db") as connection:
        connection.execute("CREATE INDEX bodies ON notes (body)")
        for before in range(0, 1500, 7):
            connection.execute("INSERT INTO notes (body) VALUES (?)", (body(before, 2500),))
    connection.close()
    # Here and there a page that was split left its old copy in a gap, too.
    assert found(tmp_path)[0] >= 2 * len(range(0, 1500, 7))


def test_in_the_log_and_across_it(tmp_path: Path) -> None:
    connection = made(tmp_path / "a.db", journal_mode="WAL", wal_autocheckpoint="0")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute("INSERT INTO notes VALUES (2, ?)", (body(cut(), 9000),))
    assert NEEDLE.encode() not in (tmp_path / "a.db-wal").read_bytes()
    times, where = found(tmp_path)
    assert (times, where) == (1, {"a.db across pages, utf-8"})
    connection.close()


GOING = {
    "a row": "DELETE FROM notes WHERE id = 2",
    "every row": "DELETE FROM notes WHERE id > 1",
    "a table": "DROP TABLE gone",
}


@pytest.mark.parametrize("name", GOING)
@pytest.mark.parametrize("secure", ["OFF", "ON"])
def test_what_was_deleted_is_found_and_not_what_was_cleared(tmp_path: Path, name: str, secure: str) -> None:
    """What is left of a cell has lost its beginning, and often the page its list of cells."""
    with made(tmp_path / "a.db", secure_delete=secure) as connection:
        connection.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, body BLOB)")
        connection.execute("CREATE TABLE gone (id INTEGER PRIMARY KEY, body BLOB)")
        # Whichever page is freed first keeps the list of the free ones: not that of the text.
        connection.execute("INSERT INTO notes VALUES (3, zeroblob(9000))")
        for table in ("notes", "gone"):
            connection.execute(f"INSERT INTO {table} VALUES (2, ?)", (body(cut(), 9000),))
    # Pages that are freed by the very transaction that made them are never written.
    connection.execute("DROP TABLE other")
    connection.execute("DELETE FROM notes WHERE id = 3")
    connection.execute(GOING[name])
    connection.close()
    assert NEEDLE.encode() not in (tmp_path / "a.db").read_bytes()
    # The one that stays is there in any case.
    assert found(tmp_path)[0] == (2 if secure == "OFF" else 1)


def test_in_a_packed_file(tmp_path: Path) -> None:
    with made(tmp_path / "a.db") as connection:
        connection.execute("INSERT INTO notes VALUES (2, ?)", (body(cut(), 9000),))
    connection.close()
    data = (tmp_path / "a.db").read_bytes()
    assert NEEDLE.encode() not in data
    (tmp_path / "a.db.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.db").write_text(CANARY)
    assert found(tmp_path) == (1, {"a.db.gz compressed, across pages, utf-8"})


def test_over_more_than_two_pages(tmp_path: Path) -> None:
    """A long text, two bytes a letter, in small pages: no two of them hold the whole of it."""
    needle = " ".join(f"word{number}" for number in range(120))
    with made(tmp_path / "a.db", 512) as connection:
        for before in range(0, 520, 40):
            data = b"-" * before + needle.encode("utf-16-le") + b"+" * 900
            connection.execute("INSERT INTO notes (body) VALUES (?)", (data,))
    connection.close()
    result = scan_files(tmp_path, [needle], canary=CANARY)
    assert sum(hit.count for hit in result.hits) == len(range(0, 520, 40))


def test_what_only_looks_like_one_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "control").write_text(CANARY)
    for number, rest in enumerate((b"", b"\x00" * 84, b"\x10\x00" + b"\xff" * 9000, bytes(2) + b"\x02" * 90)):
        (tmp_path / f"{number}.db").write_bytes(b"SQLite format 3\x00" + rest)
    assert found(tmp_path) == (0, set())
