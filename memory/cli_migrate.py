"""`muniment migrate`: the store of a home from its file to a database."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli import print_json, print_text


def add_command(subparsers: Any, name: str) -> None:
    """Adds its parser."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    parser.add_argument(
        "--database", metavar="DSN", required=True, help="a PostgreSQL database (no password)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say which statements would make the schema")


def run_command(args: argparse.Namespace) -> int:
    """Moves the store, or says what it would do."""
    from memory import wiring
    from memory.config import require_no_password
    from memory.engines import require_postgres

    require_no_password(args.database)
    require_postgres()
    if args.dry_run:
        from memory.pg_schema import plan

        statements = plan(args.database)
        if args.json:
            print_json({"statements": list(statements)})
        else:
            print_text(";\n".join(statements) or "the database has the schema")
        return 0
    from memory.migrate import migrate

    with wiring.open_existing_home(args.home) as home:
        answer = migrate(home, args.database)
    if args.json:
        print_json(answer)
    else:
        print_text(
            f"moved {answer['statements']} statements with {answer['contents']} contents; the file is gone"
        )
    return 0
