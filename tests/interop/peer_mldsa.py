"""@noble/post-quantum (npm) verifies our ML-DSA-44 cosignatures, and makes those that we verify."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path
from typing import Any

from asking import ask_all
from installing import Tool, node_modules
from judging import Judge, flipped
from peer_go import with_signature_changed
from sample import Bench, witness
from serving import ask_to_cosign, our_witness

PACKAGE, VERSION = "@noble/post-quantum", "0.7.1"
NAME = "quantum.interop.invalid/w3"
TIME = 1_760_000_000


def install(folder: Path) -> Tool:
    """The package, and the program that asks it beside it, where its imports are looked up."""
    node_modules(folder, f"{PACKAGE}@{VERSION}")
    shutil.copy(Path(__file__).with_name("noble.js"), folder)
    return Tool(folder / "noble.js", VERSION)


def ask(bench: Bench, **question: object) -> Any:
    """What @noble/post-quantum answers; byte strings are passed on as base64."""
    plain = {name: _base64(one) if isinstance(one, bytes) else one for name, one in question.items()}
    return ask_all(["node", str(bench.tool)], [plain])[0]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def check_witness(bench: Bench, judge: Judge) -> None:
    """What our witness answers over HTTP with both of its keys."""
    from tlog.note import parse_note, parse_vkey

    note, state = bench.sample.checkpoint, bench.folder / "witness"
    made = witness(state, "init", "--name", NAME, "--mldsa")
    witness(state, "add-log", "--vkey", bench.sample.vkey)
    with our_witness(state) as url:
        answer = ask_to_cosign(url, 0, "", note)
    ours = [parse_vkey(vkey) for vkey in made["vkeys"]]
    lines = answer.body.decode().splitlines(keepends=True)
    if answer.status != 200 or len(lines) != 2 or len(ours) != 2:
        raise AssertionError("our witness did not answer with a line by each of its two keys")
    text, line, key = parse_note(note).text, lines[1], ours[1].public_key
    other = ask(bench, ask="key", seed=os.urandom(32))
    judge.both_ways(
        "@noble/post-quantum verifies our witness's ML-DSA-44 line, over a message of its own making",
        lambda one: ask(bench, ask="verify", name=one[0], checkpoint=one[1], line=one[2], key=one[3]) is True,
        (NAME, text, line, key),
        {
            "the name": (NAME[:-1] + "4", text, line.replace(NAME, NAME[:-1] + "4"), key),
            "the origin": (NAME, "x" + text, line, key),
            "the size": (NAME, _with_size_changed(text), line, key),
            "the time": (NAME, text, _with_time_changed(line), key),
            "the signature": (NAME, text, with_signature_changed(line.encode(), NAME).decode(), key),
            "another key": (NAME, text, line, base64.b64decode(other)),
            "the Ed25519 line": (NAME, text, lines[0], key),
        },
    )


def _with_size_changed(text: str) -> str:
    origin, size, rest = text.split("\n", 2)
    return f"{origin}\n{int(size) + 1}\n{rest}"


def _with_time_changed(line: str) -> str:
    start, _, encoded = line.rstrip().rpartition(" ")
    return f"{start} {_base64(flipped(base64.b64decode(encoded), 11))}\n"


def check_made_there(bench: Bench, judge: Judge) -> None:
    """The other direction: its key from a seed, and its cosignature."""
    from tlog.cosignature import verify_cosignature
    from tlog.errors import Error
    from tlog.keys import make_cosigner_key, parse_skey
    from tlog.note import SignatureLine, SignatureType, make_verifier_key, parse_note

    path = bench.folder / "keys" / "mldsa"
    ours = make_cosigner_key(path, NAME, SignatureType.MLDSA44).verifier_key
    _, seed = parse_skey(path.read_text("ascii").strip())
    judge.both_ways(
        "@noble/post-quantum derives our public key from our seed",
        lambda one: base64.b64decode(ask(bench, ask="key", seed=one)) == ours.public_key,
        seed,
        {"the seed": flipped(seed)},
    )
    text = parse_note(bench.sample.checkpoint).text
    signature = base64.b64decode(ask(bench, ask="sign", name=NAME, seed=seed, checkpoint=text, time=TIME))
    other = make_verifier_key(
        NAME, SignatureType.MLDSA44, base64.b64decode(ask(bench, ask="key", seed=flipped(seed)))
    )

    def holds(one: tuple[Any, bytes, str]) -> bool:
        key, data, checkpoint = one
        try:
            found = verify_cosignature(key, SignatureLine(NAME, key.key_id, data), checkpoint)
        except Error:
            return False
        return found.timestamp == TIME

    judge.both_ways(
        "We verify a cosignature that @noble/post-quantum made",
        holds,
        (ours, signature, text),
        {
            "the time": (ours, flipped(signature, 7), text),
            "the signature": (ours, flipped(signature), text),
            "the size": (ours, signature, _with_size_changed(text)),
            "another key": (other, signature, text),
        },
    )


CHECKS = (check_witness, check_made_there)
