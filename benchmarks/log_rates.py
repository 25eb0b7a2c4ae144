"""What the log costs, beside its peers, in one run: signed durable appends, growth, proofs, memory, replay.

    python benchmarks/log_rates.py [--entries N] [--rounds N] [--seconds S] [--only-ours] [--json FILE] [--folder DIR]

Every rate is of signed statements that are durable when it says so, and stands beside the raw Ed25519 rate of the
same round; all systems are measured in turns, so that what else the machine does falls on all of them, and the medians
over the rounds are shown. Each runs in a process of its own (log_drivers.py); peers are installed from the package
index for the run, and one that cannot be had is named as skipped. `--json` writes what log_plot.py draws.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "interop")]

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from installing import CannotInstall, environment, install  # noqa: E402
from log_report import machine, show, targets  # noqa: E402

from tlog.client import folder_reader  # noqa: E402
from tlog.cose import decode_sign1, sig_structure  # noqa: E402
from tlog.cose_keys import make_signer  # noqa: E402
from tlog.replay import replay_log  # noqa: E402
from tlog.statement import sign_statement  # noqa: E402

OURS = "muniment"
BATCHES = (1, 64, 1024)
SMALL = 10_000
STEP = 32_768  # entries a growth is measured by: after as many the identity index writes its large tree
SEED = b"\1" * 32
ISSUER, SUBJECT = "https://store.bench.invalid/3q2-7w", "7b1e"
KEY = Ed25519PrivateKey.from_private_bytes(SEED)
PEERS = {
    "pymerkle": ("pymerkle>=7,<8", ()),
    "aics-tlog": ("aics-tlog==0.2.1", ("3.12", "3.13", "3.14")),
    "inspeximus": ("inspeximus==3.23.1", ()),
}
DURABILITY = (
    "muniment: a batch's staging file, its folder, the head and its folder are flushed before the batch is"
    " acknowledged; tiles are written within the time measured. pymerkle: SQLite as it opens it. aics-tlog: every file"
    " and folder flushed. inspeximus: each line flushed."
)


def statement_layout() -> dict[str, str]:
    """What a driver needs to make our entries by itself."""
    commitment = b"\7" * 32
    entry = sign_statement(make_signer(KEY), ISSUER, SUBJECT, commitment)
    signed = sig_structure(decode_sign1(entry).protected, commitment)
    return {
        "key": SEED.hex(),
        "issuer": ISSUER,
        "subject": SUBJECT,
        "entry_prefix": entry[: entry.index(commitment)].hex(),
        "signed_prefix": signed[: -len(commitment)].hex(),
    }


LAYOUT = statement_layout()
MESSAGE = bytes.fromhex(LAYOUT["signed_prefix"]) + b"\7" * 32


class System:
    """A log in a process of its own."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name = name
        command = [python, str(REPOSITORY / "benchmarks" / "log_drivers.py"), name, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._write(LAYOUT)

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def ask(self, **command: object) -> dict[str, Any]:
        """The answer to one command."""
        self._write(command)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: the process of this log ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _write(self, command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()


# What cryptography itself does


@dataclass(frozen=True)
class Rate:
    """How often something was done a second, and a second of CPU time: what a busy machine takes away shows."""

    per_second: float
    per_cpu_second: float


def signing_rate(seconds: float = 0.25) -> Rate:
    """Signatures on one core, over the bytes that a statement signs."""
    return _rate(lambda: KEY.sign(MESSAGE), seconds)


def verifying_rate(seconds: float = 0.5) -> Rate:
    """Verifications on one core."""
    public_key, signature = KEY.public_key(), KEY.sign(MESSAGE)
    return _rate(lambda: public_key.verify(signature, MESSAGE), seconds)


def _rate(do: Callable[[], object], seconds: float) -> Rate:
    count, began, cpu = 0, time.perf_counter(), time.process_time()
    while (taken := time.perf_counter() - began) < seconds:
        for _ in range(100):
            do()
        count += 100
    return Rate(count / taken, count / (time.process_time() - cpu))


# Ours and its peers


@dataclass
class Run:
    """The rounds of one kind of load on one system."""

    rates: list[float] = field(default_factory=list)
    cpu_rates: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    cpu_shares: list[float] = field(default_factory=list)
    signing: list[Rate] = field(default_factory=list)
    size: int = 0

    def summary(self) -> dict[str, Any]:
        """The medians."""
        return {
            "per_second": median(self.rates),
            "per_cpu_second": median(self.cpu_rates),
            "share_of_signing": median(self.shares),
            "share_of_signing_cpu": median(self.cpu_shares),
            "signing_per_second": median(rate.per_second for rate in self.signing),
            "signing_per_cpu_second": median(rate.per_cpu_second for rate in self.signing),
            "rounds": [round(rate, 1) for rate in self.rates],
            "size_at_the_end": self.size,
        }


def one_round(system: System, batch: int, count: int, run: Run) -> None:
    """Appends, between two measurements of what signing alone would have reached."""
    before = signing_rate()
    answer = system.ask(do="append", batch=batch, count=count)
    after = signing_rate()
    run.signing += (before, after)
    run.rates.append(count / answer["seconds"])
    run.cpu_rates.append(count / answer["cpu_seconds"])
    run.shares.append(run.rates[-1] / mean((before.per_second, after.per_second)))
    run.cpu_shares.append(run.cpu_rates[-1] / mean((before.per_cpu_second, after.per_cpu_second)))
    run.size = answer["size"]


def append_rates(systems: list[System], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Every system in every batch size, in turns; the first round shows how much fits the time."""
    runs: dict[tuple[int, str], Run] = {}
    for number in range(rounds + 1):
        for batch in BATCHES:
            for system in systems:
                if system.name == "inspeximus" and batch > 1:
                    continue  # it takes one statement at a time
                known = runs.get((batch, system.name))
                guess = known.rates[-1] * seconds if known else 4 * batch
                count = max(1, min(int(guess / batch), 200_000 // batch)) * batch
                run = known if known and number > 1 else Run()
                one_round(system, batch, count, run)
                runs[batch, system.name] = run
    return [{"system": name, "batch": batch, **run.summary()} for (batch, name), run in runs.items()]


def grow(system: System, entries: int) -> list[dict[str, Any]]:
    """The log grown to its size in batches of 1,024, with its rate and memory on the way."""
    points, size = [], 0
    while size < entries:
        count = min(STEP if size else SMALL, entries - size)
        run = Run()
        one_round(system, 1024, count, run)
        size = run.size
        peak = system.ask(do="memory")["peak_bytes"]
        points.append({"size": size, **run.summary(), "peak_bytes": peak})
        print(f"  {size:>9,} entries {run.rates[0]:8,.0f}/s", file=sys.stderr, flush=True)
    return points


def compare_sizes(large: System, place: Path, python: str, rounds: int) -> dict[str, Any]:
    """The rate of the large log beside that of one of ten thousand entries, in turns."""
    runs = {"small": Run(), "large": Run()}
    for number in range(rounds):
        folder = place / f"small-{number}"
        with System(OURS, python, folder) as small:
            small.ask(do="append", batch=1024, count=SMALL)
            one_round(small, 1024, STEP, runs["small"])
            one_round(large, 1024, STEP, runs["large"])
        shutil.rmtree(folder)
    ratios = [large / small for small, large in zip(runs["small"].rates, runs["large"].rates, strict=True)]
    cpu = [
        large / small for small, large in zip(runs["small"].cpu_rates, runs["large"].cpu_rates, strict=True)
    ]
    return {
        **{name: run.summary() for name, run in runs.items()},
        "large_to_small": median(ratios),
        "large_to_small_cpu": median(cpu),
    }


def proofs(system: System, count: int) -> dict[str, Any]:
    """How long a proof from tiles takes to make, and to verify."""
    answer = system.ask(do="prove", count=count)
    made, checked = sorted(answer["proved"]), sorted(answer["verified"])
    return {
        "system": system.name,
        "size": answer["size"],
        "prove_median_ms": 1000 * median(made),
        "prove_p99_ms": 1000 * made[int(0.99 * count)],
        "verify_median_us": 1e6 * median(checked),
        "verify_p99_us": 1e6 * checked[int(0.99 * count)],
        "peak_bytes": system.ask(do="memory")["peak_bytes"],
    }


def replay(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """Entries replayed a second by two processes, beside verifying alone by one and by two."""
    key = make_signer(KEY).key
    rates, cpu_rates, single, double = [], [], [verifying_rate(2.0)], []
    for _ in range(rounds):
        began, cpu = time.perf_counter(), children_cpu_seconds()
        replayed = replay_log(partial(folder_reader, folder), size, [key], 2)
        rates.append(size / (time.perf_counter() - began))
        cpu_rates.append(size / (children_cpu_seconds() - cpu))
        if replayed.faults or replayed.size != size:
            raise SystemExit("the replay found faults")
        with ProcessPoolExecutor(2) as pool:
            double.append(sum(one.per_second for one in pool.map(verifying_rate, (2.0, 2.0))))
        single.append(verifying_rate(2.0))
    one = median(rate.per_second for rate in single)
    return {
        "size": size,
        "per_second": median(rates),
        "per_cpu_second": median(cpu_rates),
        "rounds": [round(rate, 1) for rate in rates],
        "verify_one_process_per_second": one,
        "verify_one_process_per_cpu_second": median(rate.per_cpu_second for rate in single),
        "verify_two_processes_per_second": median(double),
        "share_of_twice_one": median(rates) / (2 * one),
        "share_of_two_processes": median(rates) / median(double),
        "share_of_verifying_cpu": median(cpu_rates) / median(rate.per_cpu_second for rate in single),
    }


def children_cpu_seconds() -> float:
    """The CPU time of all processes that were begun here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# The run


def installed(place: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The Python of each peer, and why the others are not there."""
    pythons, skipped = {}, {}
    for name, (package, versions) in PEERS.items():
        try:
            programs = environment(place / f"{name}-environment", package, *versions)
            pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            install([*pip, "cryptography"], "cryptography")
        except CannotInstall as error:
            skipped[name] = str(error)
        else:
            pythons[name] = str(programs / "python")
    return pythons, skipped


def measure(args: argparse.Namespace, place: Path, pythons: dict[str, str]) -> dict[str, Any]:
    """All there is to measure, in the order that it is told in."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        systems = [
            stack.enter_context(System(name, python, place / name)) for name, python in pythons.items()
        ]
        say("appends, in turns")
        found["append"] = append_rates(systems, args.rounds, args.seconds)
        provers = [system for system in systems if system.name != "inspeximus"]
        found["small_proofs"] = [proofs(system, args.proofs) for system in provers]
    say(f"a log of {args.entries:,} entries")
    with System(OURS, sys.executable, place / "grown") as grown:
        found["growth"] = grow(grown, args.entries)
        say("proofs from its tiles")
        found["proofs"] = proofs(grown, args.proofs)
        say("its replay")
        rounds = args.rounds if args.entries <= 200_000 else 2
        found["replay"] = replay(place / "grown" / "log", args.entries, rounds)
        say("beside a small one")
        found["sizes"] = compare_sizes(grown, place, sys.executable, args.rounds)
        found["writer_peak_bytes"] = grown.ask(do="memory")["peak_bytes"]
    return found


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=200_000, help="to which size a log is grown")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long each append round takes")
    parser.add_argument("--proofs", type=int, default=2000)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--folder", type=Path, help="where the logs are written; it says which disk is measured"
    )
    args = parser.parse_args()
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="log-rates-", dir=args.folder) as name:
        place = Path(name)
        peers, skipped = ({}, {}) if args.only_ours else installed(place)
        pythons = {OURS: sys.executable, **peers}
        results = {
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(place, pythons),
            "durability": DURABILITY,
            "entry_bytes": len(sign_statement(make_signer(KEY), ISSUER, SUBJECT, bytes(32))),
            "skipped": skipped,
            **measure(args, place, pythons),
        }
    results["targets"] = targets(results)
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    show(results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
