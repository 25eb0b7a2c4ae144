"""Statements in a tree, their receipts by either kind of key, and single changes to them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from judging import flipped
from sample import Sample

ISSUER = "https://issuer.interop.invalid"
LOG = "https://log.interop.invalid"
SUBJECT = "urn:interop:subject"


@dataclass(frozen=True)
class Signer:
    """A COSE signer of ours and its public key as a peer wants it."""

    signer: Any

    @property
    def pem(self) -> bytes:
        return pem(self.signer.key)

    @property
    def kid(self) -> bytes:
        kid: bytes = self.signer.kid
        return kid


def pem(key: Any) -> bytes:
    """A COSE key's public key in PEM."""
    data: bytes = key.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data


def make_signer(folder: Path, name: str, algorithm: int) -> Signer:
    """A signer with a new key file."""
    from tlog.keys import make_cose_key

    return Signer(make_cose_key(folder / "keys" / name, algorithm))


class Tree:
    """A log in memory of statements of our shape."""

    def __init__(self, signer: Signer, size: int) -> None:
        from tlog.log import open_log
        from tlog.statement import sign_statement
        from tlog.storage import MemoryStorage

        digests = [hashlib.sha256(f"content {number}".encode()).digest() for number in range(size)]
        self.entries = [sign_statement(signer.signer, ISSUER, SUBJECT, digest) for digest in digests]
        self.log = open_log(MemoryStorage(), MemoryStorage(), LOG, ())
        self.log.append(self.entries)

    def root(self, size: int) -> bytes:
        return self.log.root_at(size)

    def receipt(self, signer: Signer, index: int, size: int) -> bytes:
        """Our receipt for an entry in the tree of this size."""
        from tlog.receipt import Inclusion, sign_receipt

        proof = Inclusion(index, size, self.root(size), self.log.prove_inclusion(index, size))
        return sign_receipt(signer.signer, LOG, SUBJECT, proof, None)

    def consistency_receipt(self, signer: Signer, old_size: int, size: int) -> bytes:
        """Our receipt that the tree of this size extends the older one."""
        from tlog.receipt import Consistency, sign_consistency_receipt

        path = self.log.prove_consistency(old_size, size)
        proof = Consistency(old_size, size, self.root(size), path)
        return sign_consistency_receipt(signer.signer, LOG, SUBJECT, proof, None)


def sample_parts(sample: Sample) -> tuple[bytes, bytes, bytes, bytes]:
    """Entry and receipt of the sample's transparent statement, and the keys of its issuer and log in PEM."""
    from tlog.receipt import split_transparent
    from tlog.trust import parse_trust

    trust = parse_trust((sample.home / "trust.toml").read_text("utf-8"))
    keys = {use: next(one.key for one in trust.keys if one.use == use) for use in ("issuer", "receipt")}
    entry, receipts = split_transparent(sample.receipt.read_bytes())
    return entry, receipts[0], pem(keys["issuer"]), pem(keys["receipt"])


def with_path_changed(receipt: bytes) -> bytes:
    """The receipt with one bit of the last hash in its proof changed."""
    from tlog.receipt import parse_receipt

    last = parse_receipt(receipt).proofs[0].path[-1]
    return receipt.replace(last, flipped(last), 1)


def with_protected_changed(message: bytes, text: str) -> bytes:
    """The message with one letter of a protected text changed."""
    return message.replace(text.encode(), flipped(text.encode()), 1)
