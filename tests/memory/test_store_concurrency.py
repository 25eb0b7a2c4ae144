"""Two processes, many threads and an event loop on one home: nothing lost, nothing doubled, no 'locked'."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from memory import wiring
from memory.model import SCOPES, Principal
from tlog.errors import Error

REPOSITORY = Path(__file__).resolve().parents[2]
WRITES = 200
WRITER = """
import json, sys
from memory import wiring
from memory.model import SCOPES, Principal
home = wiring.open_home(sys.argv[1])
client, count = sys.argv[2], int(sys.argv[3])
memory = home.memory(Principal("default", "default", client, SCOPES))
for number in range(count):
    answer = memory.remember(f"{client} fact {number}", key=f"{client}/{number}", value=str(number))
    sys.stdout.write(json.dumps(answer["id"]) + "\\n")
assert memory.get(f"{client}/0")["current"] == "0"
"""


def me(client: str) -> Principal:
    return Principal("default", "default", client, SCOPES)


def start(home: Path, client: str, script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(home), client, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


def test_two_processes_on_a_new_home(tmp_path: Path) -> None:
    home_path = tmp_path / "home"
    processes = [start(home_path, client, WRITER, str(WRITES)) for client in ("one", "two")]
    ids: list[str] = []
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, b"")
        ids += [json.loads(line) for line in out.splitlines()]
    assert len(set(ids)) == 2 * WRITES
    with wiring.open_home(home_path) as home:
        memory = home.memory(me("reader"))
        assert memory.status()["facts"] == {"active": 2 * WRITES}
        for client in ("one", "two"):
            for number in (0, WRITES - 1):
                assert memory.get(f"{client}/{number}")["current"] == str(number)
        assert len(memory.recall("fact", limit=1000)["facts"]) == 2 * WRITES
        with home.parts().store.read() as view:
            assert [row[0] for row in view.rows("SELECT seq FROM events ORDER BY seq")] == list(
                range(1, 2 * WRITES + 1)
            )
            times = [row[0] for row in view.rows("SELECT recorded_at FROM facts ORDER BY seq")]
            assert all(earlier < later for earlier, later in itertools.pairwise(times))
        assert home.publish()["size"] == 2 * WRITES


OPENER = """
import sys
from memory import wiring
from memory.model import SCOPES, Principal
for number in range(12):
    with wiring.open_home(sys.argv[1]) as home:
        memory = home.memory(Principal("default", "default", sys.argv[2], SCOPES))
        memory.remember(f"{sys.argv[2]} fact {number}")
        assert memory.recall("fact", limit=1000)["facts"]
"""


def test_processes_that_open_and_close_all_the_time(tmp_path: Path) -> None:
    """Each last one out clears the write-ahead log away while another comes in."""
    home_path = tmp_path / "home"
    processes = [start(home_path, f"client {number}", OPENER) for number in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, b"")
    with wiring.open_home(home_path) as home:
        assert home.memory(me("reader")).status()["facts"] == {"active": 36}


def test_a_writer_among_readers(tmp_path: Path) -> None:
    """One process writes, four threads here read as fast as they can, each sees whole answers alone."""
    home_path = tmp_path / "home"
    with wiring.open_home(home_path) as home:
        home.memory(me("reader")).remember("first fact", key="first", value="1")
        failed: list[BaseException] = []
        done = threading.Event()
        counts: list[int] = []

        def read() -> None:
            memory = home.memory(me("reader"))
            seen = 0
            while not done.is_set():
                try:
                    found = memory.recall("fact", limit=1000)["facts"]
                    assert memory.get("first")["current"] == "1"
                    assert len(found) >= seen
                    seen = len(found)
                except (Error, AssertionError) as error:
                    failed.append(error)
                    return
                time.sleep(0.01)
            counts.append(seen)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        process = start(home_path, "writer", WRITER, "100")
        _, errors = process.communicate(timeout=60)
        done.set()
        for thread in threads:
            thread.join()
        assert (process.returncode, errors) == (0, b"")
        assert failed == []
        assert len(home.memory(me("reader")).recall("fact", limit=1000)["facts"]) == 101


def test_threads_share_a_handle(tmp_path: Path) -> None:
    with wiring.open_home(tmp_path / "home") as home:
        failed: list[BaseException] = []

        def write(number: int) -> None:
            memory = home.memory(me(f"client {number}"))
            try:
                for step in range(20):
                    memory.remember(f"fact {number}.{step}", key=f"{number}/{step % 4}", value=str(step))
            except Error as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert home.memory(me("x")).status()["facts"] == {"active": 32, "superseded": 128}


def test_two_clients_race_for_one_key(tmp_path: Path) -> None:
    """Whoever comes second is told: one value and one conflict, never two values that both believe to be alone."""
    with wiring.open_home(tmp_path / "home") as home:
        for round_number in range(10):
            answers: list[dict[str, Any]] = []
            barrier = threading.Barrier(2)

            def write(
                client: str, key: str, barrier: threading.Barrier, answers: list[dict[str, Any]]
            ) -> None:
                memory = home.memory(me(client))
                barrier.wait()
                answers.append(memory.remember(f"{key} is {client}", key=key, value=client))

            threads = [
                threading.Thread(target=write, args=(client, f"key {round_number}", barrier, answers))
                for client in ("one", "two")
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(answer["outcome"] for answer in answers) == ["conflict", "stored"]
        assert len(home.memory(me("one")).conflicts()["conflicts"]) == 10


def test_an_event_loop_shares_it_with_threads(tmp_path: Path) -> None:
    async def serve(home: wiring.Home) -> list[dict[str, Any]]:
        memory = home.memory(me("loop"))
        writes = (asyncio.to_thread(memory.remember, f"loop fact {number}") for number in range(40))
        reads = (asyncio.to_thread(memory.recall, "loop") for _ in range(40))
        answers = await asyncio.gather(*writes, *reads)
        return answers[:40]

    with wiring.open_home(tmp_path / "home") as home:
        answers = asyncio.run(serve(home))
        assert {answer["outcome"] for answer in answers} == {"stored"}
        assert len({answer["id"] for answer in answers}) == 40
