"""How SCRAPI names entries and keys in a path: unpadded base64url, one spelling each (RFC 7515, 2)."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from tlog.ascii import HASH_BYTES

ENTRIES: Final = "/entries"
KEYS: Final = "/.well-known/scitt-keys"
MAX_LOCATOR: Final = 128
# What could be an entry id of some service; whatever else stands in its place is no locator at all.
LOCATOR_PATTERN: Final = rf"^[A-Za-z0-9_-]{{1,{MAX_LOCATOR}}}$"
_FORM: Final = re.compile(LOCATOR_PATTERN)
_PATH_SAFE: Final = re.compile(rb"[A-Za-z0-9._~-]+")  # RFC 3986, 2.3: unreserved


def encode_base64url(data: bytes) -> str:
    """The unpadded base64url of `data`."""
    return urlsafe_b64encode(data).decode("ascii").rstrip("=")


def is_locator(text: str) -> bool:
    """Whether the text has the form of an entry id."""
    return _FORM.fullmatch(text) is not None


def decode_entry_id(text: str) -> bytes | None:
    """The entry id that the text spells, None if it spells none of ours."""
    if not is_locator(text) or len(text) % 4 == 1:
        return None
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if len(data) == HASH_BYTES and encode_base64url(data) == text else None


def entry_path(entry_id: bytes) -> str:
    """The path of an entry's resource."""
    return f"{ENTRIES}/{encode_base64url(entry_id)}"


def names_of_key(kid: bytes) -> frozenset[str]:
    """The last segments of the path by which a key can be asked for: base64url, and the kid if it is safe."""
    names = {encode_base64url(kid)}
    # "." and ".." are safe letters, and never reach a server as a segment.
    if _PATH_SAFE.fullmatch(kid) and kid not in (b".", b".."):
        names.add(kid.decode("ascii"))
    return frozenset(names)
