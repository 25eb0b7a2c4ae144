"""`muniment import FORMAT FILE`: facts from a file, with a progress bar on a terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

from memory import import_jsonl, wiring
from memory.cli_memory import show
from memory.principal import make_principal, owner_from_environment, with_all_scopes
from tlog.errors import MalformedError

FORMATS: Final = ("jsonl",)
_BAR_CHARACTERS: Final = 30


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `import`."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    parser.add_argument("format", metavar="FORMAT", choices=FORMATS, help="jsonl: one fact a line")
    parser.add_argument("file", metavar="FILE", help="the file; - reads standard input")


def run_command(args: argparse.Namespace) -> int:
    """Imports the file; exit code 2 if a line could not be taken, and the report says which."""
    with wiring.open_home(args.home) as home, _opened(args.file) as stream:
        report = import_stream(home, stream, _progress_bar(args.file))
    answer = report.describe()
    show(args, answer, _report_text)
    return 2 if report.not_taken else 0


def import_stream(home: Any, stream: BinaryIO, progress: Callable[[int], None]) -> import_jsonl.Report:
    """Remembers each line for the client it names, within the tenant and agent of the environment."""
    owner = owner_from_environment(os.environ)
    memories: dict[str | None, Any] = {}

    def memory_of(client: str | None) -> Any:
        if client not in memories:
            principal = owner
            if client is not None:
                principal = with_all_scopes(make_principal(owner.tenant, owner.agent, client))
            memories[client] = home.memory(principal)
        return memories[client]

    return import_jsonl.remember_lines(import_jsonl.parse_lines(stream), memory_of, progress)


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise MalformedError(f"expected FILE to be a readable file ({error.strerror})") from None


def _progress_bar(name: str) -> Callable[[int], None]:
    """Draws on standard error if that is a terminal and the file's lines can be counted; else says nothing."""
    if name == "-" or not sys.stderr.isatty():
        return lambda _: None
    with Path(name).open("rb") as stream:
        total = sum(1 for _ in stream) or 1

    def draw(number: int) -> None:
        if number % 20 and number != total:
            return
        done = _BAR_CHARACTERS * number // total
        bar = "#" * done + "." * (_BAR_CHARACTERS - done)
        sys.stderr.write(f"\r[{bar}] {number}/{total}" + ("\n" if number == total else ""))
        sys.stderr.flush()

    return draw


def _report_text(answer: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(answer["outcomes"].items()))
    erased = f" ({answer['erased']} of them erased since)" if answer["erased"] else ""
    lines = [
        f"{answer['lines']} lines: {answer['new']} new{f' ({counts})' if counts else ''}, "
        f"{answer['known']} there already{erased}"
    ]
    lines += [f"line {one['line']} not taken: {one['message']}" for one in answer["not_taken"]]
    return "\n".join(lines)
