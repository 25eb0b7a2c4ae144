"""Where the keys of backups lie: in the home, or, where many nodes share a log in a bucket, in that bucket, sealed.

Any node may make a backup, and any may have to destroy a key of it, so no node has them to itself. In a bucket each
file is an object under the key of the home (keys/seal.key), and is written over the ETag it was read with: a node that
stood still while another destroyed a key cannot bring it back.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tlog.errors import RefusedError, UnavailableError, VerificationError
from tlog.keys import flush_folder

if TYPE_CHECKING:
    from tlog.bucket import Bucket

BUCKET_FOLDER: Final = "backup-keys"
_NONCE_BYTES: Final = 12


class Place(Protocol):
    """Files under slash-separated names, each written durably, by whoever holds the lock of erasures."""

    def exists(self) -> bool:
        """Whether anything was ever written."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Returns once the file is this, in the place of the bytes that it had."""

    def overwrite(self, name: str, data: bytes, pieces: Sequence[tuple[int, int]]) -> None:
        """The same of a file that differs from what it was in these pieces alone: where each begins, and its size."""

    def remove(self, name: str) -> None:
        """Returns once there is no such file."""

    def names(self, prefix: str) -> list[str]:
        """The names of the files that begin so, sorted."""


class FolderPlace:
    """Files of a folder, which are overwritten where they lie."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exists(self) -> bool:
        """Whether the folder is there."""
        return self._folder.is_dir()

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        path = self._folder / name
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, data: bytes) -> None:
        """Returns once the file has these bytes, in place and durable; it is made for its owner alone."""
        path = self._folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        flush_folder(path.parent)

    def overwrite(self, name: str, data: bytes, pieces: Sequence[tuple[int, int]]) -> None:
        """Returns once these pieces of the file are those of `data`."""
        with (self._folder / name).open("r+b", buffering=0) as file:
            for at, size in pieces:
                os.pwrite(file.fileno(), data[at : at + size], at)
            os.fsync(file.fileno())

    def remove(self, name: str) -> None:
        """Returns once there is no such file."""
        path = self._folder / name
        if path.exists():
            path.unlink()
            flush_folder(path.parent)

    def names(self, prefix: str) -> list[str]:
        """The names of the files of the folder itself that begin so, sorted."""
        return sorted(path.name for path in self._folder.glob(f"{prefix}*"))


class BucketPlace:
    """Objects of a bucket, sealed under a key of the home."""

    def __init__(self, bucket: Bucket, home_key: bytes) -> None:
        self._bucket = bucket
        self._key = hmac.digest(home_key, b"backup keys", "sha256")
        self._etags: dict[str, str] = {}

    def exists(self) -> bool:
        """Whether there is any object."""
        return bool(self._bucket.names(BUCKET_FOLDER))

    def read(self, name: str) -> bytes | None:
        """What is in an object; None if there is none. VerificationError if it is not what was sealed."""
        from cryptography.exceptions import InvalidTag

        stood = self._bucket.get(self._object(name))
        self._etags.pop(name, None)
        if stood is None:
            return None
        self._etags[name] = stood.etag
        nonce, box = stood.data[:_NONCE_BYTES], stood.data[_NONCE_BYTES:]
        try:
            data: bytes = self._cipher().decrypt(nonce, box, name.encode())
        except (InvalidTag, ValueError):
            raise VerificationError(
                "the keys of backups in the bucket are not what was put there", code="backup_keys"
            ) from None
        return data

    def write(self, name: str, data: bytes) -> None:
        """Returns once the object has these bytes and reads back so; UnavailableError if another node wrote it."""
        nonce = os.urandom(_NONCE_BYTES)
        box = nonce + self._cipher().encrypt(nonce, data, name.encode())
        etag, place = self._etags.get(name), self._object(name)
        if etag is None:
            self._bucket.put_new(place, box)
        else:
            self._bucket.put_over(place, etag, box)
        # Also where the answer was lost: what stands there says whether it was done.
        if self.read(name) != data:
            raise UnavailableError(
                "another node has written the keys of backups; try again", code="busy", retry_after_seconds=1
            )

    def overwrite(self, name: str, data: bytes, pieces: Sequence[tuple[int, int]]) -> None:
        """As `write`: an object is replaced as a whole, and keeps no version of what it was."""
        self.write(name, data)

    def remove(self, name: str) -> None:
        """Returns once there is no such object."""
        self._bucket.delete([self._object(name)])
        self._etags.pop(name, None)

    def names(self, prefix: str) -> list[str]:
        """The names that begin so, sorted."""
        whole = f"{BUCKET_FOLDER}/"
        there = (name.removeprefix(whole) for name in self._bucket.names(BUCKET_FOLDER))
        return sorted(name for name in there if name.startswith(prefix))

    def _object(self, name: str) -> str:
        return f"{BUCKET_FOLDER}/{name}"

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)


def require_no_versions(bucket: Bucket) -> None:
    """Returns if the bucket lets go of what is overwritten; RefusedError if it keeps versions: no key would be gone."""
    if bucket.keeps_versions():
        raise RefusedError(
            "expected a bucket without versioning: it would keep every key of a backup that an erasure destroys",
            code="bucket_versioned",
        )
