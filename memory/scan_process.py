"""The residue scan and the check of free space, in a process of their own.

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
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tlog.errors import Error, UnavailableError

if TYPE_CHECKING:
    from auditor.residue import ScanResult

_AUDITOR: Final = "auditor"
_MODULE: Final = "memory.scan_process"
_STORE: Final = "store.db"
_WAL: Final = "store.db-wal"
_WAL_HEADER_BYTES: Final = 32
_MAX_TRIES: Final = 20
# A file written within the same tick of the clock would keep its time: what counts as unchanged is older.
_QUIET_SECONDS: Final = 0.02
_DAMAGED: Final = "FACT_ALTERED"


@dataclass(frozen=True)
class PagesResult:
    """What the auditor's check of pages found: residue by class, and bytes and pages it looked at."""

    pages: int
    free_bytes: int
    pages_in_log: int
    """Pages whose newest version is in the write-ahead log: the gaps of these are zeroed on their way out of it."""
    damaged: int
    controls_planted: int
    controls_found: int
    residue: Mapping[str, int]


def scan_apart(folder: Path, needles: Sequence[str | bytes], *, canary: str) -> ScanResult:
    """What `auditor.residue.scan_files` finds in the folder; UnavailableError if it could not be run."""
    request = {
        "task": "scan",
        "folder": str(folder),
        "canary": canary,
        "needles": [_pack(needle) for needle in needles],
    }
    fields = _ask(request)
    hits = import_module(f"{_AUDITOR}.hits")
    found = tuple(hits.Hit(**hit) for hit in fields.pop("hits"))
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    result: ScanResult = hits.ScanResult(hits=found, **lists)
    return result


def pages_apart(folder: Path) -> PagesResult:
    """What the auditor's check of pages finds in the store of a home; UnavailableError if it could not be run."""
    return PagesResult(**_ask({"task": "pages", "folder": str(folder)}))


def main() -> int:
    """Reads one request from standard input and writes what is found to standard output; 3 if it could not look."""
    request = json.loads(sys.stdin.buffer.read())
    try:
        answer = _TASKS[request["task"]](request)
    except Error:
        # What it says of the file is of no use to the caller: nothing could be shown.
        return 3
    sys.stdout.write(json.dumps(answer))
    return 0


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": _search_path()}
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE],
            input=json.dumps(request).encode("ascii"),
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
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# In the process apart


def _scan(request: Mapping[str, Any]) -> dict[str, Any]:
    needles = [_unpack(needle) for needle in request["needles"]]
    residue = import_module(f"{_AUDITOR}.residue")
    return asdict(residue.scan_files(Path(request["folder"]), needles, canary=request["canary"]))


def _pages(request: Mapping[str, Any]) -> dict[str, Any]:
    """The auditor's check, in place and again whenever the main file or the generation of the log changed."""
    folder = Path(request["folder"])
    for _ in range(_MAX_TRIES):
        before = _state(folder)
        time.sleep(max(0.0, _QUIET_SECONDS - (time.time_ns() - before[1]) / 1e9))
        answer = _check_pages(folder)
        if before == _state(folder):
            return answer
    raise UnavailableError("the store changed each time while it was looked at", code="busy")


def _check_pages(folder: Path) -> dict[str, Any]:
    sqlite_file = import_module(f"{_AUDITOR}.sqlite_file")
    checks = import_module(f"{_AUDITOR}.checks_pages")
    controls = import_module(f"{_AUDITOR}.controls")
    with ExitStack() as stack:
        main, wal = (_open(stack, folder / name) for name in (_STORE, _WAL))
        if main is None:
            raise UnavailableError("there is no store to look at", code="scan_failed")
        pages = sqlite_file.open_pages(main, wal)
        outcome, report = checks.check_structure(pages, _live(pages))
    codes = Counter(finding.code for finding in outcome.findings)
    missed = len(controls.control_structure().findings)
    return asdict(
        PagesResult(
            pages=0 if report is None else report.page_count,
            free_bytes=0 if report is None else report.free_bytes,
            pages_in_log=0 if report is None else report.gaps_in_wal,
            damaged=codes.pop(_DAMAGED, 0),
            controls_planted=_CONTROLS,
            controls_found=_CONTROLS - missed,
            residue=dict(codes),
        )
    )


# Free space of a main file, and old pages of a log, as `auditor.controls` plants them.
_CONTROLS: Final = 2


def _live(pages: Any) -> Any:
    """The numbers of the rows that are there now, in the tables that an erasure deletes from."""
    snapshot = import_module(f"{_AUDITOR}.snapshot")
    rows = import_module(f"{_AUDITOR}.store_rows")
    live = import_module(f"{_AUDITOR}.checks_pages").Live
    with snapshot.read_only(pages) as connection:
        numbers = (frozenset(rows.row_numbers(connection, table)) for table in ("contents", "facts"))
        return live(*numbers)


def _open(stack: ExitStack, path: Path) -> Any:
    """A file of the store as the auditor reads it; None if there is none of the name."""
    try:
        file = stack.enter_context(path.open("rb", buffering=0))
    except FileNotFoundError:
        return None
    size = os.fstat(file.fileno()).st_size
    return import_module(f"{_AUDITOR}.snapshot").OpenFile(file.fileno(), size)


def _state(folder: Path) -> tuple[int, int, int, bytes]:
    """What must not change while the pages are looked at: the main file, and the generation of the log."""
    status = os.stat(folder / _STORE)
    try:
        with open(folder / _WAL, "rb") as file:
            header = file.read(_WAL_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return status.st_size, status.st_mtime_ns, status.st_ino, header


_TASKS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {"scan": _scan, "pages": _pages}


def _pack(needle: str | bytes) -> list[str]:
    if isinstance(needle, bytes):
        return ["bytes", base64.b64encode(needle).decode("ascii")]
    return ["text", needle]


def _unpack(needle: Sequence[str]) -> str | bytes:
    kind, value = needle
    return base64.b64decode(value) if kind == "bytes" else value


def _search_path() -> str:
    """Where the child finds the same packages as this process, also from a folder that is not installed."""
    own = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join([own, *(part for part in [os.environ.get("PYTHONPATH")] if part)])


if __name__ == "__main__":
    raise SystemExit(main())
