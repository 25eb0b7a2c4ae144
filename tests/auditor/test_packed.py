"""What is packed is opened, at any depth up to a bound; what is not opened is named, and never called clean."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import lzma
import os
import quopri
import random
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from copies import Copy

from auditor import containers
from auditor.findings import verdict
from auditor.residue import ScanResult, scan_files
from tlog.errors import MalformedError

CANARY = "a canary that lies in the files"
NEEDLE = "Zqxv Kumquat"
PLAIN = " ".join(random.Random(4).choices(("lorem", "ipsum", "dolor", "sit"), k=900)) + f" {NEEDLE} amet"

# What does not repeat: zstd leaves few letters as they are.
VARIED = f"{' '.join(str(n) for n in range(2000))} {PLAIN}".encode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / "control").write_bytes(os.urandom(50_000) + CANARY.encode())
    return folder


def scan(home: Path, data: bytes, needle: str = NEEDLE) -> ScanResult:
    (home / "file").write_bytes(data)
    return scan_files(home, [needle], canary=CANARY)


def zipped(method: int, data: bytes = PLAIN.encode(), name: str = "word/document.xml") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("first.txt", "nothing here " * 40)
        archive.writestr(name, data)
    return buffer.getvalue()


def streamed_zip() -> bytes:
    """One whose sizes stand behind the data, as a writer that can't go back makes it."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.parts: list[bytes] = []

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.parts.append(bytes(data))
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", PLAIN)
    return b"".join(pipe.parts)


def streamed_zstd(options: dict[int, int] | None = None) -> bytes:
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(VARIED) + packer.flush()


def small_zlib(bits: int) -> bytes:
    """As files of pictures have it, whose writers ask for no larger window than they need."""
    packer = zlib.compressobj(wbits=bits)
    return b"IDAT" + packer.compress(PLAIN.encode()) + packer.flush()


PACKED = {
    "zip": zipped(zipfile.ZIP_DEFLATED),
    "zip, streamed": streamed_zip(),
    "zip, bzip2": zipped(zipfile.ZIP_BZIP2),
    "zip, lzma": zipped(zipfile.ZIP_LZMA),
    "zip behind a program": b"MZ" + bytes(900) + zipped(zipfile.ZIP_DEFLATED),
    "bzip2": bz2.compress(PLAIN.encode()),
    "xz": lzma.compress(PLAIN.encode()),
    "lzma": lzma.compress(PLAIN.encode(), lzma.FORMAT_ALONE),
    "gzip in gzip": gzip.compress(gzip.compress(PLAIN.encode())),
    "zstd": zstd.compress(VARIED),
    "zstd without its length, in a tar": bytes(512) + streamed_zstd(),
    "zstd in gzip": gzip.compress(zstd.compress(VARIED)),
    **{f"zlib, window of 2^{bits}": small_zlib(bits) for bits in range(9, 16)},
    "zip in xz in gzip": gzip.compress(lzma.compress(zipped(zipfile.ZIP_DEFLATED))),
    "zlib in a zip": zipped(zipfile.ZIP_STORED, b"%PDF" + zlib.compress(PLAIN.encode())),
    "second of two members": gzip.compress(b"first " * 99) + gzip.compress(PLAIN.encode()),
}


@pytest.mark.parametrize("name", PACKED)
def test_what_is_packed_is_opened(home: Path, name: str) -> None:
    result = scan(home, PACKED[name])
    assert NEEDLE.encode() not in PACKED[name]
    assert [(hit.file, hit.encoding) for hit in result.hits] == [("file", "compressed, utf-8")]
    assert result.not_opened == ()


DICTIONARY = zstd.ZstdDict(PLAIN[300:].encode(), is_raw=True)
ZSTD = bytes.fromhex("28b52ffd0458") + b"\x91\x00\x00" + b"packed"
UNOPENED = {
    "a cut zstd": ZSTD,
    "a cut zstd in gzip": gzip.compress(ZSTD * 3),
    "zstd by a dictionary of its own": zstd.compress(PLAIN.encode(), zstd_dict=DICTIONARY),
    "zstd with a window of a gigabyte": streamed_zstd({zstd.CompressionParameter.window_log: 30}),
    "lz4 of old": b"\x02\x21\x4c\x18" + os.urandom(90),
    "lzip": b"LZIP\x01\x0c" + os.urandom(90),
    "snappy": b"\xff\x06\x00\x00sNaPpY" + os.urandom(90),
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x04" + os.urandom(90),
    "rar": b"Rar!\x1a\x07\x01\x00" + os.urandom(90),
    "lz4": b"\x04\x22\x4d\x18\x64\x40\xa7" + os.urandom(90),
    "compress": b"\x1f\x9d\x90" + os.urandom(90),
    "an encrypted zip": zipped(zipfile.ZIP_DEFLATED).replace(
        b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01"
    ),
    "a zip by another method": zipped(zipfile.ZIP_DEFLATED).replace(
        b"PK\x03\x04\x14\x00\x00\x00\x08\x00", b"PK\x03\x04\x14\x00\x00\x00\x5d\x00"
    ),
    "a damaged xz": lzma.compress(os.urandom(5000))[:3000] + bytes(9000),
}


@pytest.mark.parametrize("name", UNOPENED)
def test_what_is_not_opened_is_named(home: Path, name: str) -> None:
    result = scan(home, UNOPENED[name])
    assert result.not_opened == ("file",)


def test_nothing_that_is_not_packed_is_named(home: Path) -> None:
    chance = random.Random(7).randbytes(8 << 20)
    assert scan(home, chance).not_opened == ()


def test_a_depth_that_is_too_great_is_named(home: Path) -> None:
    data = PLAIN.encode()
    for _ in range(containers.MAX_DEPTH):
        data = bz2.compress(data)
    assert len(scan(home, data).hits) == 1
    deeper = scan(home, bz2.compress(data))
    assert (deeper.hits, deeper.not_opened) == ((), ("file",))


def test_a_bomb_costs_a_bounded_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_STREAM_BYTES", 1 << 20)
    for packed in (bz2.compress(bytes(8 << 20)), lzma.compress(bytes(8 << 20)), zipped(8, bytes(8 << 20))):
        assert scan(home, packed).not_opened == ("file",)


FORMS = {
    "two spaces": NEEDLE.replace(" ", "  ").encode(),
    "a line end": NEEDLE.replace(" ", "\r\n    ").encode(),
    "a hard space": NEEDLE.replace(" ", "\u00a0").encode(),
    "a hard space of HTML": NEEDLE.replace(" ", "&nbsp;\n").encode(),
    "a line end of JSON": NEEDLE.replace(" ", "\\n").encode(),
    "wrapped base64": base64.encodebytes(b"q" * 50 + NEEDLE.encode() + b"zz" * 40),
    "base64 of UTF-16": base64.b64encode(b"q" + NEEDLE.encode("utf-16-le")),
    "base64 of UTF-16, the other way round": base64.b64encode(NEEDLE.encode("utf-16-be")),
    "UTF-32": NEEDLE.encode("utf-32-le"),
    "UTF-32, the other way round": NEEDLE.encode("utf-32-be"),
    "hexadecimal with spaces": NEEDLE.encode().hex(" ").encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_the_text_is_found(home: Path, name: str) -> None:
    hits = scan(home, b"before " + FORMS[name] + b" behind").hits
    assert {(hit.file, hit.count, hit.class_code) for hit in hits} == {("file", 1, "RESIDUE_ENCODED")}


def test_what_one_look_finds_is_not_counted_by_another(home: Path) -> None:
    both = NEEDLE.encode() + b"\n" + NEEDLE.replace(" ", "\n").encode()
    found = [(hit.encoding, hit.count) for hit in scan(home, both).hits]
    assert found == [("utf-8", 1), ("utf-8, other white space", 1)]


def test_quoted_printable_is_found(home: Path) -> None:
    needle = "Jürgen Müßig-Straße 12"
    for before in ("", "x" * 66 + " "):
        hits = scan(home, quopri.encodestring((before + needle).encode()), needle).hits
        assert {hit.class_code for hit in hits} == {"RESIDUE_ENCODED"}


def test_latin_is_found(home: Path) -> None:
    needle = "Jürgen Müßig-Straße 12"
    assert [hit.encoding for hit in scan(home, needle.encode("latin-1"), needle).hits] == ["latin-1"]


def test_other_words_are_not_the_text(home: Path) -> None:
    assert scan(home, b"Zqxv Kum quat, ZqxvKumquats, zq xv kumquat").hits == ()


def test_an_audit_that_did_not_look_into_a_file_is_not_clean(copy: Copy, tmp_path: Path) -> None:
    place = tmp_path / "also"
    place.mkdir()
    (place / "log.zst").write_bytes(ZSTD)
    outcome = copy.audit(also=(place,), needles=[NEEDLE]).outcome
    assert verdict(outcome.findings) == "inconclusive"
    assert any(note.check == "files" and "log.zst" in note.text for note in outcome.not_checked)


def test_an_audit_with_texts_too_short_is_not_clean(copy: Copy) -> None:
    outcome = copy.audit(needles=["abc"]).outcome
    assert verdict(outcome.findings) == "inconclusive"


def test_places_without_texts_are_named(copy: Copy, tmp_path: Path) -> None:
    with pytest.raises(MalformedError):
        copy.audit(also=(tmp_path / "nowhere",))
    outcome = copy.audit(also=(tmp_path,)).outcome
    assert any(note.check == "also" for note in outcome.not_checked)
