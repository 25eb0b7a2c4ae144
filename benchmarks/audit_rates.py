"""What an audit costs: wall and CPU time, memory, entries a second, beside raw signature checks of the same run.

    python benchmarks/audit_rates.py [--facts N] [--home DIR] [--more M]

Makes a home of N facts (10,000), half of them corrections, in a folder of its own, or takes the home in DIR; audits it
in a process of its own, with structural residue and without needles; writes M more facts (a hundredth) and audits it
again with the state that the first audit kept. The raw rate is that of Ed25519 verifications alone, one core, in the
same run. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY)]

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from memory.model import SCOPES, Principal  # noqa: E402
from memory.wiring import init_home, open_home  # noqa: E402

WHO = Principal("bench", "bot", "one", SCOPES)
PUBLISH_EVERY = 2000


def write(home: Any, first: int, count: int) -> None:
    memory = home.memory(WHO)
    for number in range(first, first + count):
        value = str(number * 7 % 1000)
        memory.remember(
            f"machine {number // 2} in hall {number % 97} runs at {value} turns",
            key=f"machine/{number // 2}/turns",
            value=value,
        )
        if number % PUBLISH_EVERY == PUBLISH_EVERY - 1:
            home.publish()
    home.publish()


def raw_rate(seconds: float = 2.0) -> float:
    """Ed25519 verifications a second on one core, of a message as long as a statement's."""
    key = Ed25519PrivateKey.generate()
    message = os.urandom(300)
    signature, public = key.sign(message), key.public_key()
    count, begun = 0, time.process_time()
    while time.process_time() - begun < seconds:
        for _ in range(200):
            public.verify(signature, message)
        count += 200
    return count / (time.process_time() - begun)


def audit(home: Path, state: Path) -> dict[str, Any]:
    """One audit in a process of its own: what it said, and what it cost."""
    command = [
        sys.executable,
        "-m",
        "memory.cli",
        "audit",
        "--home",
        str(home),
        "--json",
        "--state",
        str(state),
    ]
    command += ["--trust", str(home / "trust.toml")]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    document = json.loads(done.stdout)
    if document["verdict"] != "clean":
        raise SystemExit(f"expected the home to be clean: {document['findings'][:3]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    entries = document["counts"]["entries"]
    return {
        "entries": entries,
        "wall_seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "entries_per_cpu_second": round(entries / cpu),
        "peak_memory_mb": round(after.ru_maxrss / 1024),
    }


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    home = folder / "home" if arguments.home is None else arguments.home
    if arguments.home is None:
        with init_home(home) as made:
            write(made, 0, arguments.facts)
    first = audit(home, folder / "state")
    more = arguments.more or max(arguments.facts // 100, 1)
    with open_home(home) as opened:
        write(opened, arguments.facts, more)
    second = audit(home, folder / "state")
    rate = raw_rate()
    return {
        "first": first,
        "second": second | {"new": second["entries"] - first["entries"]},
        "raw_verifications_per_cpu_second": round(rate),
        "ratio_first": round(first["entries_per_cpu_second"] / rate, 3),
        "ratio_second": round(second["entries_per_cpu_second"] / rate, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--more", type=int, default=None)
    parser.add_argument("--home", type=Path, default=None)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(parser.parse_args(), Path(folder)), indent=2))


if __name__ == "__main__":
    main()
