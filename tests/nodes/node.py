"""One node of a shared log, as a process: appends entries, publishes, and stops or dies where it is told to.

    node.py SETTINGS    (JSON: dsn, bucket, log, first, last, lease, at, how, skew)

Says on its output what it did, a line each; the last is `done` or `failed CODE`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from memory.pg_link import Link
from memory.pg_log import PgLogStorage
from memory.shared_public import SharedPublic
from tlog.bucket import open_bucket
from tlog.checkpoint import parse_checkpoint
from tlog.errors import Error
from tlog.log import Log, LogSettings
from tlog.note import SignatureLine, SignatureType, make_verifier_key
from tlog.object_storage import ObjectStorage

SETTINGS: dict[str, Any] = json.loads(sys.argv[1]) if __name__ == "__main__" else {}
ORIGIN = "example.org/shared"
FAILPOINTS = (
    *("staged", "committed", "tiles", "integrated", "dropped", "signed", "cosigned"),
    *("announced", "compared", "published"),
)


def entry(number: int) -> bytes:
    return b"entry-%d" % number


def identify(data: bytes) -> bytes:
    return sha256(data).digest()


class Signer:
    """Says what it signs before anybody has the signature."""

    def __init__(self, tell: Any) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes(32))
        public = self._key.public_key().public_bytes_raw()
        self.verifier_key = make_verifier_key(ORIGIN, SignatureType.ED25519, public)
        self._tell = tell

    def sign(self, text: str) -> SignatureLine:
        checkpoint = parse_checkpoint(text)
        self._tell(f"signed {checkpoint.size} {checkpoint.root.hex()}")
        return SignatureLine(self.verifier_key.name, self.verifier_key.key_id, self._key.sign(text.encode()))


def open_node(dsn: str, bucket: str, log: str, lease: float, failpoint: Any, tell: Any) -> Log:
    private = PgLogStorage(Link(dsn), log, lease)
    private.prepare()
    public = SharedPublic(ObjectStorage(open_bucket(bucket)), private, failpoint)
    settings = LogSettings(ORIGIN, (Signer(tell),), identify=identify, failpoint=failpoint)
    opened = Log(public, private, settings)
    opened.recover()
    return opened


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def stop_at(step: str | None, how: str, passes: int) -> Any:
    left = passes

    def failpoint(name: str) -> None:
        nonlocal left
        if name == step:
            if left == 0:
                say(f"at {name}")
                os.kill(os.getpid(), getattr(signal, f"SIG{how}"))
            left -= 1

    return failpoint


def set_clock_wrong(seconds: int) -> None:
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + seconds * 10**9


def main() -> None:
    set_clock_wrong(SETTINGS.get("skew", 0))
    at = stop_at(SETTINGS.get("at"), SETTINGS.get("how", "KILL"), SETTINGS.get("passes", 0))
    try:
        log = open_node(SETTINGS["dsn"], SETTINGS["bucket"], SETTINGS["log"], SETTINGS["lease"], at, say)
        numbers = range(SETTINGS["first"], SETTINGS["last"])
        for number, index in zip(numbers, log.append([entry(one) for one in numbers]), strict=True):
            say(f"ack {number} {index}")
        say(f"published {log.publish(SETTINGS.get('deadline', 20)).size}")
        say("done")
    except Error as error:
        say(f"failed {error.code}")


if __name__ == "__main__":
    main()
