"""What the peers look at: a small home, published twice, with receipts on files; and a log that crosses tiles."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installing import REPOSITORY

FACTS = 280  # more than a tile is wide
FIRST_FACTS = 11
LARGE_SIZES = (1, 255, 256, 257, 512, 65535, 65536, 65537, 66000)


@dataclass(frozen=True)
class Head:
    """A published head; the root in base64, as a checkpoint has it."""

    size: int
    root: str


@dataclass(frozen=True)
class Sample:
    """Where the home and the files for the peers lie."""

    home: Path
    vkey: str
    origin: str
    heads: tuple[Head, Head]
    receipt: Path
    proof: Path

    @property
    def log(self) -> Path:
        """The files that the home's log serves."""
        return self.home / "log"

    @property
    def checkpoint(self) -> bytes:
        return (self.log / "checkpoint").read_bytes()


@dataclass(frozen=True)
class Bench:
    """What a check has to hand: the sample, the peer, and a folder for its own files."""

    sample: Sample
    tool: Path
    folder: Path

    def write(self, name: str, data: bytes | str) -> str:
        """The path of a new file with this content."""
        path = self.folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)


def run_muniment(arguments: list[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command of Muniment that has ended, in whichever way."""
    return subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments],
        input=stdin or "",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=REPOSITORY,
    )


def muniment(home: Path, *arguments: str, stdin: str | None = None) -> dict[str, Any]:
    """What a command on a home answers, as JSON; it has to end with 0."""
    return _answer([*arguments, "--home", str(home), "--json"], stdin)


def witness(state: Path, command: str, *arguments: str) -> dict[str, Any]:
    """What a command on a witness's state answers, as JSON; it has to end with 0."""
    return _answer(["witness", command, "--state", str(state), *arguments, "--json"], None)


def _answer(arguments: list[str], stdin: str | None) -> dict[str, Any]:
    done = run_muniment(arguments, stdin)
    if done.returncode:
        raise RuntimeError(f"muniment {arguments[0]} ended with {done.returncode}: {done.stderr[-1500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def verifies(*arguments: str) -> bool:
    """Whether `muniment verify` says that all holds."""
    done = run_muniment(["verify", *arguments])
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"muniment verify ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.returncode == 0


def head_of(checkpoint: bytes) -> Head:
    """Size and root of a checkpoint."""
    _, size, root = checkpoint.decode("utf-8").split("\n")[:3]
    return Head(int(size), root)


def make_sample(folder: Path) -> Sample:
    """A home whose log holds a first tree and a grown one that crosses a full tile."""
    folder.mkdir(parents=True)
    home = folder / "home"
    described = muniment(home, "init")
    facts = [json.dumps({"text": f"fact number {number} of the sample"}) + "\n" for number in range(FACTS)]
    heads = []
    for part in (facts[:FIRST_FACTS], facts[FIRST_FACTS:]):
        muniment(home, "import", "jsonl", "-", stdin="".join(part))
        if part[-1] == facts[-1]:
            kept = muniment(
                home, "remember", "the sample ends here", "--key", "sample/end", "--value", "here"
            )
        muniment(home, "log", "publish")
        heads.append(head_of((home / "log" / "checkpoint").read_bytes()))
    receipt, proof = folder / "fact.cose", folder / "fact.tlog-proof"
    muniment(home, "receipt", kept["id"], "-o", str(receipt))
    muniment(home, "receipt", kept["id"], "--format", "tlog-proof", "-o", str(proof))
    first, last = heads
    return Sample(home, described["vkey"], described["origin"], (first, last), receipt, proof)


def make_large_log(folder: Path) -> dict[int, Head]:
    """The heads of a log in `folder`/log that was published at each of the sizes around the ends of tiles."""
    from tlog.keys import make_log_key
    from tlog.log import Log, LogSettings
    from tlog.storage import DirectoryStorage

    signer = make_log_key(folder / "keys" / "log.key", "large.interop.invalid")
    settings = LogSettings(
        "large.interop.invalid", (signer,), identify=lambda one: hashlib.sha256(one).digest()
    )
    log = Log(DirectoryStorage(folder / "log"), DirectoryStorage(folder / "log-state"), settings)
    log.recover()
    heads, done = {}, 0
    for size in LARGE_SIZES:
        log.append([f"entry {number}".encode() for number in range(done, size)])
        heads[size] = head_of(log.publish(30).note)
        done = size
    log.close()
    return heads
