"""Which statements a log takes from others: the document that says so, and the decision on one statement.

The document is TOML, written by the log's operator, committed to by an entry of the log and kept in its public
folder:

    version = 1
    number = 1                       its place among the log's policies, from 1, dense
    algorithms = [-8, -7]            COSE algorithms that statements may be signed with
    payload = "hash"                 hash envelopes only (RFC 9995), or "any"
    max_entry_bytes = 65535
    own_issuer = "<iss>"             optional: the log's own store, whose statements come by another way

    [[issuer]]
    name = "<iss>"
    cose_key = "<base64 of a COSE_Key>"

A decision depends on the bytes of the statement and on the policy in force, which is the newest one before it
in the log, and on nothing else: no header of HTTP, no time, no address (SCRAPI, Use of Unauthenticated HTTP
Metadata). So anybody who has the log and its documents can make every decision again: `registration_log`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from tlog import cose
from tlog.ascii import decode_base64, encode_base64
from tlog.cose_keys import SIGNATURE_BYTES, CoseKey, decode_key
from tlog.errors import MalformedError, RefusedError, VerificationError
from tlog.statement import MAX_ENTRY_BYTES, SignedStatement, parse_signed_statement, require_name

VERSION: Final = 1
REGISTRATION_TYP: Final = "application/vnd.muniment.registration+cose"
FOLDER: Final = "registration/"
MAX_DOCUMENT_BYTES: Final = 1 << 20
MAX_ISSUERS: Final = 1024
MAX_NUMBER: Final = 10**9
PAYLOADS: Final = ("hash", "any")
DEFAULT_ALGORITHMS: Final = (cose.EDDSA, cose.ED25519, cose.ES256, cose.ESP256, cose.ML_DSA_44)
_MAX_EXPLAINED_BYTES: Final = 8192
_FIELDS: Final = frozenset(
    ("version", "number", "algorithms", "payload", "max_entry_bytes", "own_issuer", "issuer")
)
_ISSUER_FIELDS: Final = frozenset(("name", "cose_key"))

Payload = Literal["hash", "any"]


@dataclass(frozen=True)
class Issuer:
    """An issuer, by its `iss`, and one of the keys that speak for it."""

    name: str
    key: CoseKey


@dataclass(frozen=True)
class Registration:
    """A registration policy. `number` tells it from every other that the log had, even one of equal rules.

    `own_issuer` is the store that appends to the log itself, without asking: whatever claims to be of it and
    comes in by request is refused, so that it alone can have added what the log holds in its name.
    """

    number: int
    issuers: tuple[Issuer, ...]
    algorithms: tuple[int, ...] = DEFAULT_ALGORITHMS
    payload: Payload = "hash"
    max_entry_bytes: int = MAX_ENTRY_BYTES
    own_issuer: str | None = None

    def key(self, issuer: str, kid: bytes) -> CoseKey:
        """The key that `kid` names for this issuer; RefusedError if there is none."""
        found = self._keys.get((issuer, kid))
        if found is None:
            known = any(one.name == issuer for one in self.issuers)
            what, code = ("key of this issuer", "key_unknown") if known else ("issuer", "issuer_unknown")
            raise RefusedError(f"registration: the {what} is not registered here", code=code)
        return found

    @cached_property
    def _keys(self) -> dict[tuple[str, bytes], CoseKey]:
        return {(one.name, one.key.key_id): one.key for one in self.issuers}


# The document


def parse_registration(text: str) -> Registration:
    """The policy written in `text`."""
    if len(text) > MAX_DOCUMENT_BYTES:
        raise MalformedError(f"registration: expected at most {MAX_DOCUMENT_BYTES} characters")
    try:
        fields = tomllib.loads(text)
    except (ValueError, RecursionError):
        raise MalformedError("registration: expected a TOML file") from None
    _require_fields(fields, _FIELDS, "registration")
    if fields.get("version") != VERSION or type(fields["version"]) is not int:
        raise MalformedError(f"registration: expected version {VERSION}")
    issuers = fields.get("issuer", [])
    if not isinstance(issuers, list) or len(issuers) > MAX_ISSUERS:
        raise MalformedError(f"registration: expected at most {MAX_ISSUERS} tables [[issuer]]")
    payload = fields.get("payload", "hash")
    if payload not in PAYLOADS:
        raise MalformedError('registration: expected payload as "hash" or "any"')
    return _distinct(
        Registration(
            _integer(fields, "number", 1, MAX_NUMBER),
            tuple(_parse_issuer(issuer) for issuer in issuers),
            _parse_algorithms(fields.get("algorithms", list(DEFAULT_ALGORITHMS))),
            payload,
            _integer(fields, "max_entry_bytes", MAX_ENTRY_BYTES, MAX_ENTRY_BYTES),
            None if "own_issuer" not in fields else require_name(fields["own_issuer"]),
        )
    )


def format_registration(registration: Registration) -> str:
    """The one text of a policy, which `parse_registration` reads back to an equal one."""
    lines = [
        f"version = {VERSION}",
        f"number = {registration.number}",
        f"algorithms = [{', '.join(map(str, registration.algorithms))}]",
        f'payload = "{registration.payload}"',
        f"max_entry_bytes = {registration.max_entry_bytes}",
    ]
    if registration.own_issuer is not None:
        lines.append(f"own_issuer = {_quote(registration.own_issuer)}")
    for issuer in registration.issuers:
        key = encode_base64(issuer.key.encode())
        lines += ["", "[[issuer]]", f"name = {_quote(issuer.name)}", f'cose_key = "{key}"']
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    # JSON escapes what TOML wants escaped, save DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def document_of(registration: Registration) -> bytes:
    """The bytes of the document that the log commits to."""
    document = format_registration(registration).encode("utf-8")
    if parse_registration(document.decode("utf-8")) != registration:
        raise MalformedError("registration: expected values that its document can hold")
    return document


def document_path(digest: bytes) -> str:
    """Where the log keeps the document with this SHA-256."""
    return f"{FOLDER}{digest.hex()}.toml"


def _parse_issuer(fields: object) -> Issuer:
    if not isinstance(fields, dict):
        raise MalformedError("registration: expected tables [[issuer]]")
    _require_fields(fields, _ISSUER_FIELDS, "registration issuer")
    encoded = fields.get("cose_key")
    if not isinstance(encoded, str):
        raise MalformedError("registration issuer: expected cose_key as base64")
    key = decode_key(decode_base64(encoded, "registration issuer: cose_key"))
    return Issuer(require_name(fields.get("name")), key)


def _parse_algorithms(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or any(
        type(one) is not int or one not in SIGNATURE_BYTES for one in value
    ):
        raise MalformedError("registration: expected algorithms from -7, -8, -9, -19 and -48")
    if not value or len(set(value)) != len(value):
        raise MalformedError("registration: expected at least one algorithm, and each once")
    return tuple(value)


def _distinct(registration: Registration) -> Registration:
    pairs = {(one.name, one.key.key_id) for one in registration.issuers}
    if len(pairs) != len(registration.issuers):
        raise MalformedError("registration: expected each issuer and key once")
    if registration.own_issuer in {one.name for one in registration.issuers}:
        raise MalformedError("registration: expected no keys of the log's own issuer, which is not judged")
    return registration


def _require_fields(fields: Mapping[str, object], known: frozenset[str], what: str) -> None:
    if not known.issuperset(fields):
        raise MalformedError(f"{what}: expected only the fields {', '.join(sorted(known))}")


def _integer(fields: Mapping[str, object], name: str, default: int, most: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise MalformedError(f"registration: expected {name} as an integer from 1 to {most}")
    return value


# One decision


@dataclass(frozen=True)
class Admitted:
    """A statement that the policy takes: its entry, and the id that follows from the entry's bytes."""

    entry: bytes
    entry_id: bytes
    issuer: str
    subject: str
    policy_number: int


def entry_id_of(entry: bytes) -> bytes:
    """The 32 bytes that SCRAPI's locators name an entry by: SHA-256 over its bytes."""
    return hashlib.sha256(entry).digest()


def judge(signed_statement: bytes, registration: Registration) -> Admitted:
    """The statement as it is logged, once the policy takes it; its unprotected headers are removed.

    Raises MalformedError for what is no signed statement, with code `payload_missing` or
    `confirmation_missing` where that is what it lacks, and RefusedError with code `algorithm`,
    `issuer_unknown`, `key_unknown`, `signature`, `payload_kind`, `reserved_type` or `too_large`.
    """
    statement = _parse(signed_statement)
    message = statement.message
    cose.require_no_legacy(message)
    algorithm = message.headers.get(cose.ALG)
    if algorithm not in registration.algorithms:
        raise RefusedError("registration: the signing algorithm is not accepted here", code="algorithm")
    if message.payload is None:
        raise MalformedError("registration: expected the payload attached", code="payload_missing")
    if message.headers.get(cose.TYP) == REGISTRATION_TYP:
        raise RefusedError("registration: policies are not taken as statements", code="reserved_type")
    if registration.payload == "hash" and statement.payload_hash_algorithm is None:
        raise RefusedError(
            "registration: expected a hash envelope, its payload a hash (RFC 9995)", code="payload_kind"
        )
    entry = cose.encode_sign1(message.protected, {}, message.payload, message.signature)
    if len(entry) > registration.max_entry_bytes:
        raise RefusedError(
            f"registration: expected an entry of at most {registration.max_entry_bytes} bytes",
            code="too_large",
        )
    verify_statement_key(statement, registration.key(statement.issuer, statement.kid))
    number = registration.number
    return Admitted(entry, entry_id_of(entry), statement.issuer, statement.subject, number)


def _parse(data: bytes) -> SignedStatement:
    try:
        return parse_signed_statement(data)
    except MalformedError:
        if len(data) > _MAX_EXPLAINED_BYTES:
            raise  # what is refused must not cost two long decodings
        # Only a message that is whole but for one thing is told apart: that thing is what its author can add.
        message = cose.decode_sign1(data)
        if message.payload is None:
            raise MalformedError(
                "registration: expected the payload attached", code="payload_missing"
            ) from None
        if cose.KID not in message.headers or cose.CWT_CLAIMS not in message.headers:
            raise MalformedError(
                "registration: expected kid and CWT claims in the protected headers",
                code="confirmation_missing",
            ) from None
        raise


def verify_statement_key(statement: SignedStatement, key: CoseKey) -> None:
    """Returns when the key signed the statement; RefusedError with code `algorithm` or `signature`."""
    message = statement.message
    assert message.payload is not None
    try:
        algorithm = cose.require_algorithm(key, message.headers.get(cose.ALG))
        signed = cose.sig_structure(message.protected, message.payload)
        cose.verify_signature(key, algorithm, signed, message.signature)
    except VerificationError as error:
        code = "algorithm" if error.code == "algorithm" else "signature"
        raise RefusedError(f"registration: {error.message}", code=code) from None
