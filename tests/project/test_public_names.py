"""What each package promises: its `__all__`, pinned, and every name of it found."""

from __future__ import annotations

from importlib import import_module

import pytest

PINNED = {
    "tlog": [
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
    ],
    "witness": ["ask_witnesses", "make_cosign"],
    "memory": ["Principal", "init_home", "open_home", "Memory"],
    "auditor": ["scan_files"],
}


@pytest.mark.parametrize("package", sorted(PINNED))
def test_public_names_are_pinned(package: str) -> None:
    module = import_module(package)
    assert module.__all__ == PINNED[package]
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert dir(module) == sorted(module.__all__)


@pytest.mark.parametrize("package", sorted(PINNED))
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError):
        _ = import_module(package).no_such_name
