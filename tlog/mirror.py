"""A second place that has everything public before the public has it: tiles, checkpoint, key lists, manifests.

What a log loses, its mirror still has; and a copy of the log that was rolled back, or that grows beside the
original, finds there the head it does not extend, and signs nothing. A mirror is a Storage with a file that says
which log it is of: a folder whose disk is not mounted has no such file, and is never taken for an empty mirror.

Its checkpoint is replaced by comparison with the one that was seen before, so that of two copies of a log that
publish at the same time one loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tlog import merkle
from tlog.certificates import peek_key_list, require_extends
from tlog.checkpoint import open_checkpoint
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.note import VerifierKey
from tlog.staging import EMPTY_HEAD, Head
from tlog.storage import Storage
from tlog.tile import WIDTH, hash_reader, tiles_for_growth
from tlog.tile_reader import fetch_tile

MARKER: Final = "mirror"
CHECKPOINT: Final = "checkpoint"
KEY_LIST: Final = "keys.cose"
_TILES: Final = "tile/"
_FIRST_LINE: Final = "muniment mirror v1"


@dataclass(frozen=True)
class Mirror:
    """The mirror of one log, in a storage of its own."""

    storage: Storage
    origin: str
    log_keys: tuple[VerifierKey, ...]

    def prepare(self) -> None:
        """Returns once the storage is marked as the mirror of this log; RefusedError if it is another's."""
        marker = f"{_FIRST_LINE}\n{self.origin}\n".encode()
        with reaching():
            standing = self.storage.read(MARKER)
            if standing not in (None, marker):
                raise RefusedError("mirror: is that of another log", code="mirror_of_another")
            if standing is None and self.storage.names(""):
                raise RefusedError(
                    "mirror: expected an empty place, or the mirror of this log", code="mirror_of_another"
                )
            self.storage.create(MARKER, marker)

    def seen(self) -> Mirrored:
        """What the mirror holds now. Raises UnavailableError with code `mirror_unavailable` if it is not there.

        Raises VerificationError if its checkpoint is not one that this log signed.
        """
        with reaching():
            marker, note = self.storage.read(MARKER), self.storage.read(CHECKPOINT)
        if marker is None:
            raise UnavailableError(
                "mirror: is not there (its disk may not be mounted); nothing is announced without it",
                code="mirror_unavailable",
            )
        if marker != f"{_FIRST_LINE}\n{self.origin}\n".encode():
            raise RefusedError("mirror: is that of another log", code="mirror_of_another")
        if note is None:
            return Mirrored(self, EMPTY_HEAD, None)
        checkpoint = open_checkpoint(note, self.log_keys, self.origin).checkpoint
        return Mirrored(self, Head(checkpoint.size, checkpoint.root), note)

    def create(self, path: str, data: bytes) -> None:
        """Returns once the mirror has the file, which never changes."""
        self.seen()
        with reaching():
            self.storage.create(path, data)

    def replace_key_list(self, data: bytes) -> None:
        """Returns once the mirror has the key list, in place of an older one and never of a newer one."""
        self.seen()
        with reaching():
            standing = self.storage.read(KEY_LIST)
            if standing is not None:
                require_extends(peek_key_list(data)[1], peek_key_list(standing)[1])
            replaced = self.storage.swap(KEY_LIST, standing, data)
        if not replaced:
            raise _written_meanwhile()


@dataclass(frozen=True)
class Mirrored:
    """A mirror as it was seen: its head, the empty one before the first, and the note that says so."""

    mirror: Mirror
    head: Head
    note: bytes | None

    def copy_tiles(self, public: Storage, size: int) -> None:
        """Returns once the mirror has every tile and bundle of the tree of `size`, which extends its head."""
        names = (tile.path for tile in tiles_for_growth(self.head.size, size))
        while some := list(islice(names, WIDTH)):
            files = {name: _required(public, name) for name in some}
            with reaching():
                self.mirror.storage.create_all(files)

    def replace_checkpoint(self, note: bytes) -> None:
        """Returns once the mirror's checkpoint is this one; UnavailableError if it changed since it was seen."""
        with reaching():
            replaced = self.mirror.storage.swap(CHECKPOINT, self.note, note)
        if not replaced:
            raise _written_meanwhile()

    def catch_up(self, public: Storage, others: Sequence[str]) -> Head:
        """The head of the mirror once it has all that is public, with these files besides tiles.

        Raises VerificationError with code `rolled_back` if the public log does not extend the mirror's head.
        """
        note = public.read(CHECKPOINT)
        head = self._require_behind(public, note)
        for path in others:
            if path == KEY_LIST:
                self.mirror.replace_key_list(_required(public, path))
            else:
                self.mirror.create(path, _required(public, path))
        self.copy_tiles(public, head.size)
        if note is not None:
            self.replace_checkpoint(note)
        return head

    def _require_behind(self, public: Storage, note: bytes | None) -> Head:
        """The head of the public checkpoint, which extends the mirror's."""
        head = EMPTY_HEAD
        if note is not None:
            checkpoint = open_checkpoint(note, self.mirror.log_keys, self.mirror.origin).checkpoint
            head = Head(checkpoint.size, checkpoint.root)
        read = hash_reader(head.size, lambda tile: fetch_tile(public.read, tile))
        if self.head.size > head.size or merkle.tree_root(self.head.size, read) != self.head.root:
            raise _rolled_back(self.head)
        return head


def other_files(public: Storage) -> tuple[str, ...]:
    """The public files that are neither tiles nor the checkpoint."""
    return tuple(name for name in public.names("") if not name.startswith(_TILES) and name != CHECKPOINT)


def _required(public: Storage, path: str) -> bytes:
    data = public.read(path)
    if data is None:
        raise VerificationError(f"log: the file {path} is missing", code="log_state", path=path)
    return data


def _written_meanwhile() -> UnavailableError:
    return UnavailableError(
        "mirror: another process, or another copy of the log, wrote to it; nothing was announced",
        code="mirror_unavailable",
        retry_after_seconds=1,
    )


def _rolled_back(head: Head) -> VerificationError:
    return VerificationError(
        "log: does not extend the head that its mirror holds; nothing is signed or copied",
        code="rolled_back",
        size=head.size,
    )


@contextmanager
def reaching() -> Iterator[None]:
    """Turns what a storage says into what it means for a mirror."""
    try:
        yield
    except UnavailableError as error:
        raise UnavailableError(
            f"mirror: cannot be used ({error.message}); what was to be announced waits until it can",
            code="mirror_unavailable",
        ) from error
    except VerificationError as error:
        # Another copy of this log has written there: what this one would announce is a fork.
        raise VerificationError(
            f"mirror: holds another log than this one ({error.message}); nothing is signed",
            code="rolled_back",
        ) from error
    except MalformedError as error:
        raise UnavailableError(f"mirror: {error.message}", code="mirror_unavailable") from error
