"""Witnesses as processes of their own on loopback ports, and requests to them that our client has no part in."""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from installing import REPOSITORY

START_SECONDS = 60.0
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    content_type: str
    body: bytes


def ask(url: str, body: bytes | None = None) -> Answer:
    """The answer to a POST of the body, or to a GET without one."""
    try:
        with _NO_PROXY.open(urllib.request.Request(url, body), timeout=60) as reply:
            return Answer(reply.status, reply.headers.get("content-type", ""), reply.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.headers.get("content-type", ""), refusal.read())


def ask_to_cosign(url: str, old_size: int, proof: str, note: bytes) -> Answer:
    """The answer to an add-checkpoint request written out by hand; the proof is lines of base64."""
    return ask(f"{url}/add-checkpoint", f"old {old_size}\n{proof}\n".encode() + note)


def served_checkpoint(url: str, origin: str) -> Answer:
    """The last head of a log that the witness serves to monitors."""
    return ask(f"{url}/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint")


@contextmanager
def our_witness(state: Path) -> Iterator[str]:
    """The address of our own witness, running on its state."""
    serve = ["witness", "serve", "--state", str(state), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "memory.cli", *serve],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], START_SECONDS)[0]:
            raise RuntimeError("our witness did not start in time")
        yield str(json.loads(process.stdout.readline())["listening"])
    finally:
        _stop(process)


@contextmanager
def serving(command: list[str], port: int, folder: Path, settings: dict[str, str]) -> Iterator[str]:
    """The address of a server that listens on this port of the loopback interface."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if not _answers(process, port):
            raise RuntimeError(f"{Path(command[0]).name} did not start in time")
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether the process came to listen on the port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


def _stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
