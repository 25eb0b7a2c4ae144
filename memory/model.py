"""The values that pass between the pure rules, the store and the surfaces. Those made for each write are tuples.

Times are whole microseconds since 1970-01-01T00:00:00Z. A commitment is the 32 bytes C of `memory.event`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple

from tlog.errors import MalformedError

Outcome = Literal["stored", "superseded", "agreed", "history", "conflict", "held", "refused"]
Reason = Literal[
    "echo", "valueless", "authority", "provisional", "low_confidence", "possible_echo", "instruction_shaped"
]
Identity = Literal["reported", "bound", "authenticated"]
Status = Literal[
    "active", "superseded", "history", "conflict", "held", "refused", "retracted", "discarded", "erased"
]

IDENTITIES: Final[tuple[Identity, ...]] = ("reported", "bound", "authenticated")
"""How well a client is known: by its own word, by what the host set, by what it proved. Each more than the last."""
SHAPES: Final = ("serve", "hold")
SCOPES: Final = frozenset(
    {
        "memory:read",
        "memory:write",
        "memory:forget",
        "memory:purge",
        "memory:reaffirm",
        "memory:review",
        "memory:grant",
        "memory:tenant",
    }
)
AGENT_SCOPES: Final = frozenset({"memory:read", "memory:write", "memory:forget"})
MAX_NAME_CHARACTERS: Final = 256
DEFAULT_TENANT: Final = "default"
UNKNOWN_TENANTS: Final = ("create", "refuse")
MAX_TEXT_BYTES: Final = 256 * 1024
MAX_VALUE_BYTES: Final = 16 * 1024
ID_CHARACTERS: Final = 26


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, as the host bound it; `client` is its own word unless `authenticated`."""

    tenant: str
    agent: str
    client: str
    scopes: frozenset[str] = AGENT_SCOPES
    authenticated: bool = False
    reported: bool = False
    """`client` is what the client itself said in the protocol; the host set none."""

    @property
    def identity(self) -> Identity:
        """How well the client is known."""
        if self.authenticated:
            return "authenticated"
        return "reported" if self.reported else "bound"


class Proposal(NamedTuple):
    """A write as the caller wants it, after the edge has checked types and sizes."""

    text: str
    key: str | None = None
    value: str | None = None
    subject: str | None = None
    valid_from: int | None = None
    valid_until: int | None = None
    provisional: bool = False
    many: bool = False
    restatement: bool = False
    source: str | None = None
    reason: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it says of its key what holds from now on, and nothing else, as most writes do."""
        dated = self.valid_from is not None or self.valid_until is not None
        return not (dated or self.provisional or self.many)


class KnownFact(NamedTuple):
    """A fact of the proposal's key that the caller may see: status active or conflict."""

    commitment: bytes
    status: Status
    client: str
    text: str
    value: str | None
    valid_from: int
    valid_until: int | None
    recorded_at: int
    many: bool


class Known(NamedTuple):
    """What the guard is told: the caller's own view, read inside the writing transaction."""

    now: int
    client: str
    facts: tuple[KnownFact, ...] = ()
    value_retired: bool = False
    """The value ledger holds the proposal's value for its key."""
    names_retired: bool = False
    """For a text without a key: it states a retired value of something it names; without a value: of its key."""
    blind: bool = False
    """What it says or states is retired, and the fact that said it is erased: nothing of it may be kept again."""
    lifted: bytes | None = None
    """Commitment of the refusal that a redeemed reaffirmation lifts, bound to this key and value."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing that is known speaks about the proposal, or its key."""
        told = self.value_retired or self.names_retired or self.blind
        return not (self.facts or told) and self.lifted is None


def own_name(client: str, reported: bool) -> str:
    """Whose word a fact is: a client that names itself is nobody else, whatever name it takes."""
    return f"reported\0{client}" if reported else client


class Decision(NamedTuple):
    """What becomes of a proposal. `agrees_with` is set for `agreed` alone, which writes nothing."""

    outcome: Outcome
    message: str
    reason: Reason | None = None
    retires: tuple[bytes, ...] = ()
    conflicts: tuple[bytes, ...] = ()
    keeps: tuple[bytes, ...] = ()
    """What was in conflict with the writer's own record, and is not now that the writer says the same."""
    agrees_with: bytes | None = None


@lru_cache(maxsize=256)
def fact_id(commitment: bytes) -> str:
    """The id people and agents use: 26 characters of lower-case base32 over the first 16 bytes of C."""
    # Kept for a moment: an answer names one several times.
    # 130 bits: those of the bytes and two that are zero, as base32 fills its last character up.
    bits = int.from_bytes(commitment[:16], "big") << 2
    pairs = _pairs()
    return "".join([pairs[bits >> shift & 1023] for shift in range(120, -10, -10)])


@cache
def _pairs() -> tuple[str, ...]:
    """Two characters of base32 for each ten bits (RFC 4648, 6)."""
    digits = "abcdefghijklmnopqrstuvwxyz234567"
    return tuple(first + second for first in digits for second in digits)


def parse_fact_id(text: str) -> bytes:
    """The first 16 bytes of C that an id stands for; MalformedError if it is not an id."""
    if isinstance(text, str) and len(text) == ID_CHARACTERS and text.isascii() and text == text.lower():
        try:
            prefix = base64.b32decode(text.upper() + "======")
        except ValueError:
            prefix = b""
        if len(prefix) == 16 and fact_id(prefix) == text:
            return prefix
    raise MalformedError("expected an id of 26 lower-case base32 characters")
