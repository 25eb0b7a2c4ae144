"""The residue scan of `memory.scan_process`, answered by processes forked from one that has loaded what it needs.

    from scan_server import ask

Each look is a process of its own, with no descriptor and no lock of whoever asks, and runs the same `main` as ever.
Only starting Python and loading the auditor anew, ten times what the look at a small home takes, is done once.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LOADED = (
    "memory.scan_process",
    "memory.store",
    "memory.store_erase",
    "memory.vault",
    "tlog.errors",
    "auditor.residue",
    "auditor.hits",
    "auditor.controls",
    "auditor.checks_pages",
    "auditor.sqlite_file",
    "auditor.home_files",
    "ahocorasick_rs",
)


class ScanServer:
    """Starts with the first question, and ends with the process that asked it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """What `memory.scan_process._ask` gives."""
        from tlog.errors import UnavailableError

        if self._process is None:
            self._start()
        place = os.path.abspath(request["folder"])
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(f"{self._folder}/socket")
            asking.sendall(json.dumps({**request, "folder": place}).encode("ascii"))
            asking.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: asking.recv(1 << 16), b""))
        if not answer:
            raise UnavailableError("the residue scan did not end as it should", code="scan_failed")
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """Ends it, where it was started."""
        if self._process is not None:
            self._process.communicate(timeout=30)
            shutil.rmtree(self._folder)

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="muniment-scans-")
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the server of scans has failed to begin"


def serve(folder: Path) -> None:
    """Answers until its standard input ends."""
    for name in LOADED:
        import_module(name)
    main: Callable[[], int] = import_module("memory.scan_process").main
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen(64)
    print("ready", flush=True)
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        asked, _ = listener.accept()
        if not os.fork():
            _answer(main, asked)
        asked.close()


def _answer(main: Callable[[], int], asked: socket.socket) -> None:
    """One look, in the process that was forked for it: the question is its standard input, the answer its output."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(asked.fileno(), 0)
        os.dup2(asked.fileno(), 1)
        asked.close()
        code = main()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 -- a child must never go on as its parent
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
