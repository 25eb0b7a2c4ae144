"""tlog.trust: roots that certify keys, lists that came with the evidence, and logs that ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tlog.ascii import encode_base64
from tlog.certificates import KeyList, Logged, TrustedKey, sign_key_list
from tlog.checkpoint import Checkpoint
from tlog.cose import make_signer
from tlog.errors import MalformedError, VerificationError
from tlog.policy import parse_policy
from tlog.trust import Trust, TrustedRoot, checked, parse_trust

STORE, LOG = "urn:uuid:store", "example.org/log"


def signer(seed: int) -> Any:
    return make_signer(ed25519.Ed25519PrivateKey.from_private_bytes(bytes((seed,)) * 32))


ROOT, OTHER_ROOT, OLD, NEW, RECEIPT, MINE = (signer(seed) for seed in range(1, 7))
FIRST = KeyList(
    STORE,
    1,
    1000,
    (TrustedKey("issuer", OLD.key, 1000, 9000, STORE), TrustedKey("receipt", RECEIPT.key, 1000, 9000)),
)
SECOND = FIRST.with_key(TrustedKey("issuer", NEW.key, 2000, 9000, STORE), 2000)
THIRD = SECOND.ending(SECOND.keys[0], 2500, {LOG: 7}, 2500)
ROOTED = checked(Trust(parse_policy("quorum none\n"), roots=(TrustedRoot(ROOT.key, STORE),)))


def code_of(trust: Trust, data: bytes) -> str:
    with pytest.raises(VerificationError) as caught:
        trust.with_key_list(data)
    return caught.value.code


def test_a_root_alone_is_no_key() -> None:
    assert not ROOTED.has("issuer")
    with pytest.raises(VerificationError) as caught:
        ROOTED.key("issuer", OLD.kid)
    assert caught.value.code == "key_unknown"
    with pytest.raises(VerificationError):
        ROOTED.key("issuer", ROOT.kid)


def test_what_the_root_certified_counts_for_its_time() -> None:
    trust = ROOTED.with_key_list(sign_key_list(ROOT, FIRST))
    assert trust.has("issuer") and trust.has("receipt") and not trust.has("manifest")
    assert trust.key("issuer", OLD.kid, 9000, STORE) == OLD.key
    for at in (999, 9001):
        with pytest.raises(VerificationError) as caught:
            trust.key("issuer", OLD.kid, at, STORE)
        assert caught.value.code == "key_not_valid"
    with pytest.raises(VerificationError) as caught:
        trust.key("issuer", OLD.kid, 5000, "another issuer")
    assert caught.value.code == "key_unknown"


def test_a_later_list_ends_a_key() -> None:
    trust = ROOTED.with_key_list(sign_key_list(ROOT, FIRST)).with_key_list(sign_key_list(ROOT, THIRD))
    assert trust.key("issuer", OLD.kid, 2500) == OLD.key
    assert trust.key("issuer", NEW.kid, 2501) == NEW.key
    assert trust.key("issuer", OLD.kid, 8000, STORE, Logged(LOG, 7)) == OLD.key
    for logged in (None, Logged(LOG, 8), Logged("another log", 7)):
        with pytest.raises(VerificationError) as caught:
            trust.key("issuer", OLD.kid, 2501, STORE, logged)
        assert caught.value.code == "key_not_valid"


def test_a_thief_of_an_old_key_cannot_bring_its_life_back() -> None:
    """Not with the older list, not with a list of its own, not with one of a root that nobody trusts."""
    trust = ROOTED.with_key_list(sign_key_list(ROOT, THIRD))
    assert code_of(trust, sign_key_list(ROOT, FIRST)) == "rolled_back"
    assert code_of(trust, sign_key_list(ROOT, SECOND)) == "rolled_back"
    longer = replace(THIRD, number=4, keys=(replace(THIRD.keys[0], not_after=8000), *THIRD.keys[1:]))
    assert code_of(trust, sign_key_list(OTHER_ROOT, longer)) == "key_unknown"
    own = replace(THIRD, number=4, keys=(replace(THIRD.keys[2], not_after=8000),))
    assert code_of(trust, sign_key_list(OLD, own)) == "key_unknown"
    assert code_of(trust, sign_key_list(replace(OTHER_ROOT, kid=ROOT.kid), longer)) == "signature"
    # And whoever had the root for a moment cannot either, where the end was seen.
    assert code_of(trust, sign_key_list(ROOT, longer)) == "key_list"


def test_the_trust_file_says_from_which_list_on() -> None:
    trust = checked(replace(ROOTED, roots=(TrustedRoot(ROOT.key, STORE, 3),)))
    assert code_of(trust, sign_key_list(ROOT, SECOND)) == "rolled_back"
    assert trust.with_key_list(sign_key_list(ROOT, THIRD)).has("issuer")


def test_a_root_certifies_its_own_store_only() -> None:
    other = replace(FIRST, store="another store")
    assert code_of(ROOTED, sign_key_list(ROOT, other)) == "key_unknown"
    posing = replace(FIRST, keys=(replace(FIRST.keys[0], issuer="another store"),))
    assert code_of(ROOTED, sign_key_list(ROOT, posing)) == "key_list"
    nobody = replace(FIRST, keys=(replace(FIRST.keys[0], issuer=None),))
    assert code_of(ROOTED, sign_key_list(ROOT, nobody)) == "key_list"
    anywhere = checked(replace(ROOTED, roots=(TrustedRoot(ROOT.key),)))
    assert anywhere.with_key_list(sign_key_list(ROOT, other)).has("issuer")


def test_two_stores_of_one_root_have_lists_of_their_own() -> None:
    trust = checked(replace(ROOTED, roots=(TrustedRoot(ROOT.key),)))
    other = KeyList("another", 1, 0, (TrustedKey("issuer", MINE.key, 0, 9, "another"),))
    both = trust.with_key_list(sign_key_list(ROOT, THIRD)).with_key_list(sign_key_list(ROOT, other))
    assert len(both.key_lists) == 2
    assert both.key("issuer", MINE.kid, 5, "another") == MINE.key
    assert code_of(both, sign_key_list(ROOT, SECOND)) == "rolled_back"


def test_keys_written_down_keep_counting_beside_a_root() -> None:
    trust = checked(replace(ROOTED, keys=(TrustedKey("issuer", MINE.key, 0),)))
    trust = trust.with_key_list(sign_key_list(ROOT, FIRST))
    assert trust.key("issuer", MINE.kid, 10**9) == MINE.key
    assert trust.key("issuer", OLD.kid, 2000) == OLD.key


# The file


FULL = checked(
    Trust(
        parse_policy("quorum none\n"),
        (TrustedKey("issuer", MINE.key, 0, 5, until=((LOG, 3), ('quote " and \\', 4))),),
        roots=(TrustedRoot(ROOT.key, STORE, 2), TrustedRoot(OTHER_ROOT.key)),
        key_lists=(sign_key_list(ROOT, THIRD),),
        frozen=(Checkpoint(LOG, 7, b"r" * 32), Checkpoint("another", 0, b"s" * 32)),
    )
)


def test_round_trip() -> None:
    assert parse_trust(FULL.text) == FULL
    assert FULL.text.count("[[root]]") == 2


KEY = encode_base64(ROOT.key.encode())
BAD = {
    "a root twice": FULL.text.replace(encode_base64(OTHER_ROOT.key.encode()), KEY),
    "a list of no root": FULL.text.replace(
        f'cose_key = "{KEY}"', f'cose_key = "{encode_base64(OLD.key.encode())}"'
    ),
    "a list too old": FULL.text.replace("number = 2", "number = 9"),
    "a list of another store": FULL.text.replace(f'store = "{STORE}"', 'store = "x"'),
    "a list twice": FULL.text + FULL.text[FULL.text.index("[[key_list]]") : FULL.text.index("[[frozen]]")],
    "a damaged list": FULL.text.replace('cose = "0', 'cose = "1'),
    "a misspelt bound": FULL.text.replace("number = 2", "numbre = 2"),
    "a number that is text": FULL.text.replace("number = 2", 'number = "2"'),
    "a root without key": FULL.text.replace(f'cose_key = "{KEY}"', ""),
    "until without an end": FULL.text.replace("not_after = 5\n", ""),
    "until of no size": FULL.text.replace(f'"{LOG}" = 3', f'"{LOG}" = "3"'),
    "a frozen log of no root": FULL.text.replace(encode_base64(b"r" * 32), "AAAA"),
    "a frozen log without name": FULL.text.replace('origin = "another"', 'origin = ""'),
    "a frozen log of a negative size": FULL.text.replace("size = 7", "size = -7"),
    "tables that are none": "root = 1\n" + FULL.text[: FULL.text.index("[[root]]")],
    "a table that is none": "frozen = [1]\n" + FULL.text[: FULL.text.index("[[frozen]]")],
}


@pytest.mark.parametrize("name", BAD)
def test_refuses(name: str) -> None:
    assert BAD[name] != FULL.text
    with pytest.raises(MalformedError):
        parse_trust(BAD[name])


def test_nothing_goes_beyond_the_end_of_a_log() -> None:
    FULL.check_frozen(Checkpoint(LOG, 7, b"r" * 32))
    FULL.check_frozen(Checkpoint(LOG, 6, b"x" * 32))
    FULL.check_frozen(Checkpoint("a third log", 99, b"x" * 32))
    for beyond in (Checkpoint(LOG, 8, b"r" * 32), Checkpoint(LOG, 7, b"x" * 32)):
        with pytest.raises(VerificationError) as caught:
            FULL.check_frozen(beyond)
        assert caught.value.code == "frozen"
