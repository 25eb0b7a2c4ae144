"""A small home for the peers to look at: some facts, published twice, with receipts and openings on files."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installing import REPOSITORY, run

FACTS = 300


@dataclass(frozen=True)
class Sample:
    """Where the home and the files for the peers lie."""

    home: Path
    vkey: str
    origin: str
    checkpoint: Path
    old_size: int
    old_root: str
    size: int
    root: str
    receipt: Path


def muniment(home: Path, *arguments: str, stdin: str | None = None) -> dict[str, Any]:
    """What a command answers, as JSON."""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments, "--home", str(home), "--json"],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=REPOSITORY,
    )
    if done.returncode:
        raise RuntimeError(f"muniment {arguments[0]} ended with {done.returncode}: {done.stderr[-1500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def checkpoint_lines(path: Path) -> tuple[str, int, str]:
    """Origin, size and root (base64) of a checkpoint."""
    origin, size, root = path.read_text("utf-8").split("\n")[:3]
    return origin, int(size), root


def make_sample(folder: Path) -> Sample:
    """A home whose log holds a first tree and a grown one that crosses a full tile."""
    folder.mkdir(parents=True)
    home = folder / "home"
    described = muniment(home, "init")
    facts = [json.dumps({"text": f"fact number {number} of the sample"}) for number in range(FACTS)]
    muniment(home, "import", "jsonl", "-", stdin="\n".join(facts[:10]) + "\n")
    muniment(home, "log", "publish")
    _, old_size, old_root = checkpoint_lines(home / "log" / "checkpoint")
    muniment(home, "import", "jsonl", "-", stdin="\n".join(facts) + "\n")
    kept = muniment(home, "remember", "the sample ends here", "--key", "sample/end", "--value", "here")
    muniment(home, "log", "publish")
    origin, size, root = checkpoint_lines(home / "log" / "checkpoint")
    receipt = folder / "fact.cose"
    muniment(home, "receipt", kept["id"], "-o", str(receipt))
    return Sample(
        home, described["vkey"], origin, home / "log" / "checkpoint", old_size, old_root, size, root, receipt
    )


__all__ = ["REPOSITORY", "Sample", "make_sample", "muniment", "run"]
