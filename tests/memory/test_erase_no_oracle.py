"""An erasure tells nobody what another tenant keeps, neither in its answer nor in its manifest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.hits import Hit
from memory import erase_needles, store_mentions, wiring
from memory.erase_checks import cover
from memory.erase_needles import Explained
from memory.principal import make_principal, with_all_scopes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from erasing import check_of, forget, manifest_of, write

CURIOUS = make_principal("curious", "agent", "cli")
OTHER = with_all_scopes(make_principal("other-tenant-name", "default", "cli"))
SAID = "Her diagnosis is Lupus Zebra."


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


@pytest.mark.parametrize(
    ("encoding", "file", "needle", "is_explained", "read"),
    [
        ("utf-8", "store.db", "bicycle 0 is in the", True, 1),
        ("utf-8", "store.db-wal", "bicycle 0 is in the", True, 1),
        ("utf-8, separators removed", "store.db", "bicycle 0", True, 1),
        ("utf-8, separators removed", "store.db", "bicycle, 0", False, 5),
        ("utf-8", "store.db", "tricycle 0 is in the", False, 5),
        ("utf-8", "log/tile", "bicycle 0 is in the", False, 0),
        ("utf-8, separators removed", "store.db", "\u2619 \u2619", False, 5),
    ],
)
def test_what_is_kept_is_read_until_each_hit_is_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    encoding: str,
    file: str,
    needle: str,
    is_explained: bool,
    read: int,
) -> None:
    contents, seen = store_mentions.contents, []

    def counted(*args: Any) -> Iterator[dict[str, Any]]:
        for content in contents(*args):
            seen.append(content)
            yield content

    monkeypatch.setattr(store_mentions, "contents", counted)
    monkeypatch.setattr(erase_needles, "_TEXTS_AT_ONCE", 1)
    with wiring.open_home(tmp_path / "other") as home:
        for number in range(5):
            write(home, f"The bicycle {number} is in the yard.", CURIOUS)
        hit = Hit("RESIDUE_FILE", file, 1, encoding, 0, 0)
        with home.parts().store.read_whole() as view:
            explained = Explained(home, view, [(needle, hit)], 1)
    assert (explained(needle, hit), len(seen)) == (is_explained, read)
