"""The list of an evidence bundle: which files belong to it, each with its size and hash, signed.

    protected  {1: alg, 4: kid, 15: {1: iss, 2: sub}, 16: TYP}        unprotected  {}
    payload    dCBOR of the list

Whoever has a bundle can tell that it is whole and as it was made. What is in it, an audit has to say.
docs/formats/bundle.md explains the fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, get_args

from tlog import cbor
from tlog.cose import (
    ALG,
    CWT_CLAIMS,
    CWT_ISS,
    CWT_SUB,
    KID,
    CoseSigner,
    Sign1,
    decode_sign1,
    encode_sign1,
    sig_structure,
    sign_raw,
)
from tlog.cose import TYP as TYP_LABEL
from tlog.errors import MalformedError
from tlog.statement import issuer_headers, require_name

TYP: Final = "application/vnd.muniment.bundle+cose"
NAME: Final = "bundle.cose"
SCHEMA: Final = 1
MAX_FILES: Final = 100_000
MAX_BUNDLE_BYTES: Final = 12 << 20
NUMBER_BYTES: Final = 16
Scope = Literal["all", "tenant", "links"]
"""Whose contents are in it: everybody's, those of one tenant, or nobody's."""

_HEADERS: Final = frozenset((ALG, KID, CWT_CLAIMS, TYP_LABEL))
_FIELDS: Final = frozenset(("schema", "made_at", "origin", "scope", "statements", "files"))
_OPTIONAL: Final = frozenset(("tenant", "recipient", "many_writers"))
# A name that begins with a letter or digit is neither hidden, nor a way up, nor an option of a command.
_PATH: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}(?:/[0-9A-Za-z][0-9A-Za-z._-]{0,199}){0,11}")
_MAX_SIZE: Final = 1 << 48
_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle, by its path with slashes."""

    path: str
    size_bytes: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle says of itself. `made_at` is an hour, in microseconds.

    `tenant` is the random number of the one tenant of which it has contents. `recipient` is the random reference
    under which the store noted that somebody has the openings in it; None where it has none. `many_writers` says that
    the rows are of a store that many nodes write: its numbers have gaps, and times go on within each tenant alone.
    """

    made_at: int
    origin: str
    scope: Scope
    statements: int
    files: tuple[BundleFile, ...]
    tenant: bytes | None = None
    recipient: bytes | None = None
    many_writers: bool = False


def sign_bundle(signer: CoseSigner, issuer: str, subject: str, bundle: Bundle) -> bytes:
    """The signed list, which `parse_bundle` reads back."""
    claims = {CWT_ISS: require_name(issuer), CWT_SUB: require_name(subject)}
    protected = cbor.encode({ALG: signer.algorithm, KID: signer.kid, CWT_CLAIMS: claims, TYP_LABEL: TYP})
    document: dict[str, object] = {
        "schema": SCHEMA,
        "made_at": bundle.made_at,
        "origin": bundle.origin,
        "scope": bundle.scope,
        "statements": bundle.statements,
        "files": [[one.path, one.size_bytes, one.digest] for one in bundle.files],
    }
    document |= {} if bundle.tenant is None else {"tenant": bundle.tenant}
    document |= {} if bundle.recipient is None else {"recipient": bundle.recipient}
    document |= {"many_writers": True} if bundle.many_writers else {}
    payload = cbor.encode(document)
    data = encode_sign1(protected, {}, payload, sign_raw(signer, sig_structure(protected, payload)))
    if parse_bundle(data)[1] != bundle:
        raise MalformedError("bundle: expected a list that can be read back")
    return data


def parse_bundle(data: bytes) -> tuple[Sign1, Bundle]:
    """The message and the list in it; who signed it is not known yet."""
    message = decode_sign1(data, max_bytes=MAX_BUNDLE_BYTES)
    if message.headers.keys() != _HEADERS or message.unprotected or message.headers[TYP_LABEL] != TYP:
        raise MalformedError("bundle: expected the headers of a bundle: alg, kid, claims and its type")
    issuer_headers(message.headers)
    if message.payload is None:
        raise MalformedError("bundle: expected its list attached")
    document = cbor.decode(message.payload, max_bytes=MAX_BUNDLE_BYTES)
    if not isinstance(document, dict) or not _FIELDS <= document.keys() <= _FIELDS | _OPTIONAL:
        raise MalformedError("bundle: expected the fields of a bundle and no others")
    return message, _bundle({str(name): value for name, value in document.items()})


def _bundle(fields: dict[str, object]) -> Bundle:
    made_at, statements = (_count(fields[name]) for name in ("made_at", "statements"))
    scope, origin = fields["scope"], fields["origin"]
    tenant, recipient = (_number(fields.get(name)) for name in ("tenant", "recipient"))
    if fields["schema"] != SCHEMA or scope not in get_args(Scope) or made_at % _HOUR:
        raise MalformedError(f"bundle: expected schema {SCHEMA}, a scope, and the hour that it was made at")
    if (scope == "tenant") != (tenant is not None) or (scope == "links") != (recipient is None):
        raise MalformedError("bundle: expected a tenant for one tenant, a recipient where there is content")
    files = fields["files"]
    if not isinstance(files, list) or not 1 <= len(files) <= MAX_FILES:
        raise MalformedError(f"bundle: expected 1 to {MAX_FILES} files")
    listed = tuple(map(_file, files))
    _require_order(listed)
    many = fields.get("many_writers", False)
    if "many_writers" in fields and many is not True:
        raise MalformedError("bundle: expected many_writers to be true where it is said")
    return Bundle(made_at, require_name(origin), scope, statements, listed, tenant, recipient, bool(many))  # type: ignore[arg-type]  # one of the words


def _file(item: object) -> BundleFile:
    path, size, digest = item if isinstance(item, list) and len(item) == 3 else (None, None, None)
    if not isinstance(path, str) or not _PATH.fullmatch(path) or path == NAME:
        raise MalformedError("bundle: expected plain paths within the bundle")
    if (
        type(size) is not int
        or not 0 <= size < _MAX_SIZE
        or not isinstance(digest, bytes)
        or len(digest) != 32
    ):
        raise MalformedError("bundle: expected the size and the SHA-256 of each file")
    return BundleFile(path, size, digest)


def _require_order(files: Sequence[BundleFile]) -> None:
    """Sorted by path, each once: one bundle has one list."""
    if any(first.path >= second.path for first, second in pairwise(files)):
        raise MalformedError("bundle: expected its files in order of their paths, each once")


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise MalformedError("bundle: expected numbers from 0")
    return value


def _number(value: object) -> bytes | None:
    if value is not None and (not isinstance(value, bytes) or len(value) != NUMBER_BYTES):
        raise MalformedError(f"bundle: expected random numbers of {NUMBER_BYTES} bytes")
    return value
