"""Pages judged without a value for each cell are judged as they are with one, damaged ones too."""

from __future__ import annotations

import random
import struct
from typing import Any

import apsw
import pytest

from auditor import sqlite_format as fmt
from auditor.sqlite_file import Bytes, open_pages
from auditor.sqlite_pages import PageReport, check_pages
from memory import vfs
from tlog.errors import MalformedError

ROUNDS = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with every kind of page, freeblocks, fragments, free pages and rows that go on elsewhere."""
    path, choose = tmp_path_factory.mktemp("outlines") / "store.db", random.Random(5)
    connection = apsw.Connection(str(path), vfs=vfs.register())
    connection.execute("PRAGMA page_size = 1024; PRAGMA secure_delete = ON; PRAGMA journal_mode = DELETE")
    connection.execute(
        "CREATE TABLE one (a INTEGER PRIMARY KEY, b BLOB, c BLOB); CREATE INDEX two ON one (b)"
    )
    connection.execute("CREATE TABLE three (a TEXT PRIMARY KEY, b BLOB) WITHOUT ROWID")
    with connection:
        for _ in range(700):
            number = choose.choice(
                (choose.randint(1, 400), choose.randint(1, 1 << 62), -choose.randint(1, 9))
            )
            if choose.random() < 0.01:
                connection.execute("DELETE FROM one WHERE a % 17 = ?", (number % 17,))
                connection.execute("DELETE FROM three WHERE length(b) % 11 = ?", (number % 11,))
            sizes = (3, 9, 30, 60, 60, 90, 90, 90, 90, 200, 200, 1500)
            long = choose.choice((*sizes, 1500, 1500))
            row = (number, choose.randbytes(long), choose.randbytes(choose.choice(sizes)))
            connection.execute("INSERT OR REPLACE INTO one VALUES (?, ?, ?)", row)
            connection.execute("INSERT OR REPLACE INTO three VALUES (?, ?)", (str(row[0]), row[2]))
    connection.close()
    return path.read_bytes()


def judged(data: bytes) -> PageReport | str:
    try:
        return check_pages(open_pages(Bytes(data), None))
    except MalformedError as error:
        return error.message


def cell_by_cell(data: bytes) -> PageReport | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fmt, "outline_page", lambda data, usable: None)
        return judged(data)


def test_a_sound_file_is_judged_alike_and_mostly_by_outlines(
    store: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = cell_by_cell(store)
    outlined: list[Any] = []
    outline = fmt.outline_page
    monkeypatch.setattr(fmt, "outline_page", lambda *page: outlined.append(outline(*page)) or outlined[-1])
    assert judged(store) == expected
    assert isinstance(expected, PageReport) and expected.flaws == [] and expected.free_bytes > 0
    assert sum(one is not None for one in outlined) > len(outlined) / 6
    assert any(one.free for one in outlined if one is not None)


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_is_judged_alike(store: bytes, seed: int) -> None:
    choose = random.Random(seed)
    differ = 0
    for _ in range(ROUNDS):
        data = bytearray(store)
        page = choose.randrange(len(data) // 1024) * 1024
        for _ in range(choose.choice((1, 1, 2, 6))):
            # Of the header and the cell pointers most often, where a page says what belongs to whom.
            at = page + choose.choice((choose.randrange(1024), choose.randrange(40), choose.randrange(8)))
            data[at] = choose.choice((0, 1, 4, 127, 128, 255, choose.randrange(256)))
        expected = cell_by_cell(bytes(data))
        assert judged(bytes(data)) == expected
        differ += not isinstance(expected, PageReport) or bool(expected.flaws)
    assert differ > ROUNDS / 3


def test_cells_that_share_bytes_are_found(store: bytes) -> None:
    pages = open_pages(Bytes(store), None)
    found = 0
    for number in range(2, pages.page_count + 1):
        outline = fmt.outline_page(pages.read(number), pages.header.usable_bytes)
        page = pages.read(number)
        if outline is None or outline.children or found > 5:
            continue
        cells = sorted(struct.unpack_from(f">{(outline.array_end - 8) // 2}H", page, 8))
        if len(cells) < 2 or page[cells[0]] > 100:
            continue
        data = bytearray(store)
        # The first cell reaches into the one behind it.
        data[(number - 1) * 1024 + cells[0]] += 5
        report = judged(bytes(data))
        assert isinstance(report, PageReport)
        assert "broken" in {flaw.kind for flaw in report.flaws if flaw.page == number}
        found += 1
    assert found


def test_bytes_in_a_freeblock_or_a_fragment_are_found(store: bytes) -> None:
    pages = open_pages(Bytes(store), None)
    found = 0
    for number in range(2, pages.page_count + 1):
        outline = fmt.outline_page(pages.read(number), pages.header.usable_bytes)
        for start, end in () if outline is None else outline.free:
            for at in {start, end - 1} if start < end else ():
                data = bytearray(store)
                data[(number - 1) * 1024 + at] ^= 1
                report = judged(bytes(data))
                assert isinstance(report, PageReport)
                assert [(flaw.kind, flaw.page, flaw.offset) for flaw in report.flaws] == [
                    ("residue", number, at)
                ]
                found += 1
        if found > 40:
            return
    assert found
