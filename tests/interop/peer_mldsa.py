"""@noble/post-quantum (npm) verifies our ML-DSA-44 cosignatures, made by another implementation of FIPS 204."""

from __future__ import annotations

import shutil
from pathlib import Path

from installing import CannotInstall, install, run
from sample import Sample

SCRIPT = """
import { ml_dsa44 } from '@noble/post-quantum/ml-dsa.js';
const [publicKey, message, signature] = process.argv.slice(2).map((hex) => Uint8Array.from(Buffer.from(hex, 'hex')));
const changed = Uint8Array.from(message); changed[changed.length - 1] ^= 1;
console.log(ml_dsa44.verify(signature, message, publicKey), ml_dsa44.verify(signature, changed, publicKey));
"""


def check(sample: Sample, folder: Path) -> str:
    """A cosignature over our checkpoint verifies there; the same over a changed message does not."""
    from tlog.checkpoint import parse_checkpoint
    from tlog.cosignature import cosigned_message_mldsa44
    from tlog.keys import load_cosigner_key, make_cosigner_key
    from tlog.note import MLDSA44, parse_note

    if shutil.which("npm") is None or shutil.which("node") is None:
        raise CannotInstall("needs node and npm")
    (folder / "package.json").write_text('{"type":"module","private":true}', "utf-8")
    install(
        ["npm", "install", "--no-audit", "--no-fund", "@noble/post-quantum@0.7.1"],
        "@noble/post-quantum",
        folder,
    )
    (folder / "verify.js").write_text(SCRIPT, "utf-8")
    folder.chmod(0o700)
    make_cosigner_key(folder / "cosigner.key", "witness.interop.invalid", MLDSA44)
    cosigner = load_cosigner_key(folder / "cosigner.key")
    text = parse_note(sample.checkpoint.read_bytes()).text
    checkpoint = parse_checkpoint(text)
    timestamp = 1_760_000_000
    line = cosigner.cosign(text, timestamp)
    message = cosigned_message_mldsa44(
        "witness.interop.invalid", timestamp, checkpoint.origin, 0, checkpoint.size, checkpoint.root
    )
    signature = line.signature[8:]
    if int.from_bytes(line.signature[:8], "big") != timestamp:
        raise AssertionError("the cosignature does not begin with its time")
    said = run(
        ["node", "verify.js", cosigner.verifier_key.public_key.hex(), message.hex(), signature.hex()], folder
    )
    if said.split() != ["true", "false"]:
        raise AssertionError(f"expected true and false, got {said.split()}")
    return "our cosignature verified, a changed message refused"
