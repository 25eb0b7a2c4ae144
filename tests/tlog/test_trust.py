"""tlog.trust: the caller's own file, read strictly."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from hypothesis import given
from hypothesis import strategies as st

from tlog.ascii import encode_base64
from tlog.cose import ED25519, CoseKey, make_signer
from tlog.errors import Error, MalformedError, VerificationError
from tlog.note import SignatureType, make_verifier_key
from tlog.policy import parse_policy
from tlog.trust import (
    DEFAULT_MERGE_DELAY_SECONDS,
    USES,
    Trust,
    TrustedKey,
    format_trust,
    make_trust,
    parse_trust,
    trust_from_policy,
)

ED = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
KEY = make_signer(ED).key
KEYS = [
    KEY,
    make_signer(ec.derive_private_key(7, ec.SECP256R1())).key,
    make_signer(mldsa.MLDSA44PrivateKey.from_seed_bytes(b"\x02" * 32)).key,
    CoseKey(1, ED.public_key().public_bytes_raw(), kid=b"a kid of its own"),
]


def vkey(name: str, kind: SignatureType, seed: int) -> str:
    public = ed25519.Ed25519PrivateKey.from_private_bytes(bytes((seed,)) * 32).public_key().public_bytes_raw()
    return make_verifier_key(name, kind, public).vkey


POLICY = (
    f'# who is believed, "quoted" \\ and {chr(0xE9)}\n'
    f"log {vkey('log.example', SignatureType.ED25519, 3)}\n"
    f"witness\twitness-a {vkey('w1.example', SignatureType.COSIGNATURE_ED25519, 4)}\n"
    f"witness witness-b {vkey('w2.example', SignatureType.COSIGNATURE_ED25519, 5)} https://w2.example/\n"
    "group both all witness-a witness-b\n"
    "quorum both\n"
)
FULL = f"""
version = 1
policy = '''
{POLICY}'''
merge_delay_seconds = 3600
max_checkpoint_age_seconds = 600
same_operator = ["witness-a"]

[[key]]
use = "issuer"
cose_key = "{encode_base64(KEY.encode())}"
not_before = 1000
not_after = 2000
issuer = "https://store.example"

[[key]]
use = "receipt"
cose_key = "{encode_base64(KEYS[1].encode())}"
not_before = 0
"""


def test_known_answer() -> None:
    trust = parse_trust(FULL)
    assert trust.policy == parse_policy(POLICY)
    assert (trust.merge_delay_seconds, trust.max_checkpoint_age_seconds) == (3600, 600)
    assert trust.same_operator == ("witness-a",)
    assert trust.keys == (
        TrustedKey("issuer", KEY, 1000, 2000, "https://store.example"),
        TrustedKey("receipt", KEYS[1], 0),
    )
    assert trust.text == FULL


def test_round_trip() -> None:
    trust = parse_trust(FULL)
    text = format_trust(trust)
    assert parse_trust(text) == trust
    assert parse_trust(text).policy.text == POLICY
    assert format_trust(parse_trust(text)) == text
    assert "\nquorum both\n" in text  # a policy stays readable


def test_a_policy_alone_believes_no_cose_key() -> None:
    trust = trust_from_policy(POLICY)
    assert (trust.keys, trust.same_operator, trust.max_checkpoint_age_seconds) == ((), (), None)
    assert trust.merge_delay_seconds == DEFAULT_MERGE_DELAY_SECONDS
    assert parse_trust(trust.text) == trust
    for use in USES:
        with pytest.raises(VerificationError) as caught:
            trust.key(use, KEY.key_id)
        assert caught.value.code == "key_unknown"


def test_a_key_serves_its_use_kid_issuer_and_time() -> None:
    trust = parse_trust(FULL)
    kid, store = KEY.key_id, "https://store.example"
    assert (
        trust.key("issuer", kid)
        == trust.key("issuer", kid, 1000)
        == trust.key("issuer", kid, 2000, store)
        == KEY
    )
    for at in (0, 999, 2001):
        with pytest.raises(VerificationError) as caught:
            trust.key("issuer", kid, at)
        assert caught.value.code == "key_not_valid"
    for use, asked, issuer in (
        ("receipt", kid, None),
        ("issuer", b"other", None),
        ("issuer", kid, "another"),
    ):
        with pytest.raises(VerificationError) as caught:
            trust.key(use, asked, 1500, issuer)
        assert caught.value.code == "key_unknown"
    assert trust.key("receipt", KEYS[1].key_id, 10**9, "anybody") == KEYS[1]
    with pytest.raises(MalformedError):
        trust.key("anything", kid)


def test_a_key_may_have_several_periods() -> None:
    periods = (TrustedKey("issuer", KEY, 0, 10), TrustedKey("issuer", KEY, 20, 30))
    trust = make_trust(POLICY, periods)
    assert trust.key("issuer", KEY.key_id, 5) == trust.key("issuer", KEY.key_id, 25) == KEY
    with pytest.raises(VerificationError):
        trust.key("issuer", KEY.key_id, 15)


def test_refuses_two_keys_under_one_kid() -> None:
    other = CoseKey(1, KEY.x, kid=b"k"), CoseKey(2, KEYS[1].x, KEYS[1].y, kid=b"k")
    with pytest.raises(MalformedError, match="one kid"):
        make_trust(POLICY, tuple(TrustedKey("issuer", key, 0) for key in other))
    with pytest.raises(MalformedError, match="one kid"):
        make_trust(POLICY, (TrustedKey("issuer", KEY, 0), TrustedKey("issuer", replace(KEY, alg=ED25519), 0)))
    make_trust(POLICY, (TrustedKey("issuer", other[0], 0), TrustedKey("receipt", other[1], 0)))


BAD = [
    "",
    "not TOML",
    "version = 1",
    FULL.replace("version = 1", "version = 2"),
    FULL.replace("version = 1", "version = true"),
    FULL.replace("version = 1", 'version = "1"'),
    FULL.replace("version = 1", ""),
    FULL.replace("policy = ", "polcy = "),
    FULL.replace("quorum both", "quorum nobody"),
    FULL.replace("quorum both\n", ""),
    FULL.replace("merge_delay_seconds", "merge_delay"),
    FULL.replace("= 3600", "= -1"),
    FULL.replace("= 3600", "= 3600.0"),
    FULL.replace("= 3600", "= true"),
    FULL.replace("= 3600", "= " + "9" * 5000),
    FULL.replace("= 3600", f"= {1 << 63}"),
    FULL.replace("= 600", '= "600"'),
    FULL.replace('["witness-a"]', '"witness-a"'),
    FULL.replace('["witness-a"]', '["witness-c"]'),
    FULL.replace('["witness-a"]', '["witness-a", "witness-a"]'),
    FULL.replace('["witness-a"]', "[1]"),
    FULL.replace('use = "issuer"', 'use = "log"'),
    FULL.replace('use = "issuer"', ""),
    FULL.replace("not_before = 1000", ""),
    FULL.replace("not_before = 1000", "not_before = 1979-05-27T07:32:00Z"),
    FULL.replace("not_after = 2000", "not_after = 999"),
    FULL.replace("not_after = 2000", "not_affter = 2000"),
    FULL.replace('"https://store.example"', '""'),
    FULL.replace('"https://store.example"', "1"),
    FULL.replace(encode_base64(KEY.encode()), "AAAA"),
    FULL.replace(encode_base64(KEY.encode()), encode_base64(KEY.encode()).rstrip("=") + "!"),
    FULL.replace("[[key]]", "[key]", 1).split("[[key]]")[0],
    FULL.replace("[[key]]", "", 1),
    FULL + "extra = 1",
    FULL.replace("version = 1", "version = 1\nkey = [1]").split("[[key]]")[0],
    FULL + "x" * (1 << 20),
    "x = " + "[" * 100_000,
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_refuses(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_trust(text)


def test_errors_never_repeat_content() -> None:
    for text in (FULL.replace("version = 1", "secret-word"), FULL.replace('"issuer"', '"secret-word"')):
        with pytest.raises(Error) as caught:
            parse_trust(text)
        assert "secret-word" not in str(caught.value)


def test_refuses_a_policy_that_is_not_text() -> None:
    with pytest.raises(MalformedError):
        trust_from_policy(POLICY + "# \udcff\n")


moments = st.integers(0, 2**63 - 1)
trusted_keys = st.builds(
    lambda use, key, times, issuer: TrustedKey(
        use, key, min(times), max(times) if times[2:] else None, issuer
    ),
    st.sampled_from(USES),
    st.sampled_from(KEYS),
    st.lists(moments, min_size=1, max_size=3),
    st.none() | st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
)


@given(st.lists(trusted_keys, max_size=4), moments, st.none() | moments)
def test_every_trust_round_trips(keys: list[TrustedKey], delay: int, age: int | None) -> None:
    trust = Trust(parse_policy(POLICY), tuple(keys), delay, age, ("witness-b", "witness-a"))
    assert parse_trust(format_trust(trust)) == trust
    tomllib.loads(format_trust(trust))
