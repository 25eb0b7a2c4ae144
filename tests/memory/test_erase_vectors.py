"""A vector of what was erased that stays in a file of the home is found by the erasure's own scan."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from memory import wiring
from memory.erase_vectors import PIECE_BYTES, pieces_of_vector

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import forget, write

WIDTH = 256


def vector(seed: int) -> bytes:
    chance = random.Random(seed)
    return struct.pack(f"<{WIDTH}f", *(chance.uniform(-1, 1) for _ in range(WIDTH)))


def in_int8(data: bytes) -> bytes:
    numbers = struct.unpack(f"<{WIDTH}f", data)
    largest = max(map(abs, numbers))
    return bytes(round(number / largest * 127) & 0xFF for number in numbers)


def erased(home: wiring.Home, left: bytes) -> Any:
    """What is said of the erasure of a fact that has a vector, while a file beside the store has `left`."""
    write(home, "Otilia is in Bremen.", key="otilia/city", value="Bremen", subject="Otilia Brandmeyer")
    with home.parts().store.write() as txn:
        # In four bytes a number, which a store need not keep: the other form is looked for as well.
        sql = "INSERT INTO vectors SELECT seq, tenant, agent_tag, 'a model', ? FROM facts"
        txn.connection.execute(sql, (vector(1),))
    (home.path / "log-state" / "index.bin").write_bytes(random.Random(9).randbytes(999) + left)
    answer = forget(home, key="otilia/city")
    with home.parts().store.read_whole() as view:
        assert view.rows("SELECT count(*) FROM vectors") == [(0,)]
    return {why["code"] for why in answer["why"]}


@pytest.mark.parametrize("form", [bytes, in_int8])
def test_a_vector_that_stays_in_a_file_is_found(tmp_path: Path, form: Any) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        assert "residue_found" in erased(home, form(vector(1)))


def test_a_vector_of_another_is_not(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        assert "residue_found" not in erased(home, vector(2))


def test_pieces_tell_something() -> None:
    assert list(pieces_of_vector(bytes(4 * WIDTH))) == []
    assert list(pieces_of_vector(struct.pack("<2f", 0.5, 0.25) * WIDTH)) != []
    assert list(pieces_of_vector(struct.pack(f"<{WIDTH}f", *[float("nan")] * WIDTH))) != []
    assert {len(piece) for piece in pieces_of_vector(vector(3))} == {PIECE_BYTES}
