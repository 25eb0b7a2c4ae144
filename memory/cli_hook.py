"""`muniment hook EVENT`: reads the JSON of an agent host, answers with JSON or nothing, and always ends with 0."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from memory import wiring
from memory.cli import print_json
from memory.hook import (
    DEADLINE_SECONDS,
    EVENTS,
    MAX_INPUT_BYTES,
    MIN_SECONDS,
    context_of,
    end_in_time,
    quietly,
    read_input,
)
from memory.principal import agent_from_environment


def add_command(subparsers: Any, name: str) -> None:
    """Adds the parser of `hook`."""
    from memory.cli import COMMANDS

    parser = subparsers.add_parser(name, help=COMMANDS[name][3], description=COMMANDS[name][3])
    parser.add_argument("event", metavar="EVENT", choices=tuple(EVENTS), help=", ".join(EVENTS))


def run_command(args: argparse.Namespace) -> int:
    """Writes what the host adds to the context, within the time that a host may be kept waiting."""

    def answer() -> dict[str, Any] | None:
        given = read_input(b"" if sys.stdin.isatty() else sys.stdin.buffer.read(MAX_INPUT_BYTES))
        # No home is made for a hook, and the caller has an agent's rights.
        with wiring.open_existing_home(args.home) as home:
            return context_of(args.event, given, home.memory(agent_from_environment(os.environ)))

    # What the start took is a part of what the host waits for.
    call_off = end_in_time(max(DEADLINE_SECONDS - time.process_time(), MIN_SECONDS))
    found = quietly(answer)
    call_off()
    if found is not None:
        print_json(found)
    return 0
