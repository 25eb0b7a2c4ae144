"""A log's files as objects of a bucket, under the names they have on disk, so that a CDN serves them as they are.

What is written once is created by `If-None-Match: *`. If something stands there, it is read and compared: the same
bytes are welcome, others an error. An answer that was lost is therefore no trouble: the same bytes are sent again.
What is replaced by comparison is replaced by `If-Match` of the ETag under which the expected bytes were read.

Nothing on the way of a write lists the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final

from tlog.bucket import Bucket
from tlog.errors import UnavailableError
from tlog.storage import LOCK_TIMEOUT_SECONDS
from tlog.storage_rules import ThreadLocks, checked_path, folder_of_prefix, require_same

AT_ONCE: Final = 16
TRIES: Final = 3


class ObjectStorage:
    """Files in a bucket. Any number of processes may use it at once; its locks hold within one of them alone."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self._locks = ThreadLocks()

    def read(self, path: str) -> bytes | None:
        """The bytes of the file, None if there is none."""
        stood = self.bucket.get(checked_path(path))
        return None if stood is None else stood.data

    def create(self, path: str, data: bytes) -> None:
        """Returns once the immutable file stands; VerificationError if other bytes stand there."""
        checked_path(path)
        for last in (*[False] * (TRIES - 1), True):
            try:
                if not self.bucket.put_new(path, data):
                    self._require_stands(path, data)
                return
            except UnavailableError:
                if last:
                    raise

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Like `create` for each file, several at a time."""
        if len(files) < 2:
            for path, data in files.items():
                self.create(path, data)
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(files)), "put") as workers:
            for _ in workers.map(self.create, files, files.values()):
                pass

    def replace(self, path: str, data: bytes) -> None:
        """Returns once the file holds `data`; readers meet the old bytes or the new ones, nothing between."""
        self.bucket.put(checked_path(path), data)

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """True once the file holds `data`, False if it did not hold `expected` (None: no file).

        Also where the store did it and its answer was lost: the file then holds `data`.
        """
        stood = self.bucket.get(checked_path(path))
        if (None if stood is None else stood.data) != expected:
            return False
        done = (
            self.bucket.put_new(path, data) if stood is None else self.bucket.put_over(path, stood.etag, data)
        )
        return done or self.read(path) == data

    def remove(self, paths: Iterable[str]) -> None:
        """Returns once the files are gone from sight."""
        self.bucket.delete([checked_path(path) for path in paths])

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all files whose path begins with `prefix`, sorted."""
        folder = folder_of_prefix(prefix)
        return tuple(sorted(name for name in self.bucket.names(folder) if name.startswith(prefix)))

    def lock(self, name: str, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> AbstractContextManager[None]:
        """A lock between the threads of this process; between nodes it is the private storage that has them."""
        return self._locks.hold(name, timeout_seconds)

    def _require_stands(self, path: str, data: bytes) -> None:
        stood = self.read(path)
        if stood is None:  # removed between the two questions
            raise UnavailableError("object store: an object came and went; try again", code="storage_failed")
        require_same(path, stood, data)
