"""tlog-scales (PyPI) verifies the cosignatures of our witness, of both types, and makes one that we verify."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from asking import ask_all
from installing import Tool, environment
from judging import Judge, flipped
from peer_go import with_signature_changed
from sample import Bench, witness
from serving import ask_to_cosign, our_witness

PACKAGE = "tlog-scales==0.0.3"
NAME = "scales.interop.invalid/w4"


def install(folder: Path) -> Tool:
    """tlog-scales in an environment of its own."""
    return Tool(environment(folder, PACKAGE) / "python", PACKAGE.partition("==")[2])


def ask(bench: Bench, **question: object) -> Any:
    """What tlog-scales answers."""
    return ask_all([str(bench.tool), str(Path(__file__).with_name("scalescheck.py"))], [question])[0]


def check_witness(bench: Bench, judge: Judge) -> None:
    """What our witness answers over HTTP with both of its keys."""
    note, state = bench.sample.checkpoint, bench.folder / "witness"
    made = witness(state, "init", "--name", NAME, "--mldsa")
    witness(state, "add-log", "--vkey", bench.sample.vkey)
    with our_witness(state) as url:
        answer = ask_to_cosign(url, 0, "", note)
    lines = answer.body.decode().splitlines(keepends=True)
    if answer.status != 200 or len(lines) != 2:
        raise AssertionError("our witness did not answer with a line by each of its two keys")
    origin, size, rest = note.decode().split("\n", 2)
    for what, vkey, line in zip(("Ed25519", "ML-DSA-44"), made["vkeys"], lines, strict=True):
        wrong = with_signature_changed(line.encode(), NAME).decode()
        judge.both_ways(
            f"tlog-scales verifies our witness's {what} line, over a message of its own making",
            lambda one: ask(bench, ask="verify", vkey=one[0], note=one[1]) is True,
            (vkey, note.decode() + line),
            {
                "the origin": (vkey, f"{origin}x\n{size}\n{rest}{line}"),
                "the size": (vkey, f"{origin}\n{int(size) + 1}\n{rest}{line}"),
                "the signature": (vkey, note.decode() + wrong),
                "no line": (vkey, note.decode()),
            },
        )


def check_made_there(bench: Bench, judge: Judge) -> None:
    """The other direction: an ML-DSA-44 cosignature made by tlog-scales."""
    from tlog.cosignature import verify_cosignature
    from tlog.errors import Error
    from tlog.note import SignatureLine, parse_note, parse_signature_lines, parse_vkey

    note = bench.sample.checkpoint
    vkey, made = ask(bench, ask="sign", name=NAME, seed=os.urandom(32), note=note.decode())
    text, (line,) = parse_note(note).text, parse_signature_lines(made)

    def holds(one: tuple[str, SignatureLine, str]) -> bool:
        try:
            return verify_cosignature(parse_vkey(one[0]), one[1], one[2]).timestamp > 0
        except Error:
            return False

    changed = SignatureLine(line.name, line.key_id, flipped(line.signature))
    later = SignatureLine(line.name, line.key_id, flipped(line.signature, 7))
    other = ask(bench, ask="sign", name=NAME, seed=os.urandom(32), note=note.decode())[0]
    judge.both_ways(
        "We verify an ML-DSA-44 cosignature that tlog-scales made",
        holds,
        (vkey, line, text),
        {
            "the signature": (vkey, changed, text),
            "the time": (vkey, later, text),
            "the origin": (vkey, line, "x" + text),
            "another key": (other, line, text),
        },
    )


CHECKS = (check_witness, check_made_there)
