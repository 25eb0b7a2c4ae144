"""The `muniment` command: finds the module of a command, loads only that, and turns errors into exit codes.

Exit codes: 0 done, holds, or read to the end; 1 refused, held, does not verify, findings; 2 bad input or usage;
3 temporary, retry.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

from tlog.errors import Error, MalformedError, RefusedError, UnavailableError, VerificationError

# command: (module, function that adds its parser, function that runs it, help). Modules are loaded when called.
_MEMORY = ("memory.cli_memory", "add_command", "run_command")
_ERASE = ("memory.cli_erase", "add_command", "run_command")
_BACKUP = ("memory.cli_backup", "add_command", "run_command")
_DOCTOR = ("memory.cli_doctor", "add_command", "run_command")
COMMANDS: Final[dict[str, tuple[str, str, str, str]]] = {
    "init": (*_MEMORY, "make a home; the first use does it too, with defaults"),
    "remember": (*_MEMORY, "write a fact"),
    "recall": (*_MEMORY, "find facts"),
    "get": (*_MEMORY, "the current value(s) of a key"),
    "history": (*_MEMORY, "the whole story of a key"),
    "provenance": (*_MEMORY, "where a fact comes from, how far it is proved, and the limits of that"),
    "retract": (*_MEMORY, "say that a fact is no longer true, with nothing in its place"),
    "conflicts": (*_MEMORY, "facts on which clients disagree"),
    "resolve": (*_MEMORY, "settle a conflict"),
    "grant": (*_MEMORY, "let another agent of the tenant read; without AGENT, what is granted"),
    "revoke": (*_MEMORY, "end a grant"),
    "review": (*_MEMORY, "what is held or refused and waits for a person"),
    "status": (*_MEMORY, "counts and the state of the log"),
    "migrate": (
        "memory.cli_migrate",
        "add_command",
        "run_command",
        "move the store from its file to a PostgreSQL database",
    ),
    "doctor": (*_DOCTOR, "find what is wrong with a home or this machine, and what to do"),
    "receipt": (*_MEMORY, "write the receipt of a fact to a file"),
    "opening": (*_MEMORY, "write what proves the content of an entry to a file"),
    "forget": (*_ERASE, "erase: first a preview, then with its token for good"),
    "retention": (*_ERASE, "erase superseded facts older than a duration"),
    "hold": (*_ERASE, "keep records from being erased or used: a legal hold"),
    "release": (*_ERASE, "end a legal hold"),
    "backup": (*_BACKUP, "write an encrypted backup of the store"),
    "restore": (*_BACKUP, "put the store back from a backup, and erase again what was erased since"),
    "verify": ("memory.cli_log", "add_command", "run_command", "check receipts, proofs, manifests offline"),
    "log": ("memory.cli_log", "add_command", "run_command", "publish, look at and check the log"),
    "witness": ("witness.cli", "add_witness_commands", "run_witness", "run a witness for logs"),
    "audit": ("auditor.cli", "add_audit_command", "run_audit", "check memory, log, witnesses and erasures"),
    "mcp": ("memory.cli_serve", "add_command", "run_command", "serve agents over MCP (stdio)"),
    "serve": ("memory.cli_http", "add_command", "run_command", "serve agents over HTTP: the API under /v1"),
    "token": ("memory.cli_http", "add_command", "run_command", "make, list and revoke access tokens"),
    "import": ("memory.cli_import", "add_command", "run_command", "bring facts in from a file"),
    "export": (
        "memory.cli_export",
        "add_command",
        "run_command",
        "write what an auditor needs, or what is held on a person",
    ),
    "batch": ("memory.cli_serve", "add_command", "run_command", "JSON lines in, JSON lines out"),
    "install": ("memory.cli_install", "add_command", "run_command", "let an agent host start the server"),
    "hook": (
        "memory.cli_hook",
        "add_command",
        "run_command",
        "recall for hooks of an agent host; never fails",
    ),
    "completion": (*_DOCTOR, "print a script that completes commands in bash, zsh or fish"),
    "demo": ("memory.cli_serve", "add_command", "run_command", "the whole story on this machine"),
}
# To try again changes nothing about a home, or a file system, that this user may not write to.
_NOT_OURS_TO_WRITE: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_EXIT_CODES: Final = ((MalformedError, 2), (UnavailableError, 3), (VerificationError, 1), (RefusedError, 1))


class _Parser(argparse.ArgumentParser):
    """A parser whose usage errors are ours, so that they too can be answered as JSON."""

    def error(self, message: str) -> NoReturn:
        raise MalformedError(f"{_without_content(message)} (see: {self.prog} --help)", code="usage")


class _ShowVersion(argparse.Action):
    """Reads the version only when it is asked for: the metadata is slow to load."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print_text(_version())
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        args = _parse(arguments)
        module, _, run, _ = COMMANDS[args.command]
        return int(getattr(import_module(module), run)(args))
    except Error as error:
        return _report(error, as_json)
    except BrokenPipeError:
        # The reader went away; what is left unflushed must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _report(
            UnavailableError(
                f"a file or the disk failed: {error.strerror or 'input or output'}", errno=error.errno
            ),
            as_json,
        )
    except Exception as error:
        if os.environ.get("MUNIMENT_DEBUG"):
            raise
        kind = type(error).__name__
        return _report(
            Error(
                f"internal error ({kind}); if the store may be damaged, see: muniment audit", code="internal"
            ),
            as_json,
        )


def exit_code(error: Error) -> int:
    """The exit code that interfaces promise for an error."""
    if error.fields.get("errno") in _NOT_OURS_TO_WRITE:
        return 2
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)


def _report(error: Error, as_json: bool) -> int:
    if as_json:
        with suppress(OSError):
            print_json({"error": {"code": error.code, "message": error.message}})
    print(f"muniment: {error.message}", file=sys.stderr)  # noqa: T201 -- the command's voice for people
    return exit_code(error)


def print_json(document: Any) -> None:
    """Writes one JSON document and a line feed to standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Writes lines for people to standard output, with control characters made visible."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


def visible(text: str) -> str:
    """`text` with control, bidirectional and unpaired characters written as escapes, line feeds kept."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="muniment",
        description="Agent memory that can prove what it kept, what it corrected and what it erased.",
        epilog="Every command takes --home DIR (else MUNIMENT_HOME) and --json.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    # A parser for each command is for help and for errors: the others are not made where the first word is one.
    named = {wanted: COMMANDS[wanted]} if wanted in COMMANDS and arguments[0] == wanted else COMMANDS
    for name, (module, add, _, help_text) in named.items():
        if name == wanted:
            getattr(import_module(module), add)(
                subparsers, *((name,) if module.startswith("memory.") else ())
            )
        else:
            subparsers.add_parser(name, help=help_text)
    if wanted in COMMANDS:
        _add_common(subparsers.choices[wanted])
    args = parser.parse_args(arguments)
    if args.command not in COMMANDS:
        raise MalformedError("expected a command (see: muniment --help)", code="usage")
    return args


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Adds --home and --json to every leaf below `parser`."""
    parser.allow_abbrev = False
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in nested:
        for child in action.choices.values():
            _add_common(child)
    if nested:
        return
    taken = {option for action in parser._actions for option in action.option_strings}
    if "--home" not in taken:
        parser.add_argument("--home", metavar="DIR", default=None, help="the home (else MUNIMENT_HOME)")
    if "--json" not in taken:
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _without_content(message: str) -> str:
    """argparse's own message, without the words it quotes from the command line."""
    for marker in ("unrecognized arguments", "invalid choice", "invalid int value", "invalid float value"):
        if marker in message:
            head = message.split(marker)[0]
            return f"{head}{marker}"
    return message


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"muniment {version('muniment')}"
    except PackageNotFoundError:
        return "muniment (not installed)"


if __name__ == "__main__":
    raise SystemExit(main())
