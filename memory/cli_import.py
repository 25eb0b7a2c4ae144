"""`muniment import FORMAT FILE`: facts from a file, with a progress bar on a terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from memory import wiring
from memory.cli_memory import show
from memory.import_report import Item, Line, Remembered, Report, count_items, remember_lines
from memory.model import Principal
from memory.principal import make_principal, owner_from_environment, with_all_scopes
from tlog.errors import Error, MalformedError

FORMATS: Final[Mapping[str, str]] = {
    "jsonl": "one fact a line, as docs/formats/jsonl.md says",
    "mcp-memory": "the memory file of the reference MCP memory server",
    "mem0": "a mem0 export (JSON)",
    "basic-memory": "a Markdown note, or a folder of them",
    "inspeximus": "an inspeximus store",
    "claude-code": "a session of Claude Code (JSON lines), or a folder of them",
    "chatgpt": "conversations.json of a ChatGPT export",
}
MAX_FILE_BYTES: Final = 1 << 30
MAX_LINE_BYTES: Final = 64 << 20
_BAR_CHARACTERS: Final = 30


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `import`."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(
        name,
        help=COMMANDS[name][3],
        description=COMMANDS[name][3],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="formats:\n" + "\n".join(f"  {form:<13} {what}" for form, what in FORMATS.items()),
    )
    parser.add_argument("format", metavar="FORMAT", choices=tuple(FORMATS), help="what FILE is: see below")
    parser.add_argument("file", metavar="FILE", help="the file or folder; - reads standard input")
    parser.add_argument(
        "--only", metavar="TENANT/AGENT", help="of an inspeximus store: the records of this tenant and agent"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be taken, and write nothing")


def run_command(args: argparse.Namespace) -> int:
    """Imports the file; exit code 2 if an item could not be taken, and the report says which."""
    if args.only is not None and args.format != "inspeximus":
        raise MalformedError("expected --only with inspeximus alone")
    items = read_items(args.format, args.file, args.only)
    if args.dry_run:
        report = count_items(items)
    else:
        with wiring.open_home(args.home) as home:
            report = remember_items(home, items, _progress_bar(args.format, args.file))
    show(args, report.describe(), _report_text)
    return 2 if report.not_taken else 0


def remember_items(home: Any, items: Iterable[Item], progress: Callable[[int], None]) -> Report:
    """Remembers each item for the client it names, within the tenant and agent of the environment."""
    from memory.remember_many import remember_many

    owner = owner_from_environment(os.environ)

    @cache
    def principal_of(client: str | None) -> Principal:
        if client is None:
            return owner
        return with_all_scopes(make_principal(owner.tenant, owner.agent, client))

    def write(lines: Sequence[Line]) -> Iterable[Remembered | Error]:
        return remember_many(home.parts(), [(principal_of(line.client), line.arguments) for line in lines])

    return remember_lines(items, write, progress)


def read_items(form: str, name: str, only: str | None = None) -> Iterable[Item]:
    """The items of a file or folder in one of the FORMATS."""
    if form == "jsonl":
        from memory.import_jsonl import parse_lines

        return parse_lines(_lines([name]))
    if form == "mcp-memory":
        from memory.import_graph import parse_graph

        return parse_graph(_lines([name]))
    if form == "claude-code":
        from memory.import_chats import parse_claude

        return parse_claude(_lines(_paths(name, "*.jsonl")))
    if form == "basic-memory":
        from memory.import_notes import parse_notes

        return parse_notes((Path(path).stem, _whole(path)) for path in _paths(name, "*.md"))
    if form == "inspeximus":
        from memory.import_inspeximus import parse_inspeximus

        return parse_inspeximus(Path(name), only)
    if form == "mem0":
        from memory.import_mem0 import parse_mem0

        return parse_mem0(_whole(name))
    from memory.import_chats import parse_chatgpt

    return parse_chatgpt(_whole(name))


def _paths(name: str, pattern: str) -> list[str]:
    """The file itself, or those of a folder that have such a name, in order."""
    if name == "-" or not Path(name).is_dir():
        return [name]
    found = sorted(str(path) for path in Path(name).rglob(pattern) if path.is_file())
    if not found:
        raise MalformedError(f"expected files named {pattern} in that folder")
    return found


def _lines(names: Sequence[str]) -> Iterator[bytes]:
    """The lines of files, one file after the other; the first is opened at once, so that a wrong name is an error."""
    first = _opened(names[0])

    def lines() -> Iterator[bytes]:
        with first:
            yield from _bounded(first)
        for name in names[1:]:
            with _opened(name) as stream:
                yield from _bounded(stream)

    return lines()


def _bounded(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream; of one that is too long its beginning, which is no JSON and so is said not to be taken."""
    while line := stream.readline(MAX_LINE_BYTES):
        yield line
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE_BYTES)


def _whole(name: str) -> bytes:
    with _opened(name) as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise MalformedError(f"expected FILE to have at most {MAX_FILE_BYTES >> 20} MiB")
    return data


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise MalformedError(f"expected FILE to be a readable file ({error.strerror})") from None


def _progress_bar(form: str, name: str) -> Callable[[int], None]:
    """Draws on standard error if that is a terminal and the items can be counted; else says nothing."""
    if name == "-" or not sys.stderr.isatty():
        return lambda _: None
    if form not in ("jsonl", "mcp-memory") or not Path(name).is_file():
        return _draw_count
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


def _draw_count(number: int) -> None:
    if number % 20 == 0:
        sys.stderr.write(f"\r{number} items")
        sys.stderr.flush()


def _report_text(answer: dict[str, Any]) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(answer["outcomes"].items()))
    erased = f" ({answer['erased']} of them erased since)" if answer["erased"] else ""
    lines = [
        f"{answer['lines']} lines: {answer['new']} new{f' ({counts})' if counts else ''}, "
        f"{answer['known']} there already{erased}"
    ]
    lines += [f"skipped: {count} × {what}" for what, count in sorted(answer["skipped"].items())]
    lines += [f"line {one['line']} not taken: {one['message']}" for one in answer["not_taken"]]
    return "\n".join(lines)
