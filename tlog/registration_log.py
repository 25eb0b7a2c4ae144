"""Registration policies as entries of the log, and every decision of a log made again from its entries.

A policy entry is a hash envelope (RFC 9995) signed by the log's operator: typ REGISTRATION_TYP, iss the log's
origin, the payload SHA-256 of the document. It is in force for the entries after it, up to the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tlog import cose
from tlog.cose_keys import CoseKey, CoseSigner
from tlog.errors import MalformedError, RefusedError, VerificationError
from tlog.registration import (
    REGISTRATION_TYP,
    Registration,
    document_of,
    document_path,
    judge,
    parse_registration,
    verify_statement_key,
)
from tlog.statement import HASH_BYTES, SignedStatement, parse_signed_statement

DOCUMENT_TYPE: Final = "application/toml"
SUBJECT: Final = "registration-policy"

ReadDocument = Callable[[bytes], bytes | None]
"""Returns the document with a SHA-256, None if there is none."""


@dataclass(frozen=True)
class Operator:
    """Whose policies count: the log by its origin, and the keys that its operator signs policies with."""

    origin: str
    keys: tuple[CoseKey, ...]


def sign_registration(signer: CoseSigner, origin: str, registration: Registration) -> bytes:
    """The entry with which the log's operator commits the log to a policy: a hash envelope of its document."""
    digest = hashlib.sha256(document_of(registration)).digest()
    headers: dict[int | str, object] = {
        cose.CWT_CLAIMS: {cose.CWT_ISS: origin, cose.CWT_SUB: SUBJECT},
        cose.TYP: REGISTRATION_TYP,
        cose.PAYLOAD_HASH_ALG: cose.SHA_256,
        cose.PREIMAGE_CONTENT_TYPE: DOCUMENT_TYPE,
        cose.PAYLOAD_LOCATION: document_path(digest),
    }
    return cose.sign1(signer, headers, digest)


def parse_policy_entry(entry: bytes) -> SignedStatement | None:
    """The statement if the entry says that it is a registration policy, None otherwise; nothing is verified."""
    if REGISTRATION_TYP.encode() not in entry:
        return None
    try:
        statement = parse_signed_statement(entry)
    except MalformedError:
        return None
    return statement if statement.message.headers.get(cose.TYP) == REGISTRATION_TYP else None


def verify_policy_entry(statement: SignedStatement, operator: Operator) -> bytes:
    """The SHA-256 of the document that the entry commits to, once the operator has signed it."""
    if (statement.issuer, statement.subject) != (operator.origin, SUBJECT):
        raise RefusedError("registration: the policy is another log's", code="issuer_unknown")
    key = next((key for key in operator.keys if key.key_id == statement.kid), None)
    if key is None:
        raise RefusedError("registration: the policy is signed with an unknown key", code="key_unknown")
    digest = statement.message.payload
    if digest is None or len(digest) != HASH_BYTES or statement.payload_hash_algorithm != cose.SHA_256:
        raise RefusedError("registration: expected the SHA-256 of a document", code="payload_kind")
    verify_statement_key(statement, key)
    return digest


def open_document(data: bytes | None, digest: bytes) -> Registration:
    """The policy in the document with this SHA-256; VerificationError if these are other bytes, or none."""
    if data is None or hashlib.sha256(data).digest() != digest:
        raise VerificationError(
            "registration: the document of a policy is missing or altered", code="document"
        )
    try:
        return parse_registration(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise MalformedError("registration: expected UTF-8") from None


# All decisions


@dataclass(frozen=True)
class Decision:
    """What becomes of one entry.

    It is a `policy`, it is `admitted` or `refused` (why: `code`) by the policy at `policy_index`, it is of the
    log's `own` store, whose statements an audit checks, or it came `before_policy`, when the log took nothing
    from others.
    """

    index: int
    outcome: Literal["before_policy", "policy", "own", "admitted", "refused"]
    policy_index: int | None = None
    code: str | None = None


def replay(entries: Iterable[bytes], read_document: ReadDocument, operator: Operator) -> Iterator[Decision]:
    """Every decision of a log made again from its entries, the first at index 0.

    `read_document` returns the document with a SHA-256. Raises VerificationError where the document of a
    policy in force is missing or altered: what came after it can't be judged. The log kept to its policies
    if no decision is `refused`.
    """
    current: tuple[int, Registration] | None = None
    for index, entry in enumerate(entries):
        at = None if current is None else current[0]
        statement = parse_policy_entry(entry)
        try:
            if statement is not None:
                number = 0 if current is None else current[1].number
                found = _next_policy(statement, read_document, operator, number)
                current = (index, found)
                yield Decision(index, "policy", at)
            elif current is None:
                yield Decision(index, "before_policy")
            elif _is_own(entry, current[1]):
                yield Decision(index, "own", at)
            elif judge(entry, current[1]).entry != entry:
                # Unprotected headers are nobody's word; a log that kept them kept what nobody signed.
                yield Decision(index, "refused", at, "unprotected")
            else:
                yield Decision(index, "admitted", at)
        except (RefusedError, MalformedError) as error:
            yield Decision(index, "refused", at, error.code)


def _is_own(entry: bytes, registration: Registration) -> bool:
    own = registration.own_issuer
    return own is not None and parse_signed_statement(entry).issuer == own


def _next_policy(
    statement: SignedStatement,
    read_document: ReadDocument,
    operator: Operator,
    number: int,
) -> Registration:
    digest = verify_policy_entry(statement, operator)
    registration = open_document(read_document(digest), digest)
    if registration.number != number + 1:
        # An old policy, logged again, would bring back what it once allowed.
        raise RefusedError("registration: expected the next number", code="number")
    return registration
