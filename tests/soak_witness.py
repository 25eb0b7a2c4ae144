"""A witness under long attack: two processes and two forks, kill -9, made-up requests, and memory.

    python tests/soak_witness.py [--minutes 12] [--seed N]

Four parts. Each round two forks of the last head are sent to two processes on one state at once, while one of
them is now and then killed and started again: never two inconsistent cosignatures, and no answer forgotten. Then
sequences of requests are made up against a slow reference that shares no code with the witness, and single inputs
for its parser and judgement: guided by coverage where atheris is installed (`pip install atheris`), by hypothesis
where not; the table says which. Then many requests go through one process, whose memory has to stay flat.

In twelve minutes that is 1,000 rounds, 2 minutes of sequences, 5 of inputs and 100,000 requests; a shorter time has
less of each, a longer one more inputs. Closes with a table and the line `soak: N passed, M failed`.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
for place in (REPOSITORY, REPOSITORY / "benchmarks"):
    sys.path.insert(0, str(place))

import witness_rates  # noqa: E402

from tlog.cosignature import verify_cosignature  # noqa: E402
from tlog.errors import UnavailableError  # noqa: E402
from tlog.note import parse_vkey  # noqa: E402
from witness.store import open_store  # noqa: E402
from witness.wire import parse_cosignatures  # noqa: E402

Row = tuple[str, bool, str]
FULL_MINUTES = 12.0
STATUSES = {"200", "400", "403", "404", "409", "422"}


def module(name: str) -> Any:
    """A module of the tests, which are no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tests" / "witness" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Process:
    """One witness process on the shared state, started again whenever it was killed."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.kills = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "memory.cli", "witness", "serve", "--state", str(self.state)),
                *("--listen", "127.0.0.1:0", "--heads-per-day", "1000000000", "--json"),
            ],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.partition('"listening":"')[2].partition('"')[0].rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.kills += 1
        self.start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer; (0, b"") where the connection broke."""
        head = f"POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
                connection.sendall(head + body)
                said = b""
                while witness_rates.complete_status(said) is None:
                    part = connection.recv(65536)
                    if not part:
                        return 0, b""
                    said += part
        except OSError:
            return 0, b""
        return witness_rates.complete_status(said) or 0, said.partition(b"\r\n\r\n")[2]


def muniment(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", "witness", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def two_forks(folder: Path, rounds: int, chance: random.Random) -> list[Row]:
    """Each round both forks of the last head go to both processes at once, whose rate nothing limits."""
    sim = module("conftest")
    state = folder / "state"
    key = parse_vkey(muniment("init", "--state", str(state), "--name", "soak.invalid/w").strip())
    entries: tuple[bytes, ...] = ()
    log = sim.SimulatedLog(entries)
    muniment("add-log", "--state", str(state), "--vkey", log.signer.verifier_key.vkey)
    processes = [Process(state), Process(state)]
    wrong: list[str] = []
    winners = {b"even": 0, b"odd": 0}
    contested = 0
    with ThreadPoolExecutor(4) as pool:
        for number in range(rounds):
            size = len(entries) + 1
            forks = [sim.SimulatedLog((*entries, label)) for label in winners]
            bodies = [fork.body(size - 1, size) for fork in forks]
            killer = None
            if chance.random() < 0.05:
                victim = chance.choice(processes)
                killer = threading.Timer(chance.uniform(0, 0.02), victim.process.kill)
                killer.start()
            tries = list(itertools.product(processes, (0, 1)))
            answers = list(pool.map(lambda one, b=bodies: one[0].post(b[one[1]]), tries))  # type: ignore[misc]
            if killer:
                killer.join()
                victim.kill()
            cosigned = {
                which for (_, which), (status, _) in zip(tries, answers, strict=True) if status == 200
            }
            for (_, which), (status, body) in zip(tries, answers, strict=True):
                if status == 200:
                    for line in parse_cosignatures(body):
                        verify_cosignature(key, line, forks[which].note(size).text)
                elif status not in (0, 409, 422):
                    wrong.append(f"round {number}: answered {status}")
            judged = {
                which
                for (_, which), (status, _) in zip(tries, answers, strict=True)
                if status in (200, 409, 422)
            }
            contested += len(judged) == len(forks)
            stored = stored_root(state, log.origin, size)
            taken = [which for which, fork in enumerate(forks) if fork.checkpoint(size).root == stored]
            if len(cosigned) > 1 or (cosigned and list(cosigned) != taken):
                wrong.append(f"round {number}: {len(cosigned)} forks were cosigned")
            if taken:
                entries = forks[taken[0]].entries
                winners[entries[-1]] += 1
    kills = sum(process.kills for process in processes)
    for process in processes:
        process.stop()
    seen = f"{rounds} rounds, {contested} contested, {kills} kills, {dict(winners)}, size {len(entries)}"
    return [
        ("no round cosigned two forks, none was forgotten", not wrong, "; ".join(wrong[:3]) or seen),
        ("both forks were judged in nearly every round", contested >= rounds * 0.9, seen),
        ("both forks won now and then", min(winners.values()) > 0, seen),
        ("heads were cosigned", len(entries) > rounds // 2, seen),
    ]


def stored_root(state: Path, origin: str, size: int) -> bytes | None:
    """The root that the state has at this size."""
    store = open_store(state)
    try:
        record = store.log(origin)
    finally:
        store.close()
    head = record.cosigned.head if record and record.cosigned else None
    return head.root if head and head.size == size else None


def made_up(folder: Path, minutes: float, chance: random.Random) -> list[Row]:
    """Requests that nobody would send, answered as the slow reference answers them."""
    fuzz = module("test_witness_reference")
    sim = module("conftest")
    made = SimpleNamespace(make_cosigner=sim.make_cosigner, TIME=sim.TIME)
    end = time.monotonic() + minutes * 60
    count, statuses = 0, dict.fromkeys((200, 400, 403, 404, 409, 422), 0)
    while time.monotonic() < end:
        place = folder / f"pair-{count}"
        place.mkdir(parents=True)
        pair = fuzz.Pair(place, made)
        for _ in range(400):
            known = pair.theirs.known[0] if pair.theirs.known else 0
            sizes = (chance.randrange(fuzz.SIZE + 1), chance.randrange(fuzz.SIZE + 1))
            if known == fuzz.SIZE:
                break
            grow = min(known + chance.randrange(2), fuzz.SIZE)
            size = grow if chance.random() < 0.5 else sizes[1]
            body = fuzz.build(
                chance.random() < 0.3, sizes[0], size, chance.randrange(10), chance.randrange(2**32), known
            )
            try:
                statuses[pair.ask(body)] += 1
            except (AssertionError, UnavailableError) as error:
                pair.store.close()
                return [("ours and the reference agree", False, f"after {count}: {error}"[:2000])]
            count += 1
        pair.store.close()
    return [
        ("ours and the reference agree", count > 0, f"{count:,} requests: {statuses}"),
        ("every status came up", all(statuses.values()), str(statuses)),
    ]


def fuzzed(folder: Path, seconds: float) -> list[Row]:
    """Inputs for the parser and the judgement, in a process of its own, which the engine ends."""
    counts = folder / "counts.json"
    script = REPOSITORY / "tests" / "witness" / "witness_fuzz.py"
    done = subprocess.run(
        [sys.executable, str(script), "--seconds", f"{seconds:.0f}", "--counts", str(counts)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = {"engine": "no engine", "inputs": 0, "statuses": {}}
    if counts.exists():
        found = json.loads(counts.read_text())
    seen = f"{found['engine']}, {seconds:.0f} s, {found['inputs']:,} inputs: {found['statuses']}"
    held = done.returncode == 0
    return [
        ("no input breaks parser or judgement", held, seen if held else done.stderr[-3000:]),
        ("inputs came to every status", set(found["statuses"]) == STATUSES, seen),
    ]


def flat_memory(folder: Path, requests: int) -> list[Row]:
    """What one process has resident after a tenth of the requests, and after all."""
    with witness_rates.ours(folder) as server:
        sizes = []
        for _ in range(10):
            load = witness_rates.LOADS[-1]
            witness_rates.drive(
                server.port, load, list(server.next_requests(load.origins, max(1000, requests // 10)))
            )
            sizes.append(server.memory_bytes())
    grown = sizes[-1] - sizes[0]
    seen = f"{requests:,} requests: {sizes[0] / 1e6:.1f} MB after a tenth, {sizes[-1] / 1e6:.1f} MB after all"
    return [("memory is flat", grown < 8_000_000, seen)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    share = min(1.0, args.minutes / FULL_MINUTES)
    fuzz_seconds = max(2.0, 300 * share + max(0.0, args.minutes - FULL_MINUTES) * 60)
    print(f"witness soak for about {args.minutes:g} minutes, seed {seed}", flush=True)
    chance = random.Random(seed)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="soak-witness-") as place:
        parts: list[tuple[str, Callable[[Path], list[Row]]]] = [
            ("forks", lambda folder: two_forks(folder, max(30, int(1000 * share)), chance)),
            ("made-up", lambda folder: made_up(folder, 2 * share, chance)),
            ("inputs", lambda folder: fuzzed(folder, fuzz_seconds)),
            ("memory", lambda folder: flat_memory(folder, max(10_000, int(100_000 * share)))),
        ]
        for name, part in parts:
            folder = Path(place) / name
            folder.mkdir(mode=0o700)
            found = part(folder)
            rows += found
            for row in found:
                print(f"  {row[0]}: {row[2]}", flush=True)
    for name, held, seen in rows:
        print(f"{'passed' if held else 'FAILED':<8}{name}: {seen}")
    failed = sum(1 for _, held, _ in rows if not held)
    print(f"soak: {len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
