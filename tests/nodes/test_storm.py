"""Two storms over four nodes. `python tests/soak_nodes.py` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from aftermath import Written, require_clean, require_right
from storm import Storm, run_storm


def would_tell(storm: Storm, folder: Path, written: list[Written], seen: list[bytes]) -> None:
    """Fails unless what is looked at afterwards would show what must not be."""
    stored = next(one for one in written if one.status == 201)
    lost = Written(stored.key, "never written", 201, stored.answer)
    for wrong, wrong_heads in (
        ([*written, lost], seen),
        ([one for one in written if one is not stored], seen),
        (written, [*seen, seen[0]]),
        (written, [*seen[:-1], seen[-1].replace(seen[-1].split(b"\n")[2], seen[0].split(b"\n")[2])]),
    ):
        with pytest.raises(AssertionError):
            require_right(storm, folder, wrong, wrong_heads)
    home = folder / "homes" / "0"
    whole = ("--home", str(home), "--trust", str(home / "trust.toml"))
    require_clean(*whole)
    with storm.primary.connect("memory") as connection:
        # What only an audit of the whole home sees: the cache of facts is not what the statements add up to.
        connection.execute("UPDATE muniment.facts SET valid_from = valid_from - 1")
        with pytest.raises(AssertionError):
            require_clean(*whole)
        connection.execute("UPDATE muniment.events SET entry_index = NULL WHERE entry_index = 1")
        with pytest.raises(AssertionError):
            require_right(storm, folder, written, seen)


@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_forked_in_a_storm(tmp_path: Path) -> None:
    told = run_storm(tmp_path, 1, seconds=25)
    print(told)
    assert told["writes"] > 20 and told["checkpoints"] > 1 and told["kill primary"] == 1


@pytest.mark.timeout(600)
def test_what_is_looked_at_after_a_storm_would_tell(tmp_path: Path) -> None:
    told = run_storm(tmp_path, 2, seconds=20, afterwards=would_tell)
    assert told["kill primary"] == 1
