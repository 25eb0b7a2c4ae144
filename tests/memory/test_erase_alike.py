"""What is left after an erasure does not depend on what was erased: two homes that are alike but for it end up alike.

No guess can be tested against bytes that are the same whatever is true. This sees what a list of guesses would miss.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ALIKE = Path(__file__).with_name("alike.py")


def lives(folder: Path, way: str, guard: str) -> list[dict[str, Any]]:
    """What is left of both, which live at the same time."""
    running = []
    for which in ("0", "1"):
        (folder / which).mkdir()
        command = [sys.executable, str(ALIKE), str(folder / which), which, way, guard]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return [json.loads(one) for one in said]


@pytest.mark.parametrize("way", ["subject", "tenant"])
def test_nothing_that_is_left_depends_on_what_was_erased(tmp_path: Path, way: str) -> None:
    one, other = lives(tmp_path, way, "erase")
    assert {name for name in {*one, *other} if one.get(name) != other.get(name)} == set()
    assert len(one["events"]) > 12 and any(name.startswith("log/sealed/") for name in one)


def test_hashes_that_were_kept_do(tmp_path: Path) -> None:
    """The control: this look sees keyed hashes, and that some are kept shows nowhere else but where they are sealed."""
    one, other = lives(tmp_path, "all", "keep")
    differing = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    assert {name for name in differing if not name.startswith("log/sealed/")} == {"ledger", "idempotency"}
