"""Keys that lie elsewhere: in an ssh-agent, the real one where it is installed, and behind a command."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tlog.cosignature import verify_cosignature
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.note import make_verifier_key
from witness import signers
from witness.marker import KeySource, Marker, default_source, format_marker, parse_marker
from witness.signers import RemoteCosigner, command_signer, find_agent_key
from witness.ssh_agent import SshAgent, agent_of_environment

SEED = b"\7" * 32
PUBLIC = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def blob(public_key: bytes) -> bytes:
    return string(b"ssh-ed25519") + string(public_key)


class OwnAgent:
    """An agent that answers as told; by default as the protocol says."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.key = Ed25519PrivateKey.from_private_bytes(SEED)
        self.answer: Callable[[bytes], bytes | None] = self.honest
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def honest(self, request: bytes) -> bytes:
        if request[0] == 11:
            others = string(string(b"ssh-rsa") + string(b"\1" * 32)) + string(b"another key")
            return b"\x0c" + (2).to_bytes(4) + others + string(blob(PUBLIC)) + string(b"witness")
        wanted, _, rest = request[1:].partition(string(blob(PUBLIC)))
        assert wanted == b""
        size = int.from_bytes(rest[:4])
        message, flags = rest[4 : 4 + size], rest[4 + size :]
        assert flags == b"\0\0\0\0"
        return b"\x0e" + string(string(b"ssh-ed25519") + string(self.key.sign(message)))

    def hang_up(self) -> None:
        """Closes every connection, as an agent that was restarted has."""
        for connection in self._open:
            with contextlib.suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            while head := connection.recv(4):
                request = b""
                while len(request) < int.from_bytes(head):
                    request += connection.recv(4096)
                answer = self.answer(request)
                if answer is None:
                    return
                connection.sendall(string(answer))


@pytest.fixture
def own_agent(tmp_path: Path) -> Iterator[OwnAgent]:
    agent = OwnAgent(tmp_path / "agent.sock")
    yield agent
    agent.close()


@pytest.fixture
def agent(own_agent: OwnAgent) -> SshAgent:
    return SshAgent(own_agent.path, timeout_seconds=2)


@pytest.fixture
def real_agent(tmp_path: Path) -> Iterator[str]:
    """The socket of a real ssh-agent that holds the key."""
    if not (shutil.which("ssh-agent") and shutil.which("ssh-add")):
        pytest.skip("needs ssh-agent and ssh-add")
    path = str(tmp_path / "real.sock")
    key = tmp_path / "id"
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    key.chmod(0o600)
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if Path(path).exists():
                break
            threading.Event().wait(0.02)
        subprocess.run(
            ["ssh-add", "-q", str(key)],
            env={**os.environ, "SSH_AUTH_SOCK": path},
            check=True,
            stdin=subprocess.DEVNULL,
        )
        key.unlink()
        yield path
    finally:
        process.terminate()
        process.wait(10)


def test_a_real_agent_cosigns(real_agent: str, log: Any, sim: Any) -> None:
    agent = SshAgent(real_agent)
    assert find_agent_key(agent).public_key == PUBLIC
    key = make_verifier_key("witness.example/agent", 4, PUBLIC)
    cosigner = RemoteCosigner(key, lambda message: agent.sign(PUBLIC, message))
    line = cosigner.cosign(log.note(5).text, sim.TIME)
    assert verify_cosignature(key, line, log.note(5).text).timestamp == sim.TIME


def test_a_real_agent_without_the_key_refuses(real_agent: str) -> None:
    agent = SshAgent(real_agent)
    other = Ed25519PrivateKey.from_private_bytes(b"\x09" * 32).public_key().public_bytes_raw()
    with pytest.raises(UnavailableError, match="refused"):
        agent.sign(other, b"message")
    with pytest.raises(RefusedError):
        find_agent_key(agent, other)


def test_an_agent_signs(agent: SshAgent, own_agent: OwnAgent) -> None:
    assert [one.comment for one in agent.held()] == ["witness"]
    for number in range(3):
        message = b"message %d" % number
        own_agent.key.public_key().verify(agent.sign(PUBLIC, message), message)


def test_of_several_keys_one_has_to_be_named(agent: SshAgent, own_agent: OwnAgent) -> None:
    other = Ed25519PrivateKey.from_private_bytes(b"\x09" * 32).public_key().public_bytes_raw()
    held = b"".join(string(blob(key)) + string(b"") for key in (PUBLIC, other))
    own_agent.answer = lambda request: b"\x0c" + (2).to_bytes(4) + held
    with pytest.raises(RefusedError, match="found 2"):
        find_agent_key(agent)
    assert find_agent_key(agent, other).public_key == other


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x05",
        b"\x0c" + bytes(4),
        b"\x0e",
        b"\x0e" + string(b""),
        b"\x0e" + string(string(b"ssh-ed25519") + string(b"\1" * 63)),
        b"\x0e" + string(string(b"ssh-rsa") + string(b"\1" * 64)),
        b"\x0e" + string(string(b"ssh-ed25519") + string(b"\1" * 64)) + b"x",
        b"\x0e" + string(string(b"ssh-ed25519") + string(b"\1" * 64) + b"x"),
        b"\x0e\xff\xff\xff\xff",
        None,
    ],
)
def test_an_answer_that_is_none_is_an_error(
    agent: SshAgent, own_agent: OwnAgent, answer: bytes | None
) -> None:
    own_agent.answer = lambda request: answer
    with pytest.raises(UnavailableError):
        agent.sign(PUBLIC, b"message")


def test_an_endless_answer_is_not_read(agent: SshAgent, own_agent: OwnAgent, tmp_path: Path) -> None:
    own_agent.close()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "other.sock"))
    listener.listen()

    def talk() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"\x7f\xff\xff\xff" + b"x" * 1000)

    threading.Thread(target=talk, daemon=True).start()
    with pytest.raises(UnavailableError):
        SshAgent(str(tmp_path / "other.sock"), timeout_seconds=2).sign(PUBLIC, b"message")
    listener.close()


def test_an_agent_that_hangs_is_given_up(own_agent: OwnAgent) -> None:
    never = threading.Event()
    own_agent.answer = lambda request: (never.wait(10), None)[1]
    with pytest.raises(UnavailableError, match="can't be reached"):
        SshAgent(own_agent.path, timeout_seconds=0.2).sign(PUBLIC, b"message")
    never.set()


def test_an_agent_that_is_not_there_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError):
        SshAgent(str(tmp_path / "none.sock")).held()
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(UnavailableError, match="SSH_AUTH_SOCK"):
        agent_of_environment()


def test_a_signature_that_does_not_hold_is_never_given_out(own_agent: OwnAgent, agent: SshAgent) -> None:
    own_agent.key = Ed25519PrivateKey.from_private_bytes(b"\x0b" * 32)
    key = make_verifier_key("witness.example/agent", 4, PUBLIC)
    with pytest.raises(UnavailableError, match="does not hold"):
        RemoteCosigner(key, lambda message: agent.sign(PUBLIC, message)).sign_bytes(b"message")


# Commands

SIGN = """
import sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
key = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read()))
"""


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_a_command_cosigns(log: Any, sim: Any) -> None:
    key = make_verifier_key("witness.example/kms", 4, PUBLIC)
    cosigner = RemoteCosigner(key, command_signer(python(SIGN), 64), waits=True)
    line = cosigner.cosign(log.note(5).text, sim.TIME)
    assert verify_cosignature(key, line, log.note(5).text).timestamp == sim.TIME


@pytest.mark.parametrize(
    "command",
    [
        python("print('a signature')"),
        python("import sys; sys.stdout.buffer.write(bytes(65))"),
        python("import sys; sys.stdout.buffer.write(bytes(64)); sys.exit(1)"),
        ("/no/such/program",),
        ("sh", "-c", "kill -9 $$"),
    ],
)
def test_a_command_that_fails_is_unavailable(command: tuple[str, ...]) -> None:
    with pytest.raises(UnavailableError):
        command_signer(command, 64)(b"message")


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signers, "COMMAND_SECONDS", 0.1)
    with pytest.raises(UnavailableError, match="in time"):
        command_signer(("sleep", "30"), 64)(b"message")


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        command_signer((f"touch {tmp_path}/made; true",), 64)(b"message")
    assert list(tmp_path.iterdir()) == []


# The marker


def test_the_marker_reads_back_with_sources_and_without(sim: Any) -> None:
    first, second = sim.make_cosigner().verifier_key, sim.make_cosigner(kind=6).verifier_key
    plain = Marker("w", (first.vkey,), "00")
    assert b"sources" not in format_marker(plain)
    assert parse_marker(format_marker(plain)) == plain
    assert plain.source(first.vkey) == default_source(first) == KeySource("file", ("ed25519.key",))
    for source in (
        KeySource("agent"),
        KeySource("command", ("a", "b c")),
        KeySource("file", ("ed25519-2.key",)),
    ):
        marker = Marker("w", (first.vkey, second.vkey), "00", ((second.vkey, source),), (first.vkey,))
        assert parse_marker(format_marker(marker)) == marker
        assert marker.source(second.vkey) == source


@pytest.mark.parametrize(
    "source",
    ['["file", "../key"]', '["file"]', '["agent", 1]', '["command"]', '["command", 1]', '"agent"', "[]"],
)
def test_refuses_a_source_that_leads_elsewhere(sim: Any, source: str) -> None:
    vkey = sim.make_cosigner().verifier_key.vkey
    data = f'{{"version": 1, "name": "w", "vkeys": ["{vkey}"], "database": "0", "sources": {{"{vkey}": {source}}}}}'
    with pytest.raises(MalformedError):
        parse_marker(data.encode())
