"""What a durable write costs: processor time in raw Ed25519 signatures, and writes a second, by clients of one process.

    python benchmarks/write_rates.py [--clients 1 16 64] [--rounds 5] [--writes 2000]

Every write is of a new key with a value, a subject and a sentence: guard, fact, index, salts, signed statement and
commit. Signatures are timed before and after each round in the same process, so that a busy machine falls on both.
`flush alone` is an append of 4 KiB and its fdatasync in the same folder: what one client cannot do without.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "benchmarks")]

from scale_rates import WORDS, signature_seconds  # noqa: E402

from memory.model import Principal  # noqa: E402
from memory.service import Memory  # noqa: E402
from memory.wiring import open_home  # noqa: E402

CALLER = Principal("acme", "ops", "desk")
WARM = 300


def make_facts(run: str, count: int) -> list[tuple[str, str, str]]:
    """So many texts with a key that is new and a value."""
    chance, made = random.Random(run), []
    for number in range(count):
        key, value = (
            f"{run}-{number}/{chance.choice(WORDS)}",
            f"{chance.choice(WORDS)} {chance.randrange(100)}",
        )
        text = f"the {key} is {value} since the {' '.join(chance.choices(WORDS, k=5))}"
        made.append((text, key, value))
    return made


def write(memory: Memory, facts: list[tuple[str, str, str]]) -> None:
    for text, key, value in facts:
        memory.remember(text, key=key, value=value, subject="Ann")


def one_round(memory: Memory, clients: int, writes: int) -> tuple[float, float, float, float]:
    """Writes a second, processor time of one, that in signatures, and changes of thread for each."""
    run = os.urandom(4).hex()
    threads = [
        threading.Thread(target=write, args=(memory, make_facts(f"{run}-{at}", writes // clients)))
        for at in range(clients)
    ]
    before = signature_seconds()
    used, began, spent = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = writes // clients * clients
    cost, seconds = (time.process_time() - spent) / done, time.perf_counter() - began
    changes = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - used.ru_nvcsw
    return done / seconds, cost * 1e6, cost / ((before + signature_seconds()) / 2), changes / done


def flush_alone(folder: Path) -> tuple[float, float]:
    """Flushes a second, and the processor time of one in microseconds."""
    with (folder / "flushes").open("ab") as file:
        began, spent = time.perf_counter(), time.process_time()
        for _ in range(200):
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
        return 200 / (time.perf_counter() - began), (time.process_time() - spent) / 200 * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writes", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="write-rates-") as place, open_home(Path(place) / "home") as home:
        memory = home.memory(CALLER)
        write(memory, make_facts("warm", WARM))
        found: dict[int, list[tuple[float, float, float, float]]] = {count: [] for count in args.clients}
        for _ in range(args.rounds):
            for count, rows in found.items():
                rows.append(one_round(memory, count, args.writes))
        for count, rows in found.items():
            rate, cost, signatures, changes = (
                statistics.median(column) for column in zip(*rows, strict=True)
            )
            print(
                f"{count:>3} clients: {rate:6.0f} writes/s, {cost:5.0f} us of processor = "
                f"{signatures:4.1f} signatures, {changes:.1f} changes of thread each"
            )
        rate, cost = flush_alone(Path(place))
        print(f"flush alone: {rate:.0f}/s, {cost:.0f} us of processor")
    print(f"load: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
