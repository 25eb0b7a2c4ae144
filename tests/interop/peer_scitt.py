"""scitt-cose (PyPI) verifies our signed statement and our COSE receipt, and refuses changed ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from installing import environment
from sample import Sample


def check(sample: Sample, folder: Path) -> str:
    """Statement and receipt verify with the keys of the trust file; with one byte changed they do not."""
    program = environment(folder, ["scitt-cose==0.5.0"]) / "scitt-cose"
    files = _files(sample, folder)
    if not _verdict(program, files):
        raise AssertionError("scitt-cose refuses our statement or receipt")
    changed = bytearray(files["receipt"].read_bytes())
    changed[-1] ^= 1
    files["receipt"].write_bytes(changed)
    if _verdict(program, files):
        raise AssertionError("scitt-cose accepts a changed receipt: this check proves nothing")
    return "statement and receipt verified, a changed receipt refused"


def _files(sample: Sample, folder: Path) -> dict[str, Path]:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    from tlog.receipt import split_transparent
    from tlog.trust import parse_trust

    trust = parse_trust((sample.home / "trust.toml").read_text("utf-8"))
    entry, receipts = split_transparent(sample.receipt.read_bytes())
    contents = {"entry": entry, "receipt": receipts[0]}
    for use in ("issuer", "receipt"):
        key = next(one.key for one in trust.keys if one.use == use)
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        contents[f"{use}-key"] = pem
    files = {name: folder / name for name in contents}
    for name, path in files.items():
        path.write_bytes(contents[name])
    return files


def _verdict(program: Path, files: dict[str, Path]) -> bool:
    done = subprocess.run(
        [
            str(program),
            *("--statement", str(files["entry"]), "--statement-pubkey", str(files["issuer-key"])),
            *("--receipt", str(files["receipt"]), "--receipt-log-pubkey", str(files["receipt-key"])),
            *("--leaf-entry-hex", files["entry"].read_bytes().hex(), "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        return False
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode == 0 and all(value is not False for value in answer.values())
