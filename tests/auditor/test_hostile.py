"""Evidence made to hurt whoever looks at it: refused, or found, within 10 seconds of CPU and 500 MB."""

from __future__ import annotations

import argparse
import os
import resource
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tampering as by
from copies import Copy

from auditor.cli import _trust
from auditor.log_files import folder_files
from auditor.pg_copy import database_of
from auditor.settings import settings_of
from tlog.errors import MalformedError

CPU_SECONDS = 10
MEMORY_BYTES = 500 * 1024 * 1024
# Exit codes of the audit: findings, or bad input that was named. What crashed, or was killed, has others.
ANSWERED = (1, 2)


LIMITS = ((resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_AS, MEMORY_BYTES))

LookedAt = Callable[..., tuple[int, str]]


@pytest.fixture
def looked_at(forks: Any) -> LookedAt:
    """Audits a copy in a process of its own that must not take more, and gives its exit code and all that it says."""

    def look(copy: Copy, *options: str) -> tuple[int, str]:
        found: tuple[int, str] = forks.run(["audit", "--home", str(copy.home), *options], LIMITS)
        return found

    return look


def test_what_takes_more_is_ended(forks: Any, original: Path) -> None:
    """The limits are those of the process that looks, so a test that passes here says something."""
    looking = ["audit", "--home", str(original)]
    assert forks.run(looking, LIMITS)[0] == 0
    code, said = forks.run(looking, [(resource.RLIMIT_AS, 1 << 20)])
    assert code not in (0, *ANSWERED) or "MemoryError" in said
    assert forks.run(["audit", "--help"], [(resource.RLIMIT_CPU, 0)])[0] == -1


def header(at: int, data: bytes) -> Callable[[Copy], object]:
    def change(copy: Copy) -> None:
        store = bytearray((copy.home / "store.db").read_bytes())
        store[at : at + len(data)] = data
        (copy.home / "store.db").write_bytes(store)

    return change


def file_of(path: str, data: bytes) -> Callable[[Copy], object]:
    def change(copy: Copy) -> None:
        (copy.home / path).parent.mkdir(parents=True, exist_ok=True)
        (copy.home / path).write_bytes(data)

    return change


def link_of(path: str, target: str) -> Callable[[Copy], object]:
    def change(copy: Copy) -> None:
        file = copy.home / path
        file.unlink() if file.is_file() else None
        file.symlink_to(target)

    return change


def sql(*statements: str) -> Callable[[Copy], object]:
    return lambda copy: copy.sql_unchecked(*statements)


def head_over_nothing(copy: Copy) -> None:
    by.sign_head(copy, 1 << 60, b"\x01" * 32)


def endless_view(copy: Copy) -> None:
    copy.sql_unchecked(
        "DROP TABLE facts",
        "CREATE VIEW facts AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT x AS seq, 1 AS tenant FROM n",
    )


def hole(copy: Copy) -> None:
    with open(copy.home / "store.db", "r+b") as file:
        file.truncate(1 << 40)


def hole_beside(copy: Copy) -> None:
    with open(copy.home / "store.db-wal", "wb") as file:
        file.truncate(1 << 40)


def pipe(copy: Copy) -> None:
    (copy.home / "store.db").unlink()
    os.mkfifo(copy.home / "store.db")


def many_large_contents(copy: Copy) -> None:
    for seq in range(1, 5):
        copy.sql_unchecked(f"UPDATE contents SET content = zeroblob(100000000) WHERE seq = {seq}")


def deep_folders(copy: Copy) -> None:
    folder = copy.home / "log" / "tile"
    for _ in range(300):
        folder = folder / "x001"
    folder.mkdir(parents=True)


NESTED = b"\x81" * 200_000
HOSTILE: dict[str, Callable[[Copy], object]] = {
    "a head over 2^60 entries": head_over_nothing,
    "a checkpoint of 70 MB": file_of("log/checkpoint", b"\n" * 70_000_000),
    "a bundle that is all lengths": lambda copy: by.bundle_of(copy).write_bytes(b"\xff" * 5_000_000),
    "a tile of 70 MB": lambda copy: by.tile_of(copy).write_bytes(bytes(70_000_000)),
    "a manifest nested deep": file_of("log/erasures/1.cose", NESTED),
    "a manifest of 2^60 items": file_of(
        "log/erasures/1.cose", b"\xd2\x9b" + b"\x0f" + b"\xff" * 7 + bytes(1000)
    ),
    "a manifest nested deep in a bytes field": file_of(
        "log/erasures/1.cose",
        b"\xd2\x84\x43\xa1\x01\x27\xa0\x5a" + len(NESTED).to_bytes(4, "big") + NESTED + b"\x40",
    ),
    "a manifest of millions of empty lists": file_of(
        "log/erasures/1.cose", b"\xd2\x84\x9a" + (12 << 20).to_bytes(4, "big") + b"\x80" * (12 << 20)
    ),
    "a manifest number of 17 digits": file_of(f"log/erasures/{'9' * 17}.cose", b"\x00"),
    "a checkpoint that is a device": link_of("log/checkpoint", "/dev/zero"),
    "a store that is a device": link_of("store.db", "/dev/zero"),
    "a write-ahead log that is a device": link_of("store.db-wal", "/dev/zero"),
    "a store that is a pipe": pipe,
    "a folder that is the whole machine": link_of("log/tile/1", "/"),
    "folders in folders": deep_folders,
    "a store that is a hole": hole,
    "a write-ahead log that is a hole": hole_beside,
    "a page size of 3": header(16, b"\x00\x03"),
    "a page size of 65,536": header(16, b"\x00\x01"),
    "reserved bytes": header(20, b"\xff"),
    "four billion pages": header(28, b"\xff\xff\xff\xff"),
    "a list of free pages without end": header(32, b"\x00\x00\x00\x02\xff\xff\xff\xff"),
    "a text encoding that is none": header(56, b"\x00\x00\x00\x09"),
    "a store of noise": file_of("store.db", os.urandom(300_000)),
    "a write-ahead log of noise": file_of("store.db-wal", os.urandom(300_000)),
    "a write-ahead log of pages of 2^31 bytes": file_of(
        "store.db-wal", b"\x37\x7f\x06\x82\x00\x2d\xe2\x18\x80\x00\x00\x00" + bytes(5000)
    ),
    "a table that is an endless view": endless_view,
    "contents of 100 MB": many_large_contents,
    "a link nested deep": lambda copy: copy.sql(("UPDATE events SET link = ? WHERE seq = 3", (NESTED,))),
    "a content nested deep": lambda copy: copy.sql(
        ("UPDATE contents SET content = ? WHERE seq = 3", (NESTED,))
    ),
    "a detail nested deep": lambda copy: copy.sql(("UPDATE erasures SET detail = ?", (NESTED,))),
    "numbers that do not fit": sql("UPDATE events SET entry_index = 9223372036854775807 WHERE seq = 3"),
    "a last number of 2^62": sql("UPDATE tenants SET last_seq = 4611686018427387904 WHERE id = 1"),
    "a structure of the word index": sql(
        "UPDATE search_data SET block = zeroblob(9) || x'ffffffffff' WHERE id = 10"
    ),
    "settings nested deep": file_of("config.toml", b"a = " + b"[" * 100_000),
}


def hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


AT_A_PATH: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a hole": hole,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a long number": lambda path: path.write_bytes(b"a = " + b"1" * 10_000),
    "nested deep": lambda path: path.write_bytes(b"a = " + b"[" * 100_000),
}


@pytest.mark.parametrize("name", AT_A_PATH)
def test_settings_and_trust_of_a_home_are_plain_files(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / "config.toml", tmp_path / "trust.toml"):
        AT_A_PATH[name](path)
    assert settings_of(tmp_path) is None
    assert database_of(tmp_path) is None
    with pytest.raises(MalformedError):
        _trust(argparse.Namespace(trust=None, policy=None), tmp_path)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_evidence_is_refused_or_found(copy: Any, looked_at: LookedAt, name: str) -> None:
    HOSTILE[name](copy)
    options = ["--trust", str(copy.home / "trust.toml")]
    code, said = looked_at(copy, *options)
    assert code in ANSWERED, said
    assert "Traceback" not in said
    assert "internal error" not in said


def test_a_bomb_among_the_files_is_not_unpacked_without_end(
    copy: Any, looked_at: LookedAt, tmp_path: Path
) -> None:
    packer = zlib.compressobj(9, wbits=31)
    chunk = bytes(1 << 20)
    bomb = b"".join([packer.compress(chunk) for _ in range(64)] + [packer.flush()])
    (tmp_path / "bomb.gz").write_bytes(bomb)
    (tmp_path / "needles").write_text("nobody says this here\n")
    code, said = looked_at(copy, "--needles", str(tmp_path / "needles"), "--also", str(tmp_path / "bomb.gz"))
    assert code == 1 and "inconclusive" in said.lower(), said
    assert "holds something packed that was not opened" in said


@pytest.mark.parametrize(
    "data", [b"[" * 1_000_000, b'{"a":' * 100_000, b"\xd2" + NESTED, b"\x00" * 15_000_000]
)
def test_receipts_made_to_hurt_are_found(copy: Any, looked_at: LookedAt, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "given").mkdir()
    for name in ("a.json", "b.cose"):
        (tmp_path / "given" / name).write_bytes(data)
    code, said = looked_at(copy, "--receipts", str(tmp_path / "given"))
    assert code == 1, said
    assert "RECEIPT_INVALID" in said


@pytest.mark.parametrize(
    "path", ["../keys/log.key", "tile/../../keys/log.key", "/etc/passwd", "tile//0", "."]
)
def test_no_path_leads_out_of_a_log(copy: Any, path: str) -> None:
    with pytest.raises(MalformedError):
        folder_files(copy.home / "log").read(path)


def test_a_link_in_the_middle_of_a_path_is_not_followed(copy: Any, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "1.cose").write_bytes(b"x")
    (copy.home / "log" / "linked").symlink_to(tmp_path / "outside")
    assert folder_files(copy.home / "log").read("linked/1.cose") is None


@pytest.mark.parametrize("at", [18, 19, 20, 24, 40, 47, 48, 55, 59, 64, 72, 91, 92])
def test_no_byte_of_the_header_is_free(copy: Any, at: int) -> None:
    """Reserved bytes, and those that say how every store is made."""
    header(at, b"\x05")(copy)
    assert copy.codes() & {"FACT_ALTERED", "RESIDUE_FREE_SPACE"}
