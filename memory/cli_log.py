"""`muniment log …` and `muniment verify …`: the log's own commands, given a home and the opening of contents."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `log` or `verify`, which tlog describes."""
    if name == "log":
        from tlog.cli import add_log_commands

        add_log_commands(subparsers)
    else:
        from tlog.cli_verify import add_verify_command

        add_verify_command(subparsers)
        subparsers.choices["verify"].add_argument(
            "--claim", metavar="CLAIM", help="what the erasure gave its requester: the manifest is theirs"
        )


def run_command(args: argparse.Namespace) -> int:
    """Runs `log` on its home, or `verify` and what is done where a root key is, on files alone."""
    if args.command == "verify":
        from tlog.cli_verify import run_verify

        describe = _describe_manifest if args.claim is None else _claimed(args.claim)
        return run_verify(args, open_content=_open_content, describe_manifest=describe)
    from tlog import cli, cli_keys

    if args.log_command == "root" and args.root_command in cli_keys.OFFLINE:
        # A machine with a root key on it has no home, and must not get one.
        return cli_keys.run_key_command(args, None)
    from memory import wiring
    from memory.operator import Operator

    with wiring.open_existing_home(args.home) as home:
        return cli.run_log(args, home, Operator(home))


def _open_content(opening: bytes, commitment: bytes) -> dict[str, Any]:
    from memory.opening import open_with

    return open_with(opening, commitment)


def _describe_manifest(data: bytes) -> dict[str, Any]:
    from memory.manifest import describe_signed

    return describe_signed(data)


def _claimed(text: str) -> Callable[[bytes], dict[str, Any]]:
    """Tells of a manifest and whether a claim is on it, which has to hold."""
    from memory.claim import parse_claim, verify_claim
    from memory.manifest import decode_manifest, describe_signed
    from memory.manifest_text import CLAIMED

    claim = parse_claim(text)

    def describe_claimed(data: bytes) -> dict[str, Any]:
        described, document = describe_signed(data), decode_manifest(data).document
        verify_claim(claim, document.get("claim"), document["request"])
        described["proved"] = [*described["proved"], {"code": "claim", "text": CLAIMED}]
        return described

    return describe_claimed
