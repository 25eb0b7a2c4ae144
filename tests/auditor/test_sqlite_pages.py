"""The page reader accounts for every byte of a SQLite file, agrees with SQLite, and survives hostile files."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor import snapshot as snapshot_module
from auditor import sqlite_format as fmt
from auditor.checks_pages import Live, check_structure
from auditor.snapshot import copy_store, read_only
from auditor.sqlite_file import Bytes, Pages, leaf_rows, old_pages, open_pages
from auditor.sqlite_pages import Flaw, PageReport, check_pages
from memory import vfs
from tlog.errors import MalformedError

SCHEMA = """
CREATE TABLE contents (seq INTEGER PRIMARY KEY, content BLOB NOT NULL, salt BLOB NOT NULL);
CREATE TABLE facts (seq INTEGER PRIMARY KEY, tag BLOB, body TEXT);
CREATE INDEX facts_tag ON facts (tag);
CREATE TABLE names (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE VIRTUAL TABLE search USING fts5 (body, content = '');
INSERT INTO search (search, rank) VALUES ('secure-delete', 1);
"""


def connect(
    path: Path, *, secure: str = "ON", layer: str | None = None, page_bytes: int = 4096
) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs=layer)
    settings_of = (
        f"page_size = {page_bytes}",
        "journal_mode = WAL",
        f"secure_delete = {secure}",
        "synchronous = OFF",
    )
    for pragma in settings_of:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    if not connection.execute("SELECT 1 FROM sqlite_schema").fetchall():
        connection.execute(SCHEMA)
    return connection


def churn(connection: apsw.Connection, seed: int, steps: int = 800) -> set[int]:
    """Random inserts, updates and deletes of rows of all sizes; the row numbers that are left."""
    choose = random.Random(seed)
    live: dict[int, str] = {}
    for _ in range(steps):
        if live and choose.random() < 0.4:
            seq = choose.choice(sorted(live))
            body = live.pop(seq)
            connection.execute(
                "INSERT INTO search (search, rowid, body) VALUES ('delete', ?, ?)", (seq, body)
            )
            for table in ("facts", "contents"):
                connection.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))
            connection.execute("DELETE FROM names WHERE name = ?", (str(seq),))
            continue
        seq = choose.randint(1, 1_000_000)
        if seq in live:
            continue
        body = live[seq] = " ".join(
            f"w{choose.randint(1, 400)}" for _ in range(choose.choice((1, 6, 40, 900)))
        )
        connection.execute("INSERT INTO facts VALUES (?, ?, ?)", (seq, choose.randbytes(32), body))
        connection.execute(
            "INSERT INTO contents VALUES (?, ?, ?)", (seq, body.encode(), choose.randbytes(32))
        )
        connection.execute("INSERT INTO search (rowid, body) VALUES (?, ?)", (seq, body))
        connection.execute(
            "INSERT INTO names VALUES (?, ?)", (str(seq), choose.randbytes(choose.choice((9, 3000))))
        )
    return set(live)


def truncate(connection: apsw.Connection) -> None:
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0


def pages_of(path: Path) -> Pages:
    wal = path.with_name(path.name + "-wal")
    return open_pages(Bytes(path.read_bytes()), Bytes(wal.read_bytes()) if wal.exists() else None)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store as ours are written, with free pages, freeblocks and overflow pages in it."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    connection = connect(path, layer=vfs.register())
    churn(connection, 7, 600)
    truncate(connection)
    connection.close()
    return path.read_bytes()


def check(data: bytes) -> PageReport:
    return check_pages(open_pages(Bytes(data), None))


def residue(report: PageReport) -> list[Flaw]:
    return [flaw for flaw in report.flaws if flaw.kind == "residue"]


@pytest.mark.parametrize(("seed", "page_bytes"), [(1, 4096), (2, 4096), (3, 512), (4, 1024), (5, 65536)])
def test_a_store_written_as_ours_are_has_no_flaw(tmp_path: Path, seed: int, page_bytes: int) -> None:
    connection = connect(tmp_path / "store.db", layer=vfs.register(), page_bytes=page_bytes)
    churn(connection, seed, 500)
    truncate(connection)
    report = check_pages(pages_of(tmp_path / "store.db"))
    connection.close()
    assert report.flaws == []
    assert report.free_bytes > 0
    assert report.pages_by_owner["contents"] > 1


def test_owners_are_those_that_sqlite_tells(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = connect(path)
    churn(connection, 11)
    truncate(connection)
    told = dict(connection.execute("SELECT pageno, name FROM dbstat"))
    report = check_pages(pages_of(path))
    assert {page: name for page, name in report.owners.items() if name != "free"} == told
    free = connection.execute("PRAGMA freelist_count").fetchall()[0][0]
    assert report.pages_by_owner["free"] == free > 0
    connection.close()


@pytest.mark.parametrize(
    ("secure", "regions"), [("OFF", {"freeblock", "free page"}), ("ON", {"gap before the cells"})]
)
def test_careless_deletes_are_found(tmp_path: Path, secure: str, regions: set[str]) -> None:
    # Without secure_delete everything stays; with it alone, stale cells in the gaps of live pages do.
    connection = connect(tmp_path / "store.db", secure=secure)
    churn(connection, 3, 500)
    truncate(connection)
    report = check_pages(pages_of(tmp_path / "store.db"))
    connection.close()
    assert regions <= {flaw.region for flaw in residue(report)}


def test_every_free_byte_is_watched(sound: bytes) -> None:
    """Whichever byte that belongs to no row is set, the flaw names its page and place."""
    choose = random.Random(5)
    data = bytearray(sound)
    free = free_offsets(sound)
    assert len(free) > 10_000
    for offset in choose.sample(free, 40):
        data[offset] = 0x41
        flaws = residue(check(bytes(data)))
        assert [((flaw.page - 1) * 4096 + flaw.offset, flaw.size_bytes) for flaw in flaws] == [(offset, 1)]
        data[offset] = 0


def free_offsets(data: bytes) -> list[int]:
    """Offsets of the bytes of gaps, freeblocks and free pages, found apart from the reader's own walk."""
    header = fmt.parse_header(data)
    report = check(data)
    offsets: list[int] = []
    for number, owner in report.owners.items():
        base = (number - 1) * header.page_bytes
        page = data[base : base + header.page_bytes]
        if owner == "free":
            if page[:8] == bytes(8):
                offsets += range(base, base + header.page_bytes)
            continue
        try:
            parsed = fmt.parse_page(page, header.usable_bytes, 100 if number == 1 else 0)
        except MalformedError:
            continue  # an overflow page
        offsets += range(base + parsed.array_end, base + parsed.content_start)
        for start, end in parsed.freeblocks:
            offsets += range(base + start + 4, base + end)
    return offsets


def test_bytes_behind_the_last_page_are_found(sound: bytes) -> None:
    assert {flaw.region for flaw in check(sound + bytes(4095) + b"x").flaws} == {"behind the last page"}


def test_the_reserved_bytes_of_the_header_are_watched(sound: bytes) -> None:
    assert [flaw.region for flaw in check(sound[:75] + b"x" + sound[76:]).flaws] == ["file header"]


def test_a_page_that_nobody_reaches_is_found(sound: bytes) -> None:
    count = len(sound) // 4096
    grown = sound[:28] + struct.pack(">I", count + 1) + sound[32:] + b"\x0d" + b"left over".ljust(4095, b"\0")
    flaws = check(grown).flaws
    assert {(flaw.page, flaw.owner) for flaw in flaws} == {(count + 1, "nobody")}


# The write-ahead log


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, set[int]]:
    """A store with its newest pages in the log, and older versions below them, and what is alive in it."""
    path = tmp_path_factory.mktemp("grown") / "store.db"
    connection = connect(path, layer=vfs.register())
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    churn(connection, 21, 300)
    truncate(connection)
    live = churn(connection, 22, 300) | {row[0] for row in connection.execute("SELECT seq FROM facts")}
    main, wal = path.read_bytes(), path.with_name("store.db-wal").read_bytes()
    connection.close()
    return main, wal, live


@pytest.fixture
def unsettled(grown: tuple[bytes, bytes, set[int]], tmp_path: Path) -> tuple[Path, apsw.Connection, set[int]]:
    """A copy of that store, as it was left by somebody who was killed and is opened by the next."""
    main, wal, live = grown
    path = tmp_path / "store.db"
    path.write_bytes(main)
    path.with_name("store.db-wal").write_bytes(wal)
    connection = connect(path, layer=vfs.register())
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    return path, connection, set(live)


def test_the_newest_pages_are_read_as_sqlite_reads_them(
    unsettled: tuple[Path, apsw.Connection, set[int]],
) -> None:
    path, connection, live = unsettled
    pages = pages_of(path)
    assert len(pages.newest) > 5
    assert check_pages(pages).flaws == []
    with read_only(pages) as copy:
        for table in ("facts", "contents", "names"):
            sql = f"SELECT * FROM {table} ORDER BY 1"
            assert copy.execute(sql).fetchall() == connection.execute(sql).fetchall()
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert {row[0] for row in copy.execute("SELECT seq FROM facts")} == live
        with pytest.raises(apsw.ReadOnlyError):
            copy.execute("DELETE FROM facts")


def test_frames_that_were_not_committed_are_not_read(
    unsettled: tuple[Path, apsw.Connection, set[int]],
) -> None:
    path, connection, _ = unsettled
    before = pages_of(path)
    wal = bytearray(path.with_name("store.db-wal").read_bytes())
    frame = 24 + 4096
    torn = wal[: len(wal) - frame] + bytes(frame)
    cut = open_pages(Bytes(path.read_bytes()), Bytes(bytes(torn)))
    assert len(cut.newest) <= len(before.newest)
    wal[-1] ^= 1  # the checksum of the last frame, a commit, no longer holds
    torn_pages = open_pages(Bytes(path.read_bytes()), Bytes(bytes(wal)))
    assert max(torn_pages.newest.values()) < len(wal) - 4096
    connection.close()


def test_a_deleted_row_in_the_log_is_found(unsettled: tuple[Path, apsw.Connection, set[int]]) -> None:
    path, connection, live = unsettled
    seq = max(row[0] for row in connection.execute("SELECT seq FROM contents"))
    connection.execute("DELETE FROM contents WHERE seq = ?", (seq,))
    kept = {row[0] for row in connection.execute("SELECT seq FROM contents")}
    outcome, _ = check_structure(pages_of(path), Live(kept, live))
    assert {finding.code for finding in outcome.findings} == {"RESIDUE_WAL"}
    truncate(connection)
    outcome, report = check_structure(pages_of(path), Live(kept, live))
    assert outcome.findings == ()
    assert report is not None
    connection.close()


def test_a_transaction_under_way_has_rows_that_are_not_there_yet(
    unsettled: tuple[Path, apsw.Connection, set[int]],
) -> None:
    """Its frames are in the log before it commits. What a lost commit held is not excused by that."""
    path, connection, live = unsettled
    truncate(connection)  # what was deleted before is gone from the log, too
    connection.execute("UPDATE facts SET body = body")
    last = max(row[0] for row in connection.execute("SELECT seq FROM contents"))
    kept = {row[0] for row in connection.execute("SELECT seq FROM contents")}
    committed = path.with_name("store.db-wal").stat().st_size
    connection.execute("PRAGMA cache_size = 2").fetchall()
    connection.execute("BEGIN")
    for number in range(1, 200):
        connection.execute("INSERT INTO contents VALUES (?, ?, ?)", (last + number, bytes(900), b"s" * 32))
    wal = path.with_name("store.db-wal").read_bytes()
    assert len(wal) > committed + 4120, "nothing of the transaction is in the log, so nothing is tested"

    def codes(data: bytes, seen: Live) -> set[str]:
        pages = open_pages(Bytes(path.read_bytes()), Bytes(data))
        return {finding.code for finding in check_structure(pages, seen)[0].findings}

    assert codes(wal, Live(kept, live, last)) == set()
    # A number that the store has passed is a row that was there.
    assert codes(wal, Live(kept, live, last + 200)) == {"RESIDUE_WAL"}
    connection.execute("COMMIT")
    after = {row[0] for row in connection.execute("SELECT seq FROM contents")}
    wal = path.with_name("store.db-wal").read_bytes()
    assert codes(wal, Live(after, live, max(after))) == set()
    broken = bytearray(wal)
    broken[committed + 24 + 4000] ^= 1  # the commit no longer holds, and what it wrote is lost
    assert open_pages(Bytes(path.read_bytes()), Bytes(bytes(broken))).torn
    assert codes(bytes(broken), Live(kept, live, last)) == {"RESIDUE_WAL"}
    connection.close()


def test_old_pages_come_from_the_main_file_and_from_the_log(
    unsettled: tuple[Path, apsw.Connection, set[int]],
) -> None:
    path, connection, _ = unsettled
    pages = pages_of(path)
    places = {page.place.split(" frame")[0] for page in old_pages(pages)}
    assert places == {"store.db", "store.db-wal"}
    rows = [row for page in old_pages(pages) for row in leaf_rows(page.data, pages.header, page.page)]
    assert rows
    connection.close()


def test_a_snapshot_is_of_one_state(tmp_path: Path) -> None:
    """Copied while another connection writes, the copy holds whole transactions and nothing is written to it."""
    path = tmp_path / "store.db"
    connection = connect(path)
    for turn in range(20):
        with connection:
            for number in range(5):
                connection.execute(
                    "INSERT INTO contents VALUES (?, ?, ?)", (5 * turn + number + 1, b"c", b"s" * 32)
                )
        with copy_store(tmp_path) as snapshot, read_only(snapshot.pages()) as copy:
            assert copy.execute("SELECT count(*) FROM contents").fetchall() == [(5 * turn + 5,)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db", "store.db-shm", "store.db-wal"]
    connection.close()


def test_a_log_that_grows_while_it_is_copied_is_copied_without_a_gap(
    unsettled: tuple[Path, apsw.Connection, set[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames of an older generation are overwritten in place, so nothing but the order of reading tells."""
    path, connection, _ = unsettled
    grown = path.with_name("store.db-wal").read_bytes()
    commits = [at + 4120 for at in range(32, len(grown) - 4119, 4120) if grown[at + 4 : at + 8] != bytes(4)]
    begun = next(at for at in commits if at > len(grown) // 3)
    older = bytearray(grown)
    for at in range(begun, len(grown) - 4119, 4120):
        older[at + 8 : at + 16] = b"older..."
    folder = tmp_path / "busy"
    folder.mkdir()
    (folder / "store.db").write_bytes(path.read_bytes())
    wal = folder / "store.db-wal"
    wal.write_bytes(older)
    os.utime(folder / "store.db", (1, 1))
    read = os.pread
    reads = 0
    chunks = -(-len(grown) // snapshot_module._WAL_BYTES)
    assert chunks > 4, "it is read in too few pieces, so nothing is tested"

    def grow(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal reads
        data = read(descriptor, size, offset)
        if size > fmt.WAL_HEADER_BYTES and os.readlink(f"/proc/self/fd/{descriptor}") == str(wal):
            reads += 1
            if reads == chunks // 2:
                wal.write_bytes(grown)
        return data

    monkeypatch.setattr(snapshot_module.os, "pread", grow)
    with copy_store(folder) as snapshot:
        pages = snapshot.pages()
    assert reads == chunks, "it had to be copied again"
    assert not pages.torn
    assert max(pages.newest.values()) >= begun - 4096
    connection.close()


def test_a_frame_behind_a_gap_is_told(unsettled: tuple[Path, apsw.Connection, set[int]]) -> None:
    path, connection, _ = unsettled
    main, wal = Bytes(path.read_bytes()), bytearray(path.with_name("store.db-wal").read_bytes())
    assert not open_pages(main, Bytes(bytes(wal))).torn
    middle = 32 + 4120 * (len(wal) // 4120 // 2)
    wal[middle + 8 : middle + 16] = b"older..."
    assert open_pages(main, Bytes(bytes(wal))).torn
    connection.close()


# Hostile files


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:99],
        lambda data: patched(data, 0, b"X"),
        lambda data: patched(data, 16, b"\x00\x03"),
        lambda data: patched(data, 16, b"\x00\x00"),
        lambda data: patched(data, 21, b"\x00"),
        lambda data: patched(data, 52, b"\x00\x00\x00\x01"),
        lambda data: patched(data, 28, b"\xff\xff\xff\xff"),
    ],
)
def test_a_broken_header_is_refused(sound: bytes, spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(MalformedError):
        check(spoil(sound))


@pytest.mark.parametrize("value", [0, 1, 2, 3, 250, 255])
def test_a_broken_page_is_named_and_the_rest_is_read(sound: bytes, value: int) -> None:
    report = check(sound)
    number = next(page for page, owner in report.owners.items() if owner == "facts_tag")
    spoiled = check(patched(sound, (number - 1) * 4096 + 3, bytes([value, 255])))
    assert number in {flaw.page for flaw in spoiled.flaws if flaw.kind == "broken"}
    assert spoiled.pages_by_owner["contents"] == report.pages_by_owner["contents"]


def test_pages_that_point_in_a_circle_end(sound: bytes) -> None:
    report = check(sound)
    header = fmt.parse_header(sound)
    trunk = (header.first_trunk - 1) * 4096
    spoiled = check(patched(sound, trunk, struct.pack(">I", header.first_trunk)))
    assert any(flaw.kind == "broken" for flaw in spoiled.flaws)
    root = next(page for page, owner in report.owners.items() if owner == "contents")
    circle = check(patched(sound, (root - 1) * 4096 + 8, struct.pack(">I", root)))
    assert any(flaw.kind == "broken" for flaw in circle.flaws)


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_no_change_crashes_the_reader(sound: bytes, data: st.DataObject) -> None:
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 6))):
        page = data.draw(st.integers(0, len(sound) // 4096 - 1))
        changed[page * 4096 + data.draw(st.integers(0, 120))] = data.draw(st.integers(0, 255))
    started = time.monotonic()
    with suppress(MalformedError):
        check_structure(open_pages(Bytes(bytes(changed)), None), Live())
    assert time.monotonic() - started < 5


@given(st.binary(max_size=300))
@settings(max_examples=80, deadline=None)
def test_no_log_crashes_the_reader(sound: bytes, tail: bytes) -> None:
    header = struct.pack(">IIII", 0x377F0682, 3007000, 4096, 0) + b"saltsalt"
    checksum = struct.pack(">II", *fmt.wal_checksum(header, (0, 0), "<"))
    for wal in (tail, header + checksum + tail * 30):
        list(old_pages(open_pages(Bytes(sound), Bytes(wal))))


@pytest.mark.parametrize(
    ("data", "value", "size"),
    [
        (b"\x00", 0, 1),
        (b"\x7f", 127, 1),
        (b"\x81\x00", 128, 2),
        (b"\xff" * 9, -1, 9),
        (b"\x80" * 8 + b"\x01", 1, 9),
    ],
)
def test_numbers_of_variable_length(data: bytes, value: int, size: int) -> None:
    assert fmt.varint(data, 0) == (value, size)
    with pytest.raises(MalformedError):
        fmt.varint(data[:-1] if size > 1 else b"", 0)


def test_records_are_read_as_sqlite_wrote_them() -> None:
    payload = b"\x07\x00\x01\x08\x09\x11\x12" + b"\x85" + b"ab" + b"\x01\x02\x03"
    assert fmt.parse_record(payload) == (None, -123, 0, 1, "ab", b"\x01\x02\x03")
    with pytest.raises(MalformedError):
        fmt.parse_record(payload[:-1])
