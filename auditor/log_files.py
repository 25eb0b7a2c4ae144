"""The public files of a log, in a folder, in a bucket or behind a URL, for the checks to read."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from auditor.evidence import LogFiles
from tlog.errors import MalformedError, UnavailableError, VerificationError

FOLDER: Final = "log"
KEY_LIST: Final = "keys.cose"
MAX_FILE_BYTES: Final = 80 * 1024 * 1024
TIMEOUT_SECONDS: Final = 4.0
MAX_LATE_SECONDS: Final = 5.0
MAX_DEPTH: Final = 12
MAX_LOGS: Final = 256
_CHECKPOINT: Final = "checkpoint"
_LATER: Final = re.compile(r"log-[1-9][0-9]{0,2}")


def folder_files(folder: Path) -> LogFiles:
    """The files of a log in a folder. Links are not followed: a log's files are its own."""
    if not folder.is_dir():
        raise MalformedError("expected the folder of a log")

    def read(path: str) -> bytes | None:
        return _read(folder, path)

    return LogFiles(read, tuple(sorted(_names(folder, "", 0))))


@contextmanager
def url_files(url: str) -> Iterator[LogFiles]:
    """The files of a log behind a URL: they can be read, not listed.

    A log that is slow each time is given up: each file may take up to twice TIMEOUT_SECONDS, all of them together no
    more than MAX_LATE_SECONDS beyond a second each.
    """
    from tlog.client import UrlReader

    reader = UrlReader(url, TIMEOUT_SECONDS)
    late = 0.0

    def read(path: str) -> bytes | None:
        nonlocal late
        begun = time.monotonic()
        data = reader(path)
        late += max(0.0, time.monotonic() - begun - 1)
        if late > MAX_LATE_SECONDS:
            raise UnavailableError("log: answers too slowly", code="unreachable", path=path)
        return data

    try:
        yield LogFiles(read, None)
    finally:
        reader.close()


def bucket_logs(url: str) -> list[tuple[str, LogFiles]]:
    """Name and files of each log in a bucket of an object store, the oldest first; a file is read when it is asked for.

    The first lies at the place itself, each that took over in a folder with its number below. Where the credentials
    may not list, a log that took over is known by its checkpoint.
    """
    from tlog.bucket_reader import BucketReader

    reader = BucketReader(url, lambda _: MAX_FILE_BYTES)

    def read(path: str) -> bytes | None:
        _require_within(path)
        try:
            return reader(path)
        except VerificationError:
            return None  # of more bytes than a file of a log has

    names = reader.names()
    apart = _apart(names or ())
    later: list[str] = []
    while len(later) < MAX_LOGS - 1:
        name = f"{FOLDER}-{len(later) + 2}"
        if name not in apart and (names is not None or read(f"{name}/{_CHECKPOINT}") is None):
            break
        later.append(name)
    logs = [("", FOLDER), *((f"{name}/", name) for name in later)]
    return [
        (name, LogFiles(_below(read, within), None if names is None else tuple(apart.get(within[:-1], ()))))
        for within, name in logs
    ]


def given_bucket_logs(url: str) -> list[tuple[str, LogFiles]]:
    """The same for a place that somebody named: a misspelt one must not be found clean, as a log without entries is."""
    logs = bucket_logs(url)
    if not any(files.names or files.read(_CHECKPOINT) for _, files in logs):
        raise MalformedError(
            "expected the place of a log: there is nothing in the bucket there", code="no_log"
        )
    return logs


def _apart(names: Sequence[str]) -> dict[str, list[str]]:
    """The names by the log that they are of, "" for the first, as that log calls them."""
    found: dict[str, list[str]] = {}
    for name in names:
        folder, _, rest = name.partition("/")
        log = folder if rest and _LATER.fullmatch(folder) else ""
        found.setdefault(log, []).append(rest if log else name)
    return found


def _below(read: Callable[[str], bytes | None], within: str) -> Callable[[str], bytes | None]:
    return lambda path: read(within + path)


def _require_within(path: str) -> None:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise MalformedError("expected a path within the log")


def _read(folder: Path, path: str) -> bytes | None:
    _require_within(path)
    descriptor = _open(folder, path)
    if descriptor is None:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_FILE_BYTES:
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_FILE_BYTES)
    finally:
        os.close(descriptor)


def _open(folder: Path, path: str) -> int | None:
    """A descriptor of the file, reached without following a link; None if it can't be."""
    *folders, name = path.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for part in folders:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, flags, dir_fd=at)
    except OSError:
        return None
    finally:
        os.close(at)


def _names(folder: Path, prefix: str, depth: int) -> Iterator[str]:
    """Names of regular files below the folder, as paths with slashes; bounded in depth."""
    if depth > MAX_DEPTH:
        return
    with os.scandir(folder) as listing:
        for entry in listing:
            name = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _names(folder / entry.name, name + "/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield name
