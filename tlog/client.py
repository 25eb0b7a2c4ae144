"""Reading any C2SP log, from a folder or a URL, believing nothing that does not lead to a verified checkpoint.

A checkpoint counts once it satisfies the caller's policy and extends the one that this client saw before; every
hash, entry and proof returned is of the tree that it names.
"""

from __future__ import annotations

import os
import queue
import re
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tlog.ascii import HASH_BYTES
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError
from tlog.merkle import prove_consistency, prove_inclusion, tree_root
from tlog.note import MAX_NOTE_BYTES
from tlog.policy import Policy, VerifiedCheckpoint, verify_checkpoint
from tlog.tile import MAX_BUNDLE_BYTES, WIDTH, parse_path
from tlog.tile_reader import PathReader, VerifiedTiles

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS: Final = 30.0
_WHOLE: Final = 2
"""Timeouts that one file may take: one until it begins to come, one for the rest of it."""
MAX_DOCUMENT_BYTES: Final = 80 << 20
_DOCUMENT: Final = re.compile(r"keys\.cose|erasures/[1-9][0-9]{0,17}\.cose|registration/[0-9a-f]{64}\.toml")
_CHECKPOINT: Final = "checkpoint"


class LogClient:
    """A reader of one log. What it returns is of the checkpoint that `checkpoint` returned last."""

    def __init__(self, read: PathReader, policy: Policy, origin: str | None = None) -> None:
        """`read` returns the file at a path, None if there is none; with `origin` only that log will do."""
        self._read = read
        self._policy = policy
        self._origin = origin
        self._close: Callable[[], None] = lambda: None
        self._verified: VerifiedCheckpoint | None = None
        self._tiles: VerifiedTiles | None = None

    @classmethod
    def from_folder(
        cls, folder: str | os.PathLike[str], policy: Policy, origin: str | None = None
    ) -> LogClient:
        """A client of the log whose files are in a folder, which is never written to."""
        return cls(folder_reader(folder), policy, origin)

    @classmethod
    def from_url(
        cls, url: str, policy: Policy, origin: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> LogClient:
        """A client of the log that is served under a URL prefix."""
        reader = UrlReader(url, timeout_seconds)
        client = cls(reader, policy, origin)
        client._close = reader.close
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections of a client of a URL, which then reads nothing more."""
        self._close()

    def checkpoint(self) -> VerifiedCheckpoint:
        """The log's newest checkpoint, fetched and verified; what is read from now on is of it.

        Raises VerificationError if it does not satisfy the policy, with code `rolled_back` if it is of a
        smaller tree than the one before and `fork` if it does not extend it; the one before then stays.
        """
        data = self._read(_CHECKPOINT)
        if data is None:
            raise UnavailableError("log: has no checkpoint yet", code="no_checkpoint")
        verified = verify_checkpoint(self._policy, data, self._origin)
        checkpoint = verified.checkpoint
        tiles = VerifiedTiles(self._read, checkpoint.size, checkpoint.root)
        if self._verified is not None:
            _require_extends(tiles, self._verified)
        self._verified, self._tiles, self._origin = verified, tiles, checkpoint.origin
        return verified

    def entry(self, index: int) -> bytes:
        """The entry at `index`."""
        return next(self.entries(index, index + 1))

    def entries(self, start: int, end: int) -> Iterator[bytes]:
        """The entries from `start` to before `end`, each verified before it is given."""
        tiles = self._current()
        if not 0 <= start <= end <= tiles.size:
            raise MalformedError(f"log: expected a range within the {tiles.size} entries there are")
        return tiles.entries(start, end)

    def prove_inclusion(self, index: int) -> tuple[bytes, ...]:
        """The inclusion proof of the entry at `index` in the tree of the checkpoint."""
        tiles = self._current()
        return prove_inclusion(index, tiles.size, tiles.read_hashes)

    def prove_consistency(self, old_size: int) -> tuple[bytes, ...]:
        """The proof that the tree of the checkpoint extends that of `old_size`."""
        tiles = self._current()
        return prove_consistency(old_size, tiles.size, tiles.read_hashes)

    def root_at(self, size: int) -> bytes:
        """The root that the log had at an earlier size, as the checkpoint's tree implies it."""
        tiles = self._current()
        if not 0 <= size <= tiles.size:
            raise MalformedError(f"log: expected a size up to {tiles.size}")
        return tree_root(size, tiles.read_hashes)

    def _current(self) -> VerifiedTiles:
        if self._tiles is None:
            self.checkpoint()
        assert self._tiles is not None
        return self._tiles


def _require_extends(tiles: VerifiedTiles, before: VerifiedCheckpoint) -> None:
    checkpoint = before.checkpoint
    if checkpoint.size > tiles.size:
        raise VerificationError(
            "log: the checkpoint is of a smaller tree than the one before",
            code="rolled_back",
            size=tiles.size,
        )
    if tree_root(checkpoint.size, tiles.read_hashes) != checkpoint.root:
        raise VerificationError("log: the checkpoint does not extend the one before", code="fork")


def folder_reader(folder: str | os.PathLike[str]) -> PathReader:
    """A reader of the files below a folder."""
    root = Path(folder)
    if not root.is_dir():
        raise MalformedError("log: expected a folder")

    def read(path: str) -> bytes | None:
        limit = limit_of(path)
        try:
            # Without waiting, so that a pipe put there in place of a file cannot hold the reader up.
            descriptor = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                with open(descriptor, "rb", closefd=False) as file:
                    data = file.read(limit + 1)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnavailableError(f"log: a file cannot be read: {error.strerror}", path=path) from None
        return _bounded(data, path, limit)

    return read


class UrlReader:
    """A reader of what is served under a URL prefix. Redirects are not followed."""

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._prefix = url.rstrip("/")
        if not self._prefix.startswith(("https://", "http://")):
            raise MalformedError("log: expected a URL that begins with https:// or http://")
        self._timeout_seconds = timeout_seconds
        self._client = self._open()

    def __call__(self, path: str) -> bytes | None:
        """The file at `path`, None if the server says that there is none."""
        limit, client = limit_of(path), self._client
        answers: queue.SimpleQueue[bytes | Error | None] = queue.SimpleQueue()

        def run() -> None:
            answer: bytes | Error | None = _unreachable("broke off", path)
            try:
                answer = self._get(client, path, limit)
            except Error as error:
                answer = error
            finally:
                answers.put(answer)

        # A timeout of the library bounds each read alone: a server that sends a byte of a header now and then is
        # never late. So nobody waits for it in this thread.
        threading.Thread(target=run, daemon=True, name="muniment-read").start()
        try:
            answer = answers.get(timeout=_WHOLE * self._timeout_seconds)
        except queue.Empty:
            self._client = self._open()
            client.close()  # which ends the other thread with the next byte it is sent
            raise _unreachable("answers too slowly", path) from None
        if isinstance(answer, Error):
            raise answer
        return answer

    def _open(self) -> httpx.Client:
        import httpx

        return httpx.Client(timeout=self._timeout_seconds, headers={"Accept-Encoding": "gzip, identity"})

    def _get(self, client: httpx.Client, path: str, limit: int) -> bytes | None:
        import httpx

        try:
            with client.stream("GET", f"{self._prefix}/{path}") as response:
                if response.status_code in (404, 410):
                    return None
                if response.status_code != 200:
                    raise _unreachable(f"answered with status {response.status_code}", path)
                data = self._body(response, path, limit)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError) as error:
            # The last two: closed meanwhile, because it took too long.
            raise _unreachable(f"cannot be reached ({type(error).__name__})", path) from None
        return _bounded(data, path, limit)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _body(self, response: httpx.Response, path: str, limit: int) -> bytes:
        """The body, of which at most one byte beyond the limit is ever unpacked."""
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding not in ("identity", "gzip"):
            raise _unreachable("answered with an encoding that was not asked for", path)
        gzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        unpack = gzip.decompress if gzip is not None else _cut
        deadline = time.monotonic() + self._timeout_seconds
        data = b""
        for part in response.iter_raw():
            try:
                data += unpack(part, limit + 1 - len(data))
            except zlib.error:
                raise _unreachable("answered with damaged gzip", path) from None
            if len(data) > limit:
                break
            if time.monotonic() > deadline:
                raise _unreachable("answers too slowly", path)
        if gzip is not None and len(data) <= limit and (not gzip.eof or gzip.unused_data):
            # A second member, or anything else behind the first, is part of no file that a log serves.
            raise _unreachable("answered with damaged gzip", path)
        return data


def _cut(part: bytes, size: int) -> bytes:
    return part[:size]


def _unreachable(message: str, path: str) -> UnavailableError:
    return UnavailableError(f"log: {message}", code="unreachable", path=path)


def limit_of(path: str) -> int:
    """How many bytes the public file at a path has at most; MalformedError if a log has none there."""
    if path == _CHECKPOINT:
        return MAX_NOTE_BYTES
    if _DOCUMENT.fullmatch(path):
        return MAX_DOCUMENT_BYTES
    tile = parse_path(path)
    return MAX_BUNDLE_BYTES if tile.level is None else WIDTH * HASH_BYTES


def _bounded(data: bytes, path: str, limit: int) -> bytes:
    if len(data) > limit:
        raise VerificationError(f"log: expected at most {limit} bytes", code="too_large", path=path)
    return data
