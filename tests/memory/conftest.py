"""What the tests of memory share lies beside them, in modules that they import by name, and a home."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ticking import Clock

from memory import wiring


@pytest.fixture
def clock() -> Clock:
    """A clock that the test sets."""
    return Clock()


@pytest.fixture
def home(tmp_path: Path, clock: Clock) -> Iterator[wiring.Home]:
    """An empty home under that clock."""
    with wiring.open_home(tmp_path / "home", clock=clock) as opened:
        yield opened
