"""A C2SP tlog-witness: co-signs the heads of logs it knows, and the client that asks witnesses."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Where each public name lives; nothing is imported before it is used (PEP 562).
_HOMES = {
    "ask_witnesses": "client",
    "make_cosign": "client",
}

__all__ = [
    "ask_witnesses",
    "make_cosign",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
