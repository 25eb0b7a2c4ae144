"""The commands that stay: `mcp`, `batch` and `demo`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from memory import wiring
from memory.principal import CLIENT_VARIABLE, agent_from_environment, owner_from_environment


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of one of them."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    if name == "batch":
        parser.add_argument("--operator", action="store_true", help='lines may say "as": tenant/agent/client')
    if name in ("batch", "mcp"):
        parser.add_argument("--write-guard", metavar="on|off", help="goes before the home's own setting")
    if name == "mcp":
        parser.add_argument("--http", metavar="HOST:PORT", help="over HTTP, on this machine alone")
    if name == "demo":
        parser.add_argument("--keep", metavar="DIR", help="make the home there and leave it")
        parser.add_argument("--facts", metavar="FILE", help="facts to remember instead of the team's week")


def run_command(args: argparse.Namespace) -> int:
    """Runs one of them until it is done."""
    return {"batch": _batch, "mcp": _mcp, "demo": _demo}[args.command](args)


def _batch(args: argparse.Namespace) -> int:
    from memory.batch import run_batch

    def write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with wiring.open_home(args.home, guard=args.write_guard) as home:
        principal = owner_from_environment(os.environ)
        run_batch(_utf8_lines(), write, home, args.operator, principal)
    return 0


def _utf8_lines() -> Any:
    """Standard input line by line; what is not UTF-8 becomes a line that is answered as bad input."""
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", "surrogateescape")


def _mcp(args: argparse.Namespace) -> int:
    principal = agent_from_environment(os.environ)
    with wiring.open_home(args.home, guard=args.write_guard) as home:
        if args.http:
            from memory.mcp_listen import serve_http

            serve_http(home, principal, args.http, os.environ)
            return 0
        from memory.mcp_server import bound, naming_itself
        from memory.mcp_stdio import serve_stdio

        serve_stdio(home, bound(principal) if os.environ.get(CLIENT_VARIABLE) else naming_itself(principal))
    return 0


def _demo(args: argparse.Namespace) -> int:
    from memory.demo import run_demo

    return run_demo(args.keep, args.facts)
