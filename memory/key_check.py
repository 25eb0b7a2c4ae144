"""Each key file of a home against the home's own list of keys: a damaged or swapped one signs nothing.

The list says which keys there are (`key_list`). This is done whenever a home is opened, so it reads no more of the
list than uses and keys, and loads nothing that a plain command has not loaded already. A list that is damaged too
does not name the key either; who would forge both has everything in the home.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memory.home_names import CERTIFIED, COSE_KEYS, KEY_LIST, KEYS
from tlog import cbor
from tlog.errors import MalformedError, UnavailableError
from tlog.keys import follow_cose_key, load_cose_key
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from memory.config import Config
    from tlog.cose_keys import CoseKey, CoseSigner

_MAX_BYTES = 1 << 20


def require_sound_keys(folder: Path, config: Config) -> None:
    """Returns if every key file holds a key that the list names for its use.

    UnavailableError with code `key_mismatch` names the file that does not.
    """
    listed = _listed(folder, config)
    for use in COSE_KEYS:
        _require(listed, use, _load(folder, use).key)


def load_listed(folder: Path, config: Config, use: str) -> CoseSigner:
    """What signs for this use, its key looked up in the list."""
    signer = _load(folder, use)
    require_listed(folder, config, use, signer.key)
    return signer


def require_listed(folder: Path, config: Config, use: str, key: CoseKey) -> None:
    """Returns if the list names this key for this use."""
    _require(_listed(folder, config), use, key)


def follow_issuer(folder: Path, config_of: Callable[[], Config]) -> Callable[[], CoseSigner]:
    """What gives the issuer's signer, loaded and looked up anew whenever another file took its place."""
    follow = follow_cose_key(folder / KEYS / COSE_KEYS["issuer"])
    checked: list[CoseSigner] = []

    def current() -> CoseSigner:
        signer = follow()
        if not any(signer is known for known in checked):
            require_listed(folder, config_of(), "issuer", signer.key)
            checked[:] = [signer]
        return signer

    return current


def list_missing(name: str) -> UnavailableError:
    """What is said where a home has no list of its keys."""
    return UnavailableError(
        f"the list of this home's keys is missing or damaged: put {name} back from a backup",
        code="key_mismatch",
    )


def _listed(folder: Path, config: Config) -> frozenset[tuple[object, object]]:
    name = KEY_LIST if config.root is None else CERTIFIED
    data = DirectoryStorage(folder).read(name)
    if data is None:
        raise list_missing(name)
    try:
        if config.root is not None:
            from tlog.cose import decode_sign1

            data = decode_sign1(data, max_bytes=_MAX_BYTES).payload or b""
        document = cbor.decode(data, max_bytes=_MAX_BYTES, max_depth=5)
    except MalformedError:
        raise list_missing(name) from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise list_missing(name)
    return frozenset((key.get("use"), key.get("key")) for key in keys if isinstance(key, dict))


def _load(folder: Path, use: str) -> CoseSigner:
    try:
        return load_cose_key(folder / KEYS / COSE_KEYS[use])
    except MalformedError as error:
        if error.code != "key_file":
            raise
        raise _mismatch(use) from None


def _require(listed: frozenset[tuple[object, object]], use: str, key: CoseKey) -> None:
    if (use, key.encode()) not in listed:
        raise _mismatch(use)


def _mismatch(use: str) -> UnavailableError:
    return UnavailableError(
        f"the {use} key of this home is damaged, or is another one than the home's own list of keys names: "
        f"put {KEYS}/{COSE_KEYS[use]} back from a backup",
        code="key_mismatch",
        use=use,
    )
