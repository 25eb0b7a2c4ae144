"""What an audit costs: wall and CPU time, memory, entries a second, beside raw signature checks of the same run.

    python benchmarks/audit_rates.py [--facts N] [--more M] [--home DIR] [--small DIR]

Makes a home of N facts (100,000), half of them corrections, and one of M facts (N / 100), in a folder of its own, or
takes copies of the homes in DIR. Each audit is the command itself, in a process of its own, with structural residue and
without needles: the large home for the first time; again with nothing new; again with an old row changed, which has to
be found; again after M more facts; the small home for the first time. The raw rates are those of Ed25519 verifications
alone, on one core, before and after each audit: by `cryptography`, which is what `ratio` is of, and by what an audit
verifies them with. What is compared are CPU seconds of one run, since other programs may use the cores too. Prints one
JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY)]

import apsw  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from memory import vfs  # noqa: E402
from memory.model import SCOPES, Principal  # noqa: E402
from memory.wiring import init_home, open_home  # noqa: E402
from tlog import bulk_signatures  # noqa: E402
from tlog.cose_keys import EDDSA, from_public_key  # noqa: E402

WHO = Principal("bench", "bot", "one", SCOPES)
PUBLISH_EVERY = 2000
MESSAGE_BYTES = 300
BYTECODE = Path(tempfile.gettempdir()) / f"muniment-audit-rates-{os.getpid()}"


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


def raw_rates() -> dict[str, float]:
    """Ed25519 verifications a second of CPU, of a message as long as a statement's: by cryptography, and as an audit
    verifies them."""
    private = Ed25519PrivateKey.generate()
    message = os.urandom(MESSAGE_BYTES)
    signature, public = private.sign(message), private.public_key()
    key = from_public_key(public)
    return {
        "cryptography": per_second(lambda: public.verify(signature, message)),
        "in bulk": per_second(lambda: bulk_signatures.verify_signature(key, EDDSA, message, signature)),
    }


def per_second(verify: Callable[[], None], seconds: float = 1.0) -> float:
    count, begun = 0, time.process_time()
    while time.process_time() - begun < seconds:
        for _ in range(200):
            verify()
        count += 200
    return count / (time.process_time() - begun)


def change(home: Path, by: int) -> None:
    """Changes an old row, as somebody could who has the file."""
    connection = apsw.Connection(str(home / "store.db"), vfs=vfs.register())
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.execute("UPDATE facts SET recorded_at = recorded_at + ? WHERE seq = 2", (by,))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def environment() -> dict[str, str]:
    """Programs find their bytecode made, as those that are installed do."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(BYTECODE)}


def audit(home: Path, state: Path, verdict: str = "clean") -> dict[str, Any]:
    """One audit in a process of its own: what it said, and what it cost."""
    command = [sys.executable, "-m", "memory.cli", "audit", "--home", str(home), "--json"]
    command += ["--state", str(state), "--trust", str(home / "trust.toml")]
    raw_before = raw_rates()
    begun = time.perf_counter()
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.read())
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    wall = time.perf_counter() - begun
    raw = {name: (raw_before[name] + rate) / 2 for name, rate in raw_rates().items()}
    if document["verdict"] != verdict:
        raise SystemExit(f"expected the verdict to be {verdict}: {document['findings'][:3]}")
    # Of the command and of the processes that it began and waited for.
    cpu = used.ru_utime + used.ru_stime
    entries = document["counts"]["entries"]
    return {
        "entries": entries,
        "wall_seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "entries_per_wall_second": round(entries / wall),
        "entries_per_cpu_second": round(entries / cpu),
        "raw_verifications_per_cpu_second": {name: round(rate) for name, rate in raw.items()},
        "ratio": round(entries / cpu / raw["cryptography"], 3),
        "ratio_to_verification_in_bulk": round(entries / cpu / raw["in bulk"], 3),
        "ratio_of_all_cores_by_wall_time": round(
            entries / wall / raw["cryptography"] / (os.cpu_count() or 1), 3
        ),
        "findings": sorted({one["code"] for one in document["findings"]}),
        "peak_memory_mb": round(used.ru_maxrss / 1024),
        "load": round(os.getloadavg()[0], 1),
    }


def home_of(given: Path | None, facts: int, folder: Path) -> Path:
    """A home that may be written to: a copy of the given one, or one of so many facts."""
    if given is not None:
        shutil.copytree(given, folder)
    else:
        with init_home(folder) as made:
            write(made, 0, facts)
    return folder


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    more = arguments.more or max(arguments.facts // 100, 1)
    large = home_of(arguments.home, arguments.facts, folder / "large")
    small = home_of(arguments.small, more, folder / "small")
    state = folder / "state"
    audit(small, folder / "warm")
    first = audit(large, state)
    again = audit(large, state)
    change(large, 1)
    changed = audit(large, state, "findings")
    change(large, -1)
    with open_home(large) as opened:
        write(opened, arguments.facts, more)
    grown = audit(large, state)
    return {
        "machine": {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()},
        "versions": {
            "python": platform.python_version(),
            "cryptography": version("cryptography"),
            "pynacl": version("pynacl"),
            "in bulk": bulk_signatures.verifier(),
            "sqlite": apsw.sqlite_lib_version(),
        },
        "first": first,
        "again, with nothing new": again,
        "again, with an old row changed": changed,
        "again, with more": grown | {"new": grown["entries"] - first["entries"]},
        "as many as those alone": audit(small, state),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--more", type=int, default=None)
    parser.add_argument("--home", type=Path, default=None)
    parser.add_argument("--small", type=Path, default=None)
    try:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(run(parser.parse_args(), Path(folder)), indent=2))
    finally:
        shutil.rmtree(BYTECODE, ignore_errors=True)


if __name__ == "__main__":
    main()
