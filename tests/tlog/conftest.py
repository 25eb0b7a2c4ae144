"""Signers made of seeds, for the tests of the formats."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from tlog.cosignature import cosigned_message, make_cosignature_line
from tlog.note import SignatureLine, SignatureType, make_verifier_key


class SeedSigner:
    """Signs texts (0x01) and cosigns checkpoints (0x04, 0x06) with the key of a seed."""

    def __init__(self, name: str, kind: int, seed: int) -> None:
        load = (
            MLDSA44PrivateKey.from_seed_bytes
            if kind == SignatureType.MLDSA44
            else Ed25519PrivateKey.from_private_bytes
        )
        private_key = load(seed.to_bytes(32))
        self.verifier_key = make_verifier_key(name, kind, private_key.public_key().public_bytes_raw())
        self.sign_bytes = private_key.sign

    def sign(self, text: str) -> SignatureLine:
        key = self.verifier_key
        return SignatureLine(key.name, key.key_id, self.sign_bytes(text.encode()))

    def cosign(self, text: str, timestamp: int) -> SignatureLine:
        signature = self.sign_bytes(cosigned_message(self.verifier_key, timestamp, text))
        return make_cosignature_line(self.verifier_key, timestamp, signature)


@pytest.fixture(scope="session")
def seed_signer() -> Callable[[str, int, int], SeedSigner]:
    """Makes a signer of a name, a signature type and a number as the seed."""
    return SeedSigner
