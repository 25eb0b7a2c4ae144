"""A long mixed load on one home: two writing processes killed at random, publishing, erasing and auditing meanwhile.

    python tests/soak.py --minutes 30 [--seed N]

Each writer prints an acknowledgement after each write it was answered for. At the end every acknowledged fact is
there once or was erased, the log agrees with the store, the audit is clean, and memory and file sizes are printed.
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
SAMPLE = 100
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
WRITER = """
import sys
from memory.wiring import open_home
from memory.principal import make_principal, with_all_scopes
home = open_home(sys.argv[1])
memory = home.memory(with_all_scopes(make_principal("soak", "soak", sys.argv[2])))
start = int(sys.argv[3])
for number in range(start, start + 100000):
    key = f"item-{number % 50}/state-{sys.argv[2]}" if number % 3 else None
    answer = memory.remember(
        f"state number {number} of {sys.argv[2]}", key=key, value=f"value {number}" if key else None,
        idempotency_key=f"{sys.argv[2]}-{number}",
    )
    print(number, answer["id"], answer["outcome"], flush=True)
"""


@dataclass
class Writer:
    """A writing process, restarted whenever it was killed; what it was answered, by number."""

    name: str
    home: Path
    acknowledged: dict[int, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    kills: int = 0

    def start(self) -> None:
        begin = max(self.acknowledged, default=-1) + 1
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(self.home), self.name, str(begin)],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def kill(self) -> None:
        """Ends the process at once and reads what it had said."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGKILL)
        said, _ = self.process.communicate()
        for line in said.splitlines():
            parts = line.split()
            if len(parts) == 3:
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


def final_checks(home: Path, writers: list[Writer], erased: set[str]) -> list[tuple[str, bool, str]]:
    """Each claim of the soak, whether it holds, and what was seen."""
    publish = command(home, "log", "publish")
    audit = command(home, "audit")
    there = [one for writer in writers for one in writer.acknowledged.values() if one not in erased]
    # A sample: each costs a process, and the audit compares them all.
    asked = there[:: max(1, len(there) // SAMPLE)]
    missing = [one for one in asked if command(home, "provenance", one)["exit"] != 0]
    fsck = command(home, "log", "fsck")
    answered = sum(len(writer.acknowledged) for writer in writers)
    return [
        ("the log is published", publish["exit"] == 0, f"{publish.get('size')} entries"),
        ("the audit is clean", audit.get("verdict") == "clean", str(audit.get("findings", audit))[:500]),
        ("the log re-derives its root", fsck["exit"] == 0, f"exit {fsck['exit']}"),
        (
            "acknowledged facts are there",
            not missing,
            f"{answered} acknowledged, {len(missing)} of {len(asked)} missing",
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"soak for {args.minutes} minutes, seed {seed}", flush=True)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        home = Path(folder) / "home"
        command(home, "init")
        writers = [Writer("one", home), Writer("two", home)]
        erased: set[str] = set()
        problems: list[str] = []
        deadline = time.monotonic() + args.minutes * 60
        while time.monotonic() < deadline:
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
        for writer in writers:
            writer.kill()
        rows = final_checks(home, writers, erased)
        rows.append(("nothing went wrong on the way", not problems, "; ".join(problems[:3]) or "no problems"))
        size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
        kills = sum(writer.kills for writer in writers)
        print(f"{kills} kills, {len(erased)} erasures, home {size / 1e6:.1f} MB")
        for name, held, seen in rows:
            print(f"{'passed' if held else 'FAILED':<8}{name}: {seen}")
        failed = sum(1 for _, held, _ in rows if not held)
        print(f"soak: {len(rows) - failed} passed, {failed} failed")
        return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
