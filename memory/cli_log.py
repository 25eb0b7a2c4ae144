"""`muniment log …` and `muniment verify …`: the log's own commands, given a home and the opening of contents."""

from __future__ import annotations

import argparse
from typing import Any

from memory import wiring


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `log` or `verify`, which tlog describes."""
    from tlog import cli

    if name == "log":
        cli.add_log_commands(subparsers)
    else:
        cli.add_verify_command(subparsers)


def run_command(args: argparse.Namespace) -> int:
    """Runs `log` on its home, or `verify` on files alone."""
    from tlog import cli

    if args.command == "verify":
        from memory.opening import open_with

        return cli.run_verify(args, open_content=open_with)
    with wiring.open_home(args.home) as home:
        return cli.run_log(args, home)
