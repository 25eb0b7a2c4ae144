"""An auditor of memory, log, witnesses and erasures that trusts its caller's policy and nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Where each public name lives; nothing is imported before it is used (PEP 562).
_HOMES = {
    "scan_files": "residue",
}

__all__ = [
    "scan_files",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
