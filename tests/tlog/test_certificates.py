"""tlog.certificates: lists of keys that a root certifies, and what a later list may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from hypothesis import given
from hypothesis import strategies as st

from tlog import cbor, cose
from tlog.certificates import (
    TYP,
    USES,
    KeyList,
    Logged,
    TrustedKey,
    decode_key_list,
    encode_key_list,
    peek_key_list,
    require_extends,
    sign_key_list,
    verify_key_list,
)
from tlog.cose import make_signer
from tlog.errors import Error, MalformedError, VerificationError

STORE = "urn:uuid:store"
LOG = "example.org/log"


def signer(seed: int) -> Any:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes((seed,)) * 32))


ROOT, OTHER_ROOT = signer(1), signer(2)
ISSUER, NEXT, RECEIPT = signer(3), signer(4), signer(5)
FIRST = KeyList(
    STORE,
    1,
    1000,
    (TrustedKey("issuer", ISSUER.key, 1000, 5000, STORE), TrustedKey("receipt", RECEIPT.key, 1000, 5000)),
)
ENDED = FIRST.with_key(TrustedKey("issuer", NEXT.key, 2000, 6000, STORE), 2000).ending(
    FIRST.keys[0], 2500, {LOG: 7}, 2500
)


def test_known_answer() -> None:
    payload = encode_key_list(FIRST)
    assert cbor.decode(payload, max_bytes=4096) == {
        "schema": 1,
        "store": STORE,
        "number": 1,
        "made_at": 1000,
        "keys": [
            {
                "use": "issuer",
                "key": ISSUER.key.encode(),
                "not_before": 1000,
                "not_after": 5000,
                "issuer": STORE,
            },
            {"use": "receipt", "key": RECEIPT.key.encode(), "not_before": 1000, "not_after": 5000},
        ],
    }
    data = sign_key_list(ROOT, FIRST)
    message = cose.decode_sign1(data)
    assert message.headers == {cose.ALG: -8, cose.KID: ROOT.kid, cose.TYP: TYP}
    assert (message.unprotected, message.payload) == ({}, payload)


def test_a_list_that_a_root_signed_is_read_back() -> None:
    data = sign_key_list(ROOT, ENDED)
    assert verify_key_list(data, ROOT.key) == ENDED
    assert peek_key_list(data) == (ROOT.kid, ENDED)
    cose.verify_sign1(cose.decode_sign1(data), ROOT.key)  # and by a COSE library


@pytest.mark.parametrize(
    "private", [ec.derive_private_key(9, ec.SECP256R1()), mldsa.MLDSA44PrivateKey.generate()]
)
def test_a_root_may_have_another_algorithm(private: Any) -> None:
    root = make_signer(private)
    assert verify_key_list(sign_key_list(root, FIRST), root.key) == FIRST


def test_a_list_of_another_root_is_refused() -> None:
    with pytest.raises(VerificationError) as caught:
        verify_key_list(sign_key_list(OTHER_ROOT, FIRST), ROOT.key)
    assert caught.value.code == "key_unknown"
    # Signed by a thief, under the name of the root.
    forged = replace(OTHER_ROOT, kid=ROOT.kid)
    with pytest.raises(VerificationError) as caught:
        verify_key_list(sign_key_list(forged, FIRST), ROOT.key)
    assert caught.value.code == "signature"


def test_every_byte_is_covered() -> None:
    data = sign_key_list(ROOT, FIRST)
    for at in range(len(data)):
        changed = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        with pytest.raises(Error):
            verify_key_list(changed, ROOT.key)


def test_the_root_certifies_no_key_without_an_end_and_not_itself() -> None:
    endless = replace(FIRST, keys=(replace(FIRST.keys[0], not_after=None),))
    with pytest.raises(MalformedError, match="end"):
        sign_key_list(ROOT, endless)
    itself = replace(FIRST, keys=(TrustedKey("issuer", ROOT.key, 0, 1, STORE),))
    with pytest.raises(MalformedError, match="itself"):
        sign_key_list(ROOT, itself)
    # Nor does a reader believe one that another program signed.
    payload = encode_key_list(endless)
    data = cose.sign1(ROOT, {cose.TYP: TYP}, payload)
    with pytest.raises(MalformedError, match="end"):
        verify_key_list(data, ROOT.key)


# What a thief would like a later list to say


LATER: dict[str, Callable[[KeyList], KeyList]] = {
    "leaves a key out": lambda one: replace(one, keys=one.keys[1:]),
    "has another key under its name": lambda one: replace(
        one, keys=(replace(one.keys[0], key=NEXT.key), *one.keys[1:2])
    ),
    "begins earlier": lambda one: replace(one, keys=(replace(one.keys[0], not_before=999), *one.keys[1:])),
    "lives a second longer": lambda one: replace(
        one, keys=(replace(one.keys[0], not_after=(one.keys[0].not_after or 0) + 1), *one.keys[1:])
    ),
    "lives for ever": lambda one: replace(
        one, keys=(replace(one.keys[0], not_after=None, until=()), *one.keys[1:])
    ),
    "reaches further": lambda one: replace(
        one, keys=(replace(one.keys[0], until=((LOG, 8),)), *one.keys[1:])
    ),
    "reaches into another log": lambda one: replace(
        one, keys=(replace(one.keys[0], until=((LOG, 7), ("other", 1))), *one.keys[1:])
    ),
    "speaks for another issuer": lambda one: replace(
        one, keys=(replace(one.keys[0], issuer="another"), *one.keys[1:])
    ),
    "is of another store": lambda one: replace(one, store="another"),
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_list_changes_nothing_that_was(name: str) -> None:
    changed = LATER[name](replace(ENDED, number=ENDED.number + 1))
    with pytest.raises(VerificationError) as caught:
        require_extends(changed, ENDED)
    assert caught.value.code == "key_list"


def test_a_later_list_adds_and_ends() -> None:
    for old, new in ((FIRST, ENDED), (FIRST, FIRST), (ENDED, replace(ENDED, number=99))):
        require_extends(new, old)
    sooner = replace(ENDED, number=9, keys=(replace(ENDED.keys[0], not_after=2400), *ENDED.keys[1:]))
    require_extends(sooner, ENDED)


def test_an_older_list_is_rolled_back_and_two_of_a_number_are_a_fork() -> None:
    with pytest.raises(VerificationError) as caught:
        require_extends(FIRST, ENDED)
    assert caught.value.code == "rolled_back"
    with pytest.raises(VerificationError) as caught:
        require_extends(replace(ENDED, made_at=1), ENDED)
    assert caught.value.code == "key_list"


def test_an_end_is_never_later_than_what_was_certified() -> None:
    assert ENDED.keys[0] == replace(FIRST.keys[0], not_after=2500, until=((LOG, 7),))
    late = FIRST.ending(FIRST.keys[0], 9999, {LOG: 7}, 9999)
    assert late.keys[0].not_after == 5000
    early = FIRST.ending(FIRST.keys[0], 1, {LOG: 7}, 9999)
    assert early.keys[0].not_after == 1000  # no earlier than it began


# When what a key signed counts


def test_time_and_place_say_whether_it_counts() -> None:
    key = ENDED.keys[0]
    assert key.counts(1000) and key.counts(2500)
    assert not key.counts(999) and not key.counts(2501)
    assert key.counts(9999, Logged(LOG, 7)) and key.counts(9999, Logged(LOG, 1))
    assert not key.counts(9999, Logged(LOG, 8))
    assert not key.counts(9999, Logged("another log", 1))
    assert not key.counts(999, Logged(LOG, 1))  # before the key there was nothing to log
    assert not FIRST.keys[0].counts(5001, Logged(LOG, 1))


# Bytes


def document(**changes: Any) -> dict[str, Any]:
    decoded = cbor.decode(encode_key_list(ENDED), max_bytes=4096)
    assert isinstance(decoded, dict)
    whole: dict[str, Any] = {**decoded, **changes}  # type: ignore[dict-item]
    return {name: value for name, value in whole.items() if value is not None}


def key_with(**changes: Any) -> list[Any]:
    key = {**document()["keys"][0], **changes}
    return [{name: value for name, value in key.items() if value is not None}]


BAD = {
    "no schema": document(schema=None),
    "another schema": document(schema=2),
    "a field too many": document(extra=1),
    "number 0": document(number=0),
    "a negative number": document(number=-1),
    "a number that is true": document(number=True),
    "no keys": document(keys=[]),
    "too many keys": document(keys=document()["keys"] * 100),
    "keys that are a map": document(keys={}),
    "a store without a name": document(store=""),
    "a store that is bytes": document(store=b"x"),
    "a key twice": document(keys=document()["keys"] + document()["keys"][:1]),
    "a use there is not": document(keys=key_with(use="log")),
    "a use that is a number": document(keys=key_with(use=1)),
    "a key that is text": document(keys=key_with(key="x")),
    "a key that is none": document(keys=key_with(key=b"\xa0")),
    "a private key": document(keys=key_with(key=cbor.encode({1: 1, -1: 6, -2: bytes(32), -4: bytes(32)}))),
    "no beginning": document(keys=key_with(not_before=None)),
    "an end before the beginning": document(keys=key_with(not_after=999)),
    "an unknown field of a key": document(keys=key_with(untill={LOG: 1})),
    "until without an end": document(keys=key_with(not_after=None)),
    "until of nothing": document(keys=key_with(until={})),
    "until of a negative size": document(keys=key_with(until={LOG: -1})),
    "until of a number": document(keys=key_with(until={1: 1})),
    "an issuer without a name": document(keys=key_with(issuer="")),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    with pytest.raises(MalformedError):
        decode_key_list(cbor.encode(BAD[name]))


def test_refuses_other_messages() -> None:
    payload = encode_key_list(FIRST)
    for data in (
        cose.sign1(ROOT, {cose.TYP: "application/vnd.muniment.statement+cose"}, payload),
        cose.sign1(ROOT, {}, payload),
        cose.sign1(ROOT, {cose.TYP: TYP, cose.CONTENT_TYPE: 1}, payload),
        cose.sign1(ROOT, {cose.TYP: TYP}, payload, unprotected={99: 1}),
        cose.sign1_detached(ROOT, {cose.TYP: TYP}, payload),
        sign_key_list(ROOT, FIRST) + b"\0",
        payload,
        b"",
    ):
        with pytest.raises(MalformedError):
            verify_key_list(data, ROOT.key)


moments = st.integers(0, 2**63 - 1)
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
keys = st.builds(
    lambda use, key, times, issuer, until: TrustedKey(
        use, key.key, min(times), max(times), issuer, tuple(sorted(until.items()))
    ),
    st.sampled_from(USES),
    st.sampled_from([ISSUER, NEXT, RECEIPT]),
    st.lists(moments, min_size=2, max_size=2),
    st.none() | names,
    st.dictionaries(names, moments, max_size=3),
)


@given(
    names,
    st.integers(1, 2**63 - 1),
    moments,
    st.lists(keys, min_size=1, max_size=5, unique_by=lambda k: k.name),
)
def test_every_list_round_trips(store: str, number: int, made_at: int, some: list[TrustedKey]) -> None:
    key_list = KeyList(store, number, made_at, tuple(some))
    assert decode_key_list(encode_key_list(key_list)) == key_list
    assert verify_key_list(sign_key_list(ROOT, key_list), ROOT.key) == key_list
