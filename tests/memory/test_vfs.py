"""The file layer: which bytes it zeroes, that SQLite does not miss them, and that without it values stay."""

from __future__ import annotations

import random
import secrets
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import vfs

PAGE = 4096


def leaf(cells: int, content_start: int, size: int = PAGE, at: int = 0, kind: int = 0x0D) -> bytes:
    page = bytearray(b"\xee" * size)
    page[at] = kind
    page[at + 3 : at + 5] = cells.to_bytes(2, "big")
    page[at + 5 : at + 7] = (content_start % 65536).to_bytes(2, "big")
    return bytes(page)


@pytest.mark.parametrize(("kind", "header"), [(0x0D, 8), (0x0A, 8), (0x05, 12), (0x02, 12)])
def test_zeroes_between_pointers_and_cells(kind: int, header: int) -> None:
    page = leaf(3, 4000, kind=kind)
    clean = vfs.zero_gap(page, 8 * PAGE)
    start = header + 6
    assert clean[:start] == page[:start]
    assert clean[start:4000] == bytes(4000 - start)
    assert clean[4000:] == page[4000:]


def test_first_page_has_its_header_behind_that_of_the_file() -> None:
    page = leaf(1, 4000, at=100)
    clean = vfs.zero_gap(page, 0)
    assert clean[:110] == page[:110]
    assert clean[110:4000] == bytes(3890)


def test_content_start_of_zero_is_the_end_of_a_page_of_64_kib() -> None:
    page = leaf(0, 65536, size=65536)
    assert vfs.zero_gap(page, 65536)[8:] == bytes(65528)


@pytest.mark.parametrize(
    ("page", "offset"),
    [
        (leaf(1, 4000, kind=0x00), PAGE),  # overflow, freelist
        (leaf(1, 4000, kind=0x53), PAGE),
        (leaf(3000, 4000), PAGE),  # pointers behind the cells: not sound
        (leaf(1, 5000), PAGE),  # cells behind the page
        (leaf(1, 4000), PAGE + 1),  # not at a page
        (leaf(1, 4000)[:100], 0),
        (leaf(1, 4000)[:3000], 3000),
        (b"", 0),
    ],
)
def test_leaves_other_writes_alone(page: bytes, offset: int) -> None:
    assert vfs.zero_gap(page, offset) == page


@given(st.binary(min_size=512, max_size=512), st.integers(0, 3))
def test_never_changes_size_and_is_idempotent(page: bytes, number: int) -> None:
    clean = vfs.zero_gap(page, number * 512)
    assert len(clean) == 512
    assert vfs.zero_gap(clean, number * 512) == clean


def test_no_page_number_can_pass_for_a_page_type() -> None:
    assert vfs.MAX_PAGES.to_bytes(4, "big")[0] < min(0x02, 0x05, 0x0A, 0x0D)


def test_registers_once() -> None:
    assert vfs.register() == vfs.register() == "muniment"
    assert apsw.vfs_names().count("muniment") == 1


def churn(path: Path, layer: str | None) -> tuple[int, int]:
    """How many of the removed and of the remaining values a scan of the file finds."""
    choose = random.Random(7)
    db = apsw.Connection(str(path)) if layer is None else apsw.Connection(str(path), vfs=layer)
    for pragma in ("auto_vacuum=NONE", "journal_mode=WAL", "secure_delete=ON", "synchronous=OFF"):
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
    live: dict[int, str] = {}
    dead: list[str] = []
    for _ in range(3):
        with db:
            for _ in range(700):
                key, value = choose.getrandbits(48), secrets.token_hex(choose.choice((8, 20, 60, 300)))
                db.execute("INSERT INTO t VALUES (?, ?)", (key, value))
                live[key] = value
        with db:
            for key in choose.sample(sorted(live), 400):
                db.execute("DELETE FROM t WHERE k = ?", (key,))
                dead.append(live.pop(key))
    assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    data = path.read_bytes()
    return sum(v.encode() in data for v in dead), sum(v.encode() in data for v in live.values())


def test_leaves_nothing_of_removed_values(tmp_path: Path) -> None:
    dead, live = churn(tmp_path / "a.db", vfs.register())
    assert dead == 0
    assert live > 500  # a value that spills onto overflow pages is not found whole


def test_without_it_removed_values_stay_in_gaps(tmp_path: Path) -> None:
    """The control: the same scan does find what secure_delete alone leaves."""
    dead, _ = churn(tmp_path / "b.db", None)
    assert dead > 0
