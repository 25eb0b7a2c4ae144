"""Signatures by an Ed25519 key that an ssh-agent holds. draft-ietf-sshm-ssh-agent, over a Unix socket.

An ssh-ed25519 signature is over the very bytes that are handed in, with no hash and no frame of its own, so
an agent can cosign. Nothing that it answers is believed: a signature is verified before it is used.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass
from typing import Final

from tlog.errors import MalformedError, UnavailableError

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
    """A connection to an agent, made when it is first needed and again when it broke. Threads may share one."""

    def __init__(self, path: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._connection: socket.socket | None = None
        self._mutex = threading.Lock()

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

    def close(self) -> None:
        """Returns once the connection is closed."""
        with self._mutex:
            self._drop()

    def _ask(self, request: bytes, expected: int) -> bytes:
        """What the agent answers, without the type, which has to be the one expected."""
        with self._mutex:
            was_open = self._connection is not None
            try:
                answer = self._exchange(request)
            except (OSError, EOFError):
                self._drop()
                if not was_open:
                    raise _unreachable() from None
                try:  # an agent that was restarted has closed the connection we had kept
                    answer = self._exchange(request)
                except (OSError, EOFError):
                    self._drop()
                    raise _unreachable() from None
            except MalformedError:
                self._drop()
                raise UnavailableError("ssh-agent: answered with what is no answer", code="agent") from None
        if not answer or answer[0] != expected:
            raise UnavailableError("ssh-agent: refused; is the key loaded, and unlocked?", code="agent")
        return answer[1:]

    def _exchange(self, request: bytes) -> bytes:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(self._timeout_seconds)
            self._connection = connection
            connection.connect(self._path)
        self._connection.sendall(_string(request))
        length = int.from_bytes(self._receive(4))
        if length > MAX_MESSAGE_BYTES:
            raise _malformed()
        return self._receive(length)

    def _receive(self, size: int) -> bytes:
        assert self._connection is not None
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


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


def _malformed() -> MalformedError:
    return MalformedError("ssh-agent: expected an answer as the protocol has it")


def _unreachable() -> UnavailableError:
    return UnavailableError("ssh-agent: can't be reached", code="agent")
