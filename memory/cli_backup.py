"""`muniment backup` and `muniment restore`: the store, encrypted, to a file outside the home, and back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from memory import wiring
from memory.cli_memory import Answer, show
from memory.times import parse_duration

_KEEP: Final = "90d"


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of one of the two."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    if name == "backup":
        parser.add_argument("target", metavar="DIR|FILE", help="outside the home")
        parser.add_argument(
            "--keep", metavar="DURATION", default=_KEEP, help=f"how long it will be kept (default {_KEEP})"
        )
    else:
        parser.add_argument("file", metavar="FILE", help="a backup of this home, whose store is gone")
        parser.add_argument(
            "--declare-lost",
            action="store_true",
            help="say, in the log, that statements past the backup are lost; an audit finds it",
        )


def run_command(args: argparse.Namespace) -> int:
    """Runs one of the two on its home."""
    with wiring.open_home(args.home) as home:
        if args.command == "backup":
            from memory.backup import backup

            answer = backup(home, Path(args.target), parse_duration(args.keep, name="keep"))
            show(args, answer, _backup_text)
            return 0
        from memory import restore

        on_missing = restore.declare if args.declare_lost else restore.refuse
        answer = restore.restore(home, Path(args.file), on_missing)
        show(args, answer, _restore_text)
        return 0


def _backup_text(answer: Answer) -> str:
    return (
        f"{answer['statements']} statements in {answer['file']}\n"
        "to read it takes the keys of this home (keys/), which are not in it: keep a copy of them elsewhere, and"
        " none of keys/backup/, or what you erase can still be read"
    )


def _restore_text(answer: Answer) -> str:
    lines = [f"{answer['statements']} statements restored, {answer['manifests']} erasures done again"]
    if answer["unreadable"]:
        lines.append(f"{answer['unreadable']} records stay unreadable: their keys were destroyed")
    if answer["lost"]:
        lines.append(f"{answer['lost']} statements are declared lost; publish, and an audit will say so")
    return "\n".join(lines)
