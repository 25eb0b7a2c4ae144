"""The public files of a log, in a folder or behind a URL, for the checks to read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from auditor.evidence import LogFiles
from tlog.errors import MalformedError, UnavailableError

FOLDER: Final = "log"
ERASURES: Final = "erasures/"
REGISTRATIONS: Final = "registration/"
KEY_LIST: Final = "keys.cose"
MAX_FILE_BYTES: Final = 80 * 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0
MAX_DEPTH: Final = 12


def folder_files(folder: Path) -> LogFiles:
    """The files of a log in a folder. Links are not followed: a log's files are its own."""
    if not folder.is_dir():
        raise MalformedError("expected the folder of a log")

    def read(path: str) -> bytes | None:
        return _read(folder, path)

    return LogFiles(read, tuple(sorted(_names(folder, "", 0))))


@contextmanager
def url_files(url: str) -> Iterator[LogFiles]:
    """The files of a log behind a URL: they can be read, not listed."""
    from tlog.client import UrlReader

    reader = UrlReader(url)
    try:
        yield LogFiles(lambda path: _fetch(url, path) if _is_own(path) else reader(path), None)
    finally:
        reader.close()


def _is_own(path: str) -> bool:
    """Whether a file is one that other logs do not have."""
    return path == KEY_LIST or path.startswith((ERASURES, REGISTRATIONS))


def _fetch(url: str, path: str) -> bytes | None:
    """A file that is no tile, as far as MAX_FILE_BYTES."""
    import httpx

    data = bytearray()
    try:
        with httpx.stream("GET", f"{url.rstrip('/')}/{path}", timeout=TIMEOUT_SECONDS) as response:
            if response.status_code in (404, 410):
                return None
            if response.status_code != 200:
                raise UnavailableError("the log answered with another status than 200", code="unreachable")
            for part in response.iter_bytes():
                data += part
                if len(data) > MAX_FILE_BYTES:
                    raise UnavailableError(
                        "the log answered with more than a manifest can be", code="unreachable"
                    )
    except httpx.HTTPError:
        raise UnavailableError("the log can't be reached", code="unreachable") from None
    return bytes(data)


def _read(folder: Path, path: str) -> bytes | None:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise MalformedError("expected a path within the log")
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
