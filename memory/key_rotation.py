"""A new key for a use, and the end of the old one, in steps of which each may be the last before a crash.

    made → in the key list → in use → everything the old one signed is published → the old one's end in the list

A key is in the list before anything is signed with it, so nobody meets a signature that no list explains. The
old key's end is written when all that it signed stands in a published tree, and the size of that tree with it:
so what it signed still counts, and what anybody signs with it later does not. Called again, a rotation that was
cut short is completed and no other is begun.

Where a root certifies the keys, each list has to be signed by it. With the root at hand that is one step; with a
root that is kept offline, `request_key_list` gives what it has to sign and `install_key_list` takes the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memory.chain import frozen_logs
from memory.home_names import CERTIFIED, CHECKPOINT, COSE_KEYS, KEY_LIST
from memory.key_list import (
    CLOCK_SKEW_SECONDS,
    DEFAULT_LIFE_SECONDS,
    current_key,
    next_key,
    read_certified,
    read_checked_list,
    retired_keys,
    root_of,
    to_certify,
    with_next_keys,
)
from tlog.ascii import encode_base64
from tlog.certificates import (
    KeyList,
    decode_key_list,
    encode_key_list,
    require_extends,
    sign_key_list,
    verify_key_list,
)
from tlog.cose_keys import CoseKey, CoseSigner
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError

if TYPE_CHECKING:
    from memory.wiring import Home

LOCK: Final = "keys"


def rotate(home: Home, use: str, root: CoseSigner | None, deadline_seconds: float) -> dict[str, Any]:
    """What became of the key for `use`: `rotated`, or `prepared` or `active` where the root has to sign first.

    Raises UnavailableError with code `witness_quorum_not_met` where the new key is in use and the log could not
    be published: called again, it goes on from there.
    """
    if use not in COSE_KEYS:
        raise MalformedError(f"expected a use of {', '.join(COSE_KEYS)}")
    home.state.follow()
    before = current_key(home.path, use)
    with home.state.lock(LOCK):
        _require_root(home, root)
        # Whoever asked for the same and was first has done it: two that race make one new key.
        overtaken = current_key(home.path, use) != before
        if not overtaken and not any(key.use == use for key in retired_keys(home.path, _list(home))):
            made = home.state.make_key(use)
            if home.config.root is not None and root is None:
                return {"use": use, "state": "prepared", "kid": made.key_id.hex()}
            _store(home, with_next_keys(home.path, _list(home), _now(home) - CLOCK_SKEW_SECONDS), root)
            _activate(home)
        return {"use": use, "kid": current_key(home.path, use).key_id.hex()} | _complete(
            home, root, deadline_seconds
        )


def request_key_list(home: Home, life_seconds: int, deadline_seconds: float) -> bytes:
    """What the root has to sign next: the payload of a key list, with prepared keys and with ends.

    Raises RefusedError with code `nothing_to_certify` where the certified list says it all already.
    """
    with home.state.lock(LOCK):
        known = _list(home)
        wanted = known
        if retired_keys(home.path, known):
            wanted = _with_ends(home, known, home.publish(deadline_seconds)["size"])
        wanted = with_next_keys(home.path, wanted, _now(home) - CLOCK_SKEW_SECONDS)
        wanted = to_certify(wanted, life_seconds)
        if home.config.root is not None and wanted == known:
            raise RefusedError(
                "the root has certified every key of this home already", code="nothing_to_certify"
            )
        return encode_key_list(_numbered(wanted, known))


def install_key_list(
    home: Home, data: bytes, root_key: CoseKey | None, deadline_seconds: float
) -> dict[str, Any]:
    """What the home does with a list that the root signed: its keys, and which of them came into use."""
    with home.state.lock(LOCK):
        root = root_of(home.config)
        if root is None and root_key is None:
            raise MalformedError("expected the root's key: this home has no root yet")
        if root is not None and root_key is not None and root != root_key:
            raise RefusedError("this home has another root", code="root_exists")
        believed = root if root_key is None else root_key
        assert believed is not None
        _install(home, data, believed)
        return _complete_if_activated(home, deadline_seconds) | describe_keys(home)


def certify(home: Home, root: CoseSigner, life_seconds: int, deadline_seconds: float) -> dict[str, Any]:
    """The same with the root at hand: what it has to sign, signed and installed."""
    payload = request_key_list(home, life_seconds, deadline_seconds)
    data = sign_key_list(root, decode_key_list(payload))
    return install_key_list(home, data, root.key, deadline_seconds)


def describe_keys(home: Home) -> dict[str, Any]:
    """The keys of the home as plain values."""
    home.state.follow()
    key_list, root = _list(home), root_of(home.config)
    current = {(use, current_key(home.path, use).key_id) for use in COSE_KEYS}
    return {
        "number": key_list.number,
        "root": None if root is None else root.key_id.hex(),
        "keys": [
            {
                "use": key.use,
                "kid": key.kid.hex(),
                "not_before": key.not_before,
                "not_after": key.not_after,
                "until": dict(key.until),
                "in_use": (key.use, key.kid) in current,
            }
            for key in key_list.keys
        ],
        "prepared": [use for use in COSE_KEYS if next_key(home.path, use) is not None],
        "to_end": [key.kid.hex() for key in retired_keys(home.path, key_list)],
    }


def announce(home: Home) -> None:
    """Returns once the mirror and the public have the certified list, after a crash between the two, too."""
    data = read_certified(home.path, home.config)
    if data is None or home.public_storage().read(CERTIFIED) == data:
        return
    try:
        _announce(home, data)
    except (VerificationError, UnavailableError):
        # Another node, or process, may have announced the one after it meanwhile.
        home.state.follow()
        if read_certified(home.path, home.config) == data:
            raise
        announce(home)


def _announce(home: Home, data: bytes) -> None:
    mirror = home.mirror()
    if mirror is not None:
        mirror.replace_key_list(data)
    home.public_storage().replace(CERTIFIED, data)


# Steps


def _require_root(home: Home, root: CoseSigner | None) -> None:
    known = root_of(home.config)
    if root is not None and (known is None or known.key_id != root.kid):
        raise RefusedError("this home has another root, or none", code="root_exists")


def _store(home: Home, key_list: KeyList, root: CoseSigner | None) -> None:
    known = _list(home)
    if key_list == known:
        return
    if root is None:
        home.state.replace({KEY_LIST: encode_key_list(_numbered(key_list, known))})
    else:
        wanted = _numbered(to_certify(key_list, DEFAULT_LIFE_SECONDS), known)
        _install(home, sign_key_list(root, wanted), root.key)


def _numbered(wanted: KeyList, known: KeyList) -> KeyList:
    return replace(wanted, number=known.number + 1)


def _install(home: Home, data: bytes, root: CoseKey) -> None:
    new, known = verify_key_list(data, root), _list(home)
    listed = {(key.use, key.kid) for key in new.keys}
    if home.config.root is not None:
        require_extends(new, known)
    elif new.store != known.store or not listed.issuperset((key.use, key.kid) for key in known.keys):
        raise VerificationError("key list: is not one of this home's keys", code="key_list")
    mirror = home.mirror()
    if mirror is not None:
        mirror.replace_key_list(data)
    home.state.replace({CERTIFIED: data}, root=encode_base64(root.encode()))
    home.public_storage().replace(CERTIFIED, data)


def _activate(home: Home) -> bool:
    """Puts each prepared key that the list has in place of the one in use; whether there was one."""
    known = {(key.use, key.kid) for key in _list(home).keys}
    activated = False
    for use in COSE_KEYS:
        key = next_key(home.path, use)
        if key is None or (use, key.key_id) not in known:
            continue
        home.state.activate(use)
        activated = True
    return activated


def _complete_if_activated(home: Home, deadline_seconds: float) -> dict[str, Any]:
    if not _activate(home):
        return {"state": "installed"}
    return _complete(home, None, deadline_seconds)


def _complete(home: Home, root: CoseSigner | None, deadline_seconds: float) -> dict[str, Any]:
    """Everything the old keys signed published, then their ends in the list."""
    size = home.publish(deadline_seconds)["size"]
    ending = retired_keys(home.path, _list(home))
    ended = [key.kid.hex() for key in ending]
    if home.config.root is not None and root is None:
        return {"state": "active", "to_end": ended}
    _store(home, _with_ends(home, _list(home), size), root)
    return {"state": "rotated", "ended": ended}


def _with_ends(home: Home, key_list: KeyList, size: int) -> KeyList:
    """The list in which the keys that are no longer in use ended with the tree of `size`, which is published."""
    until = {log.origin: log.size for log in frozen_logs(home.config)} | {home.origin: size}
    now = max(_now(home), _cosigned_at(home))
    for key in retired_keys(home.path, key_list):
        key_list = key_list.ending(key, now, until, now)
    return key_list


def _now(home: Home) -> int:
    return home.clock() // 1_000_000


def _list(home: Home) -> KeyList:
    return read_checked_list(home.path, home.config)


def _cosigned_at(home: Home) -> int:
    """When the newest cosignature on the public checkpoint was made, in seconds; 0 without one."""
    from tlog.note import parse_note
    from tlog.policy import verify_cosignatures

    data = home.public_storage().read(CHECKPOINT)
    lines = () if data is None else verify_cosignatures(home.policy(), parse_note(data))
    return max((line.timestamp for line in lines), default=0)
