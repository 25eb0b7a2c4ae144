"""What a witness remembers of a log, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tlog.note import SignatureLine, VerifierKey
from witness.decide import KnownHead


@dataclass(frozen=True)
class Cosigned:
    """What was stored, and answered, for the last head of a log."""

    head: KnownHead
    time: int
    note: bytes
    cosignatures: tuple[SignatureLine, ...]


@dataclass(frozen=True)
class Terms:
    """How many heads a log may have cosigned a day, and whom to write to about it."""

    requests_per_day: int
    contact: str


@dataclass(frozen=True)
class LogRecord:
    """A log, its keys, and what was last cosigned, None before the first time.

    A log that was removed has no keys; its head is kept, so that no rollback comes in with its return.
    """

    origin: str
    keys: tuple[VerifierKey, ...]
    cosigned: Cosigned | None
    terms: Terms | None = None


@dataclass(frozen=True)
class Advance:
    """A head to store in place of the last one of its log."""

    origin: str
    last: Cosigned | None
    new: Cosigned


@dataclass(frozen=True)
class Evidence:
    """A refused checkpoint and the cosigned one it contradicts, both as the log signed them."""

    id: int
    origin: str
    kind: Literal["fork", "unproven"]
    head: KnownHead
    note: bytes
    known: KnownHead
    known_note: bytes
    recorded_at: int
