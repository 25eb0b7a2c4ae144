"""Signatures verified in bulk: whatever verifies them, what is accepted is what is accepted one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import NamedTuple

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from tlog import bulk_signatures, cose_keys
from tlog.cose_keys import ED25519, EDDSA, CoseKey, make_signer
from tlog.errors import MalformedError, VerificationError

# The curve, in plain numbers (RFC 8032, 5.1.4 and 6).
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
I = pow(2, (P - 1) // 4, P)  # noqa: E741  # the name that RFC 8032 has for it is sqrt(-1)
Point = tuple[int, int, int, int]
ZERO: Point = (0, 1, 1, 0)
MESSAGE = b"muniment"


def point(x: int, y: int) -> Point:
    return (x, y, 1, x * y % P)


def add(one: Point, other: Point) -> Point:
    a, b = (one[1] - one[0]) * (other[1] - other[0]), (one[1] + one[0]) * (other[1] + other[0])
    c, d = 2 * D * one[3] * other[3], 2 * one[2] * other[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(scalar: int, one: Point) -> Point:
    total = ZERO
    while scalar:
        if scalar & 1:
            total = add(total, one)
        one, scalar = add(one, one), scalar >> 1
    return total


def flat(one: Point) -> tuple[int, int]:
    inverse = pow(one[2], P - 2, P)
    return one[0] * inverse % P, one[1] * inverse % P


def encode(one: Point) -> bytes:
    x, y = flat(one)
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decode(data: bytes) -> Point | None:
    """The point, spelled in any way; None if there is none."""
    number = int.from_bytes(data, "little")
    y = number & (1 << 255) - 1
    u, v = y * y - 1, D * y * y + 1
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if (v * x * x - u) % P:
        x = x * I % P
    if (v * x * x - u) % P:
        return None
    return point(P - x if x & 1 != number >> 255 else x, y % P)


BASE = decode((4 * pow(5, P - 2, P) % P).to_bytes(32, "little")) or ZERO


@cache
def of_order(order: int) -> Point:
    """A point of this small order: 1, 2, 4 or 8."""
    for y in range(2, 100):
        found = decode(y.to_bytes(32, "little"))
        torsion = ZERO if found is None else times(L, found)
        if flat(times(4, torsion)) != flat(ZERO):
            return times(8 // order, torsion)
    raise AssertionError


class Signed(NamedTuple):
    """A signature under a key that may be no honest one, and what it is an example of."""

    name: str
    key: bytes
    signature: bytes


SECRET = int.from_bytes(hashlib.sha512(b"a key of its own").digest(), "little") % L
KEY = times(SECRET, BASE)


def digest(r: bytes, key: bytes) -> int:
    return int.from_bytes(hashlib.sha512(r + key + MESSAGE).digest(), "little") % L


def signed(name: str, r: bytes, key: bytes, nonce: int, secret: int = SECRET) -> Signed:
    s = (nonce + digest(r, key) * secret) % L
    return Signed(name, key, r + s.to_bytes(32, "little"))


def moved(one: Signed, by: int) -> Signed:
    """The same with another number for S."""
    s = int.from_bytes(one.signature[32:], "little") + by
    return Signed(f"{one.name}, S + {by // L} L", one.key, one.signature[:32] + s.to_bytes(32, "little"))


def search(name: str, key: bytes, rest: int, plus: Point = ZERO, secret: int = SECRET) -> Signed:
    """The first, by its nonce, whose hash leaves this rest; `plus` is added to its R."""
    for nonce in count(1):
        r = encode(add(times(nonce, BASE), plus))
        if digest(r, key) % 8 == rest:
            return signed(f"{name}, hash {rest} of 8", r, key, nonce, secret)
    raise AssertionError


def crafted() -> Iterator[Signed]:
    own = encode(KEY)
    plain = signed("plain", encode(times(7, BASE)), own, 7)
    yield plain
    for by in (1, 2, 7, 14):
        yield moved(plain, by * L)
    for order in (2, 4, 8):
        torsion = of_order(order)
        yield signed(f"R with order {order}", encode(add(times(7, BASE), torsion)), own, 7)
        mixed = encode(add(KEY, torsion))
        for rest in (0, 1, 2, 4):
            yield search(f"key with order {order}", mixed, rest)
    for name, spelled in spellings_of_few().items():
        yield signed(f"R is {name}", spelled, own, 0)
        small = decode(spelled)
        assert small is not None
        for rest in (0, 1, 2, 4):
            yield search(f"key is {name}", spelled, rest, secret=0)
            # R made so that the equation holds to the bit for a hash of this rest.
            yield search(f"key is {name}, R to it", spelled, rest, times(8 - rest, small), 0)
        yield Signed(f"nothing under {name}", spelled, bytes(64))
        yield Signed(f"{name} twice", spelled, spelled + bytes(32))


def spellings_of_few() -> dict[str, bytes]:
    """Every spelling of every point of small order: canonical, with p added, with a sign that zero has not."""
    found = {}
    for order in (1, 2, 4, 8):
        for number in range(1, order + 1, 2):
            x, y = flat(times(number, of_order(order)))
            for more in (0, P) if y + P < 1 << 255 else (0,):
                for sign in (0, 1) if x == 0 else (x & 1,):
                    name = f"{number}/{order}{' + p' if more else ''}{' minus' if sign and not x else ''}"
                    found[name] = (y + more | sign << 255).to_bytes(32, "little")
    return found


@pytest.fixture(scope="module")
def table() -> list[Signed]:
    return list(crafted())


def by_cryptography(one: Signed) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(one.key).verify(one.signature, MESSAGE)
    except (InvalidSignature, ValueError):
        return False
    return True


def by_libsodium(one: Signed) -> bool:
    try:
        crypto_sign_open(one.signature + MESSAGE, one.key)
    except BadSignatureError:
        return False
    return True


@cache
def difference(one: Signed) -> Point | None:
    """R + h A - S B; None where R or the key is no point, in whatever spelling."""
    s = int.from_bytes(one.signature[32:], "little")
    r, key = decode(one.signature[:32]), decode(one.key)
    if r is None or key is None:
        return None
    return add(add(r, times(digest(one.signature[:32], one.key), key)), times(L - s % L, BASE))


def by_equation(one: Signed, cofactor: int = 1, bound: int = L) -> bool:
    """Whether the two sides are equal, both times the cofactor, with an S below a bound."""
    left = difference(one)
    is_small = int.from_bytes(one.signature[32:], "little") < bound
    return left is not None and is_small and flat(times(cofactor, left)) == flat(ZERO)


def is_spelled(one: Signed) -> bool:
    """Whether R is a point in its own spelling."""
    r = decode(one.signature[:32])
    return r is not None and encode(r) == one.signature[:32]


def in_bulk(one: Signed) -> bool:
    """The same by the module, under keys that it never gets: they are refused before they become a CoseKey."""
    quicker = bulk_signatures._quicker()
    assert quicker is not None
    return quicker(one.key, one.signature, MESSAGE) or by_cryptography(one)


def test_libsodium_accepts_nothing_that_cryptography_refuses(table: list[Signed]) -> None:
    assert [one.name for one in table if by_libsodium(one) and not by_cryptography(one)] == []
    assert [one.name for one in table if in_bulk(one) != by_cryptography(one)] == []
    # It would say so: a looser rule accepts many of them.
    assert sum(by_equation(one, 8) and not by_cryptography(one) for one in table) > 50
    assert sum(by_equation(one, bound=1 << 256) and not by_cryptography(one) for one in table) > 5
    # And some are right in spite of their keys: there the two are asked in turn.
    assert {by_libsodium(one) for one in table if by_cryptography(one)} == {True, False}


def test_what_cryptography_refuses_is_what_the_plain_equation_refuses(table: list[Signed]) -> None:
    """But for an R in a spelling of its own, which is compared by its bytes."""
    for one in table:
        assert by_cryptography(one) == (is_spelled(one) and by_equation(one)), one.name


@pytest.mark.parametrize(
    "loosened",
    [
        lambda one: by_equation(one, 8),
        lambda one: is_spelled(one) and by_equation(one, 1, 1 << 256),
        lambda one: is_spelled(one) and by_equation(one, 1, 1 << 253),
        lambda one: by_equation(one),
        lambda one: True,
        lambda one: False,
    ],
    ids=["cofactor", "any S", "S of 253 bits", "any spelling of R", "everything", "nothing"],
)
def test_whoever_is_looser_is_found_out(loosened: Callable[[Signed], bool]) -> None:
    def holds(key: bytes, signature: bytes, message: bytes) -> bool:
        return loosened(Signed("", key, signature)) if message == MESSAGE else False

    assert not bulk_signatures.is_strict(holds)


def test_whoever_is_not_looser_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def holds(key: bytes, signature: bytes, message: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    assert bulk_signatures.is_strict(holds)
    assert bulk_signatures.verifier() == bulk_signatures.LIBSODIUM
    monkeypatch.setattr(bulk_signatures, "_quicker", lambda: None)
    assert bulk_signatures.verifier() == bulk_signatures.CRYPTOGRAPHY


def test_without_libsodium_cryptography_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_signatures, "is_strict", lambda _: False)
    bulk_signatures._quicker.cache_clear()
    try:
        assert bulk_signatures.verifier() == bulk_signatures.CRYPTOGRAPHY
        check_all_kinds()
    finally:
        bulk_signatures._quicker.cache_clear()


def test_what_holds_one_by_one_holds_in_bulk() -> None:
    check_all_kinds()


def check_all_kinds() -> None:
    own = Ed25519PrivateKey.from_private_bytes(b"\x05" * 32)
    for signer in (
        make_signer(own),
        make_signer(own, ED25519),
        make_signer(ec.derive_private_key(5, ec.SECP256R1())),
    ):
        good = signer.sign(MESSAGE)
        bulk_signatures.verify_signature(signer.key, signer.algorithm, MESSAGE, good)
        for wrong in (good[:-1], good + b"\0", b"", bytes(64), good[::-1]):
            for verify in (bulk_signatures.verify_signature, cose_keys.verify_signature):
                with pytest.raises(VerificationError):
                    verify(signer.key, signer.algorithm, MESSAGE, wrong)
        with pytest.raises(VerificationError):
            bulk_signatures.verify_signature(signer.key, signer.algorithm, MESSAGE + b".", good)


def test_every_key_that_a_store_can_have_is_judged_alike(table: list[Signed]) -> None:
    """Keys of small order never become one; those with a part of small order do, and libsodium is asked of them."""
    judged = 0
    for one in table:
        try:
            key = CoseKey(cose_keys.KTY_OKP, one.key)
        except MalformedError:
            continue
        judged += 1
        try:
            bulk_signatures.verify_signature(key, EDDSA, MESSAGE, one.signature)
            accepted = True
        except VerificationError:
            accepted = False
        assert accepted == by_cryptography(one), one.name
    assert judged > 20
