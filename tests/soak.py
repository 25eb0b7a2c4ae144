"""A long mixed load on one home: two processes killed at random, one that lives, publishing, witnessing and erasing.

    python tests/soak.py --minutes 30 [--seed N]

Each of the three writes and reads, and prints an acknowledgement after each write it was answered for. At the end every
acknowledged fact is there or was erased, the log agrees with the store and has the cosignatures of both witnesses, and
the audit is clean. The process that lives tells its memory and its open files as it goes: in the last third they are
what they were in the second, as are the bytes of the home for each statement, and nothing unfinished lies about.
Closes with a table and the line `soak: N passed, M failed`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from memory.demo_witnesses import Witness, running_witnesses  # noqa: E402
from memory.wiring import open_home  # noqa: E402

SAMPLE = 100
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
WRITER = """
import os, random, sys
from memory.wiring import open_home
from memory.principal import make_principal, with_all_scopes
home = open_home(sys.argv[1])
memory = home.memory(with_all_scopes(make_principal("soak", "soak", sys.argv[2])))
start = int(sys.argv[3])
chance = random.Random(start)
for number in range(start, start + 10_000_000):
    key = f"item-{number % 50}/state-{sys.argv[2]}" if number % 3 else None
    answer = memory.remember(
        f"state number {number} of {sys.argv[2]}", key=key, value=f"value {number}" if key else None,
        idempotency_key=f"{sys.argv[2]}-{number}",
    )
    print(number, answer["id"], answer["outcome"], flush=True)
    for _ in range(3):
        memory.recall(f"state number {chance.randrange(number + 1)}")
    kept = f"item-{chance.randrange(50)}/state-{sys.argv[2]}"
    memory.get(kept)
    memory.get(kept, as_of="now")
    if number % 20 == 0:
        memory.history(f"item-{number % 3 + 1}/state-{sys.argv[2]}")
        if answer["outcome"] == "stored":
            memory.provenance(answer["id"])
        with open("/proc/self/status") as file:
            kibibytes = next(line.split()[1] for line in file if line.startswith("VmRSS"))
        print("uses", kibibytes, len(os.listdir("/proc/self/fd")), flush=True)
"""
POLICY = """{lines}
group both all {names}
quorum both
"""
# What a process may hold more in the last third than in the second, for what it learns on the way: as a part, and
# in KiB, since a short run is still filling its caches.
MORE = 1.15
MORE_KIBIBYTES = 8 * 1024
MAX_WAL_BYTES = 128 * 1024 * 1024


@dataclass
class Writer:
    """A writing process, restarted whenever it was killed; what it was answered, by number."""

    name: str
    home: Path
    acknowledged: dict[int, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    said: Path = Path(os.devnull)
    kills: int = 0
    uses: list[tuple[int, int]] = field(default_factory=list)
    """Memory in KiB and open files, as it told them."""

    def start(self) -> None:
        begin = max(self.acknowledged, default=-1) + 1
        # A file, for a pipe that nobody reads fills up; each process has its own, as the last line may be cut short.
        self.said = self.home.parent / f"{self.name}-{self.kills}.txt"
        with self.said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(self.home), self.name, str(begin)],
                stdout=file,
                env=ENVIRONMENT,
            )

    def kill(self) -> None:
        """Ends the process at once and reads what it had said."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for line in self.said.read_text("utf-8").splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[0] == "uses":
                self.uses.append((int(parts[1]), int(parts[2])))
            elif len(parts) == 3:
                self.acknowledged[int(parts[0])] = parts[1]
        self.kills += 1
        self.process = None


def command(home: Path, *arguments: str) -> dict[str, Any]:
    """What a command answers, as JSON, with its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments, "--home", str(home), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "MUNIMENT_TENANT": "soak", "MUNIMENT_AGENT": "soak"},
        timeout=600,
    )
    if not done.stdout.strip():
        return {"exit": done.returncode, "stderr": done.stderr[-2000:]}
    return {**json.loads(done.stdout), "exit": done.returncode}


def erase_one(home: Path, writers: list[Writer], erased: set[str], chance: random.Random) -> str | None:
    """Erases one acknowledged fact; gives what went wrong, if anything did."""
    ids = [one for writer in writers for one in writer.acknowledged.values() if one not in erased]
    if not ids:
        return None
    chosen = chance.choice(ids)
    preview = command(home, "forget", "--id", chosen)
    if preview["exit"] != 0:
        return f"preview: {preview}"
    done = command(home, "forget", "--id", chosen, "--confirm", preview["confirm"])
    # Beside writers, another change may come between preview and confirmation: then there is a new preview.
    if "erased" in done:
        erased.add(chosen)
        return None if done["state"] in ("closed_complete", "inconclusive") else f"erasure: {done}"
    return None if done.get("error", {}).get("code") in ("token_invalid", "busy") else f"erasure: {done}"


def ask_witnesses(home: Path, witnesses: tuple[Witness, ...]) -> None:
    """Makes both witnesses the quorum of the home."""
    lines = "\n".join(f"witness w{at} {one.vkey} {one.url}" for at, one in enumerate(witnesses))
    names = " ".join(f"w{at}" for at in range(len(witnesses)))
    with open_home(home) as opened:
        opened.set_policy(POLICY.format(lines=lines, names=names))


def final_checks(home: Path, writers: list[Writer], erased: set[str]) -> list[tuple[str, bool, str]]:
    """Each claim of the soak, whether it holds, and what was seen."""
    publish = command(home, "log", "publish")
    audit = command(home, "audit")
    there = [one for writer in writers for one in writer.acknowledged.values() if one not in erased]
    # A sample: each costs a process, and the audit compares them all.
    asked = there[:: max(1, len(there) // SAMPLE)]
    missing = [one for one in asked if command(home, "provenance", one)["exit"] != 0]
    fsck = command(home, "log", "fsck")
    status = command(home, "status")
    answered = sum(len(writer.acknowledged) for writer in writers)
    return [
        ("the log is published", publish["exit"] == 0, f"{publish.get('size')} entries"),
        ("both witnesses signed it", status.get("log", {}).get("witnessed") is True, str(status.get("log"))),
        ("the audit is clean", audit.get("verdict") == "clean", str(audit.get("findings", audit))[:500]),
        ("the log re-derives its root", fsck["exit"] == 0, f"exit {fsck['exit']}"),
        (
            "acknowledged facts are there",
            not missing,
            f"{answered} acknowledged, {len(missing)} of {len(asked)} missing",
        ),
    ]


def flat(lasting: Writer, sizes: list[tuple[int, int]], home: Path) -> list[tuple[str, bool, str]]:
    """Whether the process that lived, and the files of the home, ended as they were in the middle."""
    uses = lasting.uses
    second, last = uses[len(uses) // 3 : 2 * len(uses) // 3], uses[2 * len(uses) // 3 :]
    before, after = (max((one[0] for one in part), default=0) for part in (second, last))
    files = [max((one[1] for one in part), default=0) for part in (second, last)]
    enough = bool(second and last)
    each = [size / statements for size, statements in sizes if statements] or [0.0]
    middle = each[len(each) // 2]
    left = [file for file in home.rglob("*") if ".tmp" in file.relative_to(home).parts and file.is_file()]
    wal = home / "store.db-wal"
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    return [
        (
            "memory is flat",
            enough and after <= before * MORE + MORE_KIBIBYTES,
            f"{before / 1024:.0f} MB, then {after / 1024:.0f} MB, told {len(uses)} times",
        ),
        ("open files are as many", enough and files[1] <= files[0], f"{files[0]}, then {files[1]}"),
        (
            "bytes a statement are flat",
            each[-1] <= middle * MORE,
            f"{each[0]:.0f} at first, {middle:.0f} in the middle, {each[-1]:.0f} at the end",
        ),
        ("the write-ahead log is bounded", wal_bytes <= MAX_WAL_BYTES, f"{wal_bytes / 1e6:.1f} MB"),
        ("nothing unfinished lies about", not left, f"{len(left)} files"),
    ]


def home_size(home: Path) -> tuple[int, int]:
    """Bytes of the home's files, and its statements."""
    size = 0
    for file in home.rglob("*"):
        try:
            # Not what is written ahead, which a checkpoint takes away at once.
            size += file.stat().st_size if file.is_file() and not file.name.endswith("-wal") else 0
        except FileNotFoundError:
            continue
    return size, int(command(home, "status").get("store", {}).get("statements", 0))


def load(home: Path, minutes: float, chance: random.Random) -> list[tuple[str, bool, str]]:
    """What was seen of each claim after so many minutes of it."""
    writers, lasting = [Writer("one", home), Writer("two", home)], Writer("three", home)
    erased: set[str] = set()
    problems: list[str] = []
    sizes: list[tuple[int, int]] = []
    began = time.monotonic()
    lasting.start()
    while (passed := time.monotonic() - began) < minutes * 60:
        for writer in writers:
            if writer.process is None:
                writer.start()
        time.sleep(chance.uniform(0.5, 3.0))
        chance.choice(writers).kill()
        action = chance.random()
        if action < 0.5:
            published = command(home, "log", "publish")
            if published["exit"] not in (0, 3):
                problems.append(f"publish: {published}")
        elif action < 0.8 and (problem := erase_one(home, writers, erased, chance)):
            problems.append(problem)
        if lasting.process is not None and lasting.process.poll() is not None:
            problems.append(f"the process that lives ended with {lasting.process.returncode}")
            lasting.kill()
        if passed > minutes * 60 * len(sizes) / 10:
            sizes.append(home_size(home))
    for writer in (*writers, lasting):
        writer.kill()
    sizes.append(home_size(home))
    rows = final_checks(home, [*writers, lasting], erased) + flat(lasting, sizes, home)
    rows.append(("nothing went wrong on the way", not problems, "; ".join(problems[:3]) or "no problems"))
    kills = sum(writer.kills for writer in writers)
    print(f"{kills} kills, {len(erased)} erasures, home {sizes[-1][0] / 1e6:.1f} MB")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"soak for {args.minutes} minutes, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        home = Path(folder) / "home"
        command(home, "init")
        with open_home(home) as opened:
            vkey, origin = opened.log_vkey(), opened.origin
        with running_witnesses(Path(folder) / "witnesses", vkey, origin) as witnesses:
            ask_witnesses(home, witnesses)
            rows = load(home, args.minutes, random.Random(seed))
        for name, held, seen in rows:
            print(f"{'passed' if held else 'FAILED':<8}{name}: {seen}")
        failed = sum(1 for _, held, _ in rows if not held)
        print(f"soak: {len(rows) - failed} passed, {failed} failed")
        return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
