"""Nodes of one log, in a real database and a real bucket. All of it is of the run that has servers."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

if not os.environ.get("MUNIMENT_TEST_SERVERS"):
    collect_ignore_glob = ["test_*"]


@pytest.fixture
def place(
    object_store: Any, log_database: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Makes the settings of the nodes of a new log."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    name = secrets.token_hex(8)
    shared = {"dsn": log_database, "bucket": f"s3://tests/{name}", "log": name, "lease": 1.5}
    return lambda **settings: {**shared, **settings}


@pytest.fixture
def crowd() -> Iterator[Any]:
    """Starts nodes, and ends those that still run."""
    from crowd import Crowd

    started = Crowd()
    yield started
    started.end()
