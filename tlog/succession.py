"""When a log's key changes, a new log begins: its first entry commits to the head that the old one ended with.

The entry is a statement of the usual shape, signed by the issuer, whose commitment is

    C = SHA-256(dCBOR(["muniment/succession/v1", old origin, size, root, vkey of the new log]))

It has no salt, for there is nothing to hide: whoever has the old log's last checkpoint and the new log's key can
make C again. The new key is in it, so that nobody can begin another log with a copy of the entry.
"""

from __future__ import annotations

import hashlib
from typing import Final

from tlog import cbor
from tlog.checkpoint import Checkpoint
from tlog.cose_keys import CoseKey, CoseSigner
from tlog.errors import MalformedError, VerificationError
from tlog.note import VerifierKey
from tlog.statement import Statement, parse_statement, sign_statement, verify_statement

LABEL: Final = "muniment/succession/v1"


def succession_commitment(end: Checkpoint, successor: VerifierKey) -> bytes:
    """What the first entry of the log with the key `successor` states about the last head of the log before."""
    if successor.name == end.origin:
        raise MalformedError("succession: expected the new log to have another origin than the old one")
    stated = [LABEL, end.origin, end.size, end.root, successor.vkey]
    return hashlib.sha256(cbor.encode(stated)).digest()


def sign_succession(
    signer: CoseSigner, issuer: str, subject: str, end: Checkpoint, successor: VerifierKey
) -> bytes:
    """The entry with which a log begins that takes the place of the one that ended with `end`."""
    return sign_statement(signer, issuer, subject, succession_commitment(end, successor))


def parse_succession(first_entry: bytes, end: Checkpoint, successor: VerifierKey) -> Statement:
    """The statement that `first_entry` makes, once it is about this end and this successor.

    Who signed it is not known yet. Raises VerificationError with code `succession` otherwise.
    """
    try:
        statement = parse_statement(first_entry)
    except MalformedError:
        statement = None
    if statement is None or statement.payload_hash != succession_commitment(end, successor):
        raise VerificationError(
            "succession: the log does not begin with the head that the log before it ended with",
            code="succession",
        )
    return statement


def verify_succession(first_entry: bytes, end: Checkpoint, successor: VerifierKey, key: CoseKey) -> Statement:
    """The statement with which `successor` takes the place of the log that ended with `end`, signed by `key`.

    `end` and `successor` are the caller's: a checkpoint that a policy accepts, and the key of a log in it.
    """
    parse_succession(first_entry, end, successor)
    return verify_statement(first_entry, key)
