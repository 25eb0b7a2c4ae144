"""`muniment witness`: set up a witness, tell it of logs, run it, look at what it holds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_HOMES: Final = {
    "init": ("cli_keys", "init"),
    "rotate-key": ("cli_keys", "rotate_key"),
    "add-log": ("cli_logs", "add_log"),
    "remove-log": ("cli_logs", "remove_log"),
    "import-logs": ("cli_logs", "import_logs"),
    "status": ("cli_logs", "status"),
    "evidence": ("cli_logs", "evidence"),
    "serve": ("cli_serve", "serve"),
    "follow": ("cli_serve", "follow"),
    "compare": ("cli_compare", "compare"),
}


def add_witness_commands(subparsers: Any) -> None:
    """Adds `witness` and what stands below it."""
    parser = subparsers.add_parser(
        "witness",
        help="run a witness for logs",
        description="Run a witness: it cosigns the heads of logs, and never two that contradict each other.",
    )
    commands = parser.add_subparsers(dest="witness_command", metavar="COMMAND", required=True)
    _add_keys(commands)
    _add_logs(commands)
    _add_running(commands)
    _add_state(commands, "status", "who the witness is and the last head of each log")
    evidence = _add_state(
        commands, "evidence", "refused checkpoints that contradict cosigned ones, with both notes"
    )
    evidence.add_argument("--keep", type=Path, metavar="DIR", help="write the notes as files there too")
    _add_compare(commands)


def run_witness(args: argparse.Namespace) -> int:
    """Runs one of them and gives its exit code; raises the errors of `tlog.errors`."""
    module, name = _HOMES[args.witness_command]
    command: Callable[[argparse.Namespace], int] = getattr(import_module(f"witness.{module}"), name)
    return command(args)


def _add_keys(commands: Any) -> None:
    from witness.cli_keys import add_key_options

    init = _add_state(commands, "init", "make keys and an empty state")
    init.add_argument(
        "--name", required=True, help="the witness's name, a schema-less URL such as w.example/1"
    )
    init.add_argument("--mldsa", action="store_true", help="make an ML-DSA-44 key beside the Ed25519 key")
    add_key_options(init)
    rotate = _add_state(
        commands, "rotate-key", "add a key to cosign with beside the others, or retire one with --retire"
    )
    rotate.add_argument("--mldsa", action="store_true", help="the new key is an ML-DSA-44 key")
    rotate.add_argument("--retire", metavar="VKEY", help="cosign no more with this key; adds none")
    add_key_options(rotate)


def _add_logs(commands: Any) -> None:
    add_log = _add_state(commands, "add-log", "trust a log's key; a running witness sees it at once")
    add_log.add_argument("--vkey", required=True, help="the log's verifier key")
    add_log.add_argument("--origin", help="the log's origin, where it is not the key's name")
    add_log.add_argument(
        "--requests-per-day", type=int, metavar="N", help="how many heads it may have cosigned"
    )
    add_log.add_argument("--contact", help="how to reach who runs it; with --requests-per-day")
    remove_log = _add_state(commands, "remove-log", "cosign nothing more of a log; its last head is kept")
    remove_log.add_argument("--origin", required=True, help="the log's origin")
    import_logs = _add_state(commands, "import-logs", "add the logs of a list of the witness network")
    import_logs.add_argument("file", metavar="FILE", help="a list in format logs/v0, - for standard input")


def _add_running(commands: Any) -> None:
    serve = _add_state(commands, "serve", "answer requests until SIGTERM or Ctrl-C")
    serve.add_argument("--listen", required=True, metavar="HOST:PORT", help="port 0 lets the system choose")
    serve.add_argument("--metrics", metavar="HOST:PORT", help="where Prometheus may read /metrics")
    follow = _add_state(commands, "follow", "cosign logs that publish tiles and ask no witness")
    follow.add_argument("url", nargs="+", metavar="URL", help="the prefix under which a log is published")
    follow.add_argument("--every", type=int, default=60, metavar="SECONDS", help="time between two looks")
    follow.add_argument("--once", action="store_true", help="look once at each, then end")
    for parser in (serve, follow):
        parser.add_argument(
            "--heads-per-day", type=int, metavar="N", help="for logs without a number of their own; 864,000"
        )


def _add_compare(commands: Any) -> None:
    text = "compare the heads that witnesses and you see of a log; exit 1 on a split view"
    compare = _add_command(commands, "compare", text)
    compare.add_argument("--policy", required=True, metavar="FILE", help="the log, and the witnesses to ask")
    compare.add_argument("--origin", help="the log, of several in the policy")
    compare.add_argument(
        "--log", metavar="URL|DIR", help="where the log's tiles are, if not as in the policy"
    )
    compare.add_argument(
        "--note", action="append", default=[], metavar="FILE", help="a checkpoint that somebody else has seen"
    )
    compare.add_argument(
        "--keep", type=Path, metavar="DIR", help="remember the head for the next time; keep what splits there"
    )
    compare.add_argument("--deadline", type=float, default=20.0, metavar="SECONDS", help="for the witnesses")


def _add_state(commands: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser = _add_command(commands, name, help_text)
    parser.add_argument("--state", required=True, metavar="DIR", type=Path, help="the witness's own folder")
    return parser


def _add_command(commands: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return parser
