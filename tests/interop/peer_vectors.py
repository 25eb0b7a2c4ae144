"""sqlite-vec, in a version that leaves deleted vectors in its file and in one that does not: our scan tells which."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from installing import CannotInstall, Tool, environment
from judging import Judge
from sample import Bench

LEAVES, CLEARS = "sqlite-vec==0.1.6", "sqlite-vec==0.1.9"
VECTORS, WIDTH = 200, 384
GONE = range(40, 64)
CANARY = "canaryletterswithoutend"
PIECE_BYTES = 64


def install(folder: Path) -> Tool:
    """Both versions, each in an environment of its own."""
    for package in (LEAVES, CLEARS):
        place = folder / package
        place.mkdir()
        environment(place, package)
        if not _extension(folder, package):
            raise CannotInstall(f"{package}: has no extension for this machine")
    return Tool(folder, " and ".join(one.partition("==")[2] for one in (LEAVES, CLEARS)))


def _extension(folder: Path, package: str) -> list[Path]:
    return sorted((folder / package).glob("environment/lib/*/site-packages/sqlite_vec/vec0.*"))


def check_vectors(bench: Bench, judge: Judge) -> None:
    """A hundred vectors and more, some deleted one by one, with secure_delete and a VACUUM at the end."""
    from auditor.residue import scan_files

    chance = random.Random(1)
    vectors = [
        struct.pack(f"<{WIDTH}f", *(chance.uniform(-1, 1) for _ in range(WIDTH))) for _ in range(VECTORS)
    ]
    pieces = [vectors[number][at : at + PIECE_BYTES] for number in GONE for at in range(0, 4 * WIDTH, 256)]
    each = len(pieces) // len(GONE)

    def left(package: str) -> int:
        place = bench.folder / package
        place.mkdir()
        _fill(place / "vectors.db", _extension(bench.tool, package)[0], vectors)
        result = scan_files(place, pieces, canary=CANARY)
        assert result.control_found
        return len({hit.needle // each for hit in result.hits})

    kept, cleared = left(LEAVES), left(CLEARS)
    judge.story(
        f"the scan finds no vector that {CLEARS} deleted",
        {"no vector": cleared == 0},
        {f"{LEAVES}, of whose {len(GONE)} deleted vectors it finds {kept}": kept == len(GONE)},
    )


def _fill(path: Path, extension: Path, vectors: list[bytes]) -> None:
    import apsw

    connection = apsw.Connection(str(path))
    connection.enable_load_extension(True)
    connection.load_extension(str(extension.with_suffix("")))
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.execute(f"CREATE VIRTUAL TABLE v USING vec0(e float[{WIDTH}])")
    connection.execute("CREATE TABLE kept (words TEXT)")
    connection.execute("INSERT INTO kept VALUES (?)", (CANARY,))
    for number, vector in enumerate(vectors):
        connection.execute("INSERT INTO v (rowid, e) VALUES (?, ?)", (number, vector))
    for number in GONE:
        connection.execute("DELETE FROM v WHERE rowid = ?", (number,))
    connection.execute("VACUUM").fetchall()
    connection.close()


CHECKS = (check_vectors,)
