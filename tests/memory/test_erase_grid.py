"""Every way to delete, in every state of the files, beside others, up to a crash: no removed value is in any file.

The suite goes through a sample in which any two choices meet, but for ways and crashes, which meet in turn; with
MUNIMENT_ERASE_GRID=full it is every cell of the grid, flushed as in use. Twins without the recipe are looked at the
same way, and in them something is found.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import cli, erase_record, wiring
from memory.times import format_time

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erase_grid import BEFORE, CRASHES, DAY, JOURNALS, NEIGHBOURS, READERS, WAYS
from erasing import ME, Clock, files_of, forget, write

AXES = {
    "way": tuple(WAYS),
    "crash": tuple(CRASHES),
    "journal": JOURNALS,
    "reader": READERS,
    "neighbour": NEIGHBOURS,
}
FULL = os.environ.get("MUNIMENT_ERASE_GRID") == "full"
CRASHES_OF_A_WAY = 3  # 13 ways and 9 crashes have no common divisor, so each way gets others
FINISHED_BY_ANOTHER = ("erased", "log emptied", "scanned", "verified")
"""Crashes after which nobody has the words any more to look for."""


def whole_grid() -> list[dict[str, str]]:
    """Every cell."""
    return [dict(zip(AXES, cell, strict=True)) for cell in itertools.product(*AXES.values())]


def sample() -> list[dict[str, str]]:
    """Few cells in which every two choices of two axes meet, and each way some of the crashes, all of them in turn."""
    wanted = {
        frozenset(pair)
        for one, other in itertools.combinations(AXES, 2)
        for pair in itertools.product(((one, x) for x in AXES[one]), ((other, x) for x in AXES[other]))
        if {one, other} != {"way", "crash"}
    }
    chance, cells = random.Random(6), []
    ways, crashes = AXES["way"], AXES["crash"]
    turns = [(way, crashes[number % len(crashes)]) for number, way in enumerate(ways * CRASHES_OF_A_WAY)]
    while turns or wanted:
        met = [turns.pop(0)] if turns else list(itertools.product(ways, crashes))
        rest = itertools.product(*(choices for name, choices in AXES.items() if name not in ("way", "crash")))
        cells_of = [
            dict(zip(AXES, (*first, *others), strict=True)) for first, others in itertools.product(met, rest)
        ]
        chance.shuffle(cells_of)
        best = max(cells_of, key=lambda cell: len(wanted & pairs(cell)))
        wanted -= pairs(best)
        cells.append(best)
    return cells


def pairs(cell: dict[str, str]) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for pair in itertools.combinations(cell.items(), 2)}


class Worker:
    """A process without threads that goes through cells, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        script = Path(__file__).with_name("erase_grid.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, cell: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(
            json.dumps({"rounds": 2, "turns": 12, "folder": self._folder} | cell) + "\n"
        )
        self._process.stdin.flush()
        result = json.loads(self._process.stdout.readline())
        assert "ended" not in result, f"the cell ended with {result['ended']}: its words are above"
        return result

    def close(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    made = Worker(tmp_path_factory.mktemp("grid"))
    yield made
    made.close()


def named(cell: dict[str, str]) -> str:
    return ", ".join(cell.values())


@pytest.mark.parametrize("cell", whole_grid() if FULL else sample(), ids=named)
def test_no_value_that_was_ever_removed_is_in_any_file(worker: Worker, cell: dict[str, str]) -> None:
    result = worker.ask(cell)
    found, there = result["control"]
    assert found == there > 100, "the look has to find everything before, or it shows nothing after"
    assert result["left"] == []
    assert result["found"] == {}
    assert result["flaws"] == []
    unsure = cell["crash"] in FINISHED_BY_ANOTHER and cell["way"] != "ledger expired"
    expected = {"closed_complete", "inconclusive"} if unsure else {"closed_complete"}
    # Whose name stands in what somebody else's key says is erased in part, and for nothing else.
    assert set(result["kept for"]) <= {"mentions_elsewhere"}
    states = set(result["states"])
    assert states == expected or (result["mentions"] and states - {"closed_partial"} <= expected)


@pytest.mark.parametrize("way", ["id", "subject", "withheld", "ledger erased"])
@pytest.mark.parametrize("twin", ["secure_delete", "gaps"])
def test_in_a_careless_twin_the_same_look_finds_something(worker: Worker, twin: str, way: str) -> None:
    cell = {
        "way": way,
        "crash": "no crash",
        "journal": "checkpointed",
        "reader": "no reader",
        "neighbour": "alone",
    }
    result = worker.ask(cell | {"twin": twin})
    assert result["control"][0] == result["control"][1]
    assert result["flaws"] == ["RESIDUE_FREE_SPACE"]
    assert set(result["states"]) == {"inconclusive"}
    # What pages keep in their gaps is few values of many, and not of every erasure: the pages tell of it.
    if twin == "secure_delete":
        assert any(name.startswith("column") for name in result["found"]), result["found"]
        assert way == "ledger erased" or any(not name.startswith("column") for name in result["found"])


def test_the_sample_is_one() -> None:
    """Every two choices meet in it, but not each way each crash; that is for the whole grid."""
    cells = sample()
    met = set().union(*(pairs(cell) for cell in cells))
    for one, other in itertools.combinations(AXES, 2):
        pairs_of_two = {
            frozenset(pair)
            for pair in itertools.product(((one, x) for x in AXES[one]), ((other, x) for x in AXES[other]))
        }
        assert pairs_of_two <= met or {one, other} == {"way", "crash"}, (one, other, pairs_of_two - met)
    assert {cell["crash"] for cell in cells if cell["way"] == "subject"} != set(CRASHES)
    assert set(BEFORE) < set(CRASHES)


def test_hashes_that_expire_while_somebody_reads_are_not_called_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No fact goes with them, so there is no manifest to say so: the answer does, and the next sweep sees to it."""
    monkeypatch.setattr(erase_record, "CHECKPOINT_SECONDS", 0.05)
    clock = Clock(time.time_ns() // 1000 - 3 * DAY)
    with wiring.open_home(tmp_path / "home", clock=clock) as home:
        for street in ("Elm Street", "Oak Lane"):
            write(home, f"It is {street}.", key="office/address", value=street)
        forget(home, key="office/address", guard=f"expire={format_time(clock.now + DAY)}")
        with home.parts().store.read_whole() as view:
            ((tag,),) = view.rows("SELECT value_tag FROM ledger")
        home.close()
        clock.now += 2 * DAY
        with home.parts().store.read_whole() as view:
            view.counts()
            answer = home.memory(ME).retention(apply=True)
            assert (answer["state"], [one["code"] for one in answer["why"]]) == (
                "inconclusive",
                ["wal_pinned"],
            )
            assert cli.main(["retention", "--apply", "--home", str(home.path)]) == 1
            assert "inconclusive" in capsys.readouterr().out
        assert any(tag in data for data in files_of(home.path).values())
        assert "state" not in home.memory(ME).retention(apply=True)
        assert not any(tag in data for data in files_of(home.path).values())
