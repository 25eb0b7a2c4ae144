"""Work of processes that are forked from one that has loaded what they need.

    server = ForkServer()
    server.scan(request)        what `memory.scan_process` answers
    server.run(arguments)       the exit code of a command, and what it says

Each is a process of its own, with no descriptor and no lock of whoever asks, and runs the same `main` as one that a
shell starts. Only starting Python and loading the modules, ten times what a small home takes, is done once.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

LOADED = (
    "memory.cli",
    "memory.scan_process",
    "memory.store",
    "memory.store_erase",
    "memory.vault",
    "ahocorasick_rs",
)
REPOSITORY = Path(__file__).resolve().parent.parent.parent


class ForkServer:
    """Starts with the first question, and ends with the process that asked it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def scan(self, request: dict[str, Any]) -> dict[str, Any]:
        """What `memory.scan_process._ask` gives."""
        from tlog.errors import UnavailableError

        said = self._ask({"scan": request | {"folder": os.path.abspath(request["folder"])}})
        answer, _, code = said.rpartition(b"\0")
        if code != b"0":
            raise UnavailableError("the residue scan did not end as it should", code="scan_failed")
        found: dict[str, Any] = json.loads(answer)
        return found

    def run(self, arguments: Sequence[str], limits: Sequence[tuple[int, int]] = ()) -> tuple[int, str]:
        """The exit code of a `muniment` command and all that it says; `limits` are those of its process.

        A command that was killed has the code -1.
        """
        said = self._ask({"command": list(arguments), "limits": limits})
        text, _, code = said.rpartition(b"\0")
        return (int(code), text.decode()) if code.lstrip(b"-").isdigit() else (-1, said.decode())

    def close(self) -> None:
        """Ends it, where it was started."""
        if self._process is not None:
            self._process.communicate(timeout=30)
            shutil.rmtree(self._folder)

    def _ask(self, question: dict[str, Any]) -> bytes:
        if self._process is None:
            self._start()
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(f"{self._folder}/socket")
            asking.sendall(json.dumps(question | {"environment": dict(os.environ)}).encode("ascii"))
            asking.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: asking.recv(1 << 16), b""))

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="muniment-forks-")
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the server of forks has failed to begin"


def serve(folder: Path) -> None:
    """Answers until its standard input ends."""
    # All that its commands load on their way, which no list of ours would keep up with.
    for path in sorted((REPOSITORY / "auditor").glob("*.py")):
        import_module(f"auditor.{path.stem}")
    for name in (
        "memory.cli",
        "memory.scan_process",
        "memory.store",
        "memory.store_erase",
        "memory.vault",
        "ahocorasick_rs",
    ):
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen(64)
    print("ready", flush=True)
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        asked, _ = listener.accept()
        if not os.fork():
            _answer(asked)
        asked.close()


def _answer(asked: socket.socket) -> None:
    """One piece of work, in the process that was forked for it: what it says, a zero, and its exit code."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        question = json.loads(b"".join(iter(lambda: asked.recv(1 << 16), b"")))
        os.environ.clear()
        os.environ.update(question["environment"])
        work = _scan(question["scan"]) if "scan" in question else _command(question)
        os.dup2(asked.fileno(), 1)
        if "command" in question:
            os.dup2(asked.fileno(), 2)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
        asked.sendall(b"\0%d" % code)
    except BaseException:  # noqa: BLE001 -- a child must never go on as its parent
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _scan(request: dict[str, Any]) -> Callable[[], int]:
    from memory import scan_process

    sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(request).encode("ascii")))
    return scan_process.main


def _command(question: dict[str, Any]) -> Callable[[], int]:
    from memory import cli

    for name, most in question["limits"]:
        resource.setrlimit(name, (most, most))
    return lambda: cli.main(question["command"])


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
