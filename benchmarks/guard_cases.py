"""Guard cases through `muniment batch --operator`, each on an empty store, with the guard on and off.

    python benchmarks/guard_cases.py [FILE] [--workers N] [--guard on|off] [--beside PYTHON | --alone] [--json FILE]

FILE holds one case a line (`id`, `class`, `steps`; a step is an operation with `as` and `want`); the default is
`echo/dev.jsonl` in MUNIMENT_TEST_DATA, and `tests/vectors/guard_cases.jsonl` is one too. As an argument of a step,
"$last" stands for the token of the refusal before it, "$id0" for the id that step 0 answered, "$now+60" and "$now-60"
for a minute from now and ago; the operation `wait` is time that passes.

Prints, for each class, how many cases came out wrong, and two rates: echoes that came back (classes echo-*, chain,
history-read), and true statements lost (all others), with that of true statements without a key that were held. A
second table has the same of what is served alone, so that another memory, inspeximus in an environment of its own, can
stand beside it: its words for outcomes are others.
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
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MUNIMENT_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
OTHER = "inspeximus==3.23.1"
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


class Wrong(NamedTuple):
    """A part of an answer that is not as wanted. `served`: it is about what is served, not about what is said of it."""

    step: int
    name: str
    wanted: Any
    got: Any
    served: bool

    def __str__(self) -> str:
        return f"step {self.step} {self.name}: wanted {self.wanted!r}, got {self.got!r}"


def problems(case: dict[str, Any], guard: str) -> list[Wrong]:
    """What came out other than wanted, step by step."""
    batch = Batch(guard)
    wrong: list[Wrong] = []
    given: dict[str, str | None] = {"$last": None}
    try:
        for number, wanted_step in enumerate(case["steps"]):
            if wanted_step["op"] == "wait":
                time.sleep(wanted_step["seconds"])
                continue
            answer = batch.ask(filled(wanted_step, given))
            result = answer.get("result") or {}
            given["$last"] = result.get("reaffirm") or given["$last"]
            given[f"$id{number}"] = result.get("id")
            for name, value in wanted_step.get("want", {}).items():
                if seen(name, answer, result) != value:
                    wrong.append(
                        Wrong(number, name, value, seen(name, answer, result), _is_served(wanted_step, name))
                    )
    finally:
        batch.close()
    return wrong


def _is_served(step: dict[str, Any], name: str) -> bool:
    unkeyed = step["op"] == "remember" and step.get("key") is None and name == "outcome"
    return name == "current" or unkeyed


def problems_elsewhere(cases: list[dict[str, Any]], python: str) -> dict[str, list[Wrong] | None]:
    """What inspeximus serves other than wanted, by case; None for a case that it cannot be asked."""
    lines = "".join(
        json.dumps({**case, "steps": [filled(s, {"$last": "yes"}) for s in case["steps"]]}) + "\n"
        for case in cases
    )
    done = subprocess.run(
        [python, str(Path(__file__).with_name("guard_inspeximus.py"))],
        input=lines,
        capture_output=True,
        text=True,
    )
    answers = {one["id"]: one["answers"] for one in map(json.loads, done.stdout.splitlines())}
    if len(answers) != len(cases):
        raise SystemExit(f"inspeximus: {len(answers)} of {len(cases)} cases answered\n{done.stderr[-2000:]}")
    return {case["id"]: _compared(case, answers[case["id"]]) for case in cases}


def _compared(case: dict[str, Any], answers: list[dict[str, Any]]) -> list[Wrong] | None:
    if any(
        "skipped" in answer and step["op"] != "conflicts"
        for step, answer in zip(case["steps"], answers, strict=True)
    ):
        return None
    wrong = []
    for number, (step, answer) in enumerate(zip(case["steps"], answers, strict=True)):
        for name, value in step.get("want", {}).items():
            got = answer.get(name)
            if name == "outcome" and "served" in answer:
                # Without a key: held means that a search by its own words does not give it.
                value, got = value not in ("held", "refused"), answer["served"]
            if _is_served(step, name) and got != value and "error" not in answer:
                wrong.append(Wrong(number, name, value, got, True))
    return wrong


def environment_of(other: str) -> tuple[str | None, str]:
    """The Python of an environment with the other memory, made in a temporary folder, or why there is none."""
    folder = Path(tempfile.mkdtemp(prefix="guard-other-env-"))
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", other]
    if made.returncode == 0:
        made = subprocess.run(install, capture_output=True, text=True)
    if made.returncode:
        return (
            None,
            f"{other} cannot be installed here: {(made.stderr.strip().splitlines() or ['no reason given'])[-1]}",
        )
    return python, ""


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


def run(cases: list[dict[str, Any]], guard: str, workers: int) -> dict[str, list[Wrong] | None]:
    """The problems of each case by its id."""
    with ThreadPoolExecutor(workers) as pool:
        return dict(zip((c["id"] for c in cases), pool.map(lambda c: problems(c, guard), cases), strict=True))


def is_echo(name: str) -> bool:
    """Whether the cases of a class are echoes; those of the others are true statements."""
    return name.startswith("echo-") or name in ECHO_CLASSES


def rates(
    cases: list[dict[str, Any]], results: dict[str, list[Wrong] | None], served_alone: bool
) -> dict[str, Any]:
    """By class, how many cases there are and how many came out wrong; and the sums of both kinds."""
    classes: dict[str, dict[str, int]] = {}
    for case in cases:
        wrong = results[case["id"]]
        row = classes.setdefault(case["class"], {"cases": 0, "wrong": 0, "not_asked": 0})
        row["cases"] += wrong is not None
        row["not_asked"] += wrong is None
        row["wrong"] += any(one.served or not served_alone for one in wrong or ())
    sums = {
        title: {
            kind: sum(row[kind] for name, row in classes.items() if is_echo(name) is echo)
            for kind in ("cases", "wrong")
        }
        for title, echo in (("echoes_back", True), ("true_statements_lost", False))
    }
    unkeyed = [row for name, row in classes.items() if name == "unkeyed-true"]
    held = {kind: sum(row[kind] for row in unkeyed) for kind in ("cases", "wrong")}
    return {"classes": classes, **sums, "true_unkeyed_held": held}


def show(columns: dict[str, dict[str, Any]]) -> None:
    """The table: cases that came out wrong, of how many, for each class and each store."""
    names = sorted(
        {name for column in columns.values() for name in column["classes"]}, key=lambda n: (not is_echo(n), n)
    )
    print(f"{'wrong of':<30}" + "".join(f"{title:>22}" for title in columns))
    for name in names:
        rows = (column["classes"].get(name, {"wrong": 0, "cases": 0}) for column in columns.values())
        print(f"{name:<30}" + "".join(f"{row['wrong']:>14} /{row['cases']:>6}" for row in rows))
    for title in ("echoes_back", "true_statements_lost", "true_unkeyed_held"):
        rows = (column[title] for column in columns.values())
        print(
            f"{title.replace('_', ' '):<30}"
            + "".join(f"{row['wrong']:>14} /{row['cases']:>6}" for row in rows)
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", default=str(DATA / "echo" / "dev.jsonl"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--guard", choices=("on", "off"), help="only so (default: both)")
    parser.add_argument(
        "--beside", metavar="PYTHON", help="the Python of an environment that has inspeximus already"
    )
    parser.add_argument("--alone", action="store_true", help="without inspeximus")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    args = parser.parse_args()
    path = Path(args.file)
    if not path.is_file():
        print(f"skipped: {path} is not there")
        return 0
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    machine = {
        "cases": len(cases),
        "file": path.name,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "muniment": tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["version"],
    }
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    results = {
        f"guard {g}": run(cases, g, args.workers) for g in ((args.guard,) if args.guard else ("on", "off"))
    }
    columns = {title: rates(cases, found, served_alone=False) for title, found in results.items()}
    compared = {
        f"{title}, served": rates(cases, found, served_alone=True) for title, found in results.items()
    }
    if not args.alone:
        python, why = (args.beside, "") if args.beside else environment_of(OTHER)
        if python is None:
            print(f"skipped: {why}")
        else:
            compared[f"{OTHER.replace('==', ' ')}, served"] = rates(
                cases, problems_elsewhere(cases, python), True
            )
    show(columns)
    print("\nWhat is served alone, whatever is said of it:")
    show(compared)
    for title, found in results.items():
        for case_id, wrong in found.items():
            for one in wrong or () if title == "guard on" else ():
                print(f"  {case_id}: {one}")
    if args.json:
        Path(args.json).write_text(
            json.dumps({"run": machine, "whole": columns, "served": compared}, indent=1) + "\n"
        )
    return 1 if any(next(iter(results.values())).values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
