"""The commands that erase, and that keep from erasing: `forget`, `retention`, `hold`, `release`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from memory import cli_request, wiring
from memory.cli_memory import Answer, read_argument, show
from memory.erase_request import SELECTORS
from memory.principal import owner_from_environment
from tlog.errors import MalformedError

COMPLETE: Final = "closed_complete"
_BAR: Final = 32


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of one of these commands."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    _OPTIONS[name](parser)


def run_command(args: argparse.Namespace) -> int:
    """Runs one of these commands on its home."""
    with wiring.open_existing_home(args.home) as home:
        memory = home.memory(owner_from_environment(os.environ))
        return _RUNNERS[args.command](memory, args)


def _retention_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--superseded-older-than",
        metavar="DURATION",
        help="also what was superseded so long ago, such as 90d",
    )
    parser.add_argument("--apply", action="store_true", help="erase them; without it they are counted")


def _retention(memory: Any, args: argparse.Namespace) -> int:
    answer = memory.retention(args.superseded_older_than, apply=args.apply, progress=_progress(args.apply))
    show(args, answer, _retention_text)
    return 0 if answer.get("state", COMPLETE) == COMPLETE else 1


def _progress(apply: bool) -> Callable[[int, int], None]:
    """A bar on standard error, for a person who waits: nothing where nobody looks, or nothing is erased."""
    if not apply or not sys.stderr.isatty():
        return lambda done, total: None

    def draw(done: int, total: int) -> None:
        width = _BAR * done // total if total else _BAR
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r[{'#' * width}{'.' * (_BAR - width)}] {done} of {total} erased{end}")
        sys.stderr.flush()

    return draw


def _retention_text(answer: Answer) -> str:
    state = f"; state {answer['state']}" if "state" in answer else ""
    manifest = f", manifest {answer['manifest']}" if "manifest" in answer else ""
    why = "".join(f"\n  {one['text']}" for one in answer.get("why", ()))
    whose = "every tenant and agent" if answer["covers"] == "home" else "this agent alone"
    return f"matched {answer['matched']}, removed {answer['removed']}, of {whose}{state}{manifest}{why}"


def _selectors(parser: argparse.ArgumentParser, doing: str) -> None:
    what = parser.add_argument_group(f"what to {doing} (several narrow each other; an id stands alone)")
    what.add_argument("--id", action="append", metavar="ID", help="a fact; may be given several times")
    what.add_argument("--key", metavar="K", help="all facts of one key")
    what.add_argument("--subject", metavar="S", help="all facts about one subject, exactly; - reads stdin")
    what.add_argument("--value", metavar="V", help="all facts that say this; - reads stdin")
    what.add_argument("--recorded-from", metavar="T", help="what was recorded then or later")
    what.add_argument("--recorded-until", metavar="T", help="what was recorded before")
    what.add_argument("--all", action="store_true", help="all facts of this scope")
    what.add_argument("--tenant", action="store_true", help="all facts of all agents of this tenant")


def _forget_options(parser: argparse.ArgumentParser) -> None:
    _selectors(parser, "erase")
    parser.add_argument(
        "--identifier",
        action="append",
        metavar="I",
        help="another name of the subject, to look for elsewhere",
    )
    parser.add_argument("--guard", metavar="keep|erase", help="whether retired values stay refused")
    parser.add_argument("--reason", metavar="CODE", help="the ground, as a code: data_subject, operator, …")
    parser.add_argument("--confirm", metavar="TOKEN", help="the token of the preview: erase for good")
    parser.add_argument("--received-at", metavar="T", help="when somebody asked for it; now for data_subject")
    parser.add_argument("--due-at", metavar="T", help="until when it has to be answered; a month after that")
    parser.add_argument(
        "--deny", metavar="CODE", help="deny it, with the reason as a code: legal_obligation, unfounded, …"
    )
    cli_request.add_options(parser)


def _hold_options(parser: argparse.ArgumentParser) -> None:
    _selectors(parser, "hold; without any, the holds in force are listed")
    parser.add_argument("--authority", metavar="A", help="by whose order; - reads stdin")
    parser.add_argument("--review-by", metavar="T", help="when somebody has to look at it again")


def _release_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="HOLD", help="the hold to end")
    parser.add_argument("--authority", metavar="A", required=True, help="by whose order; - reads stdin")


def _chosen(args: argparse.Namespace) -> dict[str, Any]:
    """The selectors that were given."""
    given: dict[str, Any] = {name: getattr(args, name) for name in SELECTORS}
    given |= {name: given[name] or None for name in ("all", "tenant")}
    chosen = {name: value for name, value in given.items() if value is not None}
    if ("id" in chosen and len(chosen) > 1) or (len(chosen) > 1 and "all" in chosen and "subject" in chosen):
        raise MalformedError("expected --id alone, and --all without --subject", code="usage")
    read = [name for name in ("subject", "value") if chosen.get(name) == "-"]
    if len(read) > 1:
        raise MalformedError("expected only one of --subject and --value to be -", code="usage")
    return chosen | {name: read_argument("-") for name in read}


def _hold(memory: Any, args: argparse.Namespace) -> int:
    chosen = _chosen(args)
    if not chosen and args.authority is None and args.review_by is None:
        show(args, memory.holds(), _holds_text)
        return 0
    if not chosen or args.authority is None or args.review_by is None:
        raise MalformedError("expected what to hold, with --authority and --review-by", code="usage")
    answer = memory.hold(authority=read_argument(args.authority), review_by=args.review_by, **chosen)
    show(args, answer, _hold_text)
    return 0


def _release(memory: Any, args: argparse.Namespace) -> int:
    answer = memory.release(args.id, read_argument(args.authority))
    show(args, answer, lambda a: f"hold {a['id']} is released")
    return 0


def _hold_text(answer: Answer) -> str:
    return (
        f"{many(answer['held'], 'record')} kept and not used, to be reviewed by {answer['review_by']}\n"
        f"to let them go: muniment release {answer['id']} --authority …"
    )


def _holds_text(answer: Answer) -> str:
    lines = [
        f"{one['id']}  {many(one['facts'], 'record')}, review by {one['review_by']}"
        f"{' (OVERDUE)' if one['overdue'] else ''}: {one['authority']}"
        for one in answer["holds"]
    ]
    return "\n".join(lines) or "no hold is in force"


def _forget(memory: Any, args: argparse.Namespace) -> int:
    chosen = _chosen(args)
    options = {name: getattr(args, name) for name in ("guard", "reason", "received_at", "due_at")}
    if cli_request.is_meant(args):
        return cli_request.run(
            memory, args, {**chosen, **{n: v for n, v in options.items() if v is not None}}
        )
    if not chosen:
        raise MalformedError("expected what to erase, such as --subject or --id", code="usage")
    options["identifiers"] = args.identifier
    chosen |= {name: value for name, value in options.items() if value is not None}
    if args.deny is not None:
        if args.confirm is not None:
            raise MalformedError("expected --deny without --confirm: nothing is erased", code="usage")
        show(args, memory.deny(args.deny, **chosen), done_text)
        return 0
    if args.confirm is None:
        show(args, memory.forget_preview(**chosen), _preview_text)
        return 0
    answer = memory.forget(confirm=args.confirm, **chosen)
    show(args, answer, done_text)
    return 0 if answer["state"] == COMPLETE else 1


def _preview_text(answer: Answer) -> str:
    preview = answer["preview"]
    counts = ", ".join(f"{count} {status}" for status, count in preview["by_status"].items())
    lines = [
        f"this would erase {many(preview['count'], 'statement')} for good{': ' if counts else ''}{counts}",
        *(f"  {one}" for one in preview["ids"]),
        f"and {preview['derived']} with them: copies that were refused or held, and what was done to them alone",
        f"value ledger: {preview['guard']} ({many(preview['ledger'], 'entry', 'entries')})",
    ]
    if preview["held"]:
        lines.append(f"NOT erased by this: {many(preview['held'], 'record')} under a legal hold")
    if preview["openings"]:
        lines.append(openings_line(preview["openings"]))
    if preview["mentions"]:
        lines.append("mentioned elsewhere, and NOT erased by this:")
        lines += [f"  {one['id']}" for one in preview["mentions"]]
    if preview.get("mentions_not_shown"):
        lines.append(_others_line(preview["mentions_not_shown"]))
    lines.append(
        f"nothing is deleted yet; until {answer['expires_at']} confirm with --confirm {answer['confirm']}"
    )
    return "\n".join(lines)


def done_text(answer: Answer) -> str:
    residue = {name: value for name, value in answer["residue"].items() if name != "found"}
    lines = [
        f"erased {many(answer['erased'], 'statement')}; state {answer['state']}",
        answer["message"],
        f"manifest: {answer['manifest']}",
        *_checks(answer["checks"], residue),
        *(f"  found: {one['class']}, {one['count']} times" for one in answer["residue"]["found"]),
    ]
    # What the mentions are is said with how to finish.
    lines += [f"not complete: {why['text']}" for why in answer["why"] if why["code"] != "mentions_elsewhere"]
    lines += cli_request.next_steps(answer)
    if answer.get("claim"):
        lines.append(
            f"claim: {answer['claim']}, shown once: it shows that the manifest is yours (verify --claim)"
        )
    if answer["backups"]:
        lines.append(f"{many(answer['backups'], 'backup')} held it, and can't be read for it any more")
    if answer["openings"]:
        lines.append(openings_line(answer["openings"]))
    if answer["mentions"]:
        ids = [one["id"] for one in answer["mentions"]]
        one, several = "record names the subject and was kept", "records name the subject and were kept"
        lines.append(f"not complete: {many(len(ids), f'other {one}', f'other {several}')}")
        lines.append("to erase them, too: muniment forget" + "".join(f" --id {id}" for id in ids))
    if answer.get("mentions_not_shown"):
        lines.append(_others_line(answer["mentions_not_shown"]))
    return "\n".join(lines)


def _checks(checks: dict[str, str], residue: dict[str, Any]) -> list[str]:
    """What was checked, where anything was erased."""
    if not checks:
        return []
    return [
        "checks: " + ", ".join(f"{name} {result}" for name, result in checks.items()),
        "residue: " + ", ".join(f"{name} {value}" for name, value in residue.items()),
    ]


def _others_line(count: int) -> str:
    return f"NOT erased by this: {many(count, 'record')} of other agents of the tenant that mention it"


def openings_line(count: int) -> str:
    return (
        f"{many(count, 'opening')} of these {'was' if count == 1 else 'were'} given out: whoever has one can prove"
        " its content for ever"
    )


def many(count: int, one: str, several: str | None = None) -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


_OPTIONS: Final[dict[str, Callable[[argparse.ArgumentParser], None]]] = {
    "forget": _forget_options,
    "retention": _retention_options,
    "hold": _hold_options,
    "release": _release_options,
}
_RUNNERS: Final[dict[str, Callable[[Any, argparse.Namespace], int]]] = {
    "forget": _forget,
    "retention": _retention,
    "hold": _hold,
    "release": _release,
}
