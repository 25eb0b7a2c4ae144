"""The keys that a witness cosigns with, wherever they lie: in files, in an ssh-agent, behind a command.

A command (of a KMS, an HSM, another machine) is started for each signature with the message on its standard
input, and writes the bare signature to its standard output. No shell has a part in it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tlog.cosignature import SIGNATURE_BYTES, Cosigner, cosigned_message, make_cosignature_line
from tlog.errors import MalformedError, RefusedError, UnavailableError, VerificationError
from tlog.note import SignatureLine, SignatureType, VerifierKey, parse_vkey, verify_signature
from witness.marker import KeySource, Marker
from witness.ssh_agent import AgentKey, SshAgent, agent_of_environment

KEYS: Final = "keys"
COMMAND_SECONDS: Final = 20.0


@dataclass(frozen=True)
class RemoteCosigner:
    """A Cosigner over a key that somebody else holds; each signature is verified before it is given out.

    `waits` says that a signature takes long and costs this process little, so that several are made at once.
    """

    verifier_key: VerifierKey
    ask: Callable[[bytes], bytes]
    waits: bool = False

    def cosign(self, text: str, timestamp: int) -> SignatureLine:
        """The cosignature line over a checkpoint's text, made at `timestamp` in seconds."""
        key = self.verifier_key
        return make_cosignature_line(key, timestamp, self.sign_bytes(cosigned_message(key, timestamp, text)))

    def sign_bytes(self, message: bytes) -> bytes:
        """The signature over exactly these bytes."""
        signature = self.ask(message)
        try:
            verify_signature(self.verifier_key, signature, message)
        except VerificationError:
            raise UnavailableError(
                "the key's holder gave a signature that does not hold", code="key"
            ) from None
        return signature


def load_cosigners(state: Path, marker: Marker) -> tuple[Cosigner, ...]:
    """The cosigners of the keys that the marker names, in its order; MalformedError if a key is another one."""
    return tuple(_load(state, vkey, marker.source(vkey)) for vkey in marker.vkeys)


def _load(state: Path, vkey: str, source: KeySource) -> Cosigner:
    from tlog.keys import load_cosigner_key

    key = parse_vkey(vkey)
    if source.kind == "file":
        cosigner = load_cosigner_key(state / KEYS / source.arguments[0])
        if cosigner.verifier_key != key:
            raise MalformedError(f"witness: the files in {KEYS} are not the keys that witness.json names")
        return cosigner
    if source.kind == "agent":
        agent = agent_of_environment()
        find_agent_key(agent, key.public_key)
        return RemoteCosigner(key, lambda message: agent.sign(key.public_key, message))
    return RemoteCosigner(key, command_signer(source.arguments, SIGNATURE_BYTES[key.kind]), waits=True)


def find_agent_key(agent: SshAgent, public_key: bytes | None = None) -> AgentKey:
    """The key that the agent holds, or its only one; RefusedError if it does not hold it, or several."""
    held = [one for one in agent.held() if public_key in (None, one.public_key)]
    if len(held) != 1:
        raise RefusedError(
            f"ssh-agent: expected it to hold this Ed25519 key, or one only; found {len(held)}",
            code="agent_key",
        )
    return held[0]


def command_signer(command: Sequence[str], signature_bytes: int) -> Callable[[bytes], bytes]:
    """A function that has the command sign a message, within a time."""

    def sign(message: bytes) -> bytes:
        try:
            done = subprocess.run(
                command, input=message, stdout=subprocess.PIPE, check=False, timeout=COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError("key command: no signature in time", code="key") from None
        except OSError as error:
            raise UnavailableError(f"key command: can't be started: {error.strerror}", code="key") from None
        if done.returncode != 0 or len(done.stdout) != signature_bytes:
            raise UnavailableError(
                f"key command: ended with {done.returncode} and {len(done.stdout)} bytes, expected 0 and a "
                f"signature of {signature_bytes} bytes",
                code="key",
            )
        return done.stdout

    return sign


def kind_name(kind: int) -> str:
    """A key type's name in file names and options."""
    return "mldsa44" if kind == SignatureType.MLDSA44 else "ed25519"
