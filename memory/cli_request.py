"""`muniment forget --request REFERENCE …`: what becomes of a request after its first manifest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from memory.cli_memory import Answer, show
from tlog.errors import MalformedError

_CLOSED: Final = frozenset({"closed_complete", "closed_denied", "withdrawn"})
_MAX_BYTES: Final = 64 * 1024 * 1024
_STEPS: Final = ("needles", "told", "withdraw", "deny", "confirm")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of these steps to `forget`."""
    again = parser.add_argument_group("what becomes of a request; --request alone shows how it stands")
    again.add_argument(
        "--request",
        metavar="REFERENCE",
        help="of the erasure, as it was answered; with --confirm, what a hold kept and has released is erased",
    )
    again.add_argument(
        "--needles", metavar="FILE|-", help="look again for words of what was erased, one a line; - is stdin"
    )
    again.add_argument(
        "--told", action="append", metavar="RECIPIENT", help="this recipient was told of the erasure"
    )
    again.add_argument("--withdraw", action="store_true", help="whoever asked has withdrawn the request")


def is_meant(args: argparse.Namespace) -> bool:
    """Whether the arguments are about a request that there is."""
    return args.request is not None or args.needles is not None or bool(args.told) or args.withdraw


def run(memory: Any, args: argparse.Namespace, others: dict[str, Any]) -> int:
    """Does one step with a request and gives the exit code: 1 while something of it is open or was kept."""
    steps = [step for step in _STEPS if getattr(args, step) not in (None, False, [])]
    if args.request is None or others or len(steps) > 1 or (args.identifier and steps != ["confirm"]):
        raise MalformedError(
            "expected --request with one of --needles, --told, --withdraw, --deny and --confirm, or alone",
            code="usage",
        )
    if not steps:
        answer = memory.request(args.request)
        show(args, answer, request_text)
        return 0
    doing: dict[str, Callable[[], Answer]] = {
        "needles": lambda: memory.look_again(args.request, _read_needles(args.needles)),
        "told": lambda: memory.told(args.request, args.told),
        "withdraw": lambda: memory.withdraw(args.request),
        "deny": lambda: memory.deny_rest(args.request, args.deny),
        "confirm": lambda: memory.forget_rest(
            args.request, confirm=args.confirm, identifiers=args.identifier or ()
        ),
    }
    answer = doing[steps[0]]()
    from memory.cli_erase import done_text

    show(args, answer, done_text)
    return 0 if answer["state"] in _CLOSED else 1


def next_steps(answer: Answer) -> Iterator[str]:
    """What a person can do about a request that is not closed, a command each."""
    command = f"muniment forget --request {answer['request']}"
    if answer["state"] in ("inconclusive", "failed", "awaiting_backups"):
        yield (
            "to look again, once what stood in the way is gone, with words of what was erased:"
            f" {command} --needles -"
        )
    if any(why["code"] == "legal_hold" for why in answer["why"]):
        yield f"to go on with what a hold keeps, once it is released: {command}"
    if any(why["code"] == "recipients_remain" for why in answer["why"]):
        yield f"once a recipient was told: {command} --told RECIPIENT; {command} lists them"


def request_text(answer: Answer) -> str:
    """How a request stands, for a person."""
    due = f"; due {answer['due_at']}{' (OVERDUE)' if answer['overdue'] else ''}" if answer["due_at"] else ""
    left = answer["left"]
    lines = [
        f"request {answer['request']}: {answer['state']}{due}",
        answer["message"],
        f"manifests: {', '.join(map(str, answer['manifests']))}",
        *(f"not complete: {why['text']}" for why in answer["why"]),
        *(
            f"recipient {one['recipient']} ({one['kind']}): {'told ' + one['told_at'] if one['told'] else 'not told'}"
            for one in answer["recipients"]
        ),
    ]
    if left["held"]:
        lines.append(f"{left['held']} records are under a legal hold still")
    if left["ids"]:
        lines.append("a hold kept these and has let them go:")
        lines += [f"  {one}" for one in left["ids"]]
        lines.append(
            f"until {answer['expires_at']} erase them with --request {answer['request']}"
            f" --confirm {answer['confirm']}"
        )
    return "\n".join(lines)


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
