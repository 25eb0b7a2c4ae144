"""`muniment doctor` and `muniment completion`."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from memory.cli import print_json, print_text

_MARKS: Final = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL", "skipped": "-   "}


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of one of them."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    if name == "doctor":
        parser.add_argument("--deep", action="store_true", help="read every page of a large store too")
    else:
        from memory.completion import SHELLS

        parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
        parser.epilog = 'for example: eval "$(muniment completion bash)" in ~/.bashrc'


def run_command(args: argparse.Namespace) -> int:
    """Runs one of them."""
    return {"doctor": _doctor, "completion": _completion}[args.command](args)


def _doctor(args: argparse.Namespace) -> int:
    """Exit code 1 if something does not work; what only deserves a look is no failure."""
    from memory.diagnosis import describe
    from memory.doctor import examine

    answer = describe(examine(args.home, args.deep))
    if args.json:
        print_json(answer)
    else:
        print_text(_text(answer))
    return 1 if answer["verdict"] == "fail" else 0


def _text(answer: dict[str, Any]) -> str:
    lines = []
    for one in answer["checks"]:
        lines.append(f"{_MARKS[one['result']]} {one['check']:<18} {one['text']}")
        if one["do"]:
            lines.append(f"{'':<24}do: {one['do']}")
    return "\n".join(lines)


def _completion(args: argparse.Namespace) -> int:
    from memory.completion import make_script

    sys.stdout.write(make_script(args.shell))
    return 0
