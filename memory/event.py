"""The canonical bytes of every promise: link, content and the commitment C that the log holds.

    C = SHA-256(dCBOR([1, L, K]))
    L = SHA-256(dCBOR(["link", salt, link]))        K = SHA-256(dCBOR(["content", salt, content]))

The link is kept for good and says nothing about anybody. The content goes, with its salt, when the statement
is erased; then K stays, and nothing can be tested against it, for its 32 bytes of salt are gone.
Both maps are deterministic CBOR with text keys, absent fields left out. docs/formats/statement.md lists them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

import cbor2

from memory import event_written
from tlog import cbor
from tlog.errors import MalformedError, VerificationError

SALT_BYTES: Final = 32
TENANT_BYTES: Final = event_written.TENANT_BYTES
REQUEST_BYTES: Final = 16
COMMITMENT_BYTES: Final = event_written.COMMITMENT_BYTES
MAX_LINK_BYTES: Final = 64 * 1024 * 1024
MAX_CONTENT_BYTES: Final = 1024 * 1024

KINDS: Final = frozenset(
    {
        "write",
        "retract",
        "confirm",
        "discard",
        "resolve",
        "begin",
        "corroborate",
        "reaffirm",
        "hold",
        "release",
        "grant",
        "revoke",
        "guard",
        "erase",
        "manifest",
        "retention",
        "lost",
        "state",
    }
)
ACTS: Final = frozenset(
    {
        "retires",
        "conflicts",
        "confirms",
        "dates",
        "discards",
        "retracts",
        "keeps",
        "begins",
        "corroborates",
        "lifts",
        "erases",
        "holds",
        "releases",
        "revokes",
    }
)
_WORD: Final = 1 << 64
_PLAIN: Final = frozenset({str, bytes, bool, type(None)})
_DECODED: Final = _PLAIN | {int}
_WITH_LISTS: Final = _DECODED | {list}
_HASH: Final = cbor.head(2, COMMITMENT_BYTES)
_PAIR: Final = cbor.head(4, 3) + cbor.encode(1) + _HASH
_LINK: Final = cbor.head(4, 3) + cbor.encode("link") + cbor.head(2, SALT_BYTES)
_CONTENT: Final = cbor.head(4, 3) + cbor.encode("content") + cbor.head(2, SALT_BYTES)
# What a link may say beside kind, numbers and acts: enumerated codes, counters, digests, random references.
DETAILS: Final = frozenset(
    {
        "outcome",
        "reason",
        "number",
        "previous",
        "request",
        "guard",
        "basis",
        "digest",
        "erasure",
        "count",
        "statements",
        "counts",
        "sequences",
        "tombstone",
        "manifest",
    }
)


# Shared by all links that say nothing there, and so not to be changed by any.
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_OUTCOMES: Final = {word: MappingProxyType({"outcome": word}) for word in event_written.OUTCOMES}


class Link(NamedTuple):
    """The part of a statement that is kept for good."""

    kind: str
    seq: int
    tenant: bytes
    tenant_seq: int
    acts: Mapping[str, tuple[bytes, ...]] = _NOTHING
    details: Mapping[str, Any] = _NOTHING

    def encode(self) -> bytes:
        """Deterministic CBOR of the link; MalformedError if a field is not one a link may have.

        That of a write with nothing but an outcome is put together. A test holds the two ways equal.
        """
        if self.kind == "write" and not self.acts and len(self.details) == 1:
            written = event_written.encode(
                self.seq, self.tenant, self.tenant_seq, self.details.get("outcome")
            )
            if written is not None:
                return written
        _check_link(self)
        fields: dict[str, Any] = {
            "kind": self.kind,
            "seq": self.seq,
            "tenant": self.tenant,
            "tenant_seq": self.tenant_seq,
            **self.details,
        }
        acts = {name: list(targets) for name, targets in self.acts.items() if targets}
        if acts:
            return cbor.encode({**fields, "acts": acts})
        return _encode(fields)


@dataclass(frozen=True, slots=True)
class Commitment:
    """C with the two hashes it is made of."""

    commitment: bytes
    link_hash: bytes
    content_hash: bytes


def decode_link(data: bytes) -> Link:
    """The link these bytes encode; MalformedError if they are not the bytes `Link.encode` writes.

    That of a write which retires one other or none is read by its pattern. A test holds the two ways equal.
    """
    plain = event_written.decode(data)
    if plain is not None:
        seq, tenant, tenant_seq, outcome, retired = plain
        acts = _NOTHING if retired is None else {"retires": (retired,)}
        return Link("write", seq, tenant, tenant_seq, acts, _OUTCOMES[outcome])
    fields = cbor.decode(data, max_bytes=MAX_LINK_BYTES)
    if not isinstance(fields, dict):
        raise MalformedError("expected a link to be a CBOR map")
    rest: dict[Any, Any] = dict(fields)
    told = rest.pop("acts", {})
    if not isinstance(told, dict):
        raise MalformedError("expected the acts of a link to be a CBOR map")
    try:
        link = Link(
            kind=rest.pop("kind"),
            seq=rest.pop("seq"),
            tenant=rest.pop("tenant"),
            tenant_seq=rest.pop("tenant_seq"),
            acts={name: tuple(targets) for name, targets in told.items()},
            details=rest,
        )
    except (KeyError, TypeError):
        raise MalformedError("expected a link with kind, seq, tenant and tenant_seq") from None
    if link.encode() != data:
        raise MalformedError("expected the canonical bytes of a link")
    return link


def encode_content(content: Mapping[str, Any]) -> bytes:
    """Deterministic CBOR of a content map, fields that are None left out."""
    return _encode({name: value for name, value in content.items() if value is not None})


def decode_content(data: bytes) -> dict[str, Any]:
    """The content map these bytes encode; MalformedError if it is not a map with text keys.

    Contents as they are written are read by cbor2 and compared with what they encode to; whatever is not that is
    for the strict decoder to judge. A test holds the two equal.
    """
    plain = _decode_plain(data)
    if plain is not None:
        return plain
    content: Any = cbor.decode(data, max_bytes=MAX_CONTENT_BYTES)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise MalformedError("expected content to be a CBOR map with text keys")
    return dict(content)


def link_hash(link: bytes, salt: bytes) -> bytes:
    """L for the encoded link."""
    return _salted_hash(_LINK, salt, link)


def content_hash(content: bytes, salt: bytes) -> bytes:
    """K for the encoded content."""
    return _salted_hash(_CONTENT, salt, content)


def commitment(link_digest: bytes, content_digest: bytes) -> bytes:
    """C for L and K."""
    if len(link_digest) != COMMITMENT_BYTES or len(content_digest) != COMMITMENT_BYTES:
        raise MalformedError("expected two hashes of 32 bytes")
    return hashlib.sha256(_PAIR + link_digest + _HASH + content_digest).digest()


def commit(link: bytes, link_salt: bytes, content: bytes, content_salt: bytes) -> Commitment:
    """C, L and K of an encoded link and content with their salts."""
    link_digest = link_hash(link, link_salt)
    content_digest = content_hash(content, content_salt)
    return Commitment(commitment(link_digest, content_digest), link_digest, content_digest)


def open_content(target: bytes, link: bytes, link_salt: bytes, content: bytes, content_salt: bytes) -> None:
    """None if link and content open `target`; VerificationError otherwise."""
    if commit(link, link_salt, content, content_salt).commitment != target:
        raise VerificationError("link and content do not open this statement", code="opening")


def open_link(target: bytes, link: bytes, link_salt: bytes, content_digest: bytes) -> None:
    """None if the link opens `target` beside the hash of an erased content; VerificationError otherwise."""
    if commitment(link_hash(link, link_salt), content_digest) != target:
        raise VerificationError("the link does not open this statement", code="opening")


def _salted_hash(beginning: bytes, salt: bytes, encoded: bytes) -> bytes:
    if len(salt) != SALT_BYTES:
        raise MalformedError("expected a salt of 32 bytes")
    # `encoded` is one deterministic item, so the array is its header, the two first items and these bytes.
    return hashlib.sha256(beginning + salt + encoded).digest()


def _encode(fields: dict[Any, Any]) -> bytes:
    """What `cbor.encode` makes of a map, sooner where cbor2 needs no help to do the same."""
    order = _order(tuple(fields))
    if order is None or not _is_plain(fields.values()):
        return cbor.encode(fields)
    try:
        return cbor2.dumps({name: fields[name] for name in order})
    except UnicodeEncodeError:
        raise MalformedError("a text to encode is not valid Unicode") from None


def _decode_plain(data: bytes) -> dict[str, Any] | None:
    """The content, if it is a deterministic map of texts, bytes, integers, booleans and flat lists of those."""
    if type(data) is not bytes or len(data) > MAX_CONTENT_BYTES:
        return None
    try:
        content: Any = cbor2.loads(
            data,
            max_depth=cbor.MAX_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            semantic_decoders=NO_TAGS,
        )
    except cbor2.CBORDecodeError:
        return None
    if type(content) is not dict:
        return None
    shape = _shape(tuple(content), tuple(map(type, content.values())))
    if shape is None:
        return None
    order, lists = shape
    for name in lists:
        for one in content[name]:
            if type(one) is not str:
                return None
    # The order is that of the bytes; that each item has its one form, and that nothing follows, the bytes tell.
    if cbor2.dumps(content) != data:
        return None
    # The names of all contents are the same few texts: each is in memory once.
    return dict(zip(order, content.values(), strict=True))


def _is_plain(values: Iterable[object]) -> bool:
    """Whether cbor2 writes these as the deterministic encoder does: flat values of exactly these types."""
    for value in values:
        kind = type(value)
        if kind is int:
            if not -_WORD <= value < _WORD:  # type: ignore[operator]
                return False
        elif kind is list or kind is tuple:
            if any(type(one) is not str for one in value):  # type: ignore[attr-defined]
                return False
        elif kind not in _PLAIN:
            return False
    return True


@lru_cache(maxsize=256)
def _shape(
    names: tuple[object, ...], types: tuple[type, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The names of the fields of a content, and those that are lists; None if it can't be one as they are written.

    Integers that cbor2 has read without a tag are of 64 bits.
    """
    order = _order(names)
    if order is None or order != names or not _WITH_LISTS.issuperset(types):
        return None
    return order, tuple(name for name, kind in zip(order, types, strict=True) if kind is list)


@lru_cache(maxsize=256)
def _order(names: tuple[object, ...]) -> tuple[str, ...] | None:
    """Names of fields in the bytewise order of their encodings (RFC 8949, 4.2.1); None if not all are texts."""
    texts = tuple(name for name in names if type(name) is str)
    if len(texts) != len(names):
        return None
    try:
        return tuple(sorted(texts, key=lambda name: (len(name.encode()), name.encode())))
    except UnicodeEncodeError:
        return None


def _refuse(*_: object) -> NoReturn:
    raise ValueError("no tags in a content")


def _check_link(link: Link) -> None:
    if link.kind not in KINDS:
        raise MalformedError("expected a known kind of statement")
    if type(link.seq) is not int or type(link.tenant_seq) is not int or min(link.seq, link.tenant_seq) < 1:
        raise MalformedError("expected sequence numbers from 1")
    if not isinstance(link.tenant, bytes) or len(link.tenant) != TENANT_BYTES:
        raise MalformedError("expected a tenant number of 16 bytes")
    if not set(link.details) <= DETAILS:
        raise MalformedError("expected only the details a link may have")
    counts = link.details.get("counts", {})
    if type(counts) is not dict or not counts.keys() <= KINDS or not _are_counts(counts.values()):
        raise MalformedError("expected counts by kind of statement")
    for name, targets in link.acts.items():
        _check_targets(name, targets)


def _are_counts(values: Iterable[object]) -> bool:
    return all(type(value) is int and 0 <= value < _WORD for value in values)


def _check_targets(name: str, targets: Sequence[bytes]) -> None:
    if name not in ACTS:
        raise MalformedError("expected only the acts a link may have")
    if not all(isinstance(target, bytes) and len(target) == COMMITMENT_BYTES for target in targets):
        raise MalformedError("expected the targets of an act to be commitments of 32 bytes")


# Every tag that cbor2 would make a value of; to some it gives more time than their bytes are worth.
NO_TAGS: Final = dict.fromkeys(
    (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799),
    _refuse,
)
