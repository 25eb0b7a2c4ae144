"""scitt-cose (PyPI) verifies our statements, receipts and proofs, and makes what we verify."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from asking import ask_all
from installing import Tool, environment, run
from judging import Judge, flipped
from sample import Bench, verifies
from trees import (
    ISSUER,
    LOG,
    SUBJECT,
    Tree,
    make_signer,
    sample_parts,
    with_path_changed,
    with_protected_changed,
)

PACKAGE = "scitt-cose==0.5.0"
SIZES = (1, 2, 3, 5, 8, 13)


def install(folder: Path) -> Tool:
    """scitt-cose in an environment of its own."""
    programs = environment(folder, PACKAGE)
    run([str(programs / "python"), "-c", "import scitt_cose"])
    return Tool(programs / "python", PACKAGE.partition("==")[2])


def ask(bench: Bench, **question: object) -> Any:
    """What scitt-cose answers, None where it refuses; keys are passed on as PEM."""
    plain = {name: _pem_as_text(value) for name, value in question.items()}
    return ask_all([str(bench.tool), str(Path(__file__).with_name("scittcheck.py"))], [plain])[0]


def _pem_as_text(value: object) -> object:
    if isinstance(value, bytes) and value.startswith(b"-----BEGIN"):
        return value.decode("ascii")
    return value


def check_sample(bench: Bench, judge: Judge) -> None:
    """What `muniment receipt` wrote, with the keys of the trust file."""
    from tlog.ascii import decode_base64
    from tlog.statement import parse_statement

    entry, receipt, issuer_key, log_key = sample_parts(bench.sample)
    transparent, stated = bench.sample.receipt.read_bytes(), parse_statement(entry)
    said = {
        "issuer": stated.issuer,
        "subject": stated.subject,
        "payload": stated.payload_hash.hex(),
    }
    judge.both_ways(
        "scitt-cose verifies the statement in the log, and reads issuer, subject and commitment as we do",
        lambda one: ask(bench, ask="statement", statement=one[0], key=one[1]) == said,
        (entry, issuer_key),
        {
            "the issuer": (with_protected_changed(entry, stated.issuer), issuer_key),
            "the commitment": (entry.replace(stated.payload_hash, flipped(stated.payload_hash)), issuer_key),
            "the signature": (flipped(entry), issuer_key),
            "another key": (entry, log_key),
        },
    )
    head = bench.sample.heads[1]
    root = decode_base64(head.root, "root").hex()

    def in_the_tree(one: tuple[bytes, bytes, bytes]) -> bool:
        found = ask(bench, ask="receipt", receipt=one[0], entry=one[1], key=one[2])
        return found is not None and (found["size"], found["root"]) == (head.size, root)

    judge.both_ways(
        "scitt-cose verifies the receipt, to the size and root of our checkpoint",
        in_the_tree,
        (receipt, entry, log_key),
        {
            "a hash": (with_path_changed(receipt), entry, log_key),
            "the signature": (flipped(receipt), entry, log_key),
            "the entry": (receipt, flipped(entry), log_key),
            "another key": (receipt, entry, issuer_key),
        },
    )
    judge.both_ways(
        "scitt-cose verifies the transparent statement and takes the receipt out of it",
        lambda one: (
            ask(bench, ask="statement", statement=one, key=issuer_key) == said
            and ask(bench, ask="receipts", transparent=one) == [receipt.hex()]
        ),
        transparent,
        {"a receipt": transparent.replace(receipt, flipped(receipt)), "the signature": flipped(transparent)},
    )


def check_es256(bench: Bench, judge: Judge) -> None:
    """The same by ES256 keys, for trees of many shapes."""
    from tlog.cose import ES256

    issuer, log, other = (make_signer(bench.folder, name, ES256) for name in ("issuer", "log", "other"))
    tree = Tree(issuer, max(SIZES))
    entry = tree.entries[0]
    judge.both_ways(
        "scitt-cose verifies our ES256 statement",
        lambda one: ask(bench, ask="statement", statement=one[0], key=one[1]) is not None,
        (entry, issuer.pem),
        {
            "the issuer": (with_protected_changed(entry, ISSUER), issuer.pem),
            "the signature": (flipped(entry), issuer.pem),
            "another key": (entry, other.pem),
        },
    )
    accepted, forged = {}, {}
    for size in SIZES:
        index = size - 1
        receipt, entry = tree.receipt(log, index, size), tree.entries[index]
        expected = {
            "size": size,
            "index": index,
            "root": tree.root(size).hex(),
            "issuer": LOG,
            "subject": SUBJECT,
        }
        said = ask(bench, ask="receipt", receipt=receipt, entry=entry, key=log.pem)
        accepted[f"entry {index} of {size}"] = said == expected
        for name, one, key in (("signature", flipped(receipt), log), ("key", receipt, other)):
            forged[name, size] = ask(bench, ask="receipt", receipt=one, entry=entry, key=key.pem)
    judge.story(
        f"scitt-cose verifies our ES256 receipts in trees of {SIZES}",
        accepted,
        {"a changed signature or another key at any size": not any(forged.values())},
    )


def check_proofs(bench: Bench, judge: Judge) -> None:
    """Roots and consistency proofs, the Merkle part without signatures."""
    from tlog.cose import EDDSA

    tree = Tree(make_signer(bench.folder, "issuer", EDDSA), max(SIZES))
    judge.both_ways(
        "scitt-cose computes our root",
        lambda one: ask(bench, ask="root", entries=one) == tree.root(max(SIZES)).hex(),
        tree.entries,
        {"an entry": [*tree.entries[:-1], flipped(tree.entries[-1])]},
    )
    accepted, refused = {}, {}
    for old, new in itertools.pairwise(SIZES):
        proof = list(tree.log.prove_consistency(old, new))
        question = {"ask": "consistency", "root": tree.root(new), "sizes": [old, new]}
        old_root, changed = tree.root(old), [*proof[:-1], flipped(proof[-1])]
        accepted[f"{old} to {new}"] = ask(bench, **question, old_root=old_root, proof=proof) is True
        for name, root, path in (("root", flipped(old_root), proof), ("hash", old_root, changed)):
            refused[f"{old} to {new}, {name}"] = ask(bench, **question, old_root=root, proof=path) is None
    judge.story(
        f"scitt-cose verifies our consistency proofs along {SIZES}",
        accepted,
        {"a changed root or hash in any of them": all(refused.values())},
    )


def check_made_there(bench: Bench, judge: Judge) -> None:
    """The other direction: what scitt-cose makes, we verify."""
    from tlog.cose import EDDSA
    from tlog.errors import Error
    from tlog.statement import TYP, verify_statement

    issuer = make_signer(bench.folder, "issuer", EDDSA)
    tree = Tree(issuer, 1)
    ours, payload = tree.entries[0], verify_statement(tree.entries[0], issuer.signer.key).payload_hash
    private = (bench.folder / "keys" / "issuer").read_bytes()
    made = ask(
        bench,
        ask="sign_statement",
        payload=payload,
        key=private,
        kid=issuer.kid,
        names=[ISSUER, SUBJECT],
        typ=TYP,
    )

    def holds(entry: bytes) -> bool:
        try:
            return verify_statement(entry, issuer.signer.key).raw == ours
        except Error:
            return False

    judge.both_ways(
        "A statement that scitt-cose makes is ours byte for byte, and verifies here",
        holds,
        bytes.fromhex(made or ""),
        {"the issuer": with_protected_changed(ours, ISSUER), "the signature": flipped(ours)},
    )
    entry, receipt, _, _ = sample_parts(bench.sample)
    trust = str(bench.sample.home / "trust.toml")

    def verified(receipt: bytes) -> bool:
        attached = bytes.fromhex(ask(bench, ask="attach", entry=entry, receipts=[receipt]) or "")
        return verifies(bench.write("attached.cose", attached), "--trust", trust)

    judge.both_ways(
        "`muniment verify` accepts a transparent statement that scitt-cose put together",
        verified,
        receipt,
        {"a receipt": flipped(receipt), "a hash": with_path_changed(receipt)},
    )


CHECKS = (check_sample, check_es256, check_proofs, check_made_there)
