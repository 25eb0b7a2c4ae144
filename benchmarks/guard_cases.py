"""Guard cases through `muniment batch --operator`, each on an empty store, with the guard on and off.

    python benchmarks/guard_cases.py [FILE] [--workers N] [--guard on|off]

FILE holds one case a line (`id`, `class`, `steps`; a step is an operation with `as` and `want`); the default is
`echo/dev.jsonl` in MUNIMENT_TEST_DATA, and `tests/vectors/guard_cases.jsonl` is one too. As an argument of a step,
"$last" stands for the token of the refusal before it, "$id0" for the id that step 0 answered, "$now+60" and "$now-60"
for a minute from now and ago; the operation `wait` is time that passes. Prints, for each class, how many cases came
out as wanted. Two rates sum it up: echoes that came back (classes echo-*, chain, history-read), and true statements
lost (all others).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MUNIMENT_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
ECHO_CLASSES = ("chain", "history-read")
NOW = re.compile(r"\$now([+-]\d+)")


class Batch:
    """One `muniment batch --operator` on a fresh home."""

    def __init__(self, guard: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="guard-cases-")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "memory.cli",
                "batch",
                "--operator",
                "--write-guard",
                guard,
                "--home",
                f"{self.folder.name}/h",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )

    def ask(self, step: dict[str, Any]) -> dict[str, Any]:
        """The answer to one line."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(step) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends the process and removes the home."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.folder.cleanup()


def problems(case: dict[str, Any], guard: str) -> list[str]:
    """What came out other than wanted, step by step."""
    batch = Batch(guard)
    wrong: list[str] = []
    given: dict[str, str | None] = {"$last": None}
    try:
        for number, wanted_step in enumerate(case["steps"]):
            want = wanted_step.get("want", {})
            if wanted_step["op"] == "wait":
                time.sleep(wanted_step["seconds"])
                continue
            answer = batch.ask(filled(wanted_step, given))
            result = answer.get("result") or {}
            given["$last"] = result.get("reaffirm") or given["$last"]
            given[f"$id{number}"] = result.get("id")
            for name, value in want.items():
                if seen(name, answer, result) != value:
                    wrong.append(
                        f"step {number} {name}: wanted {value!r}, got {seen(name, answer, result)!r}"
                    )
    finally:
        batch.close()
    return wrong


def filled(step: dict[str, Any], given: dict[str, str | None]) -> dict[str, Any]:
    """The line of a step: without what is wanted of it, and with what its placeholders stand for."""
    line = {}
    for name, value in step.items():
        now = NOW.fullmatch(value) if isinstance(value, str) else None
        told = int(time.time()) + int(now[1]) if now else value
        if isinstance(value, str) and value in given:
            told = given[value]
        # What no step has answered, the line goes without: a token that the refusal did not give.
        if name != "want" and told is not None:
            line[name] = told
    return line


def seen(name: str, answer: dict[str, Any], result: dict[str, Any]) -> Any:
    """The part of an answer that a `want` speaks of."""
    if name == "ok":
        return answer["ok"]
    if name == "outcome" and not answer["ok"]:
        return "error"
    if name == "active":
        return len(result.get("active", ()))
    if name == "count":
        return len(result.get("conflicts", ()))
    return result.get(name)


def run(cases: list[dict[str, Any]], guard: str, workers: int) -> dict[str, list[str]]:
    """The problems of each case by its id."""
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip((c["id"] for c in cases), pool.map(lambda c: problems(c, guard), cases), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", default=str(DATA / "echo" / "dev.jsonl"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--guard", choices=("on", "off"), help="only so (default: both)")
    args = parser.parse_args()
    path = Path(args.file)
    if not path.is_file():
        print(f"skipped: {path} is not there")
        return 0
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    print(
        f"{len(cases)} cases, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    )
    guards = (args.guard,) if args.guard else ("on", "off")
    by_guard = {guard: run(cases, guard, args.workers) for guard in guards}
    total = Counter(case["class"] for case in cases)
    held = {
        guard: Counter(case["class"] for case in cases if not results[case["id"]])
        for guard, results in by_guard.items()
    }
    print(f"{'class':<28}{'cases':>6}" + "".join(f"{f'guard {guard}':>10}" for guard in guards))
    for name, count in sorted(total.items()):
        print(f"{name:<28}{count:>6}" + "".join(f"{held[guard][name]:>10}" for guard in guards))
    for title, wanted in (("echoes that came back", True), ("true statements lost", False)):
        names = [n for n in total if (n.startswith("echo-") or n in ECHO_CLASSES) is wanted]
        cases_in = sum(total[n] for n in names)
        figures = [f"guard {g}: {cases_in - sum(held[g][n] for n in names)} of {cases_in}" for g in guards]
        print(f"{title}: {', '.join(figures)}")
    for case_id, wrong in by_guard[guards[0]].items():
        for line in wrong:
            print(f"  {case_id}: {line}")
    return 1 if any(by_guard[guards[0]].values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
