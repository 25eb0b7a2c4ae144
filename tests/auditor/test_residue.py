"""The scan finds what is planted, wherever and however, names no needle, and says what it did not read."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor import containers, residue
from auditor.residue import Hit, ScanResult, missed_forms, scan_files
from tlog.errors import MalformedError

CANARY = "a canary that lies in the files"
NEEDLE = "Zqxv Kumquat"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "log" / "tile").mkdir(parents=True)
    (folder / "store.db").write_bytes(os.urandom(5000) + CANARY.encode() + os.urandom(5000))
    (folder / "log" / "tile" / "000").write_bytes(os.urandom(2000))
    return folder


def scan(home: Path, *needles: str | bytes) -> ScanResult:
    return scan_files(home, needles or (NEEDLE,), canary=CANARY)


def test_a_clean_home_has_no_hits_and_its_control_is_found(home: Path) -> None:
    result = scan(home)
    assert result.hits == ()
    assert result.control_found
    assert (result.files, result.bytes_scanned) == (2, 12000 + len(CANARY))
    assert result.not_read == result.not_opened == ()


def test_a_planted_needle_is_found_with_its_place(home: Path) -> None:
    (home / "log" / "notes").write_bytes(b"." * 77 + NEEDLE.upper().encode() + b"..." + NEEDLE.encode())
    assert scan(home).hits == (Hit("RESIDUE_FILE", "log/notes", 2, "utf-8", 77, 0),)


def test_an_encoded_needle_is_told_apart(home: Path) -> None:
    (home / "export").write_bytes(NEEDLE.encode("utf-16-le"))
    assert [(hit.class_code, hit.encoding) for hit in scan(home).hits] == [("RESIDUE_ENCODED", "utf-16le")]


@pytest.mark.parametrize(
    "pack",
    [lambda data: gzip.compress(data, mtime=0), lambda data: b"\0\0" + zlib.compress(data, 1) + b"tail"],
)
def test_a_needle_within_a_compressed_stream_is_found(home: Path, pack: object) -> None:
    plain = b"lorem ipsum " * 800 + NEEDLE.encode() + b" dolor sit amet" * 9
    (home / "rotated").write_bytes(pack(plain))  # type: ignore[operator]
    hits = [hit for hit in scan(home).hits if hit.file == "rotated"]
    assert [(hit.encoding, hit.class_code) for hit in hits] == [("compressed, utf-8", "RESIDUE_ENCODED")]


def test_a_cut_stream_is_searched_as_far_as_it_goes(home: Path) -> None:
    packed = gzip.compress(NEEDLE.encode() * 3 + b"".join(b"%d " % n for n in range(9000)), mtime=0)
    (home / "cut").write_bytes(packed[: len(packed) // 2])
    assert [hit.file for hit in scan(home).hits] == ["cut"]


def test_a_bomb_is_opened_up_to_a_bound_and_said_to_be(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_STREAM_BYTES", 1 << 20)
    (home / "bomb.gz").write_bytes(gzip.compress(bytes(8 << 20) + NEEDLE.encode(), mtime=0))
    result = scan(home)
    assert result.hits == ()
    assert result.not_opened == ("bomb.gz",)


@pytest.mark.parametrize("at", [-8, -1, 0, 1])
def test_a_needle_across_two_chunks_is_found_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(residue, "CHUNK_BYTES", 4096)
    data = bytearray(b"." * 12_000)
    start = 8192 + at
    data[start : start + len(NEEDLE)] = NEEDLE.encode()
    (home / "big").write_bytes(data)
    assert scan(home).hits == (Hit("RESIDUE_FILE", "big", 1, "utf-8", start, 0),)


def test_salts_are_searched_as_bytes(home: Path) -> None:
    salt = os.urandom(32)
    (home / "copy").write_bytes(b"x" + salt)
    (home / "dump").write_text(salt.hex())
    hits = {(hit.file, hit.encoding, hit.needle) for hit in scan(home, NEEDLE, salt).hits}
    assert hits == {("copy", "bytes", 1), ("dump", "hex", 1)}


def test_a_missing_control_is_told(home: Path) -> None:
    assert not scan_files(home, [NEEDLE], canary="a canary that nobody planted").control_found


def test_a_control_that_is_only_a_file_name_does_not_count(home: Path) -> None:
    (home / "nobody planted this").write_bytes(b"")
    assert not scan_files(home, [NEEDLE], canary="nobody planted this").control_found


def test_a_canary_too_short_to_be_searched_is_refused(home: Path) -> None:
    with pytest.raises(MalformedError):
        scan_files(home, [NEEDLE], canary="abc")


def test_short_needles_are_counted(home: Path) -> None:
    assert scan(home, "ab", "", NEEDLE).not_searchable == 2


def test_a_file_name_that_is_a_needle_is_found_and_withheld(home: Path) -> None:
    (home / "export of zqxv kumquat.json").write_bytes(b"{}")
    (home / "zqxv kumquat link").symlink_to("store.db")
    result = scan(home)
    assert [(hit.encoding, hit.file) for hit in result.hits] == [
        ("file name, utf-8", "(file 1, its name withheld)"),
        ("file name, utf-8", "(file 4, its name withheld)"),
    ]
    assert result.not_read == ("(name withheld)",)
    assert "umquat" not in repr(result)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_name_of_what_is_no_file_is_looked_at(home: Path, make: Callable[[Path], object]) -> None:
    make(home / "log" / "for zqxv kumquat")
    result = scan(home)
    assert [(hit.encoding, hit.file) for hit in result.hits] == [
        ("file name, utf-8", "(file 1, its name withheld)")
    ]
    assert result.files == 2


def test_a_folder_with_files_is_named_once(home: Path) -> None:
    (home / "zqxv kumquat").mkdir()
    (home / "zqxv kumquat" / "file").write_bytes(b"x")
    assert [hit.count for hit in scan(home).hits] == [1]


def test_holes_are_passed_over(home: Path) -> None:
    """A file of a few bytes may say that it is a terabyte long."""
    with (home / "sparse").open("wb") as file:
        for at in (5, 1 << 39, (1 << 40) - 3):
            file.seek(at)
            file.write(NEEDLE.encode())
    result = scan(home)
    assert [(hit.file, hit.count, hit.first_offset) for hit in result.hits] == [("sparse", 3, 5)]
    assert result.bytes_scanned > 1 << 40


def test_links_are_not_followed_and_listed(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(NEEDLE)
    (home / "link").symlink_to(outside)
    os.mkfifo(home / "pipe")
    result = scan(home)
    assert result.hits == ()
    assert result.not_read == ("link",)


def test_several_places_are_scanned(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "transcript.jsonl"
    other.write_text(f'{{"text": "{NEEDLE}"}}')
    result = scan_files([home, other], [NEEDLE], canary=CANARY)
    assert [hit.file for hit in result.hits] == ["transcript.jsonl"]


def test_a_place_that_is_not_there_is_refused(home: Path) -> None:
    with pytest.raises(MalformedError):
        scan_files(home / "nowhere", [NEEDLE], canary=CANARY)


def test_control_characters_in_names_are_shown_as_escapes(home: Path) -> None:
    (home / "a\n\x1b[31mb").write_text(NEEDLE)
    assert [hit.file for hit in scan(home).hits] == ["a\\n\\x1b[31mb"]


def test_the_scanner_finds_every_form_of_its_control(tmp_path: Path) -> None:
    assert missed_forms(tmp_path, "Kontrolle Ünverwechselbar") == ()


def test_the_control_of_the_scanner_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*_: object) -> None: ...

    monkeypatch.setattr(residue, "search", blind)
    assert "utf-8" in missed_forms(tmp_path, "Kontrolle Ünverwechselbar")
