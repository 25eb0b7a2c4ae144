"""A short copy of a store, taken without opening it, and destroyed with the process that took it.

The store may be in use: nothing of it is locked or pinned, so an erasure never waits for an audit. The main file
and its write-ahead log are copied as bytes into files without a name, again if the main file or the generation
of the log changed meanwhile; frames that were only added since do no harm, because a log is read up to a commit.
SQLite then reads the copy through a file layer that hands it the newest version of each page.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import apsw

from auditor.sqlite_file import ByteSource, Pages, open_pages
from auditor.sqlite_format import WAL_HEADER_BYTES
from tlog.errors import MalformedError, UnavailableError

STORE: Final = "store.db"
WAL: Final = "store.db-wal"
MAX_TRIES: Final = 50
_TORN_TRIES: Final = 5
_QUIET_NANOSECONDS: Final = 20_000_000
_COPY_BYTES: Final = 256 * 1024
_WAL_BYTES: Final = 64 * 1024
_LARGE_BYTES: Final = 1024 * 1024 * 1024
_JOURNAL_MODE_BYTES: Final = (18, 20)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file read in place through its descriptor."""

    descriptor: int
    size_bytes: int

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from `offset`, fewer at the end of the file."""
        return os.pread(self.descriptor, size_bytes, offset)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The copied files of a store."""

    main: ByteSource
    wal: ByteSource | None

    def pages(self) -> Pages:
        """The pages of the copy; MalformedError if it is no database."""
        return open_pages(self.main, self.wal)


@contextmanager
def copy_store(home: Path) -> Iterator[Snapshot]:
    """A snapshot of the store in `home`, gone when the block ends.

    Not for a process that has the store open itself: to close any descriptor of a file is to give up all the
    locks that the process has on it.
    Raises MalformedError if there is no store, and UnavailableError with code `busy` if it never held still.
    """
    with ExitStack() as stack:
        main = stack.enter_context(_scratch())
        wal = stack.enter_context(_scratch())
        for turn in range(MAX_TRIES):
            # What still looks like a commit being written after several copies is damage, for the checks to name.
            if _copy_once(home, main, wal) and (turn >= _TORN_TRIES or not _is_torn(_snapshot(main, wal))):
                break
            time.sleep(_QUIET_NANOSECONDS / 1e9)
        else:
            raise UnavailableError("the store changed each time while it was copied", retry_after_seconds=5)
        yield _snapshot(main, wal)


@contextmanager
def read_only(pages: Pages) -> Iterator[apsw.Connection]:
    """A connection that reads the newest version of each page and can write nothing."""
    layer = _PagesVFS(pages)
    connection: apsw.Connection | None = None
    try:
        connection = apsw.Connection(STORE, flags=apsw.SQLITE_OPEN_READONLY, vfs=layer.name)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute("PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY")
        yield connection
    finally:
        if connection is not None:
            connection.close(True)
        layer.unregister()


@contextmanager
def _scratch() -> Iterator[IO[bytes]]:
    """A file without a name; what was in it is overwritten before its blocks are given back."""
    with tempfile.TemporaryFile() as file:
        try:
            yield file
        finally:
            _fill_with_zeros(file)


def _snapshot(main: IO[bytes], wal: IO[bytes]) -> Snapshot:
    return Snapshot(_opened(main), _opened(wal) if os.fstat(wal.fileno()).st_size else None)


def _is_torn(snapshot: Snapshot) -> bool:
    try:
        return snapshot.pages().torn
    except MalformedError:
        return False  # for the checks to name


def _fill_with_zeros(file: IO[bytes]) -> None:
    size = os.fstat(file.fileno()).st_size
    for offset in range(0, size, _COPY_BYTES):
        os.pwrite(file.fileno(), bytes(min(_COPY_BYTES, size - offset)), offset)


def _opened(file: IO[bytes]) -> OpenFile:
    return OpenFile(file.fileno(), os.fstat(file.fileno()).st_size)


def _copy_once(home: Path, main: IO[bytes], wal: IO[bytes]) -> bool:
    """True if the copies are of one state of the store."""
    before = _state(home)
    # A file written within the same tick of the clock would keep its time: wait until it has been quiet.
    if before is None or time.time_ns() - before.main[1] < _QUIET_NANOSECONDS:
        return False
    _copy(home / STORE, main)
    _copy_backwards(home / WAL, wal)
    after = _state(home)
    return after is not None and (before.main, before.wal_header) == (after.main, after.wal_header)


@dataclass(frozen=True, slots=True)
class _State:
    main: tuple[int, int, int]
    wal_header: bytes


def _state(home: Path) -> _State | None:
    """What must not change while the files are copied; None if the main file vanished."""
    with _open(home / STORE) as descriptor:
        if descriptor is None:
            raise MalformedError("expected a store in the home")
        info = os.fstat(descriptor)
        _require_filled(info)
        # Through the name, too: the file may have been replaced by another.
        try:
            named = os.stat(home / STORE)
        except FileNotFoundError:
            return None
    if named.st_ino != info.st_ino:
        return None
    with _open(home / WAL) as descriptor:
        header = b"" if descriptor is None else os.pread(descriptor, WAL_HEADER_BYTES, 0)
    return _State((info.st_size, info.st_mtime_ns, info.st_ino), header)


def _require_filled(info: os.stat_result) -> None:
    """Returns unless the file is a large hole: copied, it would fill the disk of whoever looks at it."""
    if info.st_size > _LARGE_BYTES and info.st_blocks * 512 < info.st_size // 100:
        raise MalformedError("expected the file of the store to be filled, and it is nearly all holes")


def _copy(source: Path, target: IO[bytes]) -> None:
    os.ftruncate(target.fileno(), 0)
    with _open(source) as descriptor:
        if descriptor is None:
            return
        offset = 0
        while data := os.pread(descriptor, _COPY_BYTES, offset):
            os.pwrite(target.fileno(), data, offset)
            offset += len(data)


def _copy_backwards(source: Path, target: IO[bytes]) -> None:
    """Copy a write-ahead log from its end to its start.

    It only grows while its generation lasts. So what is read of the front is never older than what was read of the
    end, and the copy has no frame without all those before it.
    """
    os.ftruncate(target.fileno(), 0)
    with _open(source) as descriptor:
        if descriptor is None:
            return
        info = os.fstat(descriptor)
        _require_filled(info)
        size = info.st_size
        for offset in range((size - 1) // _WAL_BYTES * _WAL_BYTES, -1, -_WAL_BYTES):
            os.pwrite(target.fileno(), os.pread(descriptor, min(_WAL_BYTES, size - offset), offset), offset)


@contextmanager
def _open(path: Path) -> Iterator[int | None]:
    """A descriptor of a regular file; None if there is none of the name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError:
        raise MalformedError("expected the files of the store to be files that can be read") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise MalformedError("expected the files of the store to be regular files")
        yield descriptor
    finally:
        os.close(descriptor)


class _PagesVFS(apsw.VFS):
    """A file layer with one read-only file in it: the database as its newest pages make it up."""

    _count = 0
    _lock = threading.Lock()

    def __init__(self, pages: Pages) -> None:
        with _PagesVFS._lock:
            _PagesVFS._count += 1
            self.name = f"muniment-audit-{_PagesVFS._count}"
        self._pages = pages
        super().__init__(self.name, "")

    def xAccess(self, pathname: str, flags: int) -> bool:
        return False  # no journal, no write-ahead log: their frames are among the pages already

    def xFullPathname(self, name: str) -> str:
        return name

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if not flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            raise apsw.CantOpenError("only the database itself can be opened")
        flags[1] = apsw.SQLITE_OPEN_READONLY
        return _PagesFile(self._pages)  # type: ignore[return-value]  # SQLite asks for these methods alone


class _PagesFile:
    """The database as one file."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._size = pages.header.page_bytes
        # SQLite takes memory for each page that a file says it has.
        held = pages.main.size_bytes // self._size + len(pages.newest)
        self._file_size = min(pages.page_count, held) * self._size

    def xRead(self, amount: int, offset: int) -> bytes:
        if amount == self._size and offset and not offset % amount and offset < self.xFileSize():
            return self._pages.read(offset // amount + 1)
        parts = []
        left = amount
        while left > 0 and offset < self.xFileSize():
            number, start = offset // self._size + 1, offset % self._size
            part = self._page(number)[start : start + left]
            parts.append(part)
            left -= len(part)
            offset += len(part)
        return b"".join(parts)

    def xFileSize(self) -> int:
        return self._file_size

    def _page(self, number: int) -> bytes:
        data = self._pages.read(number)
        if number > 1:
            return data
        start, end = _JOURNAL_MODE_BYTES
        return data[:start] + b"\x01\x01" + data[end:]

    def xClose(self) -> None: ...

    def xLock(self, level: int) -> None: ...

    def xUnlock(self, level: int) -> None: ...

    def xCheckReservedLock(self) -> bool:
        return False

    def xSectorSize(self) -> int:
        return self._size

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_IMMUTABLE

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False
