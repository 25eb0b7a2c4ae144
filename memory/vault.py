"""The keys of the keyed hashes, in files apart from the store, and fresh salts.

A copy of the store without these files tests no guess: every *_tag in it is a keyed hash. Each tenant has a key
of its own, so that what is tagged for one says nothing about another.
"""

from __future__ import annotations

import hashlib
import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from memory.event import SALT_BYTES, TENANT_BYTES
from tlog import cbor
from tlog.errors import MalformedError
from tlog.keys import flush_folder, load_secret, make_secret

KEY_BYTES: Final = 32
TAG_BYTES: Final = 32
WORD_TAG_BYTES: Final = 16
INDEX_KEY: Final = "index.key"
GUARD_FOLDER: Final = "guard"
MAX_NAMES: Final = 1024
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


class Key(NamedTuple):
    """The two hashes of HMAC (RFC 2104), begun with a key, which is shorter than a block: what every tag begins with.

    `hmac.digest` looks its algorithm up for each tag, which takes three times as long as all the rest of it.
    """

    inner: hashlib._Hash
    outer: hashlib._Hash


class Vault:
    """Keyed hashes under the keys of one folder. Keys are made when first needed and kept while it lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: dict[bytes, Key] = {}
        self._names: dict[tuple[bytes, str, str], bytes] = {}
        self._begun: dict[tuple[bytes, str, str], Key] = {}
        self._lock = threading.Lock()
        self.confirmed: set[bytes] = set()
        """Numbers of the tenants whose key was seen to be the one that the store was written with."""

    def tag(self, tenant_number: bytes, domain: str, *parts: str | bytes) -> bytes:
        """The 32-byte keyed hash of `parts` in one domain of one tenant."""
        return _tag(self._tenant_key(tenant_number), domain, parts)

    def index_tag(self, domain: str, *parts: str | bytes) -> bytes:
        """The 32-byte keyed hash of what belongs to no tenant yet: the name that a tenant is found by."""
        return _tag(self._key(b"", self._folder / INDEX_KEY), domain, parts)

    def tag_of_name(self, tenant_number: bytes, domain: str, name: str) -> bytes:
        """As `tag`, or `index_tag` for no number: of a name that comes with every call, so it is kept for a while."""
        known = self._names.get((tenant_number, domain, name))
        if known is None:
            known = self.tag(tenant_number, domain, name) if tenant_number else self.index_tag(domain, name)
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[tenant_number, domain, name] = known
        return known

    def tag_under(self, tenant_number: bytes, domain: str, name: str, part: str) -> bytes:
        """As `tag` of a name and one text: a hash that begins with the name is kept for a while, the text is not."""
        begun = self._begun.get((tenant_number, domain, name))
        if begun is None:
            key = self._tenant_key(tenant_number)
            begun = Key(_begun(key, 3, (domain, name)), key.outer)
            if len(self._begun) >= MAX_NAMES:
                self._begun.clear()
            self._begun[tenant_number, domain, name] = begun
        inner, outer = begun.inner.copy(), begun.outer.copy()
        inner.update(_item(part))
        outer.update(inner.digest())
        return outer.digest()

    def destroy_tenant_key(self, tenant_number: bytes) -> bool:
        """Whether the key of a tenant is gone: overwritten, its file removed, and dropped from memory here."""
        path = self.key_path(tenant_number)
        with self._lock:
            self._keys.pop(tenant_number, None)
            self._names.clear()
            self._begun.clear()
            try:
                with path.open("r+b") as file:
                    file.write(os.urandom(KEY_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
                flush_folder(path.parent)
            except FileNotFoundError:
                return True
            except OSError:
                return False
        return True

    def keys_of(self, tenant_number: bytes) -> bytes | None:
        """The keys of a tenant that go with the store and not with the home: none, for here they are files."""
        return None

    def has_tenant_key(self, tenant_number: bytes) -> bool:
        """Whether the key of a tenant is there."""
        return tenant_number in self._keys or self.key_path(tenant_number).exists()

    def key_path(self, tenant_number: bytes) -> Path:
        """The file that the key of a tenant lies in."""
        if len(tenant_number) != TENANT_BYTES:
            raise MalformedError(f"expected a tenant number of {TENANT_BYTES} bytes")
        return self._folder / GUARD_FOLDER / f"{tenant_number.hex()}.key"

    def _tenant_key(self, tenant_number: bytes) -> Key:
        key = self._keys.get(tenant_number)
        return key if key is not None else self._key(tenant_number, self.key_path(tenant_number))

    def _key(self, name: bytes, path: Path) -> Key:
        key = self._keys.get(name)
        if key is None:
            with self._lock:
                key = prepare_key(load_secret(path) if path.exists() else make_secret(path, KEY_BYTES))
                self._keys[name] = key
        return key


def new_salt() -> bytes:
    """32 fresh random bytes; never derived, never used twice."""
    return os.urandom(SALT_BYTES)


def new_number() -> bytes:
    """16 fresh random bytes: the number of a tenant or of a request."""
    return os.urandom(TENANT_BYTES)


def _tag(key: Key, domain: str, parts: tuple[str | bytes, ...]) -> bytes:
    """HMAC-SHA-256 over the deterministic CBOR of [domain, parts…], which is put together here by its heads."""
    inner, outer = _begun(key, 1 + len(parts), (domain, *parts)), key.outer.copy()
    outer.update(inner.digest())
    return outer.digest()


def _begun(key: Key, items: int, first: tuple[str | bytes, ...]) -> hashlib._Hash:
    """The inner hash of an array of so many items, as far as the first of them."""
    inner = key.inner.copy()
    inner.update(b"".join([_head(4, items), *map(_item, first)]))
    return inner


def _item(part: str | bytes) -> bytes:
    if isinstance(part, bytes):
        return _head(2, len(part)) + part
    try:
        data = part.encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedError("a text to tag is not valid Unicode") from None
    return _head(3, len(data)) + data


def prepare_key(key: bytes) -> Key:
    """What every tag under this key begins with."""
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return Key(hashlib.sha256(block.translate(_INNER)), hashlib.sha256(block.translate(_OUTER)))


@lru_cache(maxsize=1024)
def _head(major: int, argument: int) -> bytes:
    return cbor.head(major, argument)
