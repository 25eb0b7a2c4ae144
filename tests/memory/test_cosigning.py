"""What a home learns of its witnesses, over real witness processes: kept across a restart, and counted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memory import cli, wiring
from memory.cosigning import witness_folder
from memory.model import SCOPES, Principal
from memory.publish import drain
from memory.wiring import Home
from tlog.ascii import encode_base64
from tlog.errors import UnavailableError
from tlog.keys import make_cosigner_key
from tlog.storage import DirectoryStorage
from witness.remembered import Remembered
from witness.wire import format_cosignatures

REPOSITORY = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
ME = Principal("acme", "ops", "desk", SCOPES)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "memory.cli", *arguments]


def run(*arguments: str) -> str:
    """What a command says, run in this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main(arguments) == 0
    return said.getvalue()


class WitnessProcess:
    """`muniment witness serve` at an address that stays the same, whenever it is up."""

    def __init__(self, folder: Path, name: str) -> None:
        self.state = folder / name
        self.name = name
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.vkey = run("witness", "init", "--state", str(self.state), "--name", f"{name}.example/w").strip()
        self.process: subprocess.Popen[str] | None = None
        self.metrics = ""

    @property
    def line(self) -> str:
        return f"witness {self.name} {self.vkey} http://127.0.0.1:{self.port}\n"

    def add_log(self, home: Home) -> None:
        run("witness", "add-log", "--state", str(self.state), "--vkey", home.log_vkey())

    def start(self) -> None:
        self.process = subprocess.Popen(
            command(
                *("witness", "serve", "--state", str(self.state), "--listen", f"127.0.0.1:{self.port}"),
                *("--metrics", "127.0.0.1:0", "--json"),
            ),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.metrics = json.loads(self.process.stdout.readline())["metrics"]

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.communicate(timeout=20)
            self.process = None

    def answers(self, status: int) -> int:
        """How many requests it has answered so since it was started."""
        text = urllib.request.urlopen(self.metrics).read().decode()
        start = f'muniment_witness_answers_total{{call="add-checkpoint",status="{status}"}} '
        return sum(int(line[len(start) :]) for line in text.splitlines() if line.startswith(start))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WitnessProcess]]:
    witnesses: list[WitnessProcess] = []

    def make(name: str, home: Home) -> WitnessProcess:
        witnesses.append(WitnessProcess(tmp_path, name))
        witnesses[-1].add_log(home)
        witnesses[-1].start()
        return witnesses[-1]

    yield make
    for one in witnesses:
        one.stop()


def publish(path: Path, key: str) -> Any:
    """Opens the home anew, as after a restart, and publishes one more fact."""
    with wiring.open_home(path) as home:
        home.memory(ME).remember(f"{key} is on", key=key, value="on")
        return home.publish()


def remembered(path: Path) -> Remembered:
    with wiring.open_home(path) as home:
        return Remembered(DirectoryStorage(witness_folder(home)))


def test_what_is_known_of_a_witness_survives_a_restart(
    tmp_path: Path, start: Callable[..., WitnessProcess]
) -> None:
    path = tmp_path / "home"
    with wiring.open_home(path) as home:
        steady, away = start("steady", home), start("away", home)
        home.set_policy(steady.line + away.line + "group one 1 steady away\nquorum one\n")
    publish(path, "a")
    deadline = time.monotonic() + 20
    while away.answers(200) + steady.answers(200) < 2:  # the slower one is answered after the publication
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with wiring.open_home(path) as home:
        home.set_policy(steady.line + away.line + "group both all steady away\nquorum both\n")
    publish(path, "b")
    away.stop()
    with wiring.open_home(path) as home:
        # With a quorum of one, none is signed after a restart unless both say what they saw.
        home.set_policy(steady.line + away.line + "group one 1 steady away\nquorum one\n")
    with pytest.raises(UnavailableError, match="too few of the policy's witnesses"):
        publish(path, "c")
    with wiring.open_home(path) as home:
        home.set_policy(steady.line + away.line + "quorum none\n")
    publish(path, "c")
    away.start()
    with wiring.open_home(path) as home:
        home.set_policy(steady.line + away.line + "group both all steady away\nquorum both\n")
    assert publish(path, "d")["state"] == "witnessed"
    # It was asked from the head it had, not from the one that was published while it was down.
    assert (away.answers(409), away.answers(200)) == (0, 1)
    assert remembered(path).lies() == ()


def test_a_witness_that_forgot_is_caught_and_the_evidence_is_kept(
    tmp_path: Path, start: Callable[..., WitnessProcess], caplog: pytest.LogCaptureFixture
) -> None:
    """A witness put back from an older copy of its state, which is what docs/WITNESS.md forbids."""
    path, copy = tmp_path / "home", tmp_path / "copy"
    with wiring.open_home(path) as home:
        honest, forgetful = start("honest", home), start("forgetful", home)
        home.set_policy(honest.line + forgetful.line + "group both all honest forgetful\nquorum both\n")
    forgetful.stop()
    shutil.copytree(forgetful.state, copy)
    forgetful.start()
    assert publish(path, "a")["state"] == "witnessed"
    forgetful.stop()
    shutil.rmtree(forgetful.state)
    shutil.copytree(copy, forgetful.state)
    forgetful.start()
    # Its cosignature is one none the less: whether to count on it any longer is for people to say.
    assert publish(path, "b")["state"] == "witnessed"
    (lie,) = remembered(path).lies()
    assert (lie["kind"], lie["names"], lie["later"]) == ("forgot", ["forgetful"], "0\n")
    assert lie["earlier"].splitlines()[0] == read_origin(path)
    assert "witness forgetful: lied" in caplog.text
    assert "witness honest" not in caplog.text


def read_origin(path: Path) -> str:
    with wiring.open_home(path) as home:
        return home.origin


@pytest.mark.parametrize("outbox", [(), ("--with-outbox",)], ids=["log alone", "with the outbox"])
def test_log_serve_counts_what_each_witness_answers(
    tmp_path: Path, start: Callable[..., WitnessProcess], outbox: tuple[str, ...]
) -> None:
    path = tmp_path / "home"
    with wiring.open_home(path) as home:
        here, away = start("here", home), start("away", home)
        away.stop()
        # Without a quorum a publication waits for every witness, and so knows how it ended for each.
        home.set_policy(here.line + away.line + "quorum none\n")
        home.memory(ME).remember("it is on", key="k", value="on")
        if not outbox:
            drain(home.parts().store, home.log())
    process = subprocess.Popen(
        command(
            *("log", "serve", "--home", str(path), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"),
            *("--publish-every", "1", "--json", *outbox),
        ),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        metrics = json.loads(process.stdout.readline())["metrics"] + "/metrics"
        deadline = time.monotonic() + 30
        while "muniment_log_witness_answers_total{" not in (text := read(metrics)):
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
    finally:
        process.terminate()
        process.communicate(timeout=30)
    counts = {line for line in text.splitlines() if line.startswith("muniment_log_witness_answers_total{")}
    assert counts == {
        'muniment_log_witness_answers_total{witness="here",outcome="cosigned"} 1',
        'muniment_log_witness_answers_total{witness="away",outcome="unreachable"} 1',
    }
    assert 'muniment_log_witness_seconds_count{witness="here"} 1' in text


def read(url: str) -> str:
    return str(urllib.request.urlopen(url).read().decode())


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[tuple[str, threading.Event]]:
    """A policy's line of a witness whose cosignature does not hold, and who says so only when let."""
    cosigner = make_cosigner_key(tmp_path / "liar.key", "liar.example/w")
    let = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            let.wait(30)
            line = cosigner.cosign(f"other\n1\n{encode_base64(bytes(32))}\n", int(time.time()))
            body = format_cosignatures([line])
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield (
            f"witness liar {cosigner.verifier_key.vkey} http://127.0.0.1:{server.server_address[1]}\n",
            let,
        )
        server.shutdown()


def test_a_command_that_has_its_quorum_still_hears_who_lies_a_moment_later(
    tmp_path: Path, start: Callable[..., WitnessProcess], liar: tuple[str, threading.Event]
) -> None:
    path = tmp_path / "home"
    line, let = liar
    with wiring.open_home(path) as home:
        honest = start("honest", home)
        home.set_policy(line + honest.line + "group g any liar honest\nquorum g\n")
        home.memory(ME).remember("it is on", key="k", value="on")
    process = subprocess.Popen(
        command("log", "publish", "--home", str(path), "--json"),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())  # published, while the liar has said nothing yet
    let.set()
    _, errors = process.communicate(timeout=30)
    assert (said["state"], process.returncode) == ("witnessed", 0)
    (lie,) = remembered(path).lies()
    assert (lie["kind"], lie["names"]) == ("not_verified", ["liar"])
    assert "witness liar: not_verified" in errors
