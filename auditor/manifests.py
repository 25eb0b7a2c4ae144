"""Manifests of erasures as an audit reads them: without the code that writes them, and nothing of them verified."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tlog import cbor
from tlog.cose import CWT_CLAIMS, CWT_ISS, KID, decode_sign1
from tlog.errors import MalformedError

FOLDER: Final = "erasures/"
MAX_MANIFEST_BYTES: Final = 80 * 1024 * 1024
MAX_MANIFEST_ITEMS: Final = 1 << 20
_TIES: Final = ("number", "previous", "log")
_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest file, decoded; who signed it is judged apart."""

    number: int
    issuer: str
    kid: bytes
    document: Mapping[str, Any]
    digest: bytes
    raw: bytes


def decode_manifest(data: bytes) -> Manifest:
    """The manifest in a file, nothing of it verified; MalformedError if it is none."""
    message = decode_sign1(data, max_bytes=MAX_MANIFEST_BYTES)
    claims, kid = message.headers.get(CWT_CLAIMS), message.headers.get(KID)
    if message.payload is None or not isinstance(claims, dict) or not isinstance(kid, bytes):
        raise MalformedError("expected a manifest with its document, a kid and claims")
    document = cbor.decode(message.payload, max_bytes=MAX_MANIFEST_BYTES, max_items=MAX_MANIFEST_ITEMS)
    issuer = claims.get(CWT_ISS)
    if (
        not isinstance(document, dict)
        or type(document.get("number")) is not int
        or not isinstance(issuer, str)
    ):
        raise MalformedError("expected the document of a manifest to be a map with a number")
    whole: dict[str, Any] = {name: value for name, value in document.items() if isinstance(name, str)}
    return Manifest(whole["number"], issuer, kid, whole, hashlib.sha256(data).digest(), data)


def brief_of(manifest: Manifest) -> Manifest:
    """The same without all but what ties manifests to each other and to the log: many of them fit in memory."""
    kept = {name: manifest.document[name] for name in _TIES if name in manifest.document}
    return replace(manifest, document=kept, raw=b"")


def map_in(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return map_of(document.get(name))


def map_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def list_in(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    return list(value) if isinstance(value, list | tuple) else []


def hour_of(microseconds: object) -> object:
    """The beginning of the hour of a time, which is all that a manifest says of it."""
    return microseconds - microseconds % _HOUR if type(microseconds) is int else microseconds


def number_in(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if type(value) is int else 0
