"""An erasure tells nobody what another tenant keeps, neither in its answer nor in its manifest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import scan_process, wiring
from memory.erase_checks import cover
from memory.principal import make_principal, with_all_scopes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import ask_a_fork, check_of, forget, manifest_of, write

CURIOUS = make_principal("curious", "agent", "cli")
OTHER = with_all_scopes(make_principal("other-tenant-name", "default", "cli"))
SAID = "Her diagnosis is Lupus Zebra."


@pytest.fixture(autouse=True)
def quick_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_process, "_ask", ask_a_fork)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[wiring.Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        write(opened, SAID, OTHER, key="diagnosis", value="Lupus Zebra", subject="Otilia Brandmeyer")
        write(opened, "The bicycle is in the yard.", CURIOUS)
        yield opened


def counts(home: wiring.Home, guess: str) -> Any:
    """What an erasure of a guess says of its scan, in public."""
    answer = forget(home, CURIOUS, id=write(home, guess, CURIOUS)["id"])
    assert answer["state"] == "closed_complete"
    check = check_of(manifest_of(home, answer), "residue")
    return {name: check["counts"].get(name) for name in ("hits", "needles_shared", "records_not_covered")}


def test_a_guess_of_what_another_tenant_keeps_is_not_confirmed(home: wiring.Home) -> None:
    wrong = counts(home, "Xaverl Quindlohnt")
    for right in ("Otilia Brandmeyer", "diagnosis is Lupus", "other-tenant-name"):
        assert counts(home, right) == wrong
    # What the tenant keeps itself is told, as ever.
    own = counts(home, "bicycle is in the yard")
    assert (own["needles_shared"], own["records_not_covered"]) == (wrong["needles_shared"] + 1, 1)


@pytest.mark.parametrize(("not_known", "result"), [(0, "clean"), (1, "inconclusive")])
def test_what_is_not_told_is_covered_all_the_same(not_known: int, result: str) -> None:
    residue = {"check": "residue", "result": "clean", "counts": {}}
    free_space = {"result": "clean", "counts": {"files_not_known": not_known}}
    assert cover((residue, 1), free_space)["result"] == result
    assert cover((residue, 0), free_space)["result"] == "clean"
