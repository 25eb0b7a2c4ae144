"""Every way to erase, in a store that is in use: a plain look at all bytes finds nothing that was ever removed.

Random histories of several rounds, keys and sizes mixed, corrections between; another process writes and reads
all the while, and a reader comes and goes. A careless twin shows that the look would find something.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import memory.store
from memory import vfs, wiring
from memory.principal import make_principal, with_all_scopes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ME, check_of, forget, manifest_of, write

NEIGHBOUR = with_all_scopes(make_principal("default", "neighbour", "cli"))
ROUNDS = 2 if os.environ.get("MUNIMENT_ERASE_GRID") == "full" else 1
TURNS = 24
LETTERS = "bcdfghjklmnpqrstvwxz"


class History:
    """Facts of some people in random order and sizes; each has a mark in every field that an erasure destroys."""

    def __init__(self, home: wiring.Home, chance: random.Random) -> None:
        self.home = home
        self.chance = chance
        self.marks: dict[str, set[str]] = {}
        self.ids: dict[str, list[str]] = {}
        self.gone: set[str] = set()

    def mark(self) -> str:
        return "".join(self.chance.choices(LETTERS, k=14))

    def live(self, turns: int) -> None:
        """Writes and corrections, in no order."""
        for turn in range(turns):
            person = f"{self.chance.randrange(6)}"
            names = self.marks.setdefault(person, set())
            subject = self._subject(person)
            told, valued = self.mark(), self.mark()
            key = f"{subject}/thing-{self.chance.randrange(3)}"
            size = self.chance.choice([5, 40, 300, 1500, 3000, 3000, 20_000])
            filler = " ".join(self.chance.choices(["amber", "birch", "cedar", "dune"], k=size // 6))
            made = write(
                self.home,
                f"{told} in turn {turn}: {filler}",
                key=key,
                value=f"{valued} {turn}",
                subject=subject,
                provisional=self.chance.random() < 0.1,
                idempotency_key=f"{told}-{turn}" if turn % 3 else None,
            )
            names |= {told, valued}
            self.ids.setdefault(person, []).append(made["id"])

    def _subject(self, person: str) -> str:
        """A name of the person's own, which begins as no other mark: it is one, too."""
        known = next((one for one in self.marks[person] if one.startswith("yy")), None)
        if known is None:
            known = "yy" + self.mark()[2:]
            self.marks[person].add(known)
        return known

    def subject(self, person: str) -> str:
        return next(one for one in self.marks[person] if one.startswith("yy"))

    def forget_person(self, person: str) -> None:
        self.gone |= self.marks.pop(person)
        self.ids.pop(person)


def by_id(history: History) -> list[Any]:
    person = sorted(history.marks)[0]
    answer = forget(history.home, id=history.ids[person], guard="erase")
    history.forget_person(person)
    return [answer]


def by_key(history: History) -> list[Any]:
    person = sorted(history.marks)[-1]
    memory, subject = history.home.memory(ME), history.subject(person)
    answers = []
    for number in range(3):
        key = f"{subject}/thing-{number}"
        if memory.history(key)["facts"]:
            answers.append(forget(history.home, key=key))
    history.forget_person(person)
    return answers


def by_subject(history: History) -> list[Any]:
    answers = []
    for person in sorted(history.marks)[:2]:
        answers.append(forget(history.home, subject=history.subject(person)))
        history.forget_person(person)
    return answers


def everything(history: History) -> list[Any]:
    answer = forget(history.home, all=True)
    for person in list(history.marks):
        history.forget_person(person)
    return [answer]


def by_retention(history: History) -> list[Any]:
    """All but what is current: then that is retracted in favour of nothing and erased by id."""
    memory = history.home.memory(ME)
    kept = set()
    for marks in history.marks.values():
        subject = next(one for one in marks if one.startswith("yy"))
        kept.add(subject)
        for number in range(3):
            for fact in memory.history(f"{subject}/thing-{number}")["facts"]:
                if fact["status"] != "superseded":
                    kept |= {mark for mark in marks if mark in f"{fact['text']} {fact['value']}"}
    for fact in memory.review()["facts"]:
        kept |= {
            mark
            for marks in history.marks.values()
            for mark in marks
            if mark in f"{fact['text']} {fact['value']}"
        }
    superseded = memory.retention("0s", apply=True)
    for marks in history.marks.values():
        history.gone |= marks - kept
        marks &= kept
    return [superseded] if superseded["removed"] else []


WAYS: dict[str, Callable[[History], list[Any]]] = {
    "id": by_id,
    "key": by_key,
    "subject": by_subject,
    "all": everything,
    "retention": by_retention,
}


def found(home: wiring.Home, marks: set[str]) -> set[str]:
    """Which marks are in any file, whatever their case: the bytes as they are, and nothing else is asked.

    Read in a process apart: to close a file of the store here would give up the locks that this process has on it.
    """
    look = ["find", str(home.path), "-type", "f", "-exec", "cat", "{}", "+"]
    whole = subprocess.run(look, stdout=subprocess.PIPE, check=False).stdout.lower()
    return {mark for mark in marks if mark.encode() in whole}


# Others who use the same home


def _neighbour(path: str, seed: int, begun: Any, stop: Any) -> None:
    """Another process: writes of all sizes, corrections, reads; never of the same scope."""
    chance = random.Random(seed)
    with wiring.open_home(path) as home:
        turn = 0
        while not stop.is_set():
            turn += 1
            text = f"neighbour {turn} " + " ".join(
                chance.choices(["elm", "fir"], k=chance.choice([1, 30, 600]))
            )
            write(home, text, NEIGHBOUR, key=f"n/{chance.randrange(9)}", value=str(turn))
            home.memory(NEIGHBOUR).recall("neighbour elm", limit=3)
            begun.set()


@contextmanager
def neighbour(home: wiring.Home, seed: int) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    begun, stop = context.Event(), context.Event()
    process = context.Process(target=_neighbour, args=(str(home.path), seed, begun, stop))
    process.start()
    try:
        assert begun.wait(60), "the neighbour has not come"
        yield
    finally:
        stop.set()
        process.join()
        assert process.exitcode == 0


@contextmanager
def reader(home: wiring.Home) -> Iterator[None]:
    """Somebody in this process who keeps a view of the store open for a while, again and again."""
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with home.parts().store.read_whole() as view:
                view.counts()
                view.rows("SELECT * FROM contents ORDER BY seq DESC LIMIT 20")
                time.sleep(0.15)
            time.sleep(0.02)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_no_byte_of_what_was_erased_is_left_while_others_use_the_store(tmp_path: Path, way: str) -> None:
    chance = random.Random(f"residue {way}")
    with wiring.open_home(tmp_path / "home") as home:
        history = History(home, chance)
        with neighbour(home, 5), reader(home):
            for _ in range(ROUNDS):
                history.live(TURNS)
                there = {mark for marks in history.marks.values() for mark in marks}
                assert found(home, there) == there, (
                    "the look has to find them before, or it shows nothing after"
                )
                answers = WAYS[way](history)
                assert answers and {answer["state"] for answer in answers} == {"closed_complete"}
                assert found(home, history.gone) == set()
                home.publish()
        assert history.gone
        assert found(home, history.gone) == set()
        assert home.parts().store.check() == ()
        kept = {mark for marks in history.marks.values() for mark in marks}
        assert found(home, kept) == kept
        assert home.memory(NEIGHBOUR).recall("neighbour")["facts"]


@pytest.mark.parametrize("careless", ["gaps", "secure_delete"])
def test_a_careless_twin_leaves_something_and_is_not_called_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, careless: str
) -> None:
    """The same look, and the checks of the erasure itself, find what a store without the recipe keeps."""
    plain = next(name for name in apsw.vfs_names() if name != vfs.NAME)
    monkeypatch.setattr(vfs, "register", lambda: plain)
    # Such a store refuses to erase; what it would leave is to be found all the same.
    monkeypatch.setattr(memory.store_rewrite, "require_promises", lambda connection: None)
    if careless == "secure_delete":
        pragmas = tuple(one for one in memory.store._PRAGMAS if one[0] != "secure_delete")
        monkeypatch.setattr(memory.store, "_PRAGMAS", (*pragmas, ("secure_delete", "OFF", 0)))
    with wiring.open_home(tmp_path / "home") as home:
        history = History(home, random.Random(3))
        history.live(3 * TURNS)
        answers = by_subject(history)
        assert all(answer["state"] == "inconclusive" for answer in answers)
        checks = [check_of(manifest_of(home, answer), "free_space") for answer in answers]
        assert {check["result"] for check in checks} == {"found"}
        assert {one["class"] for check in checks for one in check["residue"]} == {"RESIDUE_FREE_SPACE"}
        if careless == "secure_delete":
            assert found(home, history.gone)
