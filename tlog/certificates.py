"""Key lists: which keys a store signs with, from when until when, certified by a root key kept elsewhere.

A list is a COSE_Sign1 by the root, numbered from 1, with every key that the store ever had:

    protected  {1: alg, 4: kid of the root, 16: TYP}        unprotected  {}
    payload    {"schema": 1, "store": tstr, "number": uint, "made_at": uint, "keys": [key, ...]}
    key        {"use", "key": bstr COSE_Key, "not_before", ? "issuer", ? "not_after", ? "until": {origin: size}}

A later list adds keys and ends keys, and does nothing else: a life that was certified can be cut short, never
begun earlier or made longer. So whoever has stolen a key, or the root for a moment, extends no life that a
verifier has seen the end of.

`until` says how far the logs had grown when a key was ended: what stands in a tree of that size was logged before
the end, so that a proof made years later still shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tlog import cbor
from tlog.ascii import MAX_SIZE
from tlog.cose import (
    ALG,
    KID,
    CoseKey,
    CoseSigner,
    decode_key,
    decode_sign1,
    encode_protected,
    encode_sign1,
    require_algorithm,
    sig_structure,
    sign_raw,
    verify_signature,
)
from tlog.cose import TYP as TYP_LABEL
from tlog.errors import MalformedError, VerificationError

TYP: Final = "application/vnd.muniment.keys+cose"
SCHEMA: Final = 1
USES: Final = ("issuer", "receipt", "manifest", "report", "registration")
MAX_KEYS: Final = 256
MAX_KEY_LIST_BYTES: Final = 1 << 20
MAX_NAME_CHARACTERS: Final = 8192
_MAX_LOGS: Final = 256
_HEADERS: Final = frozenset((ALG, KID, TYP_LABEL))
_FIELDS: Final = frozenset(("schema", "store", "number", "made_at", "keys"))
_KEY_FIELDS: Final = frozenset(("use", "key", "not_before"))
_OPTIONAL: Final = frozenset(("issuer", "not_after", "until"))


@dataclass(frozen=True)
class Logged:
    """In the tree of `size` of the log of `origin`, as a verified checkpoint of that log shows."""

    origin: str
    size: int


@dataclass(frozen=True)
class TrustedKey:
    """A COSE key, what it may be used for, and when what it signed counts; `not_after` is inclusive.

    `issuer`, where set, is the only issuer that the key speaks for. `until` names, for a key that was ended,
    logs with the size they had then: what stands in a tree that large counts whenever it is shown.
    """

    use: str
    key: CoseKey
    not_before: int
    not_after: int | None = None
    issuer: str | None = None
    until: tuple[tuple[str, int], ...] = ()

    @property
    def kid(self) -> bytes:
        """What a `kid` header names this key by."""
        return self.key.key_id

    @property
    def name(self) -> tuple[str, bytes, str | None]:
        """What tells this key from the others of a list."""
        return self.use, self.kid, self.issuer

    def counts(self, at: int, logged: Logged | None = None) -> bool:
        """Whether what this key signed counts, given when it was seen and in which tree it was found.

        Neither comes from the signer: `at` is a witness's time, or now; `logged` is a place in a log.
        """
        if at < self.not_before:
            return False
        if self.not_after is None or at <= self.not_after:
            return True
        return logged is not None and logged.size <= dict(self.until).get(logged.origin, 0)


@dataclass(frozen=True)
class KeyList:
    """Every key that a store ever had, as of `made_at` in seconds; later lists have higher numbers."""

    store: str
    number: int
    made_at: int
    keys: tuple[TrustedKey, ...]

    def with_key(self, key: TrustedKey, made_at: int) -> KeyList:
        """The next list, which has this key besides."""
        return replace(self, number=self.number + 1, made_at=made_at, keys=(*self.keys, key))

    def ending(self, key: TrustedKey, not_after: int, until: Mapping[str, int], made_at: int) -> KeyList:
        """The next list, in which the life of `key` is over after `not_after`."""
        end = not_after if key.not_after is None else min(key.not_after, not_after)
        ended = replace(key, not_after=max(end, key.not_before), until=tuple(sorted(until.items())))
        keys = tuple(ended if one == key else one for one in self.keys)
        return replace(self, number=self.number + 1, made_at=made_at, keys=keys)


# Bytes


def encode_key_list(key_list: KeyList) -> bytes:
    """The payload of a list, which `decode_key_list` reads back to an equal one."""
    document = {
        "schema": SCHEMA,
        "store": key_list.store,
        "number": key_list.number,
        "made_at": key_list.made_at,
        "keys": [_encode_key(key) for key in key_list.keys],
    }
    payload = cbor.encode(document)
    decode_key_list(payload)
    return payload


def _encode_key(key: TrustedKey) -> dict[str, object]:
    fields: dict[str, object] = {"use": key.use, "key": key.key.encode(), "not_before": key.not_before}
    if key.issuer is not None:
        fields["issuer"] = key.issuer
    if key.not_after is not None:
        fields["not_after"] = key.not_after
    return fields | ({"until": dict(key.until)} if key.until else {})


def decode_key_list(payload: bytes) -> KeyList:
    """The list in a payload; who signed it is not known yet."""
    document = cbor.decode(payload, max_bytes=MAX_KEY_LIST_BYTES, max_depth=5)
    if not isinstance(document, dict) or document.keys() != _FIELDS or document["schema"] != SCHEMA:
        raise MalformedError(f"key list: expected schema {SCHEMA} with its fields and no others")
    keys = document["keys"]
    if not isinstance(keys, list) or not 1 <= len(keys) <= MAX_KEYS:
        raise MalformedError(f"key list: expected 1 to {MAX_KEYS} keys")
    decoded = tuple(_decode_key(key) for key in keys)
    if len({key.name for key in decoded}) != len(decoded):
        raise MalformedError("key list: a key stands in it twice for one use")
    number = _number(document["number"], "number")
    if number < 1:
        raise MalformedError("key list: expected a number from 1")
    return KeyList(_name(document["store"]), number, _number(document["made_at"], "made_at"), decoded)


def _decode_key(fields: cbor.Value) -> TrustedKey:
    if not isinstance(fields, dict) or not _KEY_FIELDS <= fields.keys() <= _KEY_FIELDS | _OPTIONAL:
        raise MalformedError(
            "key list: expected each key to have use, key and not_before, and no other fields"
        )
    use, key = fields["use"], fields["key"]
    if use not in USES or not isinstance(use, str) or not isinstance(key, bytes):
        raise MalformedError(
            "key list: expected a use of issuer, receipt, manifest or report, and a COSE_Key"
        )
    not_before = _number(fields["not_before"], "not_before")
    not_after = _number(fields["not_after"], "not_after") if "not_after" in fields else None
    if not_after is not None and not_after < not_before:
        raise MalformedError("key list: expected not_after to be no earlier than not_before")
    issuer = _name(fields["issuer"]) if "issuer" in fields else None
    until = read_until(fields["until"]) if "until" in fields else ()
    if until and not_after is None:
        raise MalformedError("key list: expected until only where a key has ended")
    return TrustedKey(use, decode_key(key), not_before, not_after, issuer, until)


def read_until(value: Any) -> tuple[tuple[str, int], ...]:
    """Origins with sizes, in order."""
    if not isinstance(value, dict) or not 1 <= len(value) <= _MAX_LOGS:
        raise MalformedError(f"key: expected until as a map of 1 to {_MAX_LOGS} origins to sizes")
    return tuple(sorted((_name(origin), _number(size, "until")) for origin, size in value.items()))


def _number(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise MalformedError(f"key list: expected {name} as an integer that is not negative")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_CHARACTERS:
        raise MalformedError(f"key list: expected a name of 1 to {MAX_NAME_CHARACTERS} characters")
    return value


# Signing and believing


def sign_key_list(root: CoseSigner, key_list: KeyList) -> bytes:
    """The list, certified by the root: each key in it has an end, or nothing would ever bound its life."""
    _require_ends(key_list)
    if any(key.kid == root.kid for key in key_list.keys):
        raise MalformedError("key list: expected the root to certify other keys than itself")
    payload = encode_key_list(key_list)
    protected = encode_protected({ALG: root.algorithm, KID: root.kid, TYP_LABEL: TYP})
    # The direct path, like that of statements: every reader of a trust file takes it.
    return encode_sign1(protected, {}, payload, sign_raw(root, sig_structure(protected, payload)))


def peek_key_list(data: bytes) -> tuple[bytes, KeyList]:
    """The kid of the root that is said to have signed, and the list. Nothing is verified."""
    message = decode_sign1(data, max_bytes=MAX_KEY_LIST_BYTES)
    headers, kid = message.headers, message.headers.get(KID)
    if headers.keys() != _HEADERS or message.unprotected or headers[TYP_LABEL] != TYP:
        raise MalformedError("key list: expected the headers of a key list: alg, kid and its type")
    if message.payload is None or not isinstance(kid, bytes):
        raise MalformedError("key list: expected a kid, and the list attached")
    return kid, decode_key_list(message.payload)


def verify_key_list(data: bytes, root: CoseKey) -> KeyList:
    """The list in `data`, certified by `root`."""
    kid, key_list = peek_key_list(data)
    if kid != root.key_id:
        raise VerificationError("key list: is certified by another root", code="key_unknown", use="root")
    message = decode_sign1(data, max_bytes=MAX_KEY_LIST_BYTES)
    algorithm = require_algorithm(root, message.headers.get(ALG))
    signed = sig_structure(message.protected, message.payload or b"")
    verify_signature(root, algorithm, signed, message.signature)
    _require_ends(key_list)
    return key_list


def _require_ends(key_list: KeyList) -> None:
    if any(key.not_after is None for key in key_list.keys):
        raise MalformedError("key list: expected a certified key to have an end (not_after)")


def require_extends(new: KeyList, old: KeyList) -> None:
    """Returns if `new` is a later list of the same store that lost no key and made no life longer.

    Raises VerificationError with code `key_list`, or `rolled_back` where `new` is the older one.
    """
    if new.store != old.store:
        raise VerificationError("key list: is of another store", code="key_list")
    if new.number < old.number:
        raise VerificationError(
            "key list: is older than the one that is known", code="rolled_back", number=new.number
        )
    if new.number == old.number and new != old:
        raise VerificationError("key list: another list has the same number", code="key_list")
    now = {key.name: key for key in new.keys}
    for before in old.keys:
        after = now.get(before.name)
        if after is None or not _continues(after, before):
            raise VerificationError(
                "key list: a key of the list before is missing, begins at another time or lives longer",
                code="key_list",
            )


def _continues(after: TrustedKey, before: TrustedKey) -> bool:
    if (after.key, after.not_before) != (before.key, before.not_before):
        return False
    if before.not_after is not None and (after.not_after is None or after.not_after > before.not_after):
        return False
    return not before.until or after.until == before.until
