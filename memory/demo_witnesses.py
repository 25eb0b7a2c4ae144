"""Real witness processes for the demo: each with its own state, key and loopback port."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlog.errors import UnavailableError

NAMES: Final = ("witness-one.demo.invalid", "witness-two.demo.invalid")
_START_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Witness:
    """A running witness."""

    name: str
    vkey: str
    url: str
    pid: int


@contextmanager
def running_witnesses(folder: Path, log_vkey: str, origin: str) -> Iterator[tuple[Witness, ...]]:
    """Two witnesses that know the log; they are stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        started = [stack.enter_context(_running(folder / name, name, log_vkey, origin)) for name in NAMES]
        yield tuple(started)


@contextmanager
def _running(state: Path, name: str, log_vkey: str, origin: str) -> Iterator[Witness]:
    made = json.loads(_witness("init", "--state", str(state), "--name", name, "--json"))
    _witness("add-log", "--state", str(state), "--vkey", log_vkey, "--origin", origin, "--json")
    process = subprocess.Popen(
        _command("serve", "--state", str(state), "--listen", "127.0.0.1:0", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    )
    try:
        url = _listening_url(process)
        yield Witness(name, made["vkey"], url, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _listening_url(process: subprocess.Popen[str]) -> str:
    """The address from the first line that `witness serve --json` prints."""
    deadline = time.monotonic() + _START_SECONDS
    stdout = process.stdout
    while stdout is not None and time.monotonic() < deadline and process.poll() is None:
        if select.select([stdout], [], [], 0.5)[0]:
            line = stdout.readline()
            if line:
                return str(json.loads(line)["listening"])
    raise UnavailableError("a witness did not start within 30 seconds")


def _witness(*arguments: str) -> str:
    done = subprocess.run(
        _command(*arguments), text=True, capture_output=True, check=False, timeout=60, env=_environment()
    )
    if done.returncode:
        raise UnavailableError(f"muniment witness {arguments[0]} ended with code {done.returncode}")
    return done.stdout


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "memory.cli", "witness", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
