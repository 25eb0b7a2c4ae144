"""An audit of a store in use: it holds up no erasure, and its copy goes with it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tampering as by

from memory.wiring import open_home

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# The command itself, which waits for a line on standard input once it has copied the store.
WAITING = """
import sys
from contextlib import contextmanager
from auditor import progress

@contextmanager
def told_on(stream):
    def tell(stage, done=0, total=0):
        if stage == "statements" and not total:
            print("copied", flush=True)
            sys.stdin.readline()
    yield tell

progress.told_on = told_on
from memory.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def audit_that_waits(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process in the middle of an audit, its copy of the store made."""
    command = [sys.executable, "-c", WAITING, "audit", "--home", str(home), "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "copied\n"
            yield process
        finally:
            process.kill()


def copies_of(process: subprocess.Popen[str]) -> list[int]:
    """Descriptors of our own on the files without a name that the process has open."""
    folder = Path(f"/proc/{process.pid}/fd")
    nameless = [link for link in folder.iterdir() if os.readlink(link).endswith(" (deleted)")]
    return [os.open(link, os.O_RDONLY) for link in nameless]


def test_an_erasure_comes_to_its_end_while_an_audit_goes_on(copy: Any) -> None:
    with audit_that_waits(copy.home) as process:
        with open_home(copy.home) as home:
            memory = home.memory(by.ONE)
            preview = memory.forget_preview(subject="garden")
            answer = memory.forget(subject="garden", confirm=preview["confirm"])
            # As the erasure left it: emptied, because nobody read from it.
            assert (copy.home / "store.db-wal").stat().st_size == 0
        assert answer["state"] == "closed_complete"
        assert process.poll() is None
        said, _ = process.communicate("\n", timeout=60)
    assert json.loads(said)["verdict"] == "clean"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_copy_is_overwritten_when_the_audit_is_ended(copy: Any, number: signal.Signals) -> None:
    with audit_that_waits(copy.home) as process:
        copies = copies_of(process)
        before = [os.pread(copy, 1 << 24, 0) for copy in copies]
        assert any(b"office is in Hamburg" in data for data in before)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    for copied, data in zip(copies, before, strict=True):
        assert os.pread(copied, 1 << 24, 0) == bytes(len(data))
        os.close(copied)
