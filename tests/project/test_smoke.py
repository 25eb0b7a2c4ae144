"""The shortest run through everything, for a Python on which the full suite is not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def muniment(home: Path, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", *arguments, "--home", str(home), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == exit_code, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_remember_publish_prove_erase_audit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    fact = muniment(home, "remember", "it runs in eu-west-1", "--key", "api/region", "--value", "eu-west-1")
    muniment(home, "remember", "it moved", "--key", "api/region", "--value", "us-east-2")
    echo = muniment(home, "remember", "again", "--key", "api/region", "--value", "EU-WEST-1", exit_code=1)
    assert (echo["outcome"], echo["reason"]) == ("refused", "echo")
    assert muniment(home, "log", "publish")["size"] >= 3
    receipt, trust = tmp_path / "fact.cose", tmp_path / "trust.toml"
    muniment(home, "receipt", fact["id"], "-o", str(receipt))
    trust.write_text((home / "trust.toml").read_text("utf-8"), "utf-8")
    assert muniment(home, "verify", str(receipt), "--trust", str(trust))["holds"] is True
    preview = muniment(home, "forget", "--id", fact["id"])
    done = muniment(home, "forget", "--id", fact["id"], "--confirm", preview["confirm"])
    assert done["state"] == "closed_complete"
    muniment(home, "log", "publish")
    assert muniment(home, "audit", "--trust", str(trust))["verdict"] == "clean"
