"""tlog.receipt: a receipt proves one entry in one tree of one size, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from hypothesis import given, settings
from hypothesis import strategies as st

from tlog import cbor, merkle
from tlog.cose import (
    CHECKPOINT_LABEL,
    ED25519,
    EDDSA,
    ES256,
    SIZE_LABEL,
    CoseKey,
    PrivateKeySigner,
    decode_key_set,
    decode_sign1,
    encode_sign1,
    make_signer,
    sig_structure,
    sign1_detached,
)
from tlog.errors import Error, MalformedError, VerificationError
from tlog.receipt import (
    MAX_RECEIPT_BYTES,
    Consistency,
    Inclusion,
    make_transparent,
    parse_receipt,
    sign_consistency_receipt,
    sign_receipt,
    split_transparent,
    verify_consistency_receipt,
    verify_receipt,
)
from tlog.statement import sign_statement

ED = ed25519.Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
SIGNER = make_signer(ED)
SIGNERS = [
    SIGNER,
    make_signer(ED, ED25519),
    make_signer(ec.derive_private_key(7, ec.SECP256R1()), ES256),
    make_signer(mldsa.MLDSA44PrivateKey.from_seed_bytes(b"\x02" * 32)),
]
every_signer = pytest.mark.parametrize("signer", SIGNERS, ids=lambda one: str(one.algorithm))
ISSUER, SUBJECT = "https://log.example", "7b1e"
CHECKPOINT = "log.example\n8\nAAAA\n\n\u2014 log.example AAAA\n".encode()
ENTRIES = [
    sign_statement(SIGNER, "https://store.example", "s", bytes((number,)) * 32) for number in range(20)
]
LEAVES = [merkle.leaf_hash(entry) for entry in ENTRIES]


def subtree(start: int, end: int) -> bytes:
    """The hash of the leaves from `start` to `end`, written down from RFC 9162, 2.1.1."""
    if end - start == 1:
        return LEAVES[start]
    split = 1
    while split * 2 < end - start:
        split *= 2
    return merkle.node_hash(subtree(start, start + split), subtree(start + split, end))


def read(nodes: Any) -> list[bytes]:
    return [subtree(index << level, (index + 1) << level) for level, index in nodes]


def inclusion(index: int, size: int) -> Inclusion:
    return Inclusion(index, size, subtree(0, size), merkle.prove_inclusion(index, size, read))


def consistency(old_size: int, new_size: int) -> Consistency:
    path = merkle.prove_consistency(old_size, new_size, read)
    return Consistency(old_size, new_size, subtree(0, new_size), path)


def receipt_for(index: int, size: int, signer: PrivateKeySigner = SIGNER) -> bytes:
    return sign_receipt(signer, ISSUER, SUBJECT, inclusion(index, size), CHECKPOINT)


HEADERS: dict[int | str, Any] = {
    1: EDDSA,
    4: SIGNER.kid,
    15: {1: ISSUER, 2: SUBJECT},
    395: 1,
    SIZE_LABEL: 8,
}


def proof_for(index: int, size: int, /, **changed: Any) -> bytes:
    proof = inclusion(index, size)
    parts = {"size": size, "index": index, "path": list(proof.path), **changed}
    return cbor.encode([parts["size"], parts["index"], parts["path"]])


def forge(headers: object = None, unprotected: object = None, payload: bytes | None = None) -> bytes:
    """A receipt for entry 5 of 8 with a good signature over the root, and whatever headers."""
    protected = cbor.encode(HEADERS if headers is None else headers)
    signature = SIGNER.sign(sig_structure(protected, subtree(0, 8)))
    proofs = {396: {-1: [proof_for(5, 8)]}} if unprotected is None else unprotected
    return cbor.encode_tagged(18, [protected, proofs, payload, signature])


# Inclusion


@every_signer
def test_round_trip(signer: PrivateKeySigner) -> None:
    for size in (1, 2, 3, 8, 13):
        for index in (0, size // 2, size - 1):
            receipt = receipt_for(index, size, signer)
            verified = verify_receipt(receipt, ENTRIES[index], signer.key)
            assert (verified.index, verified.size, verified.root) == (index, size, subtree(0, size))
            assert (verified.issuer, verified.subject, verified.kid) == (ISSUER, SUBJECT, signer.kid)
            assert (verified.size_signed, verified.checkpoint) == (True, CHECKPOINT)


def test_known_shape() -> None:
    message = decode_sign1(receipt_for(5, 8), understood=frozenset((395, SIZE_LABEL)))
    assert message.headers == HEADERS
    assert message.payload is None
    assert message.unprotected == {396: {-1: [proof_for(5, 8)]}, CHECKPOINT_LABEL: CHECKPOINT}
    assert message.raw == forge(unprotected=message.unprotected)
    bare = decode_sign1(sign_receipt(SIGNER, ISSUER, SUBJECT, inclusion(5, 8), None))
    assert bare.unprotected == {396: {-1: [proof_for(5, 8)]}}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.data(), st.text(min_size=1, max_size=20), st.none() | st.binary(max_size=50))
def test_the_direct_path_equals_pycose(
    size: int, data: st.DataObject, issuer: str, checkpoint: bytes | None
) -> None:
    from pycose.keys import OKPKey
    from pycose.messages.sign1message import Sign1Message

    index = data.draw(st.integers(0, size - 1))
    headers = {**HEADERS, 15: {1: issuer, 2: SUBJECT}, SIZE_LABEL: size}
    unprotected: dict[int, Any] = {396: {-1: [proof_for(index, size)]}}
    if checkpoint is not None:
        unprotected[CHECKPOINT_LABEL] = checkpoint
    theirs = Sign1Message(phdr=headers, uhdr=unprotected, payload=None)
    theirs.key = OKPKey(crv="ED25519", x=SIGNER.key.x, d=ED.private_bytes_raw())
    ours = sign_receipt(SIGNER, issuer, SUBJECT, inclusion(index, size), checkpoint)
    assert ours == theirs.encode(detached_payload=subtree(0, size))
    received = Sign1Message.from_cose_obj(
        [decode_sign1(ours).protected, {**unprotected}, None, decode_sign1(ours).signature], True
    )
    received.key = theirs.key
    assert received.verify_signature(detached_payload=verify_receipt(ours, ENTRIES[index], SIGNER.key).root)


def test_proves_no_other_entry() -> None:
    for other in range(8):
        if other != 5:
            with pytest.raises(VerificationError):
                verify_receipt(receipt_for(5, 8), ENTRIES[other], SIGNER.key)
    message = decode_sign1(ENTRIES[5])
    stated = encode_sign1(message.protected, {394: []}, message.payload, message.signature)
    with pytest.raises(VerificationError):
        verify_receipt(receipt_for(5, 8), stated, SIGNER.key)


def test_another_key_proves_nothing() -> None:
    for other in SIGNERS[1:]:
        with pytest.raises(VerificationError):
            verify_receipt(receipt_for(5, 8), ENTRIES[5], other.key)
    with pytest.raises(VerificationError, match="kid"):
        verify_receipt(receipt_for(5, 8), ENTRIES[5], replace(SIGNER.key, kid=b"another"))


def test_every_byte_but_the_checkpoint_is_bound() -> None:
    receipt = sign_receipt(SIGNER, ISSUER, SUBJECT, inclusion(5, 8), None)
    for at in range(len(receipt)):
        changed = receipt[:at] + bytes((receipt[at] ^ 1,)) + receipt[at + 1 :]
        with pytest.raises(Error):
            verify_receipt(changed, ENTRIES[5], SIGNER.key)


def test_a_relabelled_tree_size_is_caught() -> None:
    # RFC 9942 signs the root alone, and the path of entry 5 in a tree of 8 also fits a tree of 7.
    relabelled = {396: {-1: [proof_for(5, 8, size=7)]}}
    with pytest.raises(VerificationError, match="another tree size") as caught:
        verify_receipt(forge(unprotected=relabelled), ENTRIES[5], SIGNER.key)
    assert caught.value.code == "tree_size"
    unbound = {label: value for label, value in HEADERS.items() if label != SIZE_LABEL}
    assert not verify_receipt(forge(unbound, relabelled), ENTRIES[5], SIGNER.key).size_signed


BAD: dict[str, bytes] = {
    "attached root": forge(payload=subtree(0, 8)),
    "attached nothing": forge(payload=b""),
    "no proofs": forge(unprotected={}),
    "proofs not a map": forge(unprotected={396: [proof_for(5, 8)]}),
    "empty map of proofs": forge(unprotected={396: {}}),
    "both kinds": forge(unprotected={396: {-1: [proof_for(5, 8)], -2: [proof_for(5, 8)]}}),
    "unknown kind": forge(unprotected={396: {-3: [proof_for(5, 8)]}}),
    "text kind": forge(unprotected={396: {"-1": [proof_for(5, 8)]}}),
    "empty list": forge(unprotected={396: {-1: []}}),
    "too many": forge(unprotected={396: {-1: [proof_for(5, 8)] * 9}}),
    "not a list": forge(unprotected={396: {-1: proof_for(5, 8)}}),
    "not encoded": forge(unprotected={396: {-1: [[8, 5, []]]}}),
    "bytes after": forge(unprotected={396: {-1: [proof_for(5, 8) + b"\x00"]}}),
    "two elements": forge(unprotected={396: {-1: [cbor.encode([8, 5])]}}),
    "negative": forge(unprotected={396: {-1: [proof_for(5, 8, index=-1)]}}),
    "bool": forge(unprotected={396: {-1: [proof_for(5, 8, index=True)]}}),
    "2^63": forge(unprotected={396: {-1: [proof_for(5, 8, size=1 << 63)]}}),
    "path not a list": forge(unprotected={396: {-1: [proof_for(5, 8, path=b"")]}}),
    "31 bytes": forge(unprotected={396: {-1: [proof_for(5, 8, path=[b"x" * 31])]}}),
    "text in path": forge(unprotected={396: {-1: [proof_for(5, 8, path=["x" * 32])]}}),
    "path of 65": forge(unprotected={396: {-1: [proof_for(5, 8, path=[b"x" * 32] * 65)]}}),
    "vds 2": forge({**HEADERS, 395: 2}),
    "vds true": forge({**HEADERS, 395: True}),
    "vds missing": forge({label: value for label, value in HEADERS.items() if label != 395}),
    "no claims": forge({label: value for label, value in HEADERS.items() if label != 15}),
    "no sub": forge({**HEADERS, 15: {1: ISSUER}}),
    "no kid": forge({label: value for label, value in HEADERS.items() if label != 4}),
    "size as text": forge({**HEADERS, SIZE_LABEL: "8"}),
    "size as true": forge({**HEADERS, SIZE_LABEL: True}),
    "checkpoint as text": forge(unprotected={396: {-1: [proof_for(5, 8)]}, CHECKPOINT_LABEL: "x"}),
    "crit": forge({**HEADERS, 77: 1, 2: [77]}),
    "too large": forge(
        unprotected={396: {-1: [proof_for(5, 8)]}, CHECKPOINT_LABEL: b"x" * MAX_RECEIPT_BYTES}
    ),
}


@pytest.mark.parametrize("receipt", BAD.values(), ids=BAD.keys())
def test_refuses(receipt: bytes) -> None:
    with pytest.raises(MalformedError):
        parse_receipt(receipt)


FALSE: dict[str, bytes] = {
    "index out of range": forge(unprotected={396: {-1: [proof_for(5, 8, index=8)]}}),
    "another index": forge(unprotected={396: {-1: [proof_for(5, 8, index=4)]}}),
    "size 0": forge(unprotected={396: {-1: [proof_for(5, 8, size=0)]}}),
    "short path": forge(unprotected={396: {-1: [proof_for(5, 8, path=[])]}}),
    "long path": forge(unprotected={396: {-1: [proof_for(5, 8, path=[b"x" * 32] * 4)]}}),
    "empty path for a tree of one": forge(
        unprotected={396: {-1: [proof_for(5, 8, index=0, size=1, path=[])]}}
    ),
    "one good, one bad": forge(unprotected={396: {-1: [proof_for(5, 8), proof_for(5, 8, index=4)]}}),
    "one good, one for another size": forge(
        unprotected={396: {-1: [proof_for(5, 8), proof_for(5, 8, size=7)]}}
    ),
    "signed size differs": forge({**HEADERS, SIZE_LABEL: 9}),
    "signed size negative": forge({**HEADERS, SIZE_LABEL: -8}),
    "alg of another key": forge({**HEADERS, 1: ES256}),
    "no alg": forge({label: value for label, value in HEADERS.items() if label != 1}),
}


@pytest.mark.parametrize("receipt", FALSE.values(), ids=FALSE.keys())
def test_does_not_verify(receipt: bytes) -> None:
    parse_receipt(receipt)
    with pytest.raises(VerificationError):
        verify_receipt(receipt, ENTRIES[5], SIGNER.key)


def test_several_proofs_that_all_hold() -> None:
    assert verify_receipt(forge(), ENTRIES[5], SIGNER.key).index == 5
    twice = forge(unprotected={396: {-1: [proof_for(5, 8)] * 2}})
    assert verify_receipt(twice, ENTRIES[5], SIGNER.key).index == 5


def test_crit_may_name_what_receipts_understand() -> None:
    assert verify_receipt(forge({**HEADERS, 2: [395, SIZE_LABEL]}), ENTRIES[5], SIGNER.key).size_signed


def test_refuses_to_sign_what_would_not_parse() -> None:
    good = inclusion(5, 8)
    for bad in (
        replace(good, root=b"x"),
        replace(good, path=(b"x",)),
        replace(good, size=1 << 63),
        replace(good, index=-1),
    ):
        with pytest.raises(MalformedError):
            sign_receipt(SIGNER, ISSUER, SUBJECT, bad, None)
    for issuer, subject in (("", "s"), ("i", "")):
        with pytest.raises(MalformedError):
            sign_receipt(SIGNER, issuer, subject, good, None)


# Consistency


@every_signer
def test_consistency_round_trip(signer: PrivateKeySigner) -> None:
    for old_size, new_size in ((1, 1), (1, 2), (3, 8), (8, 13), (13, 20), (20, 20)):
        receipt = sign_consistency_receipt(
            signer, ISSUER, SUBJECT, consistency(old_size, new_size), CHECKPOINT
        )
        verified = verify_consistency_receipt(receipt, old_size, subtree(0, old_size), signer.key)
        assert (verified.old_size, verified.new_size, verified.new_root) == (
            old_size,
            new_size,
            subtree(0, new_size),
        )
        assert (verified.size_signed, verified.checkpoint) == (True, CHECKPOINT)
        assert parse_receipt(receipt).size == new_size


def test_consistency_starts_from_the_callers_own_tree() -> None:
    receipt = sign_consistency_receipt(SIGNER, ISSUER, SUBJECT, consistency(3, 8), None)
    for old_size, old_root in ((3, subtree(0, 4)), (4, subtree(0, 4)), (3, b""), (0, merkle.EMPTY_ROOT)):
        with pytest.raises(VerificationError):
            verify_consistency_receipt(receipt, old_size, old_root, SIGNER.key)


def test_consistency_proves_nothing_from_an_empty_tree_nor_backwards() -> None:
    for old_size, new_size in ((0, 8), (8, 3)):
        proof = Consistency(old_size, new_size, subtree(0, new_size), ())
        receipt = sign_consistency_receipt(SIGNER, ISSUER, SUBJECT, proof, None)
        root = subtree(0, old_size) if old_size else merkle.EMPTY_ROOT
        with pytest.raises(VerificationError):
            verify_consistency_receipt(receipt, old_size, root, SIGNER.key)


def test_a_relabelled_older_size_is_caught() -> None:
    # The path from 4 to 16 leaves also fits the sizes 2 and 8.
    path = list(consistency(4, 16).path)
    protected = cbor.encode({label: value for label, value in HEADERS.items() if label != SIZE_LABEL})
    signature = SIGNER.sign(sig_structure(protected, subtree(0, 16)))
    for sizes, holds in (([4, 16], True), ([2, 8], False), ([4, 12], True)):
        proofs: dict[int | str, object] = {396: {-2: [cbor.encode([*sizes, path])]}}
        receipt = encode_sign1(protected, proofs, None, signature)
        if holds:
            verified = verify_consistency_receipt(receipt, 4, subtree(0, 4), SIGNER.key)
            assert (verified.new_root, verified.size_signed) == (subtree(0, 16), False)
        else:
            with pytest.raises(VerificationError, match="another tree size"):
                verify_consistency_receipt(receipt, 4, subtree(0, 4), SIGNER.key)


def test_every_byte_of_a_consistency_receipt_is_bound() -> None:
    receipt = sign_consistency_receipt(SIGNER, ISSUER, SUBJECT, consistency(3, 8), None)
    for at in range(len(receipt)):
        changed = receipt[:at] + bytes((receipt[at] ^ 1,)) + receipt[at + 1 :]
        with pytest.raises(Error):
            verify_consistency_receipt(changed, 3, subtree(0, 3), SIGNER.key)


def test_kinds_are_not_mixed_up() -> None:
    receipt = sign_consistency_receipt(SIGNER, ISSUER, SUBJECT, consistency(3, 8), None)
    with pytest.raises(VerificationError, match="inclusion"):
        verify_receipt(receipt, ENTRIES[5], SIGNER.key)
    with pytest.raises(VerificationError, match="consistency"):
        verify_consistency_receipt(receipt_for(5, 8), 3, subtree(0, 3), SIGNER.key)


# Transparent statements


def test_transparent_round_trip() -> None:
    receipts = tuple(receipt_for(5, 8, signer) for signer in SIGNERS)
    data = make_transparent(ENTRIES[5], receipts)
    assert split_transparent(data) == (ENTRIES[5], receipts)
    assert decode_sign1(data).unprotected == {394: list(receipts)}


def transparent(unprotected: object) -> bytes:
    message = decode_sign1(ENTRIES[5])
    return cbor.encode_tagged(18, [message.protected, unprotected, message.payload, message.signature])


@pytest.mark.parametrize(
    "unprotected",
    [
        {},
        {394: []},
        {394: receipt_for(5, 8)},
        {394: {0: receipt_for(5, 8)}},
        {394: [receipt_for(5, 8)], 99: 1},
        {394: [b"not a receipt"]},
        {394: [receipt_for(5, 8), 1]},
        {394: [[1, 2, 3, 4]]},
        {394: [receipt_for(5, 8)] * 17},
    ],
    ids=range(9),
)
def test_refuses_transparent(unprotected: object) -> None:
    with pytest.raises(MalformedError):
        split_transparent(transparent(unprotected))


def test_refuses_a_receipt_that_is_not_wrapped() -> None:
    # A raw tagged item in place of a byte string was in drafts of RFC 9943, and in a peer of today.
    good = transparent({394: [receipt_for(5, 8)]})
    wrapped = cbor.byte_string(receipt_for(5, 8))
    assert wrapped in good
    with pytest.raises(MalformedError):
        split_transparent(good.replace(wrapped, receipt_for(5, 8)))


def test_refuses_to_make_transparent() -> None:
    for entry, receipts in (
        (ENTRIES[5], []),
        (ENTRIES[5], [receipt_for(5, 8)] * 17),
        (ENTRIES[5], [b"not a receipt"]),
        (transparent({99: 1}), [receipt_for(5, 8)]),
        (b"not a statement", [receipt_for(5, 8)]),
    ):
        with pytest.raises(MalformedError):
            make_transparent(entry, receipts)


# Receipts of others


@pytest.mark.parametrize("name", [f"{kind}-{size}" for kind in ("ed", "es") for size in (1, 2, 3, 5)])
def test_receipts_of_others(vectors: Path, name: str) -> None:
    folder = vectors / "cose" / "receipts"
    (key,) = decode_key_set((folder / f"{name[:2]}.keyset.cbor").read_bytes())
    entry, receipt, whole = (
        (folder / f"{name}.{part}.cose").read_bytes() for part in ("statement", "receipt", "transparent")
    )
    verified = verify_receipt(receipt, entry, key)
    assert (verified.size, verified.index) == (int(name[3:]), int(name[3:]) - 1)
    assert (verified.size_signed, verified.checkpoint, verified.issuer) == (False, None, "https://ts.example")
    assert split_transparent(whole) == (entry, (receipt,))
    assert make_transparent(entry, [receipt]) == whole


def test_hostile_receipts(vectors: Path) -> None:
    document = json.loads((vectors / "cose" / "hostile.json").read_text())
    entry = (vectors / "cose" / "receipts" / "leaf5.statement.cose").read_bytes()
    key = CoseKey(1, bytes.fromhex(document["ed25519_public_hex"]))
    reasons = {
        "r00": None,
        "r02": "does not hold",
        "r03": "does not hold",
        "r06": "32 bytes",
        "r07": "vds",
        "r08": "vds",
        "r09": "detached",
        "r10": "detached",
        "r12": "byte string",
        "r14": "different roots",
        "r15": "follow",
        "r17": "claims",
    }
    for case in document["cases"]:
        if not case["file"].startswith("r"):
            continue
        receipt, reason = bytes.fromhex(case["hex"]), reasons.pop(case["file"][:3])
        # Where `expect` is neither accept nor reject (r10, r14) our rule is to reject.
        assert (reason is None) == (case["expect"] == "accept")
        if reason is None:
            assert verify_receipt(receipt, entry, key).index == 5
        else:
            with pytest.raises(Error, match=reason):
                verify_receipt(receipt, entry, key)
    assert not reasons


# Labels of drafts (reference sheet scitt, 1.2)

LEGACY = (13, 391, 392, 393, -111, -222, -6800, -6801, -6802)


@pytest.mark.parametrize("label", LEGACY)
@pytest.mark.parametrize("bucket", ["protected", "unprotected"])
def test_a_receipt_with_a_label_of_a_draft_is_refused(label: int, bucket: str) -> None:
    entry = sign_statement(SIGNER, ISSUER, SUBJECT, b"\1" * 32)
    leaf = merkle.leaf_hash(entry)
    proofs = {396: {-1: [cbor.encode([1, 0, []])]}}
    claims = {15: {1: ISSUER, 2: SUBJECT}, 395: 1}
    good = sign1_detached(SIGNER, claims, leaf, unprotected=proofs)
    assert verify_receipt(good, entry, SIGNER.key).size == 1
    more = {label: {-1: [cbor.encode([1, 0, []])]}}
    if bucket == "protected":
        receipt = sign1_detached(SIGNER, {**claims, **more}, leaf, unprotected=proofs)
    else:
        receipt = sign1_detached(SIGNER, claims, leaf, unprotected={**proofs, **more})
    with pytest.raises(MalformedError, match="draft"):
        verify_receipt(receipt, entry, SIGNER.key)


def test_a_receipt_of_a_draft_alone_is_refused() -> None:
    entry = sign_statement(SIGNER, ISSUER, SUBJECT, b"\1" * 32)
    receipt = sign1_detached(
        SIGNER,
        {15: {1: ISSUER, 2: SUBJECT}, -111: 1},
        merkle.leaf_hash(entry),
        unprotected={-222: {-1: [cbor.encode([1, 0, []])]}},
    )
    with pytest.raises(MalformedError):
        verify_receipt(receipt, entry, SIGNER.key)
