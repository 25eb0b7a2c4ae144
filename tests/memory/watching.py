"""Looks at all bytes of a home, and others who use it meanwhile: each in a process forked from one without threads.

Whoever closes a file of the store drops the locks that their process has on it, so a look is a process of its own;
and whoever forks with a store open gives the child locks that are not its own, so a looker is forked before.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from ahocorasick_rs import BytesAhoCorasick, MatchKind  # noqa: E402
from erasing import write  # noqa: E402

from memory import scan_process, wiring  # noqa: E402
from memory.principal import make_principal, with_all_scopes  # noqa: E402

# Of a term in the word index the first letters may be those of the term before it, and the last ones go with its stem.
CORE = slice(4, 12)
WHOLE_BYTES = 200
PIECE_BYTES = 96
NEIGHBOUR = with_all_scopes(make_principal("default", "neighbour", "cli"))


class Looker:
    """A process that looks at files for others: it has no store open, and each look is a process of its own."""

    def __init__(self) -> None:
        asked, self._asking = os.pipe()
        self._answers, answering = os.pipe()
        if os.fork():
            os.close(asked)
            os.close(answering)
            self._reader = os.fdopen(self._answers, "rb")
            return
        os.close(self._asking)
        os.close(self._answers)
        with os.fdopen(asked, "rb") as questions:
            for line in questions:
                child = os.fork()
                if not child:
                    name, request = json.loads(line)
                    os.write(answering, json.dumps(LOOKS[name](request)).encode() + b"\n")
                    os._exit(0)
                if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                    os.write(answering, b"null\n")
        os._exit(0)

    def ask(self, name: str, request: dict[str, Any]) -> Any:
        """What a look gives; an error of its own is none of ours."""
        os.write(self._asking, json.dumps([name, request]).encode() + b"\n")
        answer = json.loads(self._reader.readline())
        assert answer is not None, f"the look at {name} has failed"
        return answer

    def answer_for_erasures(self) -> None:
        """Erasures of this process and its children have their files looked at here, as apart as ever."""
        scan_process._ask = lambda request: self.ask(request["task"], request)


def search(request: dict[str, Any]) -> dict[str, list[str]]:
    """Which of the wanted bytes, by their names, stand in which file, whatever their case."""
    wanted = [(name, bytes.fromhex(form)) for name, form in request["wanted"]]
    automaton = BytesAhoCorasick([form for _, form in wanted], matchkind=MatchKind.Standard)
    hits: dict[str, list[str]] = {}
    for path in sorted(Path(request["folder"]).rglob("*")):
        if path.is_file():
            for at, _, _ in automaton.find_matches_as_indexes(path.read_bytes().lower(), overlapping=True):
                places = hits.setdefault(wanted[at][0], [])
                if path.name not in places:
                    places.append(path.name)
    return hits


LOOKS: dict[str, Callable[[dict[str, Any]], Any]] = {**scan_process._TASKS, "search": search}


def forms(mark: str) -> list[tuple[str, str]]:
    """A mark as a file may hold it: without its ends, as the word index keeps it, and in UTF-16."""
    core = mark[CORE]
    return [(mark, core.encode(code).hex()) for code in ("utf-8", "utf-16-le", "utf-16-be")]


def pieces(value: bytes) -> list[tuple[str, str]]:
    """A column's value as pages may hold it: a long one in pieces."""
    name = f"column {value[:8].hex()} of {len(value)}"
    if len(value) <= WHOLE_BYTES:
        return [(name, value.lower().hex())]
    return [
        (name, value[at : at + PIECE_BYTES].lower().hex()) for at in range(0, len(value) - PIECE_BYTES, 512)
    ]


# Others who use the home

Work = Callable[[Callable[[], bool]], None]


def forked(work: Callable[[], None]) -> int:
    """The number of a child that does this and no more."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001 -- a child must never go on as its parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def beside(work: Work) -> Iterator[None]:
    """Another process that is at work from before this begins; then it is asked to end, and has to end well."""
    reading, writing = os.pipe()
    waiting, telling = os.pipe()

    def child() -> None:
        os.close(writing)
        os.set_blocking(reading, False)

        def goes_on() -> bool:
            os.write(telling, b".")
            try:
                return os.read(reading, 1) != b""
            except BlockingIOError:
                return True

        work(goes_on)

    number = forked(child)
    os.close(reading)
    os.close(telling)
    try:
        assert os.read(waiting, 1), "somebody beside has failed to begin"
        yield
    finally:
        os.close(writing)
        assert ended(number) == 0, "somebody beside has failed"
        os.close(waiting)


def neighbour(path: Path) -> Work:
    """Somebody who writes and corrects in a scope of their own, in all sizes."""

    def work(goes_on: Callable[[], bool]) -> None:
        chance, turn = random.Random(str(path)), 0
        with wiring.open_home(path) as home:
            while goes_on():
                turn += 1
                text = f"beside {turn} " + " ".join(
                    chance.choices(["elm", "fir"], k=chance.choice([1, 30, 600]))
                )
                write(home, text, NEIGHBOUR, key=f"n/{chance.randrange(9)}", value=str(turn))
                time.sleep(0.01)

    return work


def reader(path: Path) -> Work:
    """Somebody who keeps a view of the store open for a while, again and again."""

    def work(goes_on: Callable[[], bool]) -> None:
        with wiring.open_home(path) as home:
            while goes_on():
                with home.parts().store.read_whole() as view:
                    view.rows("SELECT * FROM contents ORDER BY seq DESC LIMIT 20")
                    time.sleep(0.05)
                time.sleep(0.01)

    return work


def keeper(path: Path) -> Work:
    """Somebody who has the store open and does nothing: while they do, nobody's leaving empties the write-ahead log."""

    def work(goes_on: Callable[[], bool]) -> None:
        with wiring.open_home(path) as home:
            home.memory(NEIGHBOUR).recall("nothing")
            while goes_on():
                time.sleep(0.01)

    return work
