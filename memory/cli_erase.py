"""The commands that erase: `forget` (preview, then its token) and `retention`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from memory import wiring
from memory.cli_memory import Answer, show
from memory.principal import owner_from_environment
from tlog.errors import MalformedError


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `forget` or `retention`."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    if name == "forget":
        _forget_options(parser)
    else:
        parser.add_argument("--superseded-older-than", metavar="DURATION", required=True, help="such as 90d")
        parser.add_argument("--apply", action="store_true", help="erase them; without it they are counted")


def run_command(args: argparse.Namespace) -> int:
    """Runs one of the two on its home."""
    with wiring.open_home(args.home) as home:
        memory = home.memory(owner_from_environment(os.environ))
        if args.command == "retention":
            answer = memory.retention(args.superseded_older_than, apply=args.apply)
            show(args, answer, lambda a: f"matched {a['matched']}, removed {a['removed']}")
            return 0
        return _forget(memory, args)


def _forget_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to erase (one of these)")
    what.add_argument("--id", action="append", metavar="ID", help="a fact; may be given several times")
    what.add_argument("--key", metavar="K", help="all facts of one key")
    what.add_argument("--subject", metavar="S", help="all facts about one subject, exactly; - reads stdin")
    what.add_argument("--all", action="store_true", help="all facts of this scope")
    parser.add_argument("--guard", metavar="keep|erase", help="whether retired values stay refused")
    parser.add_argument("--reason", metavar="CODE", help="the ground, as a code: data_subject, operator, …")
    parser.add_argument("--confirm", metavar="TOKEN", help="the token of the preview: erase for good")


def _forget(memory: Any, args: argparse.Namespace) -> int:
    from memory.cli_memory import read_argument

    given = {"id": args.id, "key": args.key, "subject": args.subject, "all": args.all or None}
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise MalformedError("expected exactly one of --id, --key, --subject and --all", code="usage")
    if "subject" in chosen:
        chosen["subject"] = read_argument(args.subject)
    options = {"guard": args.guard, "reason": args.reason}
    chosen |= {name: value for name, value in options.items() if value is not None}
    if args.confirm is None:
        show(args, memory.forget_preview(**chosen), _preview_text)
        return 0
    answer = memory.forget(confirm=args.confirm, **chosen)
    show(args, answer, _done_text)
    if answer["state"] != "closed_complete":
        print(f"muniment: the request stays open: {answer['state']}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _preview_text(answer: Answer) -> str:
    preview = answer["preview"]
    lines = [
        f"this would erase {preview['count']} statements for good: "
        + ", ".join(f"{count} {status}" for status, count in preview["by_status"].items()),
        *(f"  {one}" for one in preview["ids"]),
        f"value ledger: {preview['guard']}",
    ]
    if preview["mentions"]:
        lines.append("mentioned elsewhere, and NOT erased by this:")
        lines += [f"  {one['id'] if isinstance(one, dict) else one}" for one in preview["mentions"]]
    lines.append(
        f"nothing is deleted yet; until {answer['expires_at']} confirm with --confirm {answer['confirm']}"
    )
    return "\n".join(lines)


def _done_text(answer: Answer) -> str:
    return "\n".join(
        [
            f"erased {answer['erased']} statements; state {answer['state']}",
            f"manifest: {answer['manifest']}",
            "residue: " + ", ".join(f"{name} {value}" for name, value in answer["residue"].items()),
        ]
    )
