"""A log's files read from a bucket by whoever may read it: nothing is written, and nothing is believed of sizes.

Credentials are the caller's own, from the usual environment (tlog.bucket). They need to get objects; where they may
not list them, what is there is known by asking for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tlog.bucket import open_store, reaching
from tlog.errors import MalformedError, VerificationError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PREFIX: Final = "s3://"
MAX_NAMES: Final = 1 << 21
_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_FORBIDDEN: Final = "403"
_MISSING: Final = "404"


class BucketReader:
    """Reads the files of a log below `s3://bucket/prefix`. Any thread may use it."""

    def __init__(self, url: str, limit_of: Callable[[str], int], *, store: ObjectStore | None = None) -> None:
        """`limit_of` says how many bytes the file at a path has at most."""
        self._store: Any = open_store(url) if store is None else store
        self._limit_of = limit_of
        self._may_read = False

    def __call__(self, path: str) -> bytes | None:
        """The file at `path`, None if there is none; VerificationError with code `too_large` beyond its limit."""
        from obstore import exceptions

        limit = self._limit_of(path)
        with reaching():
            try:
                answer = self._store.get(path)
            except FileNotFoundError:
                return None
            except exceptions.PermissionDeniedError:
                # A store that does not let somebody list does not tell them that an object is not there, either.
                if not self._may_read:
                    raise
                return None
            self._may_read = True
            # What the store says of the size is its own word: no more than the limit is ever held.
            data = b""
            for part in answer.stream(min_chunk_size=1 << 16):
                data += bytes(part)
                if len(data) > limit:
                    break
        if len(data) > limit:
            raise VerificationError(f"log: expected at most {limit} bytes", code="too_large", path=path)
        return data

    def names(self) -> tuple[str, ...] | None:
        """The names of all objects, sorted; None where the credentials may not list them.

        MalformedError with code `no_bucket` if there is no such bucket, `too_large` if it has more than a log has.
        """
        from obstore import exceptions

        found: list[str] = []
        with reaching():
            try:
                for some in self._store.list(chunk_size=1000):
                    found += (one["path"] for one in some)
                    if len(found) > MAX_NAMES:
                        break
            except exceptions.BaseError as error:
                # The client has one kind of error for a list: its text has the status, and more that is not repeated.
                status = _STATUS.search(str(error))
                if status is None or status[1] not in (_FORBIDDEN, _MISSING):
                    raise
                if status[1] == _FORBIDDEN:
                    return None
                raise MalformedError("expected a bucket that is there", code="no_bucket") from None
        if len(found) > MAX_NAMES:
            raise MalformedError(
                f"expected a place in a bucket with at most {MAX_NAMES} objects", code="too_large"
            )
        return tuple(sorted(found))


def is_bucket(place: str) -> bool:
    """Whether a place is one in a bucket."""
    return place.startswith(PREFIX)
