"""Where a log keeps its files: a directory, or memory.

Two kinds of file. An immutable one is created once: the same bytes again are welcome, other bytes are an
error, so a delayed or repeated write can never change a tile that somebody has read. A replaceable one (the
checkpoint, the head) is overwritten as a whole. Every write is durable when the call returns: a temporary
file is written and flushed, put in place by link or rename, and the folder is flushed.

A failed flush is never tried again. The kernel may have dropped the very pages it could not write and report
success the next time, so the storage refuses every later write until it is opened anew.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, Protocol

from tlog.errors import MalformedError, UnavailableError
from tlog.storage_rules import PATH, ThreadLocks, busy, checked_path, folder_of_prefix, require_same

LOCK_TIMEOUT_SECONDS: Final = 60.0
STALE_TEMPORARY_SECONDS: Final = 3600.0

OPEN_FILES: Final = 64

_TEMPORARY: Final = ".tmp"
_LOCKS: Final = ".locks"
_LOCK_NAME: Final = re.compile(r"[a-z-]+")


class Storage(Protocol):
    """Files under slash-separated relative paths. Each write is atomic, and durable when the call returns."""

    def read(self, path: str) -> bytes | None:
        """The bytes of the file, None if there is none."""

    def create(self, path: str, data: bytes) -> None:
        """Returns once the immutable file stands; VerificationError if other bytes stand there."""

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Like `create` for each file, flushing each folder once. After an error some files may stand."""

    def replace(self, path: str, data: bytes) -> None:
        """Returns once the file holds `data`; readers meet the old bytes or the new ones, nothing between."""

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """True once the file holds `data`, False if it did not hold `expected` (None: no file)."""

    def remove(self, paths: Iterable[str]) -> None:
        """Returns once the files are gone from sight; a crash may bring them back."""

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all files whose path begins with `prefix`, sorted."""

    def lock(self, name: str, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> AbstractContextManager[None]:
        """A lock that one thread of one process holds at a time and that dies with it. It does not nest."""


class DirectoryStorage:
    """Files in a folder, which is made by the first write. Any number of processes may use it at once."""

    def __init__(self, folder: str | os.PathLike[str], file_mode: int = 0o600) -> None:
        """`file_mode` says who may read; folders get the search bit wherever files get the read bit."""
        self.folder = Path(folder)
        self._file_mode = file_mode
        self._folder_mode = file_mode | (file_mode & 0o444) >> 2
        self._durable_folders: set[Path] = set()
        self._failed = False
        self._swept = False

    def read(self, path: str) -> bytes | None:
        """The bytes of the file, None if there is none."""
        try:
            return self._target(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise _unavailable("read", error) from error

    def create(self, path: str, data: bytes) -> None:
        """Returns once the immutable file stands; VerificationError if other bytes stand there."""
        self.create_all({path: data})

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Like `create` for each file, flushing each folder once."""
        with self._writing():
            folders = {self._target(path).parent for path in files}
            for folder in sorted(folders):
                self._make_folder(folder)
            missing = [path for path, data in files.items() if not self._stands(path, data)]
            for at in range(0, len(missing), OPEN_FILES):
                self._link({path: files[path] for path in missing[at : at + OPEN_FILES]})
            # Also for files that stood already: whoever made them may have died before this.
            self._flush_folders(folders)

    def replace(self, path: str, data: bytes) -> None:
        """Returns once the file holds `data`."""
        with self._writing():
            target = self._target(path)
            self._make_folder(target.parent)
            temporaries: list[Path] = []
            try:
                self._write_temporaries([data], temporaries)
                os.rename(temporaries[0], target)
            except BaseException:
                for temporary in temporaries:
                    _unlink(temporary)
                raise
            self._flush_folders({target.parent})

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """True once the file holds `data`, False if it did not hold `expected` (None: no file)."""
        with self.lock("swap"):
            if self.read(path) != expected:
                return False
            self.replace(path, data)
            return True

    def remove(self, paths: Iterable[str]) -> None:
        """Returns once the files are gone from sight."""
        with self._writing():
            for path in paths:
                _unlink(self._target(path))

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all files whose path begins with `prefix`, sorted."""
        folder = folder_of_prefix(prefix)
        return tuple(sorted(name for name in self._walk(folder) if name.startswith(prefix)))

    @contextmanager
    def lock(self, name: str, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """A lock that one thread of one process holds at a time and that dies with it. It does not nest."""
        if not _LOCK_NAME.fullmatch(name):
            raise MalformedError("storage: expected a lock name of lower-case letters and hyphens")
        try:
            (self.folder / _LOCKS).mkdir(mode=self._folder_mode, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.folder / _LOCKS / name, flags, 0o600)
        except OSError as error:
            raise _unavailable("lock", error) from error
        try:
            # A lock of this open file, not of the process: it holds between threads too.
            _acquire(descriptor, time.monotonic() + timeout_seconds)
            yield
        finally:
            os.close(descriptor)

    def _target(self, path: str) -> Path:
        if not PATH.fullmatch(path):
            raise MalformedError("storage: expected a relative path of plain names")
        return self.folder / path

    def _stands(self, path: str, data: bytes) -> bool:
        existing = self.read(path)
        require_same(path, existing, data)
        return existing is not None

    def _link(self, files: Mapping[str, bytes]) -> None:
        temporaries: list[Path] = []
        try:
            self._write_temporaries(files.values(), temporaries)
            for (path, data), temporary in zip(files.items(), temporaries, strict=True):
                try:
                    os.link(temporary, self._target(path))  # unlike a rename, takes no other file's place
                except FileExistsError:
                    self._stands(path, data)
        finally:
            for temporary in temporaries:
                _unlink(temporary)

    def _write_temporaries(self, contents: Iterable[bytes], made: list[Path]) -> None:
        """Writes and flushes a temporary file for each; `made` gets the path of each one begun."""
        with ExitStack() as opened:
            descriptors = []
            for data in contents:
                temporary, descriptor = self._open_temporary()
                opened.callback(os.close, descriptor)
                made.append(temporary)
                descriptors.append(descriptor)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            if len(descriptors) > 1:
                for descriptor in descriptors:
                    _begin_flush(descriptor)
            for descriptor in descriptors:
                self._flush(descriptor)

    def _open_temporary(self) -> tuple[Path, int]:
        folder = self.folder / _TEMPORARY
        folder.mkdir(mode=self._folder_mode, parents=True, exist_ok=True)
        self._sweep(folder)
        temporary = folder / f"{os.getpid()}-{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return temporary, os.open(temporary, flags, self._file_mode)

    def _sweep(self, folder: Path) -> None:
        """Removes what crashed writers left; young files may be a living writer's."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - STALE_TEMPORARY_SECONDS
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)

    def _make_folder(self, folder: Path) -> None:
        """Makes the folder with what is missing above it; its entry, and those up to our own, made durable."""
        if folder in self._durable_folders:
            return
        if (folder.is_relative_to(self.folder) and folder != self.folder) or not folder.parent.exists():
            self._make_folder(folder.parent)
        folder.mkdir(mode=self._folder_mode, exist_ok=True)
        # Also if it stood already: whoever made it may have died before this. What is above our own folder
        # may be closed to us, and then is not ours to make durable.
        with suppress(PermissionError) if folder == self.folder else nullcontext():
            self._flush_folders({folder.parent})
        self._durable_folders.add(folder)

    def _flush_folders(self, folders: Iterable[Path]) -> None:
        for folder in sorted(folders):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._flush(descriptor)
            finally:
                os.close(descriptor)

    def _flush(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
            if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the data in the drive's cache
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:
            self._failed = True
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._failed:
            raise UnavailableError(
                "storage: a flush failed earlier; open the storage anew", code="storage_failed"
            )
        try:
            yield
        except OSError as error:
            raise _unavailable("write", error) from error

    def _walk(self, folder: str) -> Iterator[str]:
        try:
            entries = list(os.scandir(self.folder / folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _unavailable("list", error) from error
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(name)
            else:
                yield name


class MemoryStorage:
    """Files that live as long as the object, with the behaviour of a directory; safe between threads."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._mutex = threading.RLock()
        self._locks = ThreadLocks()

    def read(self, path: str) -> bytes | None:
        """The bytes of the file, None if there is none."""
        return self._files.get(checked_path(path))

    def create(self, path: str, data: bytes) -> None:
        """Returns once the immutable file stands; VerificationError if other bytes stand there."""
        self.create_all({path: data})

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Like `create` for each file."""
        with self._mutex:
            for path, data in files.items():
                require_same(path, self.read(path), data)
                self._files[path] = bytes(data)

    def replace(self, path: str, data: bytes) -> None:
        """Returns once the file holds `data`."""
        with self._mutex:
            self._files[checked_path(path)] = bytes(data)

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """True once the file holds `data`, False if it did not hold `expected` (None: no file)."""
        with self._mutex:
            if self.read(path) != expected:
                return False
            self.replace(path, data)
            return True

    def remove(self, paths: Iterable[str]) -> None:
        """Returns once the files are gone."""
        with self._mutex:
            for path in paths:
                self._files.pop(checked_path(path), None)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all files whose path begins with `prefix`, sorted."""
        with self._mutex:
            return tuple(sorted(name for name in self._files if name.startswith(prefix)))

    def lock(self, name: str, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> AbstractContextManager[None]:
        """A lock that one thread holds at a time. It does not nest."""
        return self._locks.hold(name, timeout_seconds)


def _acquire(descriptor: int, deadline: float) -> None:
    pause = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise busy() from None
        except OSError as error:
            raise _unavailable("lock", error) from error
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _begin_flush(descriptor: int) -> None:
    """Lets the kernel begin to write the file out, so that files flushed one after the other wait together."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # advice, and nothing depends on it
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


def _unavailable(what: str, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"storage: the operating system refused to {what}: {error.strerror}",
        code="storage_failed",
        errno=error.errno,
    )
