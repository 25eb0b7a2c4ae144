"""aics-witness (PyPI, Python 3.12 or newer) co-signs our log over HTTP, through growth and a restart."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from installing import CannotInstall, environment, run
from sample import Sample, muniment

NAME = "witness.interop.invalid/w1"


def check(_: Sample, folder: Path) -> str:
    """Three heads of a fresh log are witnessed, the last two by a restarted witness; another log's key is not."""
    try:
        program = environment(folder, ["aics-witness==0.1.0"], "3.12") / "aics-witness"
    except CannotInstall:
        program = environment(folder, ["aics-witness==0.1.0"], "3.13") / "aics-witness"
    home = folder / "home"
    described = muniment(home, "init")
    settings = {"AICS_WITNESS_CONFIG": str(folder / "witness.json")}
    run([str(program), "init", "--name", NAME], cwd=folder, **settings)
    run(
        [str(program), "add-log", "--origin", described["origin"], "--vkey", described["vkey"]],
        cwd=folder,
        **settings,
    )
    port = _free_port()
    with _serving(program, port, folder, settings):
        vkey = _vkey(json.loads(run([str(program), "status", "--json"], cwd=folder, **settings)))
        policy = folder / "policy"
        policy.write_text(
            f"log {described['vkey']}\nwitness peer {vkey} http://127.0.0.1:{port}\nquorum peer\n", "utf-8"
        )
        muniment(home, "log", "policy", str(policy))
        _publish(home, "first")
    with _serving(program, port, folder, settings):
        _publish(home, "second")
        _publish(home, "third")
    return "three heads witnessed, over a restart of the witness"


def _publish(home: Path, word: str) -> None:
    muniment(home, "remember", f"the {word} fact for the peer")
    state = muniment(home, "log", "publish")
    if state["state"] != "witnessed":
        raise AssertionError(f"the {word} head is {state['state']}")


def _vkey(status: object) -> str:
    """The one Ed25519 cosignature key in the witness's own status, wherever it stands in it."""
    if isinstance(status, str) and status.startswith(NAME + "+"):
        return status
    children = status.values() if isinstance(status, dict) else status if isinstance(status, list) else ()
    found = [vkey for vkey in map(_vkey, children) if vkey]
    return found[0] if found else ""


@contextmanager
def _serving(program: Path, port: int, folder: Path, settings: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [str(program), "serve", "--listen", f"127.0.0.1:{port}"],
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=15)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
