"""What every test folder shares: where the outside data lies, and the table of what was skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadlines: a shared machine is slow at times, and time is measured in benchmarks/ alone.
settings.register_profile("project", deadline=None)
settings.load_profile("project")

REPOSITORY = Path(__file__).resolve().parent.parent


def _outside(variable: str, default: str) -> Path:
    folder = Path(os.environ.get(variable) or REPOSITORY.parent / "shared" / default)
    if not folder.is_dir():
        pytest.skip(f"{variable}: no folder of outside {default} here")
    return folder


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of outside test vectors (MUNIMENT_TEST_VECTORS)."""
    return _outside("MUNIMENT_TEST_VECTORS", "vectors")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of outside benchmark data (MUNIMENT_TEST_DATA)."""
    return _outside("MUNIMENT_TEST_DATA", "data")
