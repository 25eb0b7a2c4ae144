"""Peers installed for one run, in a folder of their own; a network that fails once is tried again."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TRIES = 3


class CannotInstall(Exception):
    """The peer cannot be had here today; the message says why."""


def run(command: list[str], cwd: Path | None = None, timeout: int = 240, **environment: str) -> str:
    """Standard output of a command that has to end with 0."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def install(command: list[str], what: str, cwd: Path | None = None) -> None:
    """Runs an installing command, three times if need be; CannotInstall if it never succeeds."""
    for attempt in range(TRIES):
        try:
            run(command, cwd, timeout=240)
            return
        except (RuntimeError, subprocess.TimeoutExpired, FileNotFoundError) as error:
            last = error
            time.sleep(2 * attempt)
    raise CannotInstall(f"{what} could not be installed ({type(last).__name__})")


def python(version: str | None = None) -> str:
    """A Python of that version, or any that is new enough."""
    arguments = ["sh", str(REPOSITORY / ".ci" / "find-python"), *([version] if version else [])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotInstall(f"no Python {version or '3.11'} that runs")
    return done.stdout.strip()


def environment(folder: Path, packages: list[str], version: str | None = None) -> Path:
    """The bin folder of a fresh virtual environment with these packages."""
    place = folder / "environment"
    run([python(version), "-m", "venv", str(place)])
    install([str(place / "bin" / "pip"), "install", "--quiet", *packages], ", ".join(packages))
    return place / "bin"


def apt(packages: list[str]) -> None:
    """Debian packages, installed as root where that is possible."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise CannotInstall(f"{', '.join(packages)}: needs apt-get as root")
    try:
        install(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], ", ".join(packages)
        )
    except CannotInstall:
        install(["apt-get", "update", "-qq"], "the list of packages")
        install(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], ", ".join(packages)
        )
