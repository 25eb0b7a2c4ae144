"""Signatures by an Ed25519 key that an ssh-agent holds. draft-ietf-sshm-ssh-agent, over a Unix socket.

An ssh-ed25519 signature is over the very bytes that are handed in, with no hash and no frame of its own, so
an agent can cosign. Nothing that it answers is believed: a signature is verified before it is used.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final

from tlog.errors import UnavailableError

SOCKET_VARIABLE: Final = "SSH_AUTH_SOCK"
TIMEOUT_SECONDS: Final = 10.0
MAX_MESSAGE_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 2048

_ALGORITHM: Final = b"ssh-ed25519"
_REQUEST_IDENTITIES: Final = 11
_IDENTITIES_ANSWER: Final = 12
_SIGN_REQUEST: Final = 13
_SIGN_RESPONSE: Final = 14
_NO_FLAGS: Final = b"\0\0\0\0"


@dataclass(frozen=True)
class AgentKey:
    """An Ed25519 key that the agent holds, and what it calls it."""

    public_key: bytes
    comment: str


class SshAgent:
    """The agent at a socket, with a connection for each request: an agent that was restarted is met at once."""

    def __init__(self, path: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def held(self) -> tuple[AgentKey, ...]:
        """The Ed25519 keys that the agent holds now."""
        answer = _Reader(self._ask(bytes((_REQUEST_IDENTITIES,)), _IDENTITIES_ANSWER))
        count = answer.number()
        if count > MAX_KEYS:
            raise _malformed()
        found = []
        for _ in range(count):
            blob, comment = answer.string(), answer.string()
            public_key = _public_key(blob)
            if public_key is not None:
                found.append(AgentKey(public_key, comment.decode("utf-8", "replace")))
        answer.end()
        return tuple(found)

    def sign(self, public_key: bytes, message: bytes) -> bytes:
        """The 64 bytes of this key's signature over the message, not yet verified."""
        request = bytes((_SIGN_REQUEST,)) + _string(_blob(public_key)) + _string(message) + _NO_FLAGS
        answer = _Reader(self._ask(request, _SIGN_RESPONSE))
        signature = _Reader(answer.string())
        answer.end()
        algorithm, raw = signature.string(), signature.string()
        signature.end()
        if algorithm != _ALGORITHM or len(raw) != 64:
            raise _malformed()
        return raw

    def _ask(self, request: bytes, expected: int) -> bytes:
        """What the agent answers, without the type, which has to be the one expected."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout_seconds)
                connection.connect(self._path)
                connection.sendall(_string(request))
                length = int.from_bytes(_receive(connection, 4))
                answer = _receive(connection, length) if length <= MAX_MESSAGE_BYTES else b""
        except (OSError, EOFError):
            raise UnavailableError("ssh-agent: can't be reached", code="agent") from None
        if not answer or answer[0] != expected:
            raise UnavailableError("ssh-agent: refused; is the key loaded, and unlocked?", code="agent")
        return answer[1:]


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def agent_of_environment() -> SshAgent:
    """The agent that SSH_AUTH_SOCK names."""
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        raise UnavailableError(f"ssh-agent: {SOCKET_VARIABLE} is not set", code="agent")
    return SshAgent(path)


class _Reader:
    """The parts of an agent's answer, one after the other, with nothing left over."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        return int.from_bytes(self._take(4))

    def string(self) -> bytes:
        return self._take(self.number())

    def end(self) -> None:
        if self._position != len(self._data):
            raise _malformed()

    def _take(self, size: int) -> bytes:
        part = self._data[self._position : self._position + size]
        if len(part) != size:
            raise _malformed()
        self._position += size
        return part


def _public_key(blob: bytes) -> bytes | None:
    """The 32 bytes of an ssh-ed25519 key, None of any other. RFC 8709, 4."""
    public_key = blob[-32:]
    return public_key if blob == _blob(public_key) and len(public_key) == 32 else None


def _blob(public_key: bytes) -> bytes:
    return _string(_ALGORITHM) + _string(public_key)


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def _malformed() -> UnavailableError:
    return UnavailableError("ssh-agent: expected an answer as the protocol has it", code="agent")
