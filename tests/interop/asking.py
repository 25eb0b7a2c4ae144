"""Questions to a peer's own program as JSON, all to one process, and its answers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


def ask_all(command: list[str], questions: list[dict[str, Any]]) -> list[Any]:
    """The answer to each question; byte strings are passed on as hexadecimal."""
    done = subprocess.run(
        command,
        input=json.dumps(questions, default=bytes.hex),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[-1]).name} ended with {done.returncode}: {done.stderr[-500:]}")
    answers: list[Any] = json.loads(done.stdout)
    return answers
