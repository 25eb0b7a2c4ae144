"""The commands that write and read facts: their options, and how their answers look to a person."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from memory import wiring
from memory.cli import print_json, print_text
from memory.principal import owner_from_environment
from tlog.errors import MalformedError

Answer = dict[str, Any]
_REFUSED_OUTCOMES: Final = ("refused", "held")
_MAKES_HOME: Final = ("remember",)


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of one of these commands."""
    from memory.cli import COMMANDS

    _PARSERS[name](subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3]))


def run_command(args: argparse.Namespace) -> int:
    """Runs one of these commands on its home."""
    if args.command == "init":
        return _init(args)
    # A misspelt folder is not answered with an empty memory made for it.
    opened = wiring.open_home if args.command in _MAKES_HOME else wiring.open_existing_home
    with opened(args.home) as home:
        memory = home.memory(owner_from_environment(os.environ))
        return _RUNNERS[args.command](memory, args)


def read_argument(text: str) -> str:
    """`text`, or standard input for `-`: an argument list is residue too."""
    if text != "-":
        return text
    data = sys.stdin.buffer.read(1024 * 1024 + 1)
    if len(data) > 1024 * 1024:
        raise MalformedError("expected at most 1 MiB on standard input")
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise MalformedError("expected UTF-8 on standard input") from None


def show(args: argparse.Namespace, answer: Answer, render: Callable[[Answer], str]) -> None:
    """Writes the answer as JSON, or as text for a person."""
    if args.json:
        print_json(answer)
    else:
        print_text(render(answer))


def fact_line(fact: Answer) -> str:
    """One fact on one line."""
    key = f"{fact['key']} = " if fact.get("key") else ""
    words = next((fact[name] for name in ("value", "text") if fact.get(name) is not None), "(no content)")
    receipt = (fact.get("receipt") or {}).get("state", "")
    return f"{fact['id']}  {fact['status']:<10} {key}{words}  [{fact.get('client') or '-'}, {receipt}]"


def _facts_text(facts: list[Answer], nothing: str) -> str:
    return "\n".join(fact_line(fact) for fact in facts) or nothing


# --- options -------------------------------------------------------------------------------------------------


def _init_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--origin", metavar="NAME", help="the origin of the log (default: a random name)")
    parser.add_argument("--policy", metavar="FILE", help="a C2SP witness policy the log has to satisfy")
    parser.add_argument("--database", metavar="DSN", help="a PostgreSQL database for the store (no password)")
    parser.add_argument("--log-storage", metavar="URL", help="a bucket for the log, as s3://bucket/prefix")


def _remember_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", help="the fact as one sentence; - reads standard input")
    parser.add_argument("--key", help="what the fact is about, such as checkout-api/region")
    parser.add_argument("--value", help="the value alone; - reads standard input")
    parser.add_argument("--subject", help="the person or thing concerned")
    parser.add_argument("--source", metavar="S", help="where it comes from, as a document or an address")
    parser.add_argument("--valid-from", metavar="T", help="since when it is true")
    parser.add_argument("--valid-until", metavar="T", help="until when it is true")
    parser.add_argument("--provisional", action="store_true", help="a guess: held until confirmed")
    parser.add_argument("--many", action="store_true", help="the key has many values at once")
    parser.add_argument("--restatement", action="store_true", help="says again what is known")
    parser.add_argument("--idempotency-key", metavar="I", help="same key and body: same answer")
    parser.add_argument("--reaffirm", metavar="TOKEN", help="lifts the refusal that gave this token")
    parser.add_argument("--reason", metavar="R", help="why the refused value holds again")
    parser.add_argument("--wait", choices=("logged", "witnessed"), help="publish now, and wait for that")


def _read_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as-of", metavar="T", help="what was true then")
    parser.add_argument("--as-recorded", metavar="T", help="what this memory believed then")
    _owner_option(parser)


def _owner_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="AGENT", help="read the memory of another agent, by its grant")


def _provenance_options(parser: argparse.ArgumentParser) -> None:
    _id_option(parser)
    _owner_option(parser)


def _grant_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", help="who may read; without it grants are told")


def _recall_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="any words; - reads standard input")
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="at most N facts (default 10)")
    parser.add_argument("--include-history", action="store_true", help="also what is no longer true")
    parser.add_argument("--explain", action="store_true", help="why each fact ranks where it does")
    _read_times(parser)


def _get_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY")
    _read_times(parser)


def _id_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")


def _resolve_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("conflict", metavar="CONFLICT", help="id of the conflict")
    parser.add_argument("--keep", required=True, metavar="ID", help="the fact that holds")


def _review_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--confirm", metavar="ID", help="serve a held fact")
    what.add_argument(
        "--promote", metavar="ID", help="serve what waits because of who said it, or as a guess"
    )
    what.add_argument("--discard", metavar="ID", help="drop a held fact")
    what.add_argument("--reaffirm", metavar="ID", help="lift a refusal")
    parser.add_argument("--reason", metavar="R", help="why the refused value holds again")
    parser.add_argument("--shown", metavar="CODE", help="the code that the list has with it (for --reaffirm)")


def _no_options(_: argparse.ArgumentParser) -> None:
    return None


def _file_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")


def _receipt_options(parser: argparse.ArgumentParser) -> None:
    _file_options(parser)
    parser.add_argument("--format", choices=("cose", "tlog-proof"), default="cose")


# --- runners -------------------------------------------------------------------------------------------------


def _init(args: argparse.Namespace) -> int:
    policy = None
    if args.policy:
        try:
            policy = Path(args.policy).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise MalformedError("expected --policy to name a readable C2SP policy file") from None
    places = {"database": args.database, "log_storage": args.log_storage}
    with wiring.init_home(args.home, origin=args.origin, policy_text=policy, **places) as home:
        show(args, home.describe(), lambda a: "\n".join(f"{name}: {value}" for name, value in a.items()))
    return 0


def _remember(memory: Any, args: argparse.Namespace) -> int:
    if args.text == "-" and args.value == "-":
        raise MalformedError("expected only one of TEXT and --value to be -")
    answer = memory.remember(
        read_argument(args.text),
        key=args.key,
        value=None if args.value is None else read_argument(args.value),
        subject=args.subject,
        valid_from=args.valid_from,
        valid_until=args.valid_until,
        provisional=args.provisional,
        many=args.many,
        restatement=args.restatement,
        source=args.source,
        idempotency_key=args.idempotency_key,
        reaffirm=args.reaffirm,
        reason=args.reason,
        wait=args.wait,
    )
    show(args, answer, _remember_text)
    return 1 if answer["outcome"] in _REFUSED_OUTCOMES else 0


def _remember_text(answer: Answer) -> str:
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    lines = [f"{answer['outcome']}{reason}: {answer['message']}"]
    if answer.get("id"):
        lines.append(f"id: {answer['id']}")
    if answer.get("reaffirm"):
        lines.append(f"to say that it holds again: --reaffirm {answer['reaffirm']} --reason WHY")
    return "\n".join(lines)


def _recall(memory: Any, args: argparse.Namespace) -> int:
    answer = memory.recall(
        read_argument(args.query),
        limit=args.limit,
        as_of=args.as_of,
        as_recorded=args.as_recorded,
        include_history=args.include_history,
        explain=args.explain,
        owner=args.owner,
    )
    from memory.recall_text import recall_text

    show(args, answer, lambda a: recall_text(a["facts"], fact_line))
    return 0


def _get(memory: Any, args: argparse.Namespace) -> int:
    answer = memory.get(args.key, as_of=args.as_of, as_recorded=args.as_recorded, owner=args.owner)
    show(args, answer, _get_text)
    return 0


def _get_text(answer: Answer) -> str:
    if answer["current"] is not None:
        return str(answer["current"])
    if answer["conflict"]:
        return "clients disagree:\n" + _facts_text(answer["active"], "")
    if answer.get("content_erased"):
        return "erased: only an erased statement could answer this"
    if answer.get("withheld") and not answer["active"]:
        return "withheld: what would answer this is under a legal hold, or past its retention"
    return _facts_text(answer["active"], "no current value")


def _history(memory: Any, args: argparse.Namespace) -> int:
    answer = memory.history(args.key, as_of=args.as_of, as_recorded=args.as_recorded, owner=args.owner)
    show(args, answer, lambda a: _facts_text(a["facts"], "nothing was said about this key"))
    return 0


def _provenance(memory: Any, args: argparse.Namespace) -> int:
    from memory.provenance_text import provenance_text

    show(args, memory.provenance(args.id, owner=args.owner), provenance_text)
    return 0


def _retract(memory: Any, args: argparse.Namespace) -> int:
    show(args, memory.retract(args.id), lambda a: f"{a['id']} is {a['status']}")
    return 0


def _conflicts(memory: Any, args: argparse.Namespace) -> int:
    show(args, memory.conflicts(owner=args.owner), _conflicts_text)
    return 0


def _conflicts_text(answer: Answer) -> str:
    blocks = [
        f"conflict {c['id']} on {c['key']}, since {c['opened_at']}:\n"
        + "\n".join("  " + fact_line(fact) for fact in c["facts"])
        for c in answer["conflicts"]
    ]
    return "\n".join(blocks) or "no open conflict"


def _grant(memory: Any, args: argparse.Namespace) -> int:
    if args.agent is None:
        show(args, memory.grants(), _grants_text)
    else:
        show(args, memory.grant(args.agent), lambda a: f"granted: {a['id']} (muniment revoke {a['id']})")
    return 0


def _grants_text(answer: Answer) -> str:
    lines = [
        f"{one['id']}  {one['owner']} lets {one['reader']} read"
        for one in (*answer["made"], *answer["given"])
    ]
    return "\n".join(lines) or "no grant in this scope"


def _revoke(memory: Any, args: argparse.Namespace) -> int:
    show(args, memory.revoke(args.id), lambda a: f"{a['id']} is {a['status']}")
    return 0


def _resolve(memory: Any, args: argparse.Namespace) -> int:
    show(args, memory.resolve(args.conflict, args.keep), lambda a: f"{a['id']} is {a['status']}")
    return 0


def _review(memory: Any, args: argparse.Namespace) -> int:
    if args.confirm:
        answer = memory.confirm(args.confirm)
    elif args.promote:
        answer = memory.promote(args.promote)
    elif args.discard:
        answer = memory.discard(args.discard)
    elif args.reaffirm:
        answer = memory.reaffirm(args.reaffirm, args.reason, args.shown)
    else:
        show(args, memory.review(), _review_text)
        return 0
    show(args, answer, lambda a: f"{a['id']} is {a['status']}")
    return 0


def _review_text(answer: Answer) -> str:
    lines = []
    for fact in answer["facts"]:
        now = "" if fact["current"] is None else f", now {fact['current']['value']}"
        code = "" if fact["shown"] is None else f", --shown {fact['shown']}"
        lines.append(f"{fact_line(fact)}  ({fact['reason']}{now}{code})")
    return "\n".join(lines) or "nothing waits for review"


def _status(memory: Any, args: argparse.Namespace) -> int:
    show(args, memory.status(), lambda a: "\n".join(f"{name}: {value}" for name, value in a.items()))
    return 0


def write_output(args: argparse.Namespace, data: bytes, summary: Answer) -> None:
    """Writes bytes to -o or to standard output; with --json and -o, says so as one document."""
    if args.output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        Path(args.output).write_bytes(data)
    except OSError as error:
        raise MalformedError(f"expected -o to be a file that can be written ({error.strerror})") from None
    show(args, {**summary, "file": args.output, "bytes": len(data)}, lambda a: f"wrote {a['file']}")


def _receipt(memory: Any, args: argparse.Namespace) -> int:
    data = memory.receipt(args.id, format=args.format)
    write_output(args, data, {"id": args.id, "format": args.format})
    return 0


def _opening(memory: Any, args: argparse.Namespace) -> int:
    given = memory.give_opening(args.id)
    print(  # noqa: T201 -- the command's voice for people
        "whoever has this file can prove this content for ever, also after an erasure; it is noted as given to"
        f" recipient {given.recipient}",
        file=sys.stderr,
    )
    write_output(args, given.file, {"id": args.id, "recipient": given.recipient})
    return 0


_PARSERS: Final[dict[str, Callable[[argparse.ArgumentParser], None]]] = {
    "init": _init_options,
    "remember": _remember_options,
    "recall": _recall_options,
    "get": _get_options,
    "history": _get_options,
    "provenance": _provenance_options,
    "grant": _grant_options,
    "revoke": _id_option,
    "retract": _id_option,
    "conflicts": _owner_option,
    "resolve": _resolve_options,
    "review": _review_options,
    "status": _no_options,
    "receipt": _receipt_options,
    "opening": _file_options,
}
_RUNNERS: Final[dict[str, Callable[[Any, argparse.Namespace], int]]] = {
    "remember": _remember,
    "recall": _recall,
    "get": _get,
    "history": _history,
    "provenance": _provenance,
    "retract": _retract,
    "grant": _grant,
    "revoke": _revoke,
    "conflicts": _conflicts,
    "resolve": _resolve,
    "review": _review,
    "status": _status,
    "receipt": _receipt,
    "opening": _opening,
}
