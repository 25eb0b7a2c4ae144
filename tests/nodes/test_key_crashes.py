"""Keys and logs that change while nodes are killed, stand still or race: one change, and nothing signed beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from key_node import PUBLICATION, ROTATION, SUCCESSION

from auditor.audit import Places, audit
from auditor.evidence import Asked
from memory.chain import log_number
from memory.home_names import COSE_KEYS
from memory.key_list import read_key_list, retired_keys
from memory.operator import Operator
from memory.principal import owner_from_environment
from memory.wiring import Home
from tlog.errors import Error
from tlog.fsck import fsck
from tlog.keys import load_cose_key

NODE = Path(__file__).resolve().parent / "key_node.py"
WHO = owner_from_environment({})
Start = Callable[..., "Changing"]


class Changing:
    """A node that changes something, as a process; `heard` are its lines so far."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(NODE), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(NODE.parent.parent.parent)},
        )
        self.heard: list[str] = []

    def until(self, word: str) -> bool:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(line.strip())
            if line.startswith(word):
                return True
        return False

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> str:
        self.until("nothing")
        self.process.wait()
        return self.heard[-1]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Changing] = []

    def start_one(home: Home, do: str, **settings: Any) -> Changing:
        started.append(Changing({"home": str(home.path), "do": do, **settings}))
        return started[-1]

    yield start_one
    for one in started:
        one.end()


def write(home: Home, text: str) -> None:
    """A fact, as a client has it written: tried again while nodes take over from each other."""
    for _ in range(40):
        try:
            home.memory(WHO).remember(text)
            return
        except Error as error:
            assert error.code in ("busy", "database_unavailable"), error.code
            time.sleep(0.25)
    raise AssertionError("nothing could be written any more")


def again(work: Callable[[], Any]) -> Any:
    """What a command gives, that is given again while it says that it is to be."""
    for _ in range(40):
        try:
            return work()
        except Error as error:
            assert error.code in ("busy", "database_unavailable"), error.code
            time.sleep(0.25)
    raise AssertionError("the same command did not go on")


def require_sound(homes: list[Home], writes: int) -> None:
    """Fails unless store, logs and keys agree on both nodes, and an audit has nothing to say."""
    for home in homes:
        home.publish()
        number = log_number(home.config)
        sizes = [fsck(home.public_storage(at)).size for at in range(1, number + 1)]
        assert sum(sizes) == writes + number - 1
        found = audit(
            Places(home.path), Asked(home.trust(), time.time_ns() // 1000), tenant=None, needles=None
        )
        assert found.outcome.findings == ()
        assert retired_keys(home.path, read_key_list(home.path, home.config)) == ()
    first, second = homes
    for name in (*COSE_KEYS.values(), "index.key"):
        assert (first.path / "keys" / name).read_bytes() == (second.path / "keys" / name).read_bytes()
    assert (first.config.origin, first.config.frozen) == (second.config.origin, second.config.frozen)


def issuers(home: Home) -> int:
    return sum(key.use == "issuer" for key in read_key_list(home.path, home.config).keys)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ROTATION)
def test_a_rotation_that_was_killed_goes_on_at_another_node(
    homes: list[Home], start: Start, step: str, when: str
) -> None:
    first, second = homes
    write(second, "one")
    node = start(first, "issuer", at=step, when=when, how="KILL")
    node.finish()
    assert f"at {step}" in node.heard
    write(second, "two, whatever became of it")
    again(lambda: Operator(second).rotate("issuer", None, 10))
    write(first, "three")
    # What was done to the end before it was killed is done; the command then began another.
    assert issuers(second) == (3 if (step, when) == ("complete", "after") else 2)
    require_sound(homes, 3)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", SUCCESSION)
def test_a_succession_that_was_killed_goes_on_at_another_node(
    homes: list[Home], start: Start, step: str, when: str
) -> None:
    first, second = homes
    write(second, "one")
    second.publish()
    write(second, "two")
    node = start(first, "succeed", at=step, when=when, how="KILL")
    node.finish()
    assert f"at {step}" in node.heard
    write(second, "three, whatever became of it")
    if log_number(second.config) == 1 or (step, when) != ("list", "after"):
        second.state.follow()
    if log_number(second.config) == 1:
        again(lambda: Operator(second).succeed(None, 10))
    assert log_number(second.config) == 2
    write(first, "four")
    again(first.publish)
    require_sound(homes, 4)


@pytest.mark.parametrize("do", ["issuer", "receipt", "succeed"])
def test_of_two_nodes_that_change_the_same_at_once_one_does(homes: list[Home], start: Start, do: str) -> None:
    write(homes[0], "one")
    homes[0].publish()
    nodes = [start(home, do, wait=True) for home in homes]
    for node in nodes:
        assert node.until("open")
    for node in nodes:
        node.begin()
    said = {node.finish() for node in nodes}
    assert len(said) == 1 and next(iter(said)).startswith("done "), said
    write(homes[1], "two")
    homes[0].publish()
    if do == "succeed":
        assert log_number(homes[0].config) == 2
    else:
        keys = read_key_list(homes[0].path, homes[0].config).keys
        assert sum(key.use == do for key in keys) == 2
    require_sound(homes, 2)


@pytest.mark.parametrize(("step", "when"), [("swap", "before"), ("list", "before"), ("activate", "before")])
def test_a_rotation_that_stood_still_makes_no_second_key(
    homes: list[Home], start: Start, step: str, when: str
) -> None:
    first, second = homes
    write(second, "one")
    node = start(first, "issuer", at=step, when=when, how="STOP")
    assert node.until("at")
    again(lambda: Operator(second).rotate("issuer", None, 10))
    write(second, "two")
    second.publish()
    newest = load_cose_key(second.path / "keys" / "issuer.key").kid
    node.process.send_signal(signal.SIGCONT)
    assert node.finish() in ("failed busy", f"done {newest.hex()}")
    write(first, "three")
    assert (issuers(second), load_cose_key(first.path / "keys" / "issuer.key").kid) == (2, newest)
    require_sound(homes, 3)


@pytest.mark.parametrize(("step", "when"), [("swap", "before"), ("begin", "before"), ("list", "before")])
def test_a_succession_that_stood_still_begins_no_second_log(
    homes: list[Home], start: Start, step: str, when: str
) -> None:
    first, second = homes
    write(second, "one")
    second.publish()
    node = start(first, "succeed", at=step, when=when, how="STOP")
    assert node.until("at")
    again(lambda: Operator(second).succeed(None, 10))
    write(second, "two")
    second.publish()
    note = second.public_storage().read("checkpoint")
    node.process.send_signal(signal.SIGCONT)
    assert node.finish() in ("failed busy", f"done {second.log_vkey()}")
    assert second.public_storage().read("checkpoint") == note
    write(first, "three")
    assert log_number(first.config) == 2
    require_sound(homes, 3)


@pytest.mark.parametrize("step", PUBLICATION)
def test_a_publisher_that_stood_still_while_the_log_was_succeeded_publishes_nothing(
    homes: list[Home], start: Start, step: str
) -> None:
    first, second = homes
    write(second, "one")
    second.publish()
    write(second, "two")
    node = start(first, "publish", at=step, when="before", how="STOP")
    assert node.until("at")
    again(lambda: Operator(second).rotate("receipt", None, 20))
    again(lambda: Operator(second).succeed(None, 20))
    write(second, "three")
    second.publish()
    before = [second.public_storage(number).read("checkpoint") for number in (1, 2)]
    node.process.send_signal(signal.SIGCONT)
    # What it had announced before it stood still, another has put there since: it finds nothing left to do.
    assert node.finish() == ("done 2" if step == "put" else "failed busy")
    assert [second.public_storage(number).read("checkpoint") for number in (1, 2)] == before
    require_sound(homes, 3)


def test_a_publisher_under_an_older_policy_that_stood_still_publishes_nothing(
    homes: list[Home], start: Start
) -> None:
    first, second = homes
    write(second, "one")
    second.publish()
    write(second, "two")
    node = start(first, "publish", at="announce", when="before", how="STOP")
    assert node.until("at")
    again(lambda: second.set_policy("quorum none\n# another\n"))
    note = second.public_storage().read("checkpoint")
    node.process.send_signal(signal.SIGCONT)
    assert node.finish() == "failed busy"
    assert second.public_storage().read("checkpoint") == note
    second.publish()
    first.state.follow()
    assert first.policy().text == second.policy().text != ""
    require_sound(homes, 2)
