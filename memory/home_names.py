"""What the files of a home are called."""

from __future__ import annotations

from typing import Final

CONFIG: Final = "config.toml"
POLICY: Final = "policy.txt"
TRUST: Final = "trust.toml"
KEY_LIST: Final = "keys.cbor"
CERTIFIED: Final = "keys.cose"
STORE: Final = "store.db"
KEYS: Final = "keys"
PUBLIC_LOG: Final = "log"
PRIVATE_LOG: Final = "log-state"
CHECKPOINT: Final = "checkpoint"
LOG_KEY: Final = "log.key"
COSE_KEYS: Final = {"issuer": "issuer.key", "receipt": "receipt.key", "manifest": "manifest.key"}
REGISTRATION_KEY: Final = "registration.key"
INDEX_KEY: Final = "index.key"


def public_log(number: int) -> str:
    """The folder of what the home's log of this number serves; the first is 1."""
    return PUBLIC_LOG if number == 1 else f"{PUBLIC_LOG}-{number}"


def private_log(number: int) -> str:
    """The folder of what that log keeps to itself."""
    return PRIVATE_LOG if number == 1 else f"{PRIVATE_LOG}-{number}"


def log_key_file(number: int) -> str:
    """The file of that log's key."""
    return LOG_KEY if number == 1 else f"log-{number}.key"


def next_key_file(use: str) -> str:
    """The file of a key for this use that is made and not in use yet."""
    return f"{use}.next.key"
