"""Agent memory whose every write, correction and erasure is a signed statement in a transparency log."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Where each public name lives; nothing is imported before it is used (PEP 562).
_HOMES = {
    "Principal": "model",
    "init_home": "wiring",
    "open_home": "wiring",
    "Memory": "service",
}

__all__ = [
    "Principal",
    "init_home",
    "open_home",
    "Memory",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
