"""One bucket of an object store, through `obstore`: objects read with their ETag, written on a condition or not.

The conditions are what a log rests on: `If-None-Match: *` for what is written once, `If-Match` for what is replaced
by comparison. A store that takes the headers and ignores them would let a tile be overwritten and nobody told, so
`require_conditional` tries both before the bucket is used.

Where the bucket is and who may use it is told by the environment, as other programs of that store are told it
(AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_REGION, web identity and so on). No message repeats any of it, nor what the
store answered: that names hosts and accounts.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from tlog.errors import MalformedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from obstore.store import S3Store

TIMEOUT_SECONDS: Final = 10.0
CONNECT_TIMEOUT_SECONDS: Final = 3.0
RETRIES: Final = 3
RETRY_SECONDS: Final = 15.0

ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
PROBES: Final = "probe"
_URL: Final = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[A-Za-z0-9_-][A-Za-z0-9._/-]*))?"
)


@dataclass(frozen=True)
class Object:
    """What stood under a name, and the tag by which it is known whether it still does."""

    data: bytes
    etag: str


class Bucket(Protocol):
    """Objects under slash-separated names. Each write is atomic, and durable and seen by all when it returns.

    Raises UnavailableError where the store does not answer; a write may then have been done all the same.
    """

    def get(self, name: str) -> Object | None:
        """The object, None if there is none."""

    def put(self, name: str, data: bytes) -> None:
        """Returns once the object is this, whatever it was."""

    def put_new(self, name: str, data: bytes) -> bool:
        """True once the object is this, False if there was one."""

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        """True once the object is this, False if the one with that tag stands there no more."""

    def delete(self, names: Iterable[str]) -> None:
        """Returns once none of the objects is there."""

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of all objects below the folder; of all there are, if it is empty."""

    def keeps_versions(self) -> bool:
        """Whether what is overwritten stays as a version. An object of a random name is written to see it."""


def open_bucket(url: str) -> ObstoreBucket:
    """The bucket at `s3://bucket/prefix`. Nothing is asked of it yet."""
    return ObstoreBucket(open_store(url))


def open_store(url: str) -> S3Store:
    """The client of the bucket at `s3://bucket/prefix`."""
    match = _URL.fullmatch(url)
    if match is None or "//" in url.removeprefix("s3://") or "/." in url:
        raise MalformedError("expected a bucket as s3://bucket or s3://bucket/prefix")
    return _s3_store(match["bucket"], (match["prefix"] or "").strip("/"))


def _s3_store(bucket: str, prefix: str) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError:
        raise MalformedError(
            "a log in a bucket needs the extra: pip install 'muniment[objectstore]'", code="extra_missing"
        ) from None
    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options={
            "timeout": timedelta(seconds=TIMEOUT_SECONDS),
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_SECONDS),
            # The client forgets what the environment says of it once any option is given.
            "allow_http": os.environ.get(ALLOW_HTTP, "").lower() in ("true", "1"),
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    )


class ObstoreBucket:
    """A bucket that `obstore` reaches."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    def get(self, name: str) -> Object | None:
        """The object, None if there is none."""
        with reaching():
            try:
                answer = self._store.get(name)
                return Object(bytes(answer.bytes()), answer.meta["e_tag"] or "")
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """Returns once the object is this, whatever it was."""
        with reaching():
            self._store.put(name, data, mode="overwrite", use_multipart=False)

    def put_new(self, name: str, data: bytes) -> bool:
        """True once the object is this, False if there was one."""
        from obstore.exceptions import AlreadyExistsError

        with reaching():
            try:
                self._store.put(name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def put_over(self, name: str, etag: str, data: bytes) -> bool:
        """True once the object is this, False if the one with that tag stands there no more."""
        from obstore.exceptions import PreconditionError

        with reaching():
            try:
                self._store.put(name, data, mode={"e_tag": etag}, use_multipart=False)
            except (PreconditionError, FileNotFoundError):
                return False
            return True

    def delete(self, names: Iterable[str]) -> None:
        """Returns once none of the objects is there."""
        together = list(names)
        if together:
            with reaching():
                self._store.delete(together)

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of all objects below the folder; of all there are, if it is empty."""
        with reaching():
            return tuple(one["path"] for some in self._store.list(folder or None) for one in some)

    def keeps_versions(self) -> bool:
        """Whether the store gives what is written a version: a bucket with versioning does, and no other."""
        name = f"{PROBES}/{secrets.token_hex(16)}"
        with reaching():
            try:
                put = self._store.put(name, b"1", mode="create", use_multipart=False)
            finally:
                self._store.delete([name])
        return put["version"] not in (None, "null")


def require_conditional(bucket: Bucket) -> None:
    """Returns if the store keeps to the conditions of writes; RefusedError with code `store_unconditional` if not.

    Writes an object of a random name, and deletes it.
    """
    name = f"{PROBES}/{secrets.token_hex(16)}"
    try:
        bucket.put_new(name, b"1")
        stood = bucket.get(name)
        etag = "" if stood is None else stood.etag
        again = bucket.put_new(name, b"2")
        bucket.put_over(name, etag, b"3")
        stale = bucket.put_over(name, etag, b"4")
        last = bucket.get(name)
    finally:
        bucket.delete([name])
    if (again, stale, last and last.data) != (False, False, b"3"):
        raise RefusedError(
            "object store: expected it to refuse a second object under one name and a write over a stale ETag"
            " (If-None-Match and If-Match of PutObject); a log in it could be overwritten",
            code="store_unconditional",
        )


@contextmanager
def reaching() -> Iterator[None]:
    """Turns what the client raises into errors that name neither host nor account."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise UnavailableError(
            "object store: does not accept our credentials, or they may not do this", code="storage_failed"
        ) from None
    except (exceptions.BaseError, FileNotFoundError, OSError, ValueError):
        raise UnavailableError(
            "object store: did not answer, or not as expected; nothing is lost, try again",
            code="storage_failed",
            retry_after_seconds=1,
        ) from None
