"""The identity index as a file: exact whatever its keys share, the same in both trees, made anew from any layout."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from tlog import dedup
from tlog.dedup import FileIndex, IdentityIndex, MemoryIndex
from tlog.errors import MalformedError, UnavailableError
from tlog.staging import EMPTY_HEAD, Head


def identity(number: int) -> bytes:
    return sha256(b"%d" % number).digest()


def head(size: int) -> Head:
    return Head(size, identity(size))


def add(index: IdentityIndex, start: int, end: int) -> None:
    index.add([identity(number) for number in range(start, end)], head(end))


@pytest.fixture(params=["file", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IdentityIndex]:
    made = FileIndex(tmp_path / "state" / "i.sqlite") if request.param == "file" else MemoryIndex()
    yield made
    made.close()


def test_finds_what_was_added_and_nothing_else(index: IdentityIndex) -> None:
    assert index.head() == EMPTY_HEAD
    assert index.find([identity(0)]) == {}
    add(index, 0, 100)
    add(index, 100, 101)
    assert index.head() == head(101)
    asked = [identity(number) for number in (100, 0, 101, 99, 0)]
    assert index.find(asked) == {identity(100): 100, identity(0): 0, identity(99): 99}
    assert index.find([]) == {}


def test_a_cleared_index_knows_nothing(index: IdentityIndex) -> None:
    add(index, 0, 10)
    index.clear()
    assert index.head() == EMPTY_HEAD
    assert index.find([identity(3)]) == {}


@pytest.mark.parametrize("found_there", [False, True])
def test_its_files_are_their_owners_alone_whatever_the_umask(tmp_path: Path, found_there: bool) -> None:
    folder = tmp_path / "state"
    if found_there:
        # As a version made them that left it to the umask.
        folder.mkdir()
        (folder / "i.sqlite").touch(0o644)
    before = os.umask(0o022)
    try:
        index = FileIndex(folder / "i.sqlite")
        add(index, 0, 10)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        index.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("i.sqlite", "i.sqlite-wal", "i.sqlite-shm"), 0o600)


def test_of_two_entries_with_one_identity_the_first_counts(index: IdentityIndex) -> None:
    index.add([identity(7), identity(8)], head(2))
    index.add([identity(8), identity(7)], head(4))
    assert index.find([identity(7), identity(8)]) == {identity(7): 0, identity(8): 1}


def test_of_two_entries_with_one_identity_the_first_counts_wherever_each_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup, "RECENT", 4)
    index = FileIndex(tmp_path / "i.sqlite")
    index.add([identity(number) for number in (1, 2, 1, 3)], head(4))
    index.add([identity(number) for number in (3, 4, 5)], head(7))
    assert index.find([identity(1), identity(3), identity(4)]) == {
        identity(1): 0,
        identity(3): 3,
        identity(4): 5,
    }
    index.close()


def test_a_cleared_index_settles_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "RECENT", 16)
    index, other = FileIndex(tmp_path / "i.sqlite"), FileIndex(tmp_path / "i.sqlite")
    add(index, 0, 40)
    assert other.find([identity(5)]) == {identity(5): 5}
    index.clear()
    add(index, 0, 40)  # the same again at the same places, as when an index is made again
    assert other.find([identity(39)]) == {identity(39): 39}
    index.clear()
    index.add([identity(number) for number in range(100, 140)], head(40))
    for one in (index, other):
        assert one.find([identity(5), identity(105)]) == {identity(105): 5}
    index.close()
    other.close()


def test_identities_that_begin_alike_stay_apart(index: IdentityIndex) -> None:
    for start in (b"\x00" * 8, b"\xff" * 8, b"\x80" + bytes(7)):
        alike = [start + bytes((last,)) * 24 for last in range(4)]
        index.add(alike, head(4))
        assert index.find(alike) == {one: number for number, one in enumerate(alike)}
        assert index.find([start + b"\x09" * 24]) == {}
        index.clear()


@pytest.mark.parametrize("step", [1, 3, 16, 40])
def test_what_is_settled_is_found_as_what_is_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(dedup, "RECENT", 16)
    index = FileIndex(tmp_path / "i.sqlite")
    for start in range(0, 120, step):
        end = min(start + step, 120)
        add(index, start, end)
        assert index.find([identity(end - 1)]) == {identity(end - 1): end - 1}
        assert len(index._recent.entries) < 16  # the rest is not kept in memory
    index.close()
    index = FileIndex(tmp_path / "i.sqlite")
    everything = {identity(number): number for number in range(120)}
    assert index.find([*everything, identity(120)]) == everything
    index.close()
    with apsw.Connection(str(tmp_path / "i.sqlite")) as database:
        counts = {
            table: next(iter(database.execute(f"SELECT count(*) FROM {table}")))[0]
            for table in ("known", "settled")
        }
    database.close()
    assert counts["known"] == -(-120 // step)
    # Whenever 16 are reached, and not before.
    assert 120 - counts["settled"] == {1: 8, 3: 12, 16: 8, 40: 0}[step]


def test_batches_larger_than_a_row_are_found_at_both_ends_of_each(tmp_path: Path) -> None:
    index = FileIndex(tmp_path / "i.sqlite")
    add(index, 0, 300)
    add(index, 300, 301)
    add(index, 301, 700)
    everything = {identity(number): number for number in range(700)}
    assert index.find([*everything]) == everything
    index.close()


def test_what_would_leave_a_gap_is_not_added(tmp_path: Path) -> None:
    """As when another process emptied the index between the look at its size and the addition."""
    index = FileIndex(tmp_path / "i.sqlite")
    add(index, 0, 5)
    index.clear()
    with pytest.raises(UnavailableError):
        add(index, 5, 7)
    assert index.head() == EMPTY_HEAD
    add(index, 0, 7)
    assert index.find([identity(2), identity(6)]) == {identity(2): 2, identity(6): 6}
    index.close()


def test_refuses_identities_of_another_length(tmp_path: Path) -> None:
    index = FileIndex(tmp_path / "i.sqlite")
    with pytest.raises(MalformedError):
        index.add([b"short", bytes(32)], head(2))
    index.close()


def test_two_who_add_the_same_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As processes do that bring the index of entry ids up to date at the same time."""
    monkeypatch.setattr(dedup, "RECENT", 16)
    early, late = FileIndex(tmp_path / "i.sqlite"), FileIndex(tmp_path / "i.sqlite")
    for start in range(0, 60, 10):
        add(early, start, start + 10)
    add(late, 40, 57)
    assert late.head() == head(60)
    add(late, 55, 63)
    for start in range(60, 80, 5):
        add(late, start, start + 5)
    everything = {identity(number): number for number in range(80)}
    assert early.find([*everything]) == late.find([*everything]) == everything
    assert early.head() == head(80)
    early.close()
    late.close()


def test_an_index_of_another_layout_is_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "i.sqlite"
    old = apsw.Connection(str(path))
    old.execute(
        "CREATE TABLE identity (hash BLOB PRIMARY KEY, entry_index INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE indexed (one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER, root BLOB);"
        "INSERT INTO indexed VALUES (1, 5, x'00')"
    )
    old.close()
    index = FileIndex(path)
    assert index.head() == EMPTY_HEAD
    add(index, 0, 5)
    assert index.find([identity(4)]) == {identity(4): 4}
    index.close()


# Damage


def built(path: Path, monkeypatch: pytest.MonkeyPatch) -> FileIndex:
    """An index of 50 identities, of which 40 are settled, closed."""
    monkeypatch.setattr(dedup, "RECENT", 40)
    index = FileIndex(path)
    add(index, 0, 40)
    add(index, 40, 50)
    assert index.head() == head(50)
    index.close()
    return index


DAMAGE = {
    "a flipped byte of an identity": "UPDATE known SET identities = x'00' || substr(identities, 2) WHERE first = 40",
    "a flipped byte of a settled one": "UPDATE known SET identities = x'00' || substr(identities, 2) WHERE first = 0",
    "an altered identity": "UPDATE known SET identities = CAST(zeroblob(32) || substr(identities, 33) AS BLOB)"
    " WHERE first = 0",
    "identities gone": "DELETE FROM known WHERE first = 40",
    "a value that is cut": "UPDATE known SET identities = x'00' WHERE first = 0",
    "another key": "UPDATE settled SET key = key + 1 WHERE entry_index = 5",
    "another place": "UPDATE settled SET entry_index = 50 WHERE entry_index = 5",
    "a key gone": "DELETE FROM settled WHERE entry_index = 39",
    "a filter that is cut": "UPDATE filter SET bits = x'00'",
    "a filter with nothing in it": f"UPDATE filter SET bits = zeroblob({1 << 21})",
    "no filter": "DELETE FROM filter",
    "no root": "UPDATE indexed SET root = NULL",
    "a size that is none": "UPDATE indexed SET size = 'abc'",
    "a size that is another": "UPDATE indexed SET size = 51",
    "no sums": "UPDATE indexed SET sums = NULL",
    "an older layout": "ALTER TABLE indexed DROP COLUMN sums",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_index_is_thrown_away_when_it_is_opened(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = built(tmp_path / "i.sqlite", monkeypatch)
    connection = apsw.Connection(str(tmp_path / "i.sqlite"))
    connection.execute(damage)
    connection.close()
    assert index.head() == EMPTY_HEAD
    add(index, 0, 50)
    assert index.find([identity(5), identity(45)]) == {identity(5): 5, identity(45): 45}
    index.close()


def test_a_sound_index_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = built(tmp_path / "i.sqlite", monkeypatch)
    assert index.head() == head(50)
    index.close()


def test_a_folder_in_the_place_of_the_index_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "i.sqlite").mkdir()
    index = FileIndex(tmp_path / "i.sqlite")
    for call in (index.head, lambda: index.find([identity(1)]), lambda: add(index, 0, 1)):
        with pytest.raises(UnavailableError) as caught:
            call()
        # With a number of the operating system: nothing that a service has to end for.
        assert "errno" in caught.value.fields


@pytest.mark.parametrize(
    ("error", "number"),
    [(apsw.FullError, errno.ENOSPC), (apsw.IOError, errno.EIO), (apsw.ReadOnlyError, errno.EROFS)],
)
def test_a_fault_of_the_disk_may_be_tried_again(
    error: type[apsw.Error], number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = FileIndex(tmp_path / "i.sqlite")
    add(index, 0, 5)

    def fail(*_: object) -> None:
        raise error("of the disk")

    with monkeypatch.context() as patch:
        patch.setattr(dedup, "read_meta", fail)
        patch.setattr(dedup, "parse_meta", fail)
        for call in (index.head, lambda: index.find([identity(1)]), lambda: add(index, 5, 6)):
            with pytest.raises(UnavailableError) as caught:
                call()
            assert caught.value.fields["errno"] == number
    add(index, 5, 6)
    assert index.find([identity(5)]) == {identity(5): 5}
    index.close()
