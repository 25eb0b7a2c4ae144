"""@transmute/cose (npm) verifies our ES256 statements and receipts, and makes receipts that we verify."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

from asking import ask_all
from installing import Tool, node_modules
from judging import Judge, flipped
from sample import Bench
from trees import ISSUER, LOG, SUBJECT, Signer, Tree, make_signer, with_path_changed, with_protected_changed

PACKAGE, VERSION = "@transmute/cose", "0.2.11"
SIZES = (1, 2, 3, 5, 8, 13)
# From a power of two it takes a path that starts with the old root, which RFC 9162 leaves out.
GROWTH = ((3, 5), (5, 8), (5, 13), (7, 13))


def install(folder: Path) -> Tool:
    """The package, and the program that asks it beside it, where its imports are looked up."""
    node_modules(folder, f"{PACKAGE}@{VERSION}")
    shutil.copy(Path(__file__).with_name("transmute.js"), folder)
    return Tool(folder / "transmute.js", VERSION)


def ask(bench: Bench, **question: object) -> Any:
    """What @transmute/cose answers, None where it refuses."""
    return ask_all(["node", str(bench.tool)], [question])[0]


def public_jwk(signer: Signer) -> dict[str, str]:
    """The public key as @transmute/cose takes it."""
    key = signer.signer.key
    return {"kty": "EC", "crv": "P-256", "alg": "ES256", "x": _base64url(key.x), "y": _base64url(key.y)}


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signers(bench: Bench) -> tuple[Signer, Signer, Signer]:
    from tlog.cose import ES256

    issuer, log, other = (make_signer(bench.folder, name, ES256) for name in ("issuer", "log", "other"))
    return issuer, log, other


def check_receipts(bench: Bench, judge: Judge) -> None:
    """Inclusion and consistency receipts made with tlog.receipt."""
    issuer, log, other = _signers(bench)
    tree = Tree(issuer, max(SIZES))
    key = public_jwk(log)
    changed = _changed(tree, log, other)
    said = ask_all(
        ["node", str(bench.tool)],
        [
            {
                "ask": "inclusion",
                "entry": tree.entries[size - 1],
                "receipt": tree.receipt(log, size - 1, size),
                "key": key,
            }
            for size in SIZES
        ]
        + list(changed.values()),
    )
    judge.story(
        f"@transmute/cose verifies our ES256 receipts, to our roots, in trees of {SIZES}",
        {
            f"entry {size - 1} of {size}": root == tree.root(size).hex()
            for size, root in zip(SIZES, said, strict=False)
        },
        {name: root is None for name, root in zip(changed, said[len(SIZES) :], strict=True)},
    )


def check_consistency(bench: Bench, judge: Judge) -> None:
    """Consistency receipts, each between two trees."""
    issuer, log, _ = _signers(bench)
    tree, key = Tree(issuer, max(SIZES)), public_jwk(log)
    questions: dict[str, dict[str, object]] = {}
    for old, new in GROWTH:
        receipt, roots = tree.consistency_receipt(log, old, new), (tree.root(old), tree.root(new))
        for name, old_root, root, one in (
            ("", *roots, receipt),
            (", old root", flipped(roots[0]), roots[1], receipt),
            (", root", roots[0], flipped(roots[1]), receipt),
            (", signature", *roots, flipped(receipt)),
            (", hash", *roots, with_path_changed(receipt)),
        ):
            question = {"ask": "consistency", "oldRoot": old_root, "root": root, "receipt": one, "key": key}
            questions[f"{old} to {new}{name}"] = question
    said = dict(zip(questions, ask_all(["node", str(bench.tool)], list(questions.values())), strict=True))
    judge.story(
        "@transmute/cose verifies our ES256 consistency receipts",
        {name: answer is True for name, answer in said.items() if "," not in name},
        {
            "a changed root, hash or signature in any of them": all(
                answer is None for name, answer in said.items() if "," in name
            )
        },
    )


def _changed(tree: Tree, log: Signer, other: Signer) -> dict[str, dict[str, object]]:
    """Questions about a receipt that have to be answered with a refusal."""
    size = max(SIZES)
    good: dict[str, object] = {
        "ask": "inclusion",
        "entry": tree.entries[size - 1],
        "receipt": tree.receipt(log, size - 1, size),
        "key": public_jwk(log),
    }
    receipt = tree.receipt(log, size - 1, size)
    return {
        "a hash": good | {"receipt": with_path_changed(receipt)},
        "the signature": good | {"receipt": flipped(receipt)},
        "the issuer": good | {"receipt": with_protected_changed(receipt, LOG)},
        "the entry": good | {"entry": flipped(tree.entries[size - 1])},
        "another key": good | {"key": public_jwk(other)},
    }


def check_transparent(bench: Bench, judge: Judge) -> None:
    """A transparent statement as a whole, by the peer's own verifier, each key looked up by its kid."""
    from tlog.receipt import make_transparent
    from tlog.statement import parse_statement

    issuer, log, other = _signers(bench)
    tree, index, size = Tree(issuer, max(SIZES)), 4, max(SIZES)
    entry, receipt = tree.entries[index], tree.receipt(log, index, size)
    payload = parse_statement(entry).payload_hash
    keys = {one.kid.hex(): public_jwk(one) for one in (issuer, log)}
    transparent = make_transparent(entry, [receipt])
    expected = {"payload": payload.hex(), "roots": [tree.root(size).hex()]}
    judge.both_ways(
        "@transmute/cose verifies our transparent statement and its receipt as a whole, keys found by kid",
        lambda one: (
            ask(bench, ask="transparent", transparent=one[0], payload=one[1], keys=one[2]) == expected
        ),
        (transparent, payload, keys),
        {
            "the issuer": (with_protected_changed(transparent, ISSUER), payload, keys),
            "the commitment": (transparent, flipped(payload), keys),
            "the statement's signature": (flipped(transparent), payload, keys),
            "the receipt's signature": (transparent.replace(receipt, flipped(receipt)), payload, keys),
            "another log's key": (transparent, payload, keys | {log.kid.hex(): public_jwk(other)}),
        },
    )
    judge.both_ways(
        "@transmute/cose takes the receipt off and leaves our entry, byte for byte",
        lambda one: ask(bench, ask="remove", transparent=one) == entry.hex(),
        transparent,
        {"the statement": flipped(transparent)},
    )
    judge.both_ways(
        "@transmute/cose computes the thumbprint of our key that is our kid",
        lambda one: ask(bench, ask="thumbprint", key=one.signer.key.encode()) == log.kid.hex(),
        log,
        {"another key": other},
    )


def check_made_there(bench: Bench, judge: Judge) -> None:
    """The other direction: its receipt on our statement."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from tlog.errors import Error
    from tlog.receipt import make_transparent, split_transparent, verify_receipt

    issuer, log, other = _signers(bench)
    tree, index = Tree(issuer, max(SIZES)), 9
    private: Any = load_pem_private_key((bench.folder / "keys" / "log").read_bytes(), None)
    secret = private.private_numbers().private_value.to_bytes(32, "big")
    made = ask(
        bench,
        ask="issue",
        statement=tree.entries[index],
        entries=tree.entries,
        index=index,
        kid=log.kid,
        names=[LOG, SUBJECT],
        secret={**public_jwk(log), "d": _base64url(secret)},
    )
    transparent = bytes.fromhex(made or "")

    def holds(one: tuple[bytes, Signer]) -> bool:
        try:
            entry, (receipt,) = split_transparent(one[0])
            verified = verify_receipt(receipt, entry, one[1].signer.key)
        except Error:
            return False
        found = verified.index, verified.size, verified.root, verified.size_signed
        return found == (index, len(tree.entries), tree.root(len(tree.entries)), False)

    entry, (receipt,) = split_transparent(transparent)
    judge.both_ways(
        "We verify a receipt that @transmute/cose made, and say that its tree size is not signed",
        holds,
        (transparent, log),
        {
            "a hash": (make_transparent(entry, [with_path_changed(receipt)]), log),
            "the signature": (make_transparent(entry, [flipped(receipt)]), log),
            "the entry": (make_transparent(tree.entries[0], [receipt]), log),
            "another key": (transparent, other),
        },
    )


CHECKS = (check_receipts, check_consistency, check_transparent, check_made_there)
