"""What all nodes of a home agree on, as one value that the database has: settings, policy, key list, and keys.

    stamp, 16 bytes   number (8, big-endian), then 8 random bytes: two states never have one stamp
    dCBOR             {"settings": {...}, "files": {name: bytes}, "keys": {name: box}}

The folder of each node is a copy of it, brought up to it before anything is signed (memory.shared_state). Keys that
were made while the home had many nodes are in it, sealed under a key that every node has and the database has not;
those of before are where the nodes' folders were copied from.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from memory.chain import log_number
from memory.config import Config
from memory.home_names import CERTIFIED, COSE_KEYS, KEY_LIST, KEYS, POLICY, log_key_file, next_key_file
from memory.key_check import list_missing
from memory.pg_seal import place_of, seal, unseal
from memory.pg_vault import SEAL_KEY
from tlog import cbor
from tlog.certificates import KeyList, decode_key_list, peek_key_list
from tlog.errors import MalformedError, VerificationError
from tlog.keys import load_secret
from tlog.storage import DirectoryStorage

STAMP_BYTES: Final = 16
MAX_BYTES: Final = 4 << 20
SETTINGS: Final = ("origin", "frozen", "root", "mirror", "same_operator")
"""Settings that are of all nodes. The others are each node's own: how it reaches the database, what it admits."""
FILES: Final = (POLICY, KEY_LIST, CERTIFIED)
_LISTS: Final = frozenset({"frozen", "same_operator"})
_USE: Final = "signing"


@dataclass(frozen=True)
class Agreed:
    """One state of it. `keys` are boxes by the name of the key file."""

    number: int
    settings: Mapping[str, Any]
    files: Mapping[str, bytes]
    keys: Mapping[str, bytes]

    def encode(self) -> bytes:
        """The bytes of it, under a stamp that nothing else has."""
        settings = {name: self.settings[name] for name in SETTINGS}
        content = {"settings": settings, "files": dict(self.files), "keys": dict(self.keys)}
        return self.number.to_bytes(8, "big") + secrets.token_bytes(8) + cbor.encode(content)

    def config(self, own: Config) -> Config:
        """The settings of a node, with those that all nodes have in common."""
        return replace(own, **self.settings)

    def progress(self) -> tuple[int, int]:
        """How many logs ended, and the number of the key list: neither ever goes back."""
        return len(self.settings["frozen"]), self._key_list().number

    def changed(self, settings: Mapping[str, Any], files: Mapping[str, bytes]) -> Agreed:
        """The state after this one, with these settings and files. Of a log that ended no key is kept."""
        new = {**self.settings, **settings}
        ended = {log_key_file(number + 1) for number in range(len(new["frozen"]))}
        keys = {name: box for name, box in self.keys.items() if name not in ended}
        return Agreed(self.number + 1, new, {**self.files, **files}, keys)

    def with_keys(self, keys: Mapping[str, bytes]) -> Agreed:
        """The state after this one, with these keys and no other."""
        return replace(self, number=self.number + 1, keys=keys)

    def continues(self, before: Agreed) -> bool:
        """Whether this may have come of that: its logs, and its keys by what they sign for, are there."""
        frozen = before.settings["frozen"]
        listed = {(key.use, key.kid) for key in self._key_list().keys}
        return self.settings["frozen"][: len(frozen)] == frozen and listed.issuperset(
            (key.use, key.kid) for key in before._key_list().keys
        )

    def _key_list(self) -> KeyList:
        name = KEY_LIST if self.settings["root"] is None else CERTIFIED
        if name not in self.files:
            raise list_missing(name)
        data = self.files[name]
        return decode_key_list(data) if name == KEY_LIST else peek_key_list(data)[1]


def decode(data: bytes) -> Agreed:
    """The state in these bytes."""
    try:
        content: Any = cbor.decode(data[STAMP_BYTES:], max_bytes=MAX_BYTES, max_depth=4)
        settings = {name: content["settings"][name] for name in SETTINGS}
        settings |= {name: tuple(settings[name]) for name in _LISTS}
        files, keys = dict(content["files"]), dict(content["keys"])
    except (KeyError, TypeError, ValueError, MalformedError):
        raise VerificationError(
            "what the nodes of this home agreed on cannot be read in the database", code="store_damaged"
        ) from None
    return Agreed(int.from_bytes(data[:8], "big"), settings, files, keys)


def of_folder(folder: Path, config: Config) -> Agreed:
    """The state that a node's folder is of, with every key that may have been made since it was copied."""
    storage = DirectoryStorage(folder)
    files = {name: data for name in FILES if (data := storage.read(name)) is not None}
    settings = {name: getattr(config, name) for name in SETTINGS}
    number = log_number(config)
    names = {
        *COSE_KEYS.values(),
        *map(next_key_file, COSE_KEYS),
        log_key_file(number),
        log_key_file(number + 1),
    }
    keys = {
        name: sealed(folder, name, data)
        for name in sorted(names)
        if (data := storage.read(f"{KEYS}/{name}")) is not None
    }
    return Agreed(1, settings, files, keys)


def without_copied(state: Agreed) -> Agreed:
    """The same without the keys that are in use: what nodes begin with, their folders were copied with."""
    number = len(state.settings["frozen"]) + 1
    copied = {*COSE_KEYS.values(), log_key_file(number)}
    return replace(state, keys={name: box for name, box in state.keys.items() if name not in copied})


def sealed(folder: Path, name: str, key: bytes) -> bytes:
    """The bytes of a key file in a box that only the nodes of this home open, under this name."""
    return seal(_wrapping(folder), key, place_of(_USE, name.encode()))


def opened(folder: Path, name: str, box: bytes) -> bytes:
    """The bytes of the key file in a box."""
    return unseal(_wrapping(folder), box, place_of(_USE, name.encode()))


def _wrapping(folder: Path) -> bytes:
    return hmac.digest(load_secret(folder / KEYS / SEAL_KEY), b"muniment signing keys", "sha256")
