"""The keys that a home signs with, and those it once signed with: read from its files, and handed out as trust.

A home without a root keeps its list for itself, in `keys.cbor`. Where a root certifies the keys, the list is
`keys.cose`, and that is what verifiers get. The list says which keys there are; a key file that holds another one
was damaged or swapped, and nothing is signed with it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memory.chain import frozen_logs
from memory.config import Config
from memory.home_names import CERTIFIED, COSE_KEYS, KEY_LIST, KEYS, REGISTRATION_KEY, next_key_file
from memory.key_check import list_missing, require_sound_keys
from tlog.ascii import decode_base64
from tlog.certificates import KeyList, TrustedKey, decode_key_list, encode_key_list, verify_key_list
from tlog.cose_keys import CoseKey, decode_key
from tlog.keys import load_cose_key
from tlog.storage import DirectoryStorage

if TYPE_CHECKING:
    from tlog.policy import Policy
    from tlog.trust import Trust

DEFAULT_LIFE_SECONDS: Final = 3 * 365 * 86_400
# A witness's clock may be behind ours, and what it cosigns must not seem older than the key that signed it.
CLOCK_SKEW_SECONDS: Final = 300


@cache
def _decode_root(text: str) -> CoseKey:
    return decode_key(decode_base64(text, "config.toml: root"))


def root_of(config: Config) -> CoseKey | None:
    """The root that certifies the keys of the home, None if none does."""
    return None if config.root is None else _decode_root(config.root)


def read_key_list(folder: Path, config: Config) -> KeyList:
    """Every key that the home has or had, as its list says and not as its key files do."""
    root = root_of(config)
    name = KEY_LIST if root is None else CERTIFIED
    data = DirectoryStorage(folder).read(name)
    if data is None:
        raise list_missing(name)
    return decode_key_list(data) if root is None else verify_key_list(data, root)


def read_checked_list(folder: Path, config: Config) -> KeyList:
    """The same, once every key file is known to hold a key that it names for its use."""
    require_sound_keys(folder, config)
    return read_key_list(folder, config)


def first_key_list(folder: Path, config: Config) -> bytes:
    """The list of a home that is being made, from the key files that were just made for it."""
    begin = max(config.created_at - CLOCK_SKEW_SECONDS, 0)
    keys = (TrustedKey(use, current_key(folder, use), begin) for use in COSE_KEYS)
    return encode_key_list(KeyList(config.issuer, 1, config.created_at, tuple(keys)))


def read_certified(folder: Path, config: Config) -> bytes | None:
    """The key list that the root certified, as it is handed out; None without a root."""
    return None if config.root is None else DirectoryStorage(folder).read(CERTIFIED)


def current_key(folder: Path, use: str) -> CoseKey:
    """The key that the home signs with for this use."""
    return load_cose_key(folder / KEYS / COSE_KEYS[use]).key


def next_key(folder: Path, use: str) -> CoseKey | None:
    """The key that was made to be the next for this use, None if there is none."""
    path = folder / KEYS / next_key_file(use)
    return load_cose_key(path).key if path.exists() else None


def retired_keys(folder: Path, key_list: KeyList) -> tuple[TrustedKey, ...]:
    """The keys that are not in use any more and whose end the list does not say yet."""
    live = {(use, key.key_id) for use in COSE_KEYS for key in (current_key(folder, use),)}
    live |= {(use, key.key_id) for use in COSE_KEYS if (key := next_key(folder, use)) is not None}
    return tuple(key for key in key_list.keys if not key.until and (key.use, key.kid) not in live)


def with_next_keys(folder: Path, key_list: KeyList, now: int) -> KeyList:
    """The list that has the keys which were made and are not in it yet."""
    known = {(key.use, key.kid) for key in key_list.keys}
    for use in COSE_KEYS:
        key = next_key(folder, use)
        if key is not None and (use, key.key_id) not in known:
            key_list = key_list.with_key(TrustedKey(use, key, now), now)
    return key_list


def to_certify(key_list: KeyList, life_seconds: int) -> KeyList:
    """The list as a root can certify it: every key has an end, and an issuer where it speaks for one."""
    keys = tuple(
        replace(
            key,
            not_after=key.not_before + life_seconds if key.not_after is None else key.not_after,
            issuer=None if key.use == "receipt" else key_list.store,
        )
        for key in key_list.keys
    )
    return replace(key_list, keys=keys)


def _registration_key(folder: Path, config: Config) -> tuple[TrustedKey, ...]:
    """The key that says which statements of others the log takes, once it takes any; no root certifies it."""
    path = folder / KEYS / REGISTRATION_KEY
    if not path.exists():
        return ()
    begin = max(config.created_at - CLOCK_SKEW_SECONDS, 0)
    return (TrustedKey("registration", load_cose_key(path).key, begin),)


def make_trust_of(folder: Path, config: Config, policy: Policy) -> Trust:
    """What a verifier who believes this home would write down: its keys, or their root, and its policy."""
    from tlog.trust import Trust, TrustedRoot, checked

    witnesses = {witness.name for witness in policy.witnesses}
    key_list, certified, root = read_key_list(folder, config), read_certified(folder, config), root_of(config)
    trust = Trust(
        policy,
        (*(key_list.keys if root is None else ()), *_registration_key(folder, config)),
        config.merge_delay_seconds,
        config.max_checkpoint_age_seconds,
        tuple(name for name in config.same_operator if name in witnesses),
        roots=() if root is None else (TrustedRoot(root, config.issuer, key_list.number),),
        key_lists=() if certified is None else (certified,),
        frozen=tuple(log.end for log in frozen_logs(config)),
    )
    return checked(trust)
