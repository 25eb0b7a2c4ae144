"""Peers installed for one run, in a folder of their own; a network that fails once is tried again."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
INSTALL_SECONDS = 150.0  # for all tries together: a registry that hangs must not cost the run its time
TRIES = 3

_NOT_THERE = ("E404", "ETARGET", "Unable to locate package")


class CannotInstall(Exception):
    """The peer cannot be had here today; the message says why."""


@dataclass(frozen=True)
class Tool:
    """An installed peer: the program, or the folder of its programs, and the version it gives itself."""

    path: Path
    version: str


def run(command: list[str], cwd: Path | None = None, timeout: float = 120, **environment: str) -> str:
    """Standard output of a command that has to end with 0."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def install(command: list[str], what: str, cwd: Path | None = None) -> None:
    """Runs an installing command, three times if need be; CannotInstall if it never succeeds in time."""
    deadline = time.monotonic() + INSTALL_SECONDS
    reason = "never tried"
    for attempt in range(TRIES):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            run(command, cwd, timeout=left)
            return
        except FileNotFoundError:
            raise CannotInstall(f"{what}: there is no {Path(command[0]).name} here") from None
        except subprocess.TimeoutExpired:
            reason = f"not had within {INSTALL_SECONDS:.0f} seconds"
        except RuntimeError as error:
            if any(word in str(error) for word in _NOT_THERE):
                raise CannotInstall(f"{what}: its registry has no such package or version") from None
            # pip says so of a package that is not there, and of a registry that does not answer.
            unsure = "No matching distribution" in str(error)
            reason = "not to be had from its registry" if unsure else f"failed {attempt + 1} times"
        time.sleep(2 * attempt)
    raise CannotInstall(f"{what}: {reason}")


def python(*versions: str) -> str:
    """A Python of the first of these versions that there is; without any, one that Muniment runs on."""
    for version in versions or ("",):
        done = subprocess.run(
            ["sh", str(REPOSITORY / ".ci" / "find-python"), *([version] if version else [])],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.strip()
    raise CannotInstall(f"no Python {' or '.join(versions) or '3.11 or newer'} that runs")


def environment(folder: Path, package: str, *versions: str) -> Path:
    """The bin folder of a fresh virtual environment with the package."""
    place = folder / "environment"
    install([python(*versions), "-m", "venv", "--clear", str(place)], f"an environment for {package}")
    install_package(place, package)
    return place / "bin"


def install_package(place: Path, *what: str) -> None:
    """Installs packages into a virtual environment; the last of them names the peer in errors."""
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    install([*pip, "install", "--quiet", *what], what[-1])


def node_modules(folder: Path, *packages: str) -> Path:
    """The folder, with the npm packages in it; scripts in it may import them."""
    what = ", ".join(packages)
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise CannotInstall(f"{what}: there is no node and npm here")
    (folder / "package.json").write_text('{"type":"module","private":true}', "utf-8")
    install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages], what, folder)
    return folder


def apt(packages: list[str]) -> None:
    """Debian packages, installed as root where that is possible."""
    what = ", ".join(packages)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise CannotInstall(f"{what}: needs apt-get as root")
    get = ["apt-get", "-o", "DPkg::Lock::Timeout=60", "-qq"]
    wanted = [*get, "install", "-y", "--no-install-recommends", *packages]
    try:
        install(wanted, what)
    except CannotInstall:  # with no list of packages yet, or an old one
        install([*get, "update"], "Debian's list of packages")
        install(wanted, what)
