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

from memory import scan_database
from tlog.errors import Error, UnavailableError

if TYPE_CHECKING:
    from auditor.residue import ScanResult
    from memory.erase_look import Traces

_AUDITOR: Final = "auditor"
_MODULE: Final = "memory.scan_process"
_STORE: Final = "store.db"
_WAL: Final = "store.db-wal"
_DAMAGED: Final = "FACT_ALTERED"
_LOG_HEADER_BYTES: Final = 32
_MAX_LOG_BYTES: Final = 1 << 30
_MAX_TRIES: Final = 50


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
    files_not_known: int
    """Files that no home has: what may stand in them is not known from what they are."""
    residue: Mapping[str, int]


@dataclass(frozen=True)
class DatabaseResult:
    """What was seen of an erasure in a database. `looked` says whether anybody may look at its pages and its log."""

    remaining: int
    """Rows of the erased that are still there."""
    rows_planted: int
    rows_found: int
    looked: bool
    pages: int
    dead_rows: int
    free_bytes: int
    planted: int
    found: int
    residue: Mapping[str, int]
    log_is_new: bool
    """Whether every page of the write-ahead log is younger than the erasure."""
    copies_are_none: bool
    """Whether the server knows of no archive, replication slot or standby."""
    files_not_known: int


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


def database_apart(folder: Path, traces: Traces, since: int | None) -> DatabaseResult:
    """What the auditor's code sees of an erasure in the database of a home; UnavailableError if it could not be run.

    `since` is the place in its write-ahead log from which on nothing has what was erased.
    """
    request = {
        "task": "database",
        "folder": str(folder),
        "tenant": traces.tenant_id,
        **{name: list(getattr(traces, name)) for name in ("seqs", "ledger", "requests")},
        "texts": [_pack(text) for text in traces.texts],
        "since": since,
    }
    return DatabaseResult(**_ask(request))


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
    needles, folder = [_unpack(needle) for needle in request["needles"]], Path(request["folder"])
    database = scan_database.database_of(folder)
    if database is not None:
        return scan_database.scan(folder, database, needles, request["canary"])
    residue = import_module(f"{_AUDITOR}.residue")
    return asdict(residue.scan_files(folder, needles, canary=request["canary"]))


def _database(request: Mapping[str, Any]) -> dict[str, Any]:
    texts = [text for text in map(_unpack, request["texts"]) if isinstance(text, bytes)]
    return scan_database.look(request, texts, _files_not_known(Path(request["folder"])))


def _pages(request: Mapping[str, Any]) -> dict[str, Any]:
    """The auditor's check of the pages as one view of the store has them, however much others write meanwhile."""
    from memory import store_erase
    from memory.store import open_store
    from memory.vault import Vault

    folder = Path(request["folder"])
    if not (folder / _STORE).is_file():
        raise UnavailableError("there is no store to look at", code="scan_failed")
    # Before the store is open here, since files of it may be read and closed.
    not_known = _files_not_known(folder)
    # The files are closed last: to close one is to give up the locks of this process, also those of the view.
    with ExitStack() as files:
        store = open_store(folder / _STORE, Vault(folder / "keys"))
        try:
            # While it lasts, no page of the main file is overwritten by what was written since it began.
            with store.read() as view:
                numbers = store_erase.row_numbers(view)
                return _check_pages(files, folder, *numbers) | {"files_not_known": not_known}
        finally:
            store.close()


def _check_pages(
    files: ExitStack, folder: Path, contents: frozenset[int], facts: frozenset[int]
) -> dict[str, Any]:
    sqlite_file = import_module(f"{_AUDITOR}.sqlite_file")
    checks = import_module(f"{_AUDITOR}.checks_pages")
    controls = import_module(f"{_AUDITOR}.controls")
    wal = _read_log(folder / _WAL)
    main = _open(files, folder / _STORE)
    pages = sqlite_file.open_pages(main, sqlite_file.Bytes(wal) if wal else None)
    # The content of the tombstone is there, and has a higher number than all that it erases.
    last = max(contents, default=0)
    outcome, report = checks.check_structure(pages, checks.Live(_Rows(contents, last), _Rows(facts, last)))
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
            files_not_known=0,
            residue=dict(codes),
        )
    )


def _files_not_known(folder: Path) -> int:
    """How many files lie in the home that no home has, or that somebody was still writing beside the log and the keys.

    What is being written there belongs to a log or to keys, and has no content in it.
    """
    home_files = import_module(f"{_AUDITOR}.home_files")
    now = time.time_ns() // 1000
    later = now + (home_files.TEMPORARY_SECONDS + 1) * 1_000_000
    left, unfinished = (home_files.check_home_files(folder, when).findings for when in (now, later))
    ours = ("log", "keys")
    return sum(1 for one in left if one.where.startswith(ours)) + sum(
        1 for one in unfinished if not one.where.startswith(ours)
    )


# Free space of a main file, and old pages of a log, as `auditor.controls` plants them.
_CONTROLS: Final = 2


@dataclass(frozen=True)
class _Rows:
    """The numbers of rows that are there, or that may be by now: frames may already hold what is being written."""

    numbers: frozenset[int]
    last: int

    def __contains__(self, number: object) -> bool:
        return number in self.numbers or (isinstance(number, int) and number > self.last)


@dataclass(frozen=True)
class _File:
    """A file that the auditor reads in place."""

    descriptor: int
    size_bytes: int

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from `offset`, fewer at the end of the file."""
        return os.pread(self.descriptor, size_bytes, offset)


def _open(files: ExitStack, path: Path) -> _File:
    descriptor = files.enter_context(path.open("rb", buffering=0)).fileno()
    return _File(descriptor, os.fstat(descriptor).st_size)


def _read_log(path: Path) -> bytes:
    """The write-ahead log at one moment: it only grows, unless it begins anew, and then its header changes."""
    for _ in range(_MAX_TRIES):
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_LOG_BYTES + 1)
                file.seek(0)
                header = file.read(_LOG_HEADER_BYTES)
        except FileNotFoundError:
            return b""
        if len(data) > _MAX_LOG_BYTES:
            raise UnavailableError("the write-ahead log is too large to be looked at", code="scan_failed")
        if data[:_LOG_HEADER_BYTES] == header:
            return data
    raise UnavailableError("the write-ahead log began anew each time it was read", code="busy")


_TASKS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "scan": _scan,
    "pages": _pages,
    "database": _database,
}


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
