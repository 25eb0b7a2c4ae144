"""Ed25519 signatures verified in bulk, by libsodium: in half the time, and none is accepted that was not otherwise.

What counts is what `tlog.cose_keys` accepts (RFC 8032, 5.1.7, without the cofactor, S below the order of the group),
and whatever libsodium refuses is asked there again. That it accepts nothing more is not taken on trust: some builds of
it multiply the equation by the cofactor, or take any S. So each process tries it first on signatures that only a
looser rule accepts, and leaves it alone if it takes one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from tlog import cose_keys
from tlog.cose_keys import KTY_OKP, SIGNATURE_BYTES, CoseKey

Holds = Callable[[bytes, bytes, bytes], bool]
"""(public key, signature, message) -> whether it holds."""
LIBSODIUM: Final = "libsodium"
CRYPTOGRAPHY: Final = "cryptography"
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_HALF_BYTES: Final = 32
_MESSAGE: Final = b"muniment"
_KEY: Final = "8b81f59d1c558ebbb8056a353c3c266ba38b076d21a4d5318d7152d5b2153916"
_PLAIN: Final = (
    "b862409fb5c4c4123df2abf7462b88f041ad36dd6864ce872fd5472be363c5b1",
    "94b0c0b4aed792dcfba7125b5f18b312e97f67f3479fc67d1f90cac5cecd6a04",
)
"""R and S of a signature that holds under that key."""
_ADDED: Final = (1, 7, 14)
"""How many times the order of the group is added to its S: the least, the most of 255 bits, the most of all."""
_REFUSED: Final = (
    # R with a part of order 2, of 4, of 8, which only an equation times eight does not see.
    (
        _KEY,
        "359dbf604a3b3bedc20d5408b9d4770fbe52c922979b3178d02ab8d41c9c3a4e",
        "bc870e47c76e4732b7b1209de9afd69ff8aed4bd22ba364f7426b243770bc007",
    ),
    (
        _KEY,
        "d7fcf1f00e29dd947529006e74d779973e3c1a1bad96b7807ab8644b5604ee50",
        "e2515a91c27011b2b08882c20a5a89cd0bcb054e96eb15ac98ee9fa41132ee09",
    ),
    (
        _KEY,
        "e9b2fe981587efae6478f48ba1fa60cec6126d0e26dde72a0a24f640dcd783e5",
        "24535bd1600639f0e7e2af54cba1886cbd53231c2982846caae7d49437241c05",
    ),
    # The key with a part of order 2, of 4, of 8.
    (
        "627e0a62e3aa714447fa95cac3c3d9945c74f892de5b2ace728ead2a4deac6e9",
        "b4b937fca95b2f1e93e41e62fc3c78818ff38a66096fad6e7973e5c90006d321",
        "94f5e88015cb0e018deb1b551e4c2ff2598e61eec5e7f14ec738004925388608",
    ),
    (
        "3ea6b25fedbf0e4c4bd8f39f33cec8d8d8eb6b76809263ac3b47fc9ffd3d5415",
        "c0f1225584444ec730446e231390781ffdd2f256e9fcbeb2f40dddc2c2233d7f",
        "2cd1b1077a6d2d45c2034a84c82af68c6c7869e52c62f2827bbdc9166626c20f",
    ),
    (
        "3b99cbe912b7b9bfd4a4feda9d72ad46dbebd33fb95aa5a79864067c03bdc670",
        "d4b4f5784868c3020403246717ec169ff79e26608ea126a1ab69ee77d1b16712",
        "c2953b5a92023ada53c12d6f3b470f1983d325db0ea879ddacb9a83682702f0b",
    ),
    # R is a point of small order, spelled otherwise than it may be.
    (
        _KEY,
        "0100000000000000000000000000000000000000000000000000000000000080",
        "b4f368fbfbb373d07bb016d3a42fd506debc749bf3d34398c741046a14fc9e01",
    ),
    (
        _KEY,
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "bc7b469db89e88d1d9fc619a05bae765badeec42bed1eea44e11bff77631f008",
    ),
    (
        _KEY,
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "d5d721b83b059fd20ad2bb4c3832274c89eb1e253679b27981aa1d4d7b46aa04",
    ),
    # The key is of small order.
    (
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eb2767c137ab7ad8279c078eff116ab0786ead3a2e0f989f72c37f82f2969670",
        "1000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "f47e49f9d07ad2c1606b4d94067c41f9777d4ffda709b71da1d88628fce34d85",
        "0600000000000000000000000000000000000000000000000000000000000000",
    ),
    # The key is of small order, and spelled otherwise than it may be.
    (
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "801f40eaaee1ef8723279a28b2cf4037b889dad222604678748b53ed0db0db92",
        "0d00000000000000000000000000000000000000000000000000000000000000",
    ),
    # Zeros under the key that is zero, and a key that signs everything.
    (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "0000000000000000000000000000000000000000000000000000000000000000",
    ),
)
"""Keys, R and S: a looser rule would accept each. How they are made, tests/tlog/test_bulk_signatures.py tells."""


def verify_signature(key: CoseKey, algorithm: int, to_be_signed: bytes, signature: bytes) -> None:
    """Returns for whatever `tlog.cose_keys.verify_signature` returns for, and raises what that does."""
    holds = _quicker()
    is_usual = key.kty == KTY_OKP and len(signature) == SIGNATURE_BYTES[algorithm]
    if holds is None or not is_usual or not holds(key.x, signature, to_be_signed):
        cose_keys.verify_signature(key, algorithm, to_be_signed, signature)


def verifier() -> str:
    """What verifies Ed25519 signatures here."""
    return CRYPTOGRAPHY if _quicker() is None else LIBSODIUM


def is_strict(holds: Holds) -> bool:
    """Whether it accepts a signature that is right, and none of those that only a looser rule accepts."""
    key, plain = bytes.fromhex(_KEY), bytes.fromhex("".join(_PLAIN))
    number = int.from_bytes(plain[_HALF_BYTES:], "little")
    more = [number + 1, *(number + times * _ORDER for times in _ADDED)]
    refused = [(key, plain[:_HALF_BYTES] + one.to_bytes(_HALF_BYTES, "little")) for one in more]
    refused += [(bytes.fromhex(one), bytes.fromhex(r + s)) for one, r, s in _REFUSED]
    if any(holds(one, signature, _MESSAGE) for one, signature in refused):
        return False
    return holds(key, plain, _MESSAGE) and not holds(key, plain, _MESSAGE + b".")


@cache
def _quicker() -> Holds | None:
    """Libsodium, where it is strict."""
    from nacl.bindings import crypto_sign_open
    from nacl.exceptions import BadSignatureError

    def holds(public_key: bytes, signature: bytes, message: bytes) -> bool:
        # Of the lengths of a key's and a signature's bytes libsodium takes our word.
        try:
            crypto_sign_open(signature + message, public_key)
        except BadSignatureError:
            return False
        return True

    return holds if is_strict(holds) else None
