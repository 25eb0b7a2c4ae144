"""Tiled transparency logs: formats, Merkle trees, one log, its readers (C2SP, RFC 9162, RFC 9942, RFC 9943)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Where each public name lives; nothing is imported before it is used (PEP 562).
_HOMES = {
    "Error": "errors",
    "MalformedError": "errors",
    "VerificationError": "errors",
    "RefusedError": "errors",
    "UnavailableError": "errors",
    "Checkpoint": "checkpoint",
    "parse_checkpoint": "checkpoint",
    "format_checkpoint": "checkpoint",
    "parse_note": "note",
    "format_note": "note",
    "parse_vkey": "note",
    "Policy": "policy",
    "parse_policy": "policy",
    "verify_checkpoint": "policy",
    "Trust": "trust",
    "parse_trust": "trust",
    "Statement": "statement",
    "parse_statement": "statement",
    "verify_statement": "statement",
    "verify_receipt": "receipt",
    "split_transparent": "receipt",
    "parse_proof": "proof",
    "verify_proof": "proof",
    "open_log": "log",
    "LogClient": "client",
}

__all__ = [
    "Error",
    "MalformedError",
    "VerificationError",
    "RefusedError",
    "UnavailableError",
    "Checkpoint",
    "parse_checkpoint",
    "format_checkpoint",
    "parse_note",
    "format_note",
    "parse_vkey",
    "Policy",
    "parse_policy",
    "verify_checkpoint",
    "Trust",
    "parse_trust",
    "Statement",
    "parse_statement",
    "verify_statement",
    "verify_receipt",
    "split_transparent",
    "parse_proof",
    "verify_proof",
    "open_log",
    "LogClient",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
