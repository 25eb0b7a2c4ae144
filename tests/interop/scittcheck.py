"""Run by the Python of scitt-cose: a list of questions as JSON on standard input, the answers on standard output.

Byte strings are hexadecimal. An answer is what scitt-cose says, or null where it refuses.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import scitt_cose


def statement(statement: str, key: str) -> dict[str, Any] | None:
    said = scitt_cose.parse_signed_statement(bytes.fromhex(statement), public_key_pem=key)
    if said["signature_verified"] is not True:
        return None
    return {"issuer": said["issuer"], "subject": said["subject"], "payload": said["payload"].hex()}


def receipt(receipt: str, entry: str, key: str) -> dict[str, Any] | None:
    said = scitt_cose.verify_receipt(bytes.fromhex(receipt), leaf_entry_hex=entry, log_public_key_pem=key)
    if not said.ok:
        return None
    found = {"size": said.tree_size, "index": said.leaf_index, "root": said.root}
    return found | {"issuer": said.issuer, "subject": said.subject}


def receipts(transparent: str) -> list[str]:
    return [one.hex() for one in scitt_cose.extract_receipts(bytes.fromhex(transparent))]


def attach(entry: str, receipts: list[str]) -> str:
    return scitt_cose.attach_receipts(bytes.fromhex(entry), [bytes.fromhex(one) for one in receipts]).hex()


def consistency(old_root: str, root: str, sizes: list[int], proof: list[str]) -> bool | None:
    return scitt_cose.verify_consistency(old_root, root, *sizes, proof) or None


def root(entries: list[str]) -> str:
    return scitt_cose.merkle_root(entries)


def sign_statement(payload: str, key: str, kid: str, names: list[str], typ: str) -> str:
    """A hash envelope; labels in the order of a deterministic encoding, which scitt-cose leaves to its caller."""
    claims = dict(enumerate(names, 1))
    protected = {1: -8, 4: bytes.fromhex(kid), 15: claims, 16: typ, 258: -16}
    made = scitt_cose.sign_sign1(
        bytes.fromhex(payload), alg="EdDSA", private_key_pem=key, protected=protected
    )
    return made.hex()


COMMANDS = {
    one.__name__: one for one in (statement, receipt, receipts, attach, consistency, root, sign_statement)
}


def answer(question: dict[str, Any]) -> object:
    command = COMMANDS[question.pop("ask")]
    try:
        return command(**question)
    except scitt_cose.CoseError:
        return None


json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
