"""A vector of something erased is its text: its bytes in a file are found, as an index of vectors may leave them.

What stands here for such an index keeps vectors as sqlite-vec does: a thousand of them in one blob, with a bit for
each that says whether it counts. An old version of it cleared the bit and left the vector (asg017/sqlite-vec 54, 178);
another kept its graph beside it (chroma-core/chroma 7662).
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import apsw
import pytest
from copies import Copy

from auditor.residue import scan_files

WIDTH = 384
CANARY = "canaryletterswithoutend"
PIECE_BYTES = 64
GONE = range(40, 64)


def vector(number: int) -> list[float]:
    chance = random.Random(number)
    return [chance.uniform(-1, 1) for _ in range(WIDTH)]


def packed(numbers: list[float], kind: str) -> bytes:
    if kind == "float32":
        return struct.pack(f"<{WIDTH}f", *numbers)
    return bytes((round(one * 127) & 0xFF) for one in numbers)


def needles(kind: str) -> list[bytes]:
    """Pieces of each erased vector: a page of a file ends where it will."""
    made = []
    for number in GONE:
        data = packed(vector(number), kind)
        made += [data[at : at + PIECE_BYTES] for at in range(0, len(data), 4 * PIECE_BYTES)]
    return made


def index_file(path: Path, kind: str) -> apsw.Connection:
    """A hundred vectors, one after the other in one blob, and which of them count."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.execute("CREATE TABLE chunks (valid BLOB, vectors BLOB, note TEXT)")
    vectors = b"".join(packed(vector(number), kind) for number in range(100))
    connection.execute("INSERT INTO chunks VALUES (?, ?, ?)", (b"\xff" * 13, vectors, CANARY))
    return connection


def delete(connection: apsw.Connection, kind: str, *, zeroed: bool) -> None:
    """Clears the bits of those that go, and where `zeroed` their bytes as well; then makes the file anew."""
    ((valid, vectors),) = connection.execute("SELECT valid, vectors FROM chunks").fetchall()
    bits, data = bytearray(valid), bytearray(vectors)
    size = len(data) // 100
    for number in GONE:
        bits[number // 8] &= ~(1 << number % 8)
        if zeroed:
            data[number * size : (number + 1) * size] = bytes(size)
    connection.execute("UPDATE chunks SET valid = ?, vectors = ?", (bytes(bits), bytes(data)))
    connection.execute("VACUUM").fetchall()
    connection.close()


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_vectors_whose_bit_alone_was_cleared_are_found(tmp_path: Path, kind: str) -> None:
    delete(index_file(tmp_path / "vectors.db", kind), kind, zeroed=False)
    result = scan_files(tmp_path, needles(kind), canary=CANARY)
    assert result.control_found
    found = {hit.needle for hit in result.hits}
    # A piece may lie across two pages; of each vector there are some that do not.
    each = len(needles(kind)) // len(GONE)
    assert {needle // each for needle in found} == set(range(len(GONE)))


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_vectors_that_were_zeroed_are_not(tmp_path: Path, kind: str) -> None:
    delete(index_file(tmp_path / "vectors.db", kind), kind, zeroed=True)
    result = scan_files(tmp_path, needles(kind), canary=CANARY)
    assert result.control_found and result.hits == ()


def test_a_graph_of_vectors_beside_a_store_is_searched_too(tmp_path: Path) -> None:
    """The rows are gone and the file of the graph has a hundred vectors, bit for bit."""
    delete(index_file(tmp_path / "vectors.db", "float32"), "float32", zeroed=True)
    graph = tmp_path / "index" / "data_level0.bin"
    graph.parent.mkdir()
    links = random.Random(1)
    graph.write_bytes(
        b"".join(
            links.randbytes(132) + packed(vector(number), "float32") + links.randbytes(8)
            for number in range(100)
        )
    )
    result = scan_files(tmp_path, needles("float32"), canary=CANARY)
    assert {hit.needle for hit in result.hits} == set(range(len(needles("float32"))))
    assert {hit.file for hit in result.hits} == {"index/data_level0.bin"}


OF_FACTS = """
    INSERT INTO vectors SELECT f.seq, f.tenant, f.agent_tag, 'model 1', zeroblob(8)
    FROM facts f JOIN contents c ON c.seq = f.seq WHERE f.status NOT IN ('held', 'refused', 'discarded')
"""
ONE = "seq = (SELECT min(seq) FROM vectors)"


def of_vectors(copy: Copy, *statements: str) -> list[tuple[str, str]]:
    """What an audit finds of vectors."""
    copy.sql_unchecked(OF_FACTS, *statements)
    findings = copy.audit().outcome.findings
    return [(one.code, one.where) for one in findings if "vectors" in one.where]


def test_a_vector_of_each_fact_that_is_there_is_right(copy: Copy) -> None:
    assert of_vectors(copy) == []
    assert copy.audit().outcome.findings == ()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (
            "INSERT INTO vectors SELECT 4000, tenant, agent_tag, 'model 1', zeroblob(8) FROM facts LIMIT 1",
            "RESIDUE_VECTOR",
        ),
        (
            "INSERT INTO vectors SELECT (SELECT min(seq) FROM events WHERE seq NOT IN (SELECT seq FROM contents)),"
            " tenant, agent_tag, 'model 1', zeroblob(8) FROM facts LIMIT 1",
            "RESIDUE_VECTOR",
        ),
        (
            "INSERT INTO vectors SELECT f.seq, f.tenant, f.agent_tag, 'model 1', zeroblob(8) FROM facts f"
            " WHERE f.status = 'held'",
            "RESIDUE_VECTOR",
        ),
        (f"UPDATE vectors SET agent_tag = zeroblob(32) WHERE {ONE}", "RESIDUE_VECTOR"),
        (f"UPDATE vectors SET tenant = 3 - tenant WHERE {ONE}", "RESIDUE_VECTOR"),
        (f"UPDATE vectors SET vector = 'text' WHERE {ONE}", "FACT_ALTERED"),
        (f"UPDATE vectors SET vector = zeroblob(9) WHERE {ONE}", "FACT_ALTERED"),
        (f"UPDATE vectors SET model = x'6b756d71756174' WHERE {ONE}", "RESIDUE_ROW"),
    ],
)
def test_a_vector_of_what_is_gone_is_found(copy: Copy, statement: str, code: str) -> None:
    assert [one for one, _ in of_vectors(copy, statement)] == [code]
