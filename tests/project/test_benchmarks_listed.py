"""Every benchmark is run by `make bench`, in full and, to see that it still runs, small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
BY_OTHERS = {"guard_inspeximus", "peers_inspeximus", "log_drivers", "log_plot"}
"""Run by another benchmark, or with what one wrote."""
AS_DATA = {"recall_styles"}
"""What the full run takes from another: one made-up set of notes is enough there."""


@pytest.mark.parametrize(
    ("rule", "left_out"), [("bench-full", BY_OTHERS | AS_DATA), ("bench-quick", BY_OTHERS)]
)
def test_every_benchmark_is_run(rule: str, left_out: set[str]) -> None:
    recipe = (REPOSITORY / "Makefile").read_text("utf-8").partition(f"\n{rule}: ")[2].partition("\n\n")[0]
    run = set(re.findall(r"benchmarks/(\w+)\.py", recipe))
    there = {
        path.stem
        for path in (REPOSITORY / "benchmarks").glob("*.py")
        if '__name__ == "__main__"' in path.read_text("utf-8")
    }
    assert run == there - left_out
