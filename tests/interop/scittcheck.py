"""Run by the Python of scitt-cose: a list of questions as JSON on standard input, the answers on standard output.

Byte strings are hexadecimal. An answer is what scitt-cose says, or null where it refuses.
"""

import json
import sys

import scitt_cose


def statement(statement, key):
    said = scitt_cose.parse_signed_statement(bytes.fromhex(statement), public_key_pem=key)
    if said["signature_verified"] is not True:
        return None
    return {"issuer": said["issuer"], "subject": said["subject"], "payload": said["payload"].hex()}


def receipt(receipt, entry, key):
    said = scitt_cose.verify_receipt(bytes.fromhex(receipt), leaf_entry_hex=entry, log_public_key_pem=key)
    if not said.ok:
        return None
    found = {"size": said.tree_size, "index": said.leaf_index, "root": said.root}
    return found | {"issuer": said.issuer, "subject": said.subject}


def receipts(transparent):
    return [one.hex() for one in scitt_cose.extract_receipts(bytes.fromhex(transparent))]


def attach(entry, receipts):
    return scitt_cose.attach_receipts(bytes.fromhex(entry), [bytes.fromhex(one) for one in receipts]).hex()


def consistency(old_size, size, old_root, root, proof):
    return scitt_cose.verify_consistency(old_size, size, old_root, root, proof) or None


def root(entries):
    return scitt_cose.merkle_root(entries)


COMMANDS = {one.__name__: one for one in (statement, receipt, receipts, attach, consistency, root)}


def answer(question):
    command = COMMANDS[question.pop("ask")]
    try:
        return command(**question)
    except scitt_cose.CoseError:
        return None


json.dump([answer(question) for question in json.load(sys.stdin)], sys.stdout)
