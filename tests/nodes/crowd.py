"""Processes that are nodes, what they said, and what has to be true of a log afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from node import entry

from tlog.checkpoint import parse_checkpoint
from tlog.log import Log
from tlog.note import parse_note

NODE = Path(__file__).resolve().parent / "node.py"


class Running:
    """A node; `heard` are its lines so far."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(NODE), json.dumps(settings)],
            stdout=subprocess.PIPE,
            cwd=NODE.parent.parent.parent,
            env={**__import__("os").environ, "PYTHONPATH": str(NODE.parent.parent.parent)},
        )
        self.heard: list[list[str]] = []

    def until(self, *words: str) -> list[str]:
        """The first line that begins with one of the words; all there was to hear if the process ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(line.decode().split())
            if self.heard[-1][0] in words:
                return self.heard[-1]
        return []

    def finish(self) -> list[str]:
        """The last line, once the process has ended."""
        self.until("nothing")
        self.process.wait()
        return self.heard[-1] if self.heard else []

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Crowd:
    """All the nodes of a test."""

    def __init__(self) -> None:
        self.nodes: list[Running] = []

    def start(self, settings: dict[str, Any]) -> Running:
        self.nodes.append(Running(settings))
        return self.nodes[-1]

    def end(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
            node.process.wait()
            if node.process.stdout is not None:
                node.process.stdout.close()


def require_sound(log: Log, heard: list[list[str]], numbers: range) -> None:
    """Fails unless the log has each entry once, and all that was ever said of it is true."""
    size = log.head().size
    stands = list(log.read_entries(0, size))
    assert Counter(stands) == Counter(entry(number) for number in numbers)
    for word, *rest in heard:
        if word == "ack":
            assert stands[int(rest[1])] == entry(int(rest[0]))
        if word == "signed":
            assert log.root_at(int(rest[0])).hex() == rest[1]
    note = log.checkpoint()
    assert note is not None
    public = parse_checkpoint(parse_note(note).text)
    assert public.root == log.root_at(public.size)
    assert public.size >= max((int(rest[0]) for word, *rest in heard if word == "published"), default=0)
