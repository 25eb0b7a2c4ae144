"""The public keys of an issuer (JWKS, RFC 7517): fetched, kept for a while, fetched again for a key that is not known.

What comes is bounded in bytes, keys and time, and how often it is asked for is bounded as well: a token with a key
that nobody has costs its sender nothing.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tlog.errors import MalformedError, RefusedError, UnavailableError

MAX_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
FETCH_SECONDS: Final = 5.0
KEPT_SECONDS: Final = 600.0
STALE_SECONDS: Final = 86_400.0
"""For how long keys are still used when the issuer cannot be reached."""
RETRY_SECONDS: Final = 30.0
"""How long between two fetches, whatever was asked for."""
MIN_RSA_BITS: Final = 2048
_KINDS: Final = re.compile("RS|PS|ES|Ed", re.ASCII)
_TYPES: Final[Mapping[str, str]] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

Fetch = Callable[[], bytes]


@dataclass
class KeySet:
    """The keys that an issuer has now, by their id. Any thread may ask."""

    fetch: Fetch
    clock: Callable[[], float] = time.monotonic
    _keys: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _fetched_at: float | None = None
    _tried_at: float | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def key(self, key_id: str | None, algorithm: str) -> Any:
        """The public key of this id, for this algorithm.

        Raises RefusedError with code `unauthorized` if the issuer has no such key, and UnavailableError while it
        is not known which it has.
        """
        found = self._find(key_id)
        if found is None:
            raise RefusedError("expected a token that holds: its issuer has no such key", code="unauthorized")
        return _public_key(found, algorithm)

    def _find(self, key_id: str | None) -> Mapping[str, Any] | None:
        now = self.clock()
        if key_id is None:
            return None
        # Whoever has keys goes on with them while somebody else fetches: a slow issuer holds nobody up.
        if self._is_due(now, key_id in self._keys) and self._mutex.acquire(blocking=self._fetched_at is None):
            try:
                if self._is_due(now, key_id in self._keys):
                    self._refresh(now)
            finally:
                self._mutex.release()
        if self._fetched_at is None or now - self._fetched_at > STALE_SECONDS:
            raise UnavailableError(
                "the keys of the identity provider cannot be had; try again",
                retry_after_seconds=int(RETRY_SECONDS),
            )
        return self._keys.get(key_id)

    def _is_due(self, now: float, known: bool) -> bool:
        if self._tried_at is not None and now - self._tried_at < RETRY_SECONDS:
            return False
        return not known or self._fetched_at is None or now - self._fetched_at >= KEPT_SECONDS

    def _refresh(self, now: float) -> None:
        self._tried_at = now
        try:
            self._keys = parse_key_set(self.fetch())
        except (MalformedError, UnavailableError):
            return
        self._fetched_at = now


def parse_key_set(data: bytes) -> dict[str, Mapping[str, Any]]:
    """The keys for signatures that have an id, by that."""
    if len(data) > MAX_BYTES:
        raise MalformedError(f"jwks: expected at most {MAX_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError("jwks: expected JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise MalformedError(f"jwks: expected a list of at most {MAX_KEYS} keys")
    found: dict[str, Mapping[str, Any]] = {}
    for key in keys:
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("use", "sig") == "sig":
            found[key["kid"]] = key
    return found


def fetch_from(place: str) -> Fetch:
    """Fetches from an address, https or of this machine alone, or reads a file."""
    parts = urlsplit(place)
    if parts.scheme not in ("http", "https"):
        return lambda: _read(Path(place))
    if parts.scheme == "http" and not _is_own(parts.hostname or ""):
        raise MalformedError("oauth: expected jwks to begin with https://, or to be a file")
    return lambda: _get(place)


def _is_own(host: str) -> bool:
    from tlog.listener import is_loopback

    return is_loopback(host)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError:
        raise UnavailableError("the file of the identity provider's keys cannot be read") from None


def _get(url: str) -> bytes:
    import httpx

    data = bytearray()
    deadline = time.monotonic() + FETCH_SECONDS
    try:
        with httpx.stream("GET", url, timeout=FETCH_SECONDS, follow_redirects=False) as response:
            if response.status_code != 200:
                raise UnavailableError("the identity provider does not give its keys")
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > MAX_BYTES or time.monotonic() > deadline:
                    raise UnavailableError("the identity provider's keys are too long, or too slow")
    except httpx.HTTPError:
        raise UnavailableError("the identity provider cannot be reached") from None
    return bytes(data)


def _public_key(jwk: Mapping[str, Any], algorithm: str) -> Any:
    """The key, if it is one that this algorithm is for: an RSA key is no secret of HMAC, whatever a token says."""
    import jwt

    kind = _KINDS.match(algorithm)
    refused = RefusedError(
        "expected a token that holds: its key is not for its algorithm", code="unauthorized"
    )
    if kind is None or jwk.get("kty") != _TYPES[kind[0]] or jwk.get("alg", algorithm) != algorithm:
        raise refused
    try:
        key = jwt.PyJWK(dict(jwk), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise refused from None
    if hasattr(key, "sign") or (kind[0] in ("RS", "PS") and key.key_size < MIN_RSA_BITS):
        raise refused  # a private key that somebody published is nobody's any more
    return key
