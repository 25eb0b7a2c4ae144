"""The keys that backups are encrypted under, one for each record, apart from the store and from every backup.

    keys/backup/SPACE-N.keys       places N*1024 to N*1024+1023 of a space: a key each, overwritten once it is destroyed
    keys/backup/made-N.keys        which backups were made, in places alike
    keys/backup/subjects/*.key     what the keys of one subject's records are wrapped under, by a random name

A record keeps its key in every backup, so to destroy it is to destroy the record in all of them. Whoever writes
here holds the lock of erasures.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory.backup_places import FolderPlace
from memory.home_names import KEYS
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    from memory.backup_places import Place
    from memory.wiring import Home

FOLDER: Final = "backup"
KEY_BYTES: Final = 32
SUBJECT_BYTES: Final = 16
NONCE_BYTES: Final = 12
SLOT_BYTES: Final = 80
SLOTS: Final = 1024
_NOBODY: Final = bytes(SUBJECT_BYTES)
_MARK_BYTES: Final = 4
_NO_MARK: Final = bytes(_MARK_BYTES)
_MADE: Final = "made"
_LISTED: Final = struct.Struct(">16sQQQ36x")
_SLOT: Final = struct.Struct(f"{SUBJECT_BYTES}s{SLOT_BYTES - SUBJECT_BYTES - _MARK_BYTES}x{_MARK_BYTES}s")


class KeyRing:
    """The keys of backups in the folder of a home's keys."""

    def __init__(self, keys: Path, place: Place | None = None) -> None:
        """The ring of a home with its keys in this folder; in another place, where one is given."""
        self._place = FolderPlace(keys / FOLDER) if place is None else place
        self._chunks: dict[tuple[str, int], bytearray] = {}
        self._changed: set[tuple[str, int]] = set()
        self._subjects: dict[bytes, bytes] = {}

    def exists(self) -> bool:
        """Whether a backup was ever made, so that there may be keys."""
        return self._place.exists()

    def key(self, space: str, number: int) -> bytes | None:
        """The key at a place, None if it was never made or is destroyed."""
        slot = self._slot(space, number)
        if slot is None:
            return None
        subject, body = slot[:SUBJECT_BYTES], slot[SUBJECT_BYTES:-_MARK_BYTES]
        if subject == _NOBODY:
            return body[NONCE_BYTES : NONCE_BYTES + KEY_BYTES]
        wrapping = self._subject_key(subject)
        return None if wrapping is None else _unwrap(wrapping, body, subject)

    def subject(self, space: str, number: int) -> bytes | None:
        """Whose records the key at a place is wrapped with, None for nobody's."""
        slot = self._slot(space, number)
        return None if slot is None or slot[:SUBJECT_BYTES] == _NOBODY else slot[:SUBJECT_BYTES]

    def make(self, space: str, number: int, subject: bytes | None = None) -> bytes:
        """The key at a place, made if there is none; durable after `flush`."""
        known = self.key(space, number)
        if known is not None:
            return known
        key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        if subject is None:
            body = _NOBODY + bytes(NONCE_BYTES) + key + bytes(16)
        else:
            wrapping = self._subject_key(subject) or self._make_subject(subject)
            body = subject + nonce + _cipher(wrapping).encrypt(nonce, key, subject)
        self._write(space, number, body + _mark(body))
        return key

    def list_backup(self, number: bytes, made_at: int, expires_at: int, last_seq: int) -> None:
        """Notes here, too, that there is a backup: a store that an older one is restored to does not know of it."""
        body = _LISTED.pack(number, made_at, expires_at, last_seq)
        self._write(_MADE, max(self.places(_MADE), default=-1) + 1, body + _mark(body))

    def listed_backups(self) -> Iterator[tuple[bytes, int, int, int]]:
        """Of each backup that was made: its number, when, until when it is kept, and its last statement."""
        for place in self.places(_MADE):
            slot = self._slot(_MADE, place)
            if slot is not None:
                yield _LISTED.unpack(slot[:-_MARK_BYTES])

    def flush(self) -> None:
        """Returns once every key that was made is durable."""
        if not self._changed:
            return
        for space, chunk in sorted(self._changed):
            self._place.write(_name(space, chunk), bytes(self._chunks[space, chunk]))
        self._changed.clear()

    def places(self, space: str) -> Iterator[int]:
        """The places of a space that have a key, or what a crash left of one."""
        return (place for place, _ in self._marked(space))

    def destroy(self, space: str, numbers: Collection[int]) -> int:
        """How many keys were there and are gone: overwritten twice; so are those of subjects without any other.

        Raises UnavailableError if one could not be.
        """
        known = [number for number in sorted(set(numbers)) if self._slot(space, number) is not None]
        subjects = {subject for number in known if (subject := self.subject(space, number))}
        try:
            for fill in (os.urandom, bytes):
                self._fill(space, known, fill)
            for chunk in {number // SLOTS for number in known}:
                self._drop_if_empty(space, chunk)
            for subject in subjects - self._subjects_in_use(subjects):
                self._destroy_subject(subject)
        except OSError as error:
            raise UnavailableError(
                f"a key of backups cannot be destroyed: {error.strerror}", code="key_not_destroyed"
            ) from None
        return len(known)

    # Places

    def _marked(self, space: str) -> Iterator[tuple[int, bytes]]:
        """The places that are not zero, each with the name of the subject's key that it is wrapped under."""
        for name in self._place.names(f"{space}-"):
            first = int(name.removesuffix(".keys").rpartition("-")[2]) * SLOTS
            data = self._place.read(name) or b""
            whole = len(data) - len(data) % SLOT_BYTES
            for at, (subject, mark) in enumerate(_SLOT.iter_unpack(data[:whole])):
                if mark != _NO_MARK:
                    yield first + at, subject

    def _slot(self, space: str, number: int) -> bytes | None:
        chunk = self._chunk(space, number // SLOTS)
        at = number % SLOTS * SLOT_BYTES
        slot = bytes(chunk[at : at + SLOT_BYTES])
        return slot if _is_key(slot) else None

    def _write(self, space: str, number: int, slot: bytes) -> None:
        place = (space, number // SLOTS)
        at = number % SLOTS * SLOT_BYTES
        self._chunk(*place)[at : at + SLOT_BYTES] = slot
        self._changed.add(place)

    def _chunk(self, space: str, chunk: int) -> bytearray:
        found = self._chunks.get((space, chunk))
        if found is None:
            data = self._place.read(_name(space, chunk)) or b""
            found = bytearray(data.ljust(SLOTS * SLOT_BYTES, b"\0"))
            self._chunks[space, chunk] = found
        return found

    def _fill(self, space: str, numbers: Collection[int], fill: object) -> None:
        """Overwrites the places, in memory and in their files, in place."""
        by_chunk: dict[int, list[int]] = {}
        for number in numbers:
            by_chunk.setdefault(number // SLOTS, []).append(number)
        for chunk, places in by_chunk.items():
            data = self._chunk(space, chunk)
            pieces = [(number % SLOTS * SLOT_BYTES, SLOT_BYTES) for number in places]
            for at, size in pieces:
                data[at : at + size] = fill(size)  # type: ignore[operator]
            self._place.overwrite(_name(space, chunk), bytes(data), pieces)

    def _drop_if_empty(self, space: str, chunk: int) -> None:
        if not any(self._chunk(space, chunk)):
            self._place.remove(_name(space, chunk))

    # Subjects

    def _subject_key(self, subject: bytes) -> bytes | None:
        known = self._subjects.get(subject)
        if known is None:
            data = self._place.read(_subject_name(subject))
            known = data if data is not None and len(data) == KEY_BYTES else None
            if known is not None:
                self._subjects[subject] = known
        return known

    def _make_subject(self, subject: bytes) -> bytes:
        key = os.urandom(KEY_BYTES)
        self._place.write(_subject_name(subject), key)
        self._subjects[subject] = key
        return key

    def _subjects_in_use(self, subjects: Collection[bytes]) -> set[bytes]:
        if not subjects:
            return set()
        return {subject for _, subject in self._marked("record") if subject in subjects}

    def _destroy_subject(self, subject: bytes) -> None:
        self._subjects.pop(subject, None)
        name = _subject_name(subject)
        if self._place.read(name) is not None:
            self._place.write(name, os.urandom(KEY_BYTES))
            self._place.remove(name)


def _name(space: str, chunk: int) -> str:
    return f"{space}-{chunk}.keys"


def _subject_name(subject: bytes) -> str:
    return f"subjects/{subject.hex()}.key"


def new_subject() -> bytes:
    """A random name for the key of a subject, never the one that stands for nobody."""
    return os.urandom(SUBJECT_BYTES - 1) + b"\1"


def _is_key(slot: bytes) -> bool:
    body = slot[:-_MARK_BYTES]
    return len(slot) == SLOT_BYTES and any(body) and slot[-_MARK_BYTES:] == _mark(body)


def _mark(body: bytes) -> bytes:
    """What tells a key that was written as a whole from one that a crash cut short."""
    return hashlib.sha256(body).digest()[:_MARK_BYTES]


def _cipher(key: bytes):  # type: ignore[no-untyped-def]  # AESGCM is loaded where it is used
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _unwrap(wrapping: bytes, body: bytes, subject: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        key: bytes = _cipher(wrapping).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], subject)
    except InvalidTag:
        return None
    return key


def ring_of(home: Home) -> KeyRing:
    """The keys of the backups of a home: its own, or those that its nodes share in the bucket of the log."""
    keys, url = home.path / KEYS, home.config.log_storage
    if url is None:
        return KeyRing(keys)
    from memory.backup_places import BucketPlace
    from memory.pg_vault import SEAL_KEY
    from tlog.bucket import open_bucket
    from tlog.keys import load_secret

    return KeyRing(keys, BucketPlace(open_bucket(url), load_secret(keys / SEAL_KEY)))
