"""The key that a log's receipts are signed with, and all that they were ever signed with, as SCRAPI serves them.

    public  scitt-keys/KID.cose    one COSE_Key for each, its kid in hexadecimal

A key is put there before the first receipt is signed with it and stays when another takes its place, so that
every receipt stays verifiable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tlog.cose_keys import CoseKey, CoseSigner, decode_key
from tlog.errors import VerificationError
from tlog.locator import names_of_key
from tlog.storage import Storage

FOLDER: Final = "scitt-keys/"
RELOAD_SECONDS: Final = 1.0

CreateFile = Callable[[str, bytes], None]
"""Puts an immutable file into the log's public folder, and wherever else the host wants it."""


@dataclass(frozen=True)
class _Keys:
    signer: CoseSigner
    loaded_at: float
    all: tuple[CoseKey, ...]
    by_name: dict[str, CoseKey]


class ReceiptKeys:
    """The receipt key in use and the retired ones. Threads may share one."""

    def __init__(
        self,
        public: Storage,
        load_signer: Callable[[], CoseSigner],
        retired: Sequence[CoseKey] = (),
        create_file: CreateFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load_signer` is asked again after a while: keys are rotated while the service runs."""
        self._public = public
        self._load_signer = load_signer
        self._create_file = create_file or public.create
        self._clock = clock
        for key in retired:
            self._put(key)
        self._keys = self._load(load_signer())

    def signer(self) -> CoseSigner:
        """What signs receipts now; its key is among those that are served."""
        return self._current().signer

    def all(self) -> tuple[CoseKey, ...]:
        """Every key, the one in use first."""
        return self._current().all

    def find(self, name: str) -> CoseKey | None:
        """The key that a path segment names, by base64url or by its plain kid."""
        return self._current().by_name.get(name)

    def _current(self) -> _Keys:
        if self._clock() - self._keys.loaded_at >= RELOAD_SECONDS:
            self._keys = self._load(self._load_signer())
        return self._keys

    def _load(self, signer: CoseSigner) -> _Keys:
        self._put(signer.key)
        keys = [signer.key]
        for path in self._public.names(FOLDER):
            key = decode_key(self._public.read(path) or b"")
            if path != _path(key):
                raise VerificationError(
                    "receipt keys: a file holds another key than its name says", code="key"
                )
            if key.key_id != signer.key.key_id:
                keys.append(key)
        by_name: dict[str, CoseKey] = {}
        # The key in use first: where a retired kid spells another's name, the one in use is meant.
        for key in keys:
            for name in names_of_key(key.key_id):
                by_name.setdefault(name, key)
        return _Keys(signer, self._clock(), tuple(keys), by_name)

    def _put(self, key: CoseKey) -> None:
        if self._public.read(_path(key)) is None:
            self._create_file(_path(key), key.encode())


def _path(key: CoseKey) -> str:
    return f"{FOLDER}{key.key_id.hex()}.cose"
