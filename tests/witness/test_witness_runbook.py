"""Every command of docs/WITNESS.md runs as it stands there; the unit and the container start what exists."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from witness.cli import add_witness_commands

REPOSITORY = Path(__file__).resolve().parent.parent.parent
RUNBOOK = REPOSITORY / "docs" / "WITNESS.md"
DEPLOY = REPOSITORY / "deploy"
# What the machine does and not we: taken as done.
OF_THE_MACHINE = ("systemctl", "python3", "useradd", "install", "podman")
OUTSIDE = ("/var/lib/", "/opt/muniment/", "/usr/local/bin/", "/etc/systemd/system/")
SIGN = """#!{python}
import sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
sys.stdout.buffer.write(Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32).sign(sys.stdin.buffer.read()))
"""


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", RUNBOOK.read_text("utf-8"), re.S)


def commands() -> Iterator[list[str]]:
    for block in blocks():
        for line in block.splitlines():
            yield shlex.split(line.removesuffix(" &"))


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_witness_commands(parser.add_subparsers(required=True))
    return parser.parse_args(words)


def test_it_is_one_page() -> None:
    assert len(RUNBOOK.read_text("utf-8").splitlines()) <= 130


@pytest.fixture
def world(tmp_path: Path, sim: Any, log: Any) -> Iterator[dict[str, str]]:
    """The environment in which the runbook's commands run, with everything it speaks of."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "muniment").write_text(f'#!/bin/sh\nexec {sys.executable} -m memory.cli "$@"\n')
    (tools / "kms-sign").write_text(SIGN.format(python=sys.executable))
    (tools / "curl").write_text(
        f"#!{sys.executable}\nimport sys, urllib.request\nprint(urllib.request.urlopen(sys.argv[-1]).read().decode())\n"
    )
    for name in OF_THE_MACHINE:
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "bin" / "pip").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "bin" / "pip").chmod(0o755)
    (tmp_path / "deploy").symlink_to(DEPLOY)
    site = tmp_path / "site"
    site.mkdir()
    from tlog.note import format_note
    from tlog.tile import grow

    for tile, data in grow(0, log.leaves, lambda tile: b""):
        (site / tile.path).parent.mkdir(parents=True, exist_ok=True)
        (site / tile.path).write_bytes(data)
    (site / "checkpoint").write_bytes(format_note(log.note(log.size)))
    listed = sim.make_log_signer("log.example/listed", 5).verifier_key.vkey
    (tmp_path / "logs.txt").write_text(f"logs/v0\nvkey {listed}\nqpd 24\ncontact somebody\n")
    key = Ed25519PrivateKey.from_private_bytes(b"\7" * 32)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(site)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert server.stdout is not None
    port = re.search(r"port (\d+)", server.stdout.readline())
    assert port is not None
    try:
        yield {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "LOG_VKEY": log.signer.verifier_key.vkey,
            "LOG_URL": f"http://127.0.0.1:{port[1]}",
            "SSH_KEY": public,
        }
    finally:
        server.terminate()
        server.communicate(timeout=10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def agent(tmp_path: Path, world: dict[str, str]) -> Iterator[bool]:
    """Whether there is an ssh-agent, with a key in it."""
    if not (shutil.which("ssh-agent") and shutil.which("ssh-add")):
        yield False
        return
    path, key = tmp_path / "agent.sock", tmp_path / "id"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        threading.Event().wait(0.02)
    world["SSH_AUTH_SOCK"] = str(path)
    private = Ed25519PrivateKey.from_private_bytes(b"\x09" * 32)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    key.chmod(0o600)
    subprocess.run(["ssh-add", "-q", str(key)], check=True, env=world, stdin=subprocess.DEVNULL)
    yield True
    process.terminate()
    process.wait(10)


def test_every_command_runs_in_the_order_of_the_page(
    tmp_path: Path, world: dict[str, str], agent: bool, log: Any, sim: Any
) -> None:
    ports = {"7380": str(free_port()), "7381": str(free_port())}

    def local(text: str) -> str:
        for port, own in ports.items():
            text = text.replace(f":{port}", f":{own}")
        for place in OUTSIDE:
            text = text.replace(place, f"{tmp_path}/")
        return text

    served: list[subprocess.Popen[str]] = []
    ran = []

    def run(line: str) -> str:
        ran.append(line)
        done = subprocess.run(
            ["sh", "-c", local(line)], env=world, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    try:
        for block in blocks():
            for line in block.splitlines():
                if line.endswith(" &"):
                    served.append(
                        subprocess.Popen(shlex.split(local(line[:-2])), env=world, cwd=tmp_path, text=True)
                    )
                    wait_for(f"http://127.0.0.1:{ports['7380']}/healthz")
                    # Two who can be compared, once the page comes to it: this witness and the log itself.
                    policy = f"log {world['LOG_VKEY']} {world['LOG_URL']}\nwitness own {world['OLD_VKEY']} "
                    policy += f"http://127.0.0.1:{ports['7380']}\nquorum own\n"
                    (tmp_path / "policy.txt").write_text(policy)
                elif line.startswith("muniment witness evidence"):
                    fork = log.fork_at(3).body(log.size, log.size)
                    assert post(f"http://127.0.0.1:{ports['7380']}/add-checkpoint", fork) == 422
                    run(line)
                elif "--ssh-agent" in line and not agent:
                    continue
                else:
                    said = run(line)
                    if " init " in line and "OLD_VKEY" not in world:
                        world["OLD_VKEY"] = said.strip()
        statuses = run("muniment witness status --state /var/lib/witness --json")
        assert f'"size":{log.size}' in statuses
        for old, status in ((log.size, 200), (3, 409)):
            assert post(f"http://127.0.0.1:{ports['7380']}/add-checkpoint", log.body(old, log.size)) == status
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{ports['7381']}/metrics").read().decode()
    finally:
        for process in served:
            process.terminate()
            process.wait(20)
    assert len(ran) >= 25
    assert {one.name for one in (tmp_path / "evidence" / "fork-1").iterdir()} == {
        "cosigned.note",
        "refused.note",
    }
    text = RUNBOOK.read_text("utf-8")
    for metric in re.findall(r"`(muniment_\w+)", text):
        assert metric in metrics, metric


def post(url: str, body: bytes) -> int:
    try:
        return int(urllib.request.urlopen(urllib.request.Request(url, body)).status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def wait_for(url: str) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url)
            return
        except OSError:
            assert time.monotonic() < end, "the witness does not start"
            time.sleep(0.1)


def test_no_command_is_left_out() -> None:
    """What the page runs is what the program offers."""
    used = {words[2] for words in commands() if words[:2] == ["muniment", "witness"]}
    parser = argparse.ArgumentParser()
    add_witness_commands(parser.add_subparsers())
    offered = set(re.findall(r"^    ([a-z-]+)", subprocess_help(), re.M))
    assert used <= offered
    assert offered - used <= {"remove-log"}
    assert "remove-log" in RUNBOOK.read_text("utf-8")


def subprocess_help() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", "witness", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    return done.stdout


# The unit and the container


def test_the_unit_starts_a_command_that_exists() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "muniment-witness.service").read_text("utf-8"), re.M)
    words = shlex.split(line)
    assert words[0].endswith("/muniment")
    args = parse(words[1:])
    assert (args.witness_command, str(args.state)) == ("serve", "/var/lib/witness")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    text = (DEPLOY / "muniment-witness.service").read_text("utf-8")
    unit = tmp_path / "muniment-witness.service"
    # The program and its user are not on this machine; all else is judged as it stands.
    unit.write_text(
        re.sub(r"/usr/local/bin/muniment", "/bin/true", text)
        .replace("User=witness", "User=root")
        .replace("Group=witness", "Group=root")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    said = [line for line in done.stderr.splitlines() if "muniment-witness" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def test_the_container_starts_a_command_that_exists() -> None:
    import json

    text = (DEPLOY / "Containerfile").read_text("utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.M)
    (command,) = re.findall(r"^CMD (.*)$", text, re.M)
    words = [*json.loads(entry), *json.loads(command)]
    assert words[0] == "muniment"
    assert parse(words[1:]).listen == "0.0.0.0:7380"
    for source in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M):
        for name in source.split():
            assert (REPOSITORY / name).exists(), name
    assert "USER 7380" in text
