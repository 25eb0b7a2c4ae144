"""`muniment log …` and `muniment verify …`: the log's own commands, given a home and the opening of contents."""

from __future__ import annotations

import argparse
from typing import Any


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `log` or `verify`, which tlog describes."""
    from tlog import cli

    if name == "log":
        cli.add_log_commands(subparsers)
    else:
        cli.add_verify_command(subparsers)


def run_command(args: argparse.Namespace) -> int:
    """Runs `log` on its home, or `verify` and what is done where a root key is, on files alone."""
    from tlog import cli, cli_keys

    if args.command == "verify":
        return cli.run_verify(args, open_content=_open_content, describe_manifest=_describe_manifest)
    if args.log_command == "root" and args.root_command in cli_keys.OFFLINE:
        # A machine with a root key on it has no home, and must not get one.
        return cli_keys.run_key_command(args, None)
    from memory import wiring
    from memory.operator import Operator

    with wiring.open_home(args.home) as home:
        return cli.run_log(args, home, Operator(home))


def _open_content(opening: bytes, commitment: bytes) -> dict[str, Any]:
    from memory.opening import open_with

    return open_with(opening, commitment)


def _describe_manifest(payload: bytes) -> dict[str, Any]:
    from memory.manifest import describe

    return describe(payload)
