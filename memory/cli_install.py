"""`muniment install CLIENT`: puts the server into a host's settings, prints what to put there, or takes it out."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from memory.cli_memory import show
from memory.install import CLIENTS, install, make_entry, settings_file, shown, uninstall
from memory.layout import home_path
from memory.principal import AGENT_VARIABLE, TENANT_VARIABLE, check_name


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `install`."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(
        name,
        help=COMMANDS[name][3],
        description=COMMANDS[name][3],
        epilog="for example: muniment install claude-desktop; muniment install cursor --project . --undo",
    )
    parser.add_argument("client", metavar="CLIENT", choices=tuple(CLIENTS), help=", ".join(CLIENTS))
    parser.add_argument("--print", action="store_true", help="change nothing, print what would be put where")
    parser.add_argument("--undo", action="store_true", help="take it out again")
    parser.add_argument("--project", metavar="DIR", help="settings of this project folder, not of the user")
    parser.add_argument("--agent", metavar="NAME", help="whose memory the host gets (else MUNIMENT_AGENT)")
    parser.add_argument("--tenant", metavar="NAME", help="in which tenant (else MUNIMENT_TENANT)")


def run_command(args: argparse.Namespace) -> int:
    """Changes or prints the settings of one host."""
    path = settings_file(args.client, None if args.project is None else Path(args.project).absolute())
    answer: dict[str, Any] = {"client": args.client, "file": str(path)}
    if args.undo:
        show(args, {**answer, "changed": uninstall(args.client, path)}, _undone)
        return 0
    tenant = args.tenant or os.environ.get(TENANT_VARIABLE)
    agent = args.agent or os.environ.get(AGENT_VARIABLE)
    for what, named in (("tenant", tenant), ("agent", agent)):
        if named is not None:
            check_name(what, named)
    entry = make_entry(home_path(args.home), tenant, agent)
    answer["settings"] = shown(args.client, entry)
    if args.print:
        show(args, {**answer, "changed": False}, lambda one: f"in {one['file']}:\n{one['settings']}")
        return 0
    show(args, {**answer, "changed": install(args.client, path, entry)}, _done)
    return 0


def _done(answer: dict[str, Any]) -> str:
    title = CLIENTS[answer["client"]].title
    if not answer["changed"]:
        return f"{title} has it already: {answer['file']}"
    return f"{title} is told to start muniment: {answer['file']}\nrestart it, or reload its servers, to have the tools"


def _undone(answer: dict[str, Any]) -> str:
    title = CLIENTS[answer["client"]].title
    return (
        f"{title} {'no longer starts' if answer['changed'] else 'did not start'} muniment: {answer['file']}"
    )
