"""A long chat through the whole path: every turn imported, published and audited, in one run.

    python benchmarks/chat_import.py [--conversations N]

Reads `locomo10.json` in MUNIMENT_TEST_DATA. Each turn becomes a fact without a key; a turn that repeats another one
of the same conversation word for word is `agreed`. Prints counts, entries in the log, tree head, wall and CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MUNIMENT_TEST_DATA") or REPOSITORY.parent / "shared" / "data")


def turns(chat: dict[str, Any]) -> list[dict[str, Any]]:
    """The turns of one conversation as facts: who said what, in order."""
    conversation = chat["conversation"]
    sessions = sorted(
        (
            name
            for name in conversation
            if name.startswith("session_") and isinstance(conversation[name], list)
        ),
        key=lambda name: int(name.split("_")[1]),
    )
    facts = []
    for name in sessions:
        for turn in conversation[name]:
            text = turn.get("text") or turn.get("blip_caption") or "(picture)"
            facts.append({"text": f"{turn['speaker']}: {text}", "source": turn["dia_id"]})
    return facts


def muniment(arguments: list[str], home: Path, agent: str, stdin: str = "") -> dict[str, Any]:
    """What a command answers, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments, "--home", str(home), "--json"],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MUNIMENT_AGENT": agent},
    )
    if not done.stdout:
        raise SystemExit(f"muniment {arguments[0]} ended with {done.returncode}: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return {**answer, "exit": done.returncode}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=1000)
    args = parser.parse_args()
    path = DATA / "locomo10.json"
    if not path.is_file():
        print(f"skipped: {path} is not there")
        return 0
    chats = json.loads(path.read_text("utf-8"))[: args.conversations]
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, WAL, synchronous=FULL"
    )
    with tempfile.TemporaryDirectory(prefix="chat-import-") as folder:
        home = Path(folder) / "home"
        outcomes: Counter[str] = Counter()
        lines = 0
        began = time.monotonic()
        for number, chat in enumerate(chats):
            facts = "".join(json.dumps(fact) + "\n" for fact in turns(chat))
            report = muniment(["import", "jsonl", "-"], home, f"conversation-{number}", facts)
            outcomes.update(report["outcomes"])
            lines += report["lines"]
            assert not report["not_taken"], report["not_taken"][:3]
        imported = time.monotonic()
        head = muniment(["log", "publish"], home, "owner")
        published = time.monotonic()
        audit = muniment(["audit"], home, "owner")
        audited = time.monotonic()
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
        print(f"turns answered   {lines}: {dict(outcomes)}")
        print(f"log              {head['size']} entries, root {head['root']}, {head['state']}")
        print(f"audit            {audit['verdict']}, counts {audit['counts']}")
        times = (
            ("import", imported - began),
            ("publish", published - imported),
            ("audit", audited - published),
        )
        print("wall             " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in times))
        print(f"CPU              {cpu.ru_utime + cpu.ru_stime:.1f} s in all; home {size / 1e6:.1f} MB")
        return 0 if audit["verdict"] == "clean" and lines == sum(outcomes.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
