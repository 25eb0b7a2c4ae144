"""The residue scan, in a process of its own.

POSIX drops every lock that a process has on a file as soon as it closes any descriptor of that file. Whoever
reads `store.db` byte by byte beside open connections takes their locks away, and another process may then reset
the write-ahead log under them. So the scan, which is the auditor's code and not ours, runs apart: needles go
down a pipe, places and counts come back, and nothing of it is in an argument list, an environment or a file.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from auditor.residue import ScanResult

_RESIDUE: Final = "auditor.residue"
_MODULE: Final = "memory.scan_process"


def scan_apart(folder: Path, needles: Sequence[str | bytes], *, canary: str) -> ScanResult:
    """What `auditor.residue.scan_files` finds in the folder; UnavailableError if it could not be run."""
    request = json.dumps(
        {"folder": str(folder), "canary": canary, "needles": [_pack(needle) for needle in needles]}
    )
    environment = {**os.environ, "PYTHONPATH": _search_path()}
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE],
            input=request.encode("ascii"),
            capture_output=True,
            env=environment,
            check=False,
        )
    except OSError as error:
        raise UnavailableError(
            f"the residue scan cannot be run: {error.strerror}", code="scan_failed"
        ) from None
    if done.returncode != 0:
        raise UnavailableError("the residue scan did not end as it should", code="scan_failed")
    return _result(json.loads(done.stdout))


def main() -> int:
    """Reads one request from standard input and writes what the scan finds to standard output."""
    request = json.loads(sys.stdin.buffer.read())
    needles = [_unpack(needle) for needle in request["needles"]]
    residue = import_module(_RESIDUE)
    result = residue.scan_files(Path(request["folder"]), needles, canary=request["canary"])
    sys.stdout.write(json.dumps(asdict(result)))
    return 0


def _pack(needle: str | bytes) -> list[str]:
    if isinstance(needle, bytes):
        return ["bytes", base64.b64encode(needle).decode("ascii")]
    return ["text", needle]


def _unpack(needle: Sequence[str]) -> str | bytes:
    kind, value = needle
    return base64.b64decode(value) if kind == "bytes" else value


def _result(fields: dict[str, Any]) -> ScanResult:
    residue = import_module(_RESIDUE)
    hits = tuple(residue.Hit(**hit) for hit in fields.pop("hits"))
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    result: ScanResult = residue.ScanResult(hits=hits, **lists)
    return result


def _search_path() -> str:
    """Where the child finds the same packages as this process, also from a folder that is not installed."""
    own = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join([own, *(part for part in [os.environ.get("PYTHONPATH")] if part)])


if __name__ == "__main__":
    raise SystemExit(main())
