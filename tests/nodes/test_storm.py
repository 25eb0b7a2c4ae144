"""Two storms over four nodes. `python tests/soak_nodes.py` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from storm import run_storm


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_doubled_or_forked_in_a_storm(tmp_path: Path, seed: int) -> None:
    told = run_storm(tmp_path, seed, seconds=25)
    print(told)
    assert told["writes"] > 20 and told["checkpoints"] > 1 and told["kill primary"] == 1
