"""The commands that erase: `forget` (preview, then its token) and `retention`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from memory import wiring
from memory.cli_memory import Answer, show
from memory.principal import owner_from_environment
from tlog.errors import MalformedError

COMPLETE: Final = "closed_complete"
_OPEN: Final = "inconclusive"
_MAX_BYTES: Final = 64 * 1024 * 1024


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
            show(args, answer, _retention_text)
            return 0 if answer.get("state", COMPLETE) == COMPLETE else 1
        return _forget(memory, args)


def _retention_text(answer: Answer) -> str:
    state = f"; state {answer['state']}, manifest {answer['manifest']}" if "state" in answer else ""
    return f"matched {answer['matched']}, removed {answer['removed']}{state}"


def _forget_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to erase (one of these)")
    what.add_argument("--id", action="append", metavar="ID", help="a fact; may be given several times")
    what.add_argument("--key", metavar="K", help="all facts of one key")
    what.add_argument("--subject", metavar="S", help="all facts about one subject, exactly; - reads stdin")
    what.add_argument("--all", action="store_true", help="all facts of this scope")
    parser.add_argument("--guard", metavar="keep|erase", help="whether retired values stay refused")
    parser.add_argument("--reason", metavar="CODE", help="the ground, as a code: data_subject, operator, …")
    parser.add_argument("--confirm", metavar="TOKEN", help="the token of the preview: erase for good")
    again = parser.add_argument_group("to look again after an erasure that ended inconclusive")
    again.add_argument("--request", metavar="REFERENCE", help="of the erasure, as it was answered")
    again.add_argument(
        "--needles", metavar="FILE|-", help="words of what was erased, one a line; - is standard input"
    )


def _forget(memory: Any, args: argparse.Namespace) -> int:
    from memory.cli_memory import read_argument

    given = {"id": args.id, "key": args.key, "subject": args.subject, "all": args.all or None}
    chosen = {name: value for name, value in given.items() if value is not None}
    if args.request is not None or args.needles is not None:
        return _look_again(memory, args, chosen)
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
    return 0 if answer["state"] == COMPLETE else 1


def _look_again(memory: Any, args: argparse.Namespace, chosen: dict[str, Any]) -> int:
    others = (args.guard, args.reason, args.confirm)
    if chosen or args.request is None or args.needles is None or any(one is not None for one in others):
        raise MalformedError("expected --request with --needles and nothing else", code="usage")
    answer = memory.look_again(args.request, _read_needles(args.needles))
    show(args, answer, _done_text)
    return 0 if answer["state"] == COMPLETE else 1


def _read_needles(source: str) -> list[str]:
    """The words to look for; they stay in memory, and in no argument list."""
    try:
        data = sys.stdin.buffer.read(_MAX_BYTES) if source == "-" else Path(source).read_bytes()[:_MAX_BYTES]
        lines = data.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise MalformedError(
            "expected --needles to be a readable file of words in UTF-8, one a line"
        ) from None
    return [line.strip() for line in lines if line.strip()]


def _preview_text(answer: Answer) -> str:
    preview = answer["preview"]
    counts = ", ".join(f"{count} {status}" for status, count in preview["by_status"].items())
    lines = [
        f"this would erase {_many(preview['count'], 'statement')} for good{': ' if counts else ''}{counts}",
        *(f"  {one}" for one in preview["ids"]),
        f"and {preview['derived']} with them: copies that were refused or held, and what was done to them alone",
        f"value ledger: {preview['guard']} ({_many(preview['ledger'], 'entry', 'entries')})",
    ]
    if preview["openings"]:
        lines.append(_openings_line(preview["openings"]))
    if preview["mentions"]:
        lines.append("mentioned elsewhere, and NOT erased by this:")
        lines += [f"  {one['id']}" for one in preview["mentions"]]
    lines.append(
        f"nothing is deleted yet; until {answer['expires_at']} confirm with --confirm {answer['confirm']}"
    )
    return "\n".join(lines)


def _done_text(answer: Answer) -> str:
    residue = {name: value for name, value in answer["residue"].items() if name != "found"}
    lines = [
        f"erased {_many(answer['erased'], 'statement')}; state {answer['state']}",
        answer["message"],
        f"manifest: {answer['manifest']}",
        "checks: " + ", ".join(f"{name} {result}" for name, result in answer["checks"].items()),
        "residue: " + ", ".join(f"{name} {value}" for name, value in residue.items()),
        *(f"  found: {one['class']}, {one['count']} times" for one in answer["residue"]["found"]),
    ]
    # What the mentions are is said with how to finish.
    lines += [f"not complete: {why['text']}" for why in answer["why"] if why["code"] != "mentions_elsewhere"]
    if answer["state"] == _OPEN:
        lines.append(
            "to look again, once what stood in the way is gone, with words of what was erased:"
            f" muniment forget --request {answer['request']} --needles -"
        )
    if answer["openings"]:
        lines.append(_openings_line(answer["openings"]))
    if answer["mentions"]:
        ids = [one["id"] for one in answer["mentions"]]
        one, several = "record names the subject and was kept", "records name the subject and were kept"
        lines.append(f"not complete: {_many(len(ids), f'other {one}', f'other {several}')}")
        lines.append("to erase them, too: muniment forget" + "".join(f" --id {id}" for id in ids))
    return "\n".join(lines)


def _openings_line(count: int) -> str:
    return (
        f"{_many(count, 'opening')} of these {'was' if count == 1 else 'were'} given out: whoever has one can prove"
        " its content for ever"
    )


def _many(count: int, one: str, several: str | None = None) -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
