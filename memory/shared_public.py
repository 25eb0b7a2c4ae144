"""The public files of a log that many nodes share: objects of a bucket, and a checkpoint that one of them puts there.

Tiles need no fence: what is written follows from committed entries alone, and no object is ever written again with
other bytes. The checkpoint does. It is announced in the database first, under the lock `publish` and its token; then
it is copied to the bucket over the ETag that was read before the announcement was read again, and never over one of a
larger tree. So a publisher that stood still, and goes on after another has announced, finds that its own announcement
stands no more, or an ETag that fits no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from memory.pg_lease import lost
from tlog.certificates import peek_key_list
from tlog.checkpoint import parse_checkpoint
from tlog.errors import MalformedError, UnavailableError, VerificationError
from tlog.known_heads import CHECKPOINT
from tlog.note import parse_note
from tlog.storage import LOCK_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from memory.pg_log import PgLogStorage
    from tlog.object_storage import ObjectStorage

ANNOUNCED: Final = "announced"
TRIES: Final = 5
KEY_LIST: Final = "keys.cose"
_NEXT_LOG: Final = re.compile(r"log-[0-9]+/")


def _no_failure(_: str) -> None:
    return None


class SharedPublic:
    """The bucket of a log whose private files are in `private`. `failpoint` is for tests that stop there."""

    def __init__(
        self,
        objects: ObjectStorage,
        private: PgLogStorage,
        failpoint: Callable[[str], None] = _no_failure,
    ) -> None:
        self.objects = objects
        self._private = private
        self._failpoint = failpoint

    def read(self, path: str) -> bytes | None:
        """The bytes of the file, None if there is none."""
        return self.objects.read(path)

    def create(self, path: str, data: bytes) -> None:
        """Returns once the immutable file stands; VerificationError if other bytes stand there."""
        self.objects.create(path, data)

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Like `create` for each file, several at a time."""
        self.objects.create_all(files)

    def replace(self, path: str, data: bytes) -> None:
        """Returns once the file holds `data`; a checkpoint only if this node is the publisher."""
        if path == CHECKPOINT:
            self._announce(data)
        elif path == KEY_LIST:
            self._replace_list(data)
        else:
            self.objects.replace(path, data)

    def swap(self, path: str, expected: bytes | None, data: bytes) -> bool:
        """True once the file holds `data`, False if it did not hold `expected` (None: no file)."""
        if path == CHECKPOINT:
            raise AssertionError("a checkpoint is announced by replace")
        return self.objects.swap(path, expected, data)

    def remove(self, paths: Iterable[str]) -> None:
        """Returns once the files are gone from sight."""
        self.objects.remove(paths)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The paths of all files whose path begins with `prefix`, sorted."""
        return tuple(name for name in self.objects.names(prefix) if not is_of_another(name))

    def lock(self, name: str, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> AbstractContextManager[None]:
        """A lock between all nodes."""
        return self._private.lock(name, timeout_seconds)

    def _replace_list(self, data: bytes) -> None:
        """Puts a key list there, unless a newer one is: whoever stood still has an older one to give."""
        bucket, number = self.objects.bucket, peek_key_list(data)[1].number
        for _ in range(TRIES):
            stood = bucket.get(KEY_LIST)
            if stood is None:
                done = bucket.put_new(KEY_LIST, data)
            elif stood.data == data:
                return
            elif peek_key_list(stood.data)[1].number >= number:
                raise lost()
            else:
                done = bucket.put_over(KEY_LIST, stood.etag, data)
            if done:
                return
        raise UnavailableError("log: the key list changes all the time; try again", code="busy")

    def _announce(self, note: bytes) -> None:
        self._private.replace(ANNOUNCED, note)
        self._failpoint("announced")
        bucket = self.objects.bucket
        for _ in range(TRIES):
            stood = bucket.get(CHECKPOINT)
            if stood is not None and stood.data == note:
                return
            if stood is not None and _size_of(stood.data) > _size_of(note):
                raise lost()
            # After the ETag was read: who announces from now on changes what it stands for.
            if self._private.read(ANNOUNCED) != note:
                raise lost()
            self._failpoint("compared")
            if stood is None:
                done = bucket.put_new(CHECKPOINT, note)
            else:
                done = bucket.put_over(CHECKPOINT, stood.etag, note)
            if done:
                return
        raise UnavailableError("log: the checkpoint changes all the time; try again", code="busy")


def is_of_another(name: str) -> bool:
    """Whether an object below a log's place is one of a log that took its place."""
    return _NEXT_LOG.match(name) is not None


def _size_of(note: bytes) -> int:
    try:
        return parse_checkpoint(parse_note(note).text).size
    except MalformedError:
        raise VerificationError("log: the public checkpoint is not readable", code="log_state") from None
