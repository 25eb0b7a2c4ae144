"""`muniment export`: what an auditor needs, in a folder, or what is held on a person, in a file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from memory import wiring
from memory.cli import print_json
from memory.cli_memory import read_argument, show, write_output
from memory.principal import owner_from_environment
from tlog.errors import MalformedError


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `export`."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--evidence", metavar="DIR", help="the folder of the bundle, new or empty")
    what.add_argument(
        "--subject", metavar="S", help="what is held on a person, for that person; - reads stdin"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="with --subject: where to write it")
    parser.add_argument("--html", action="store_true", help="with --subject: a page to read, not JSON")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--tenant", metavar="NAME", help="contents of this tenant alone, and the links of all")
    whose.add_argument("--links-only", action="store_true", help="no contents: nothing that says anything")


def run_command(args: argparse.Namespace) -> int:
    """Writes the bundle, or what is held on a person, and says what handing it out means."""
    if args.subject is not None:
        return _export_subject(args)
    if args.output is not None or args.html:
        raise MalformedError("expected -o and --html with --subject alone", code="usage")
    from memory.export_evidence import export_evidence
    from tlog.bundles import Scope

    scope: Scope = "tenant" if args.tenant is not None else "links" if args.links_only else "all"
    with wiring.open_existing_home(args.home) as home:
        exported = export_evidence(home, Path(args.evidence), scope, args.tenant)
    if exported.recipient is not None:
        sys.stderr.write(
            f"whoever has this bundle can prove {exported.openings} contents for ever, also after an erasure; it is"
            f" noted as given to recipient {exported.recipient}\n"
        )
    answer = {
        "scope": scope,
        "files": exported.files,
        "statements": exported.statements,
        "openings": exported.openings,
        "recipient": exported.recipient,
    }
    show(args, answer, lambda a: f"{a['files']} files: {a['statements']} statements, {a['openings']} opened")
    return 0


def _export_subject(args: argparse.Namespace) -> int:
    from memory.export_subject import format_html

    if args.tenant is not None or args.links_only:
        raise MalformedError("expected --tenant and --links-only with --evidence alone", code="usage")
    subject = read_argument(args.subject)
    with wiring.open_existing_home(args.home) as home:
        document = home.memory(owner_from_environment(os.environ)).export_subject(subject)
    sys.stderr.write(
        f"{len(document['facts'])} records about the subject, {len(document['mentions'])} that name it; noted as given"
        f" to recipient {document['recipient']}\n"
    )
    if args.output is None and not args.html:
        print_json(document)
        return 0
    text = format_html(document) if args.html else json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    summary = {name: document[name] for name in ("recipient", "on_hold")}
    summary |= {"facts": len(document["facts"]), "mentions": len(document["mentions"])}
    write_output(args, text.encode("utf-8"), summary)
    return 0
