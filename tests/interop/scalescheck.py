"""Asks tlog-scales, in its own environment: questions as JSON on standard input, answers as JSON on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

from cryptography.exceptions import InvalidSignature  # type: ignore[import-not-found,unused-ignore]
from tlog_scales.signing import MLDSA44CosignatureSigner, Vkey  # type: ignore[import-not-found]
from tlog_scales.tlog import Checkpoint  # type: ignore[import-not-found]


def answer(question: dict[str, Any]) -> Any:
    """Whether a note has a line by a key that holds; or the vkey and the line of a cosignature made there."""
    checkpoint = Checkpoint.from_text(question["note"])
    if question["ask"] == "verify":
        try:
            checkpoint.verify(Vkey.from_string(question["vkey"]))
        except (InvalidSignature, RuntimeError):
            return False
        return True
    signer = MLDSA44CosignatureSigner(question["name"], bytes.fromhex(question["seed"]))
    return [signer.vkey.serialize(), signer.sign(checkpoint).serialize() + "\n"]


if __name__ == "__main__":
    json.dump([answer(one) for one in json.load(sys.stdin)], sys.stdout)
