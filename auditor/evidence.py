"""What an audit looks at, as values: the rows of a store, the files of a log, the trust of whoever asks.

Read by `auditor.snapshot` and `auditor.log_files`; the checks take these values and touch no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from memory.event import Link
from tlog.certificates import Logged
from tlog.cose import CoseKey
from tlog.trust import Trust


class EventRow(NamedTuple):
    """A row of `events` with its row of `contents`, if that is there."""

    seq: int
    tenant_id: int
    tenant_seq: int
    commitment: bytes
    link: bytes
    link_salt: bytes
    content_hash: bytes
    entry: bytes
    entry_index: int | None
    content: bytes | None
    content_salt: bytes | None

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"store.db events seq {self.seq}"


class FactRow(NamedTuple):
    """A row of `facts`: the cache of what the statements add up to."""

    seq: int
    tenant_id: int
    agent_tag: bytes
    key_tag: bytes | None
    subject_tag: bytes | None
    text_tag: bytes
    status: str
    valid_from: int
    declared: int
    valid_until: int | None
    recorded_at: int
    replaced_at: int | None
    replaced_by: int | None
    end_erased: int
    on_hold: int = 0

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"store.db facts seq {self.seq}"


class ActRow(NamedTuple):
    """A row of `acts`: the cache of what links say that statements did to statements."""

    tenant_id: int
    target: int
    seq: int
    act: str


@dataclass(frozen=True, slots=True)
class ConflictRow:
    """A row of `conflicts`: a disagreement about a key, open until a statement closed it."""

    seq: int
    tenant_id: int
    agent_tag: bytes
    key_tag: bytes
    closed_by: int | None


class LedgerRow(NamedTuple):
    """A row of `ledger`, without the value's own hash: a value that a key has moved on from."""

    id: int
    tenant_id: int
    agent_tag: bytes
    key_tag: bytes
    subject_tag: bytes | None
    name_tags: bytes
    word_count: int
    canon_version: int
    source: int | None
    expires_at: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A row of `idempotency`: what a request came to, and the statement that it made or agreed with."""

    id: int
    tenant_id: int
    seq: int
    body_tag: bytes
    answer: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A row of `tokens`, without its hashes: the statement that it would lift, if it is about one."""

    id: int
    tenant_id: int
    target: int | None


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A row of `tenants`. The name is content: it is compared, and in no finding."""

    id: int
    number: bytes
    name: str
    last_seq: int


@dataclass(frozen=True, slots=True)
class OpeningRow:
    """A row of `openings`: who was given what of a statement."""

    id: int
    tenant_id: int
    seq: int
    recipient: bytes
    kind: str


@dataclass(frozen=True, slots=True)
class BackupRow:
    """A row of `backups`, and the last statement in it. Times are to the hour."""

    number: bytes
    last_seq: int
    made_at: int = 0
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A row of `grants`: finds the statement that lets an agent read what another remembers."""

    seq: int
    tenant_id: int
    owner_tag: bytes
    reader_tag: bytes

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"store.db grants seq {self.seq}"


@dataclass(frozen=True, slots=True)
class ErasureRow:
    """A row of `erasures`."""

    number: int
    tenant_id: int
    request: bytes
    state: str
    tombstone: int | None
    detail: bytes
    manifest: bytes | None

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"store.db erasures {self.number}"


@dataclass(frozen=True, slots=True)
class StoreFlaw:
    """Something in the store file that can't be read, or that SQLite itself calls unsound."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class StoreRows:
    """One snapshot of a store, or of one tenant of it."""

    tenants: tuple[TenantRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    facts: tuple[FactRow, ...] = ()
    acts: tuple[ActRow, ...] = ()
    conflicts: tuple[ConflictRow, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    requests: tuple[RequestRow, ...] = ()
    tokens: tuple[TokenRow, ...] = ()
    erasures: tuple[ErasureRow, ...] = ()
    openings: tuple[OpeningRow, ...] = ()
    backups: tuple[BackupRow, ...] = ()
    grants: tuple[GrantRow, ...] = ()
    stray_contents: tuple[int, ...] = ()
    """Rows of `contents` that no row of `events` has the number of."""
    meta: Mapping[str, int | bytes | str] = field(default_factory=dict)
    flaws: tuple[StoreFlaw, ...] = ()
    tenant_id: int | None = None
    """Set where the audit is of one tenant: the rows of others were not read."""
    many_writers: bool = False
    """Set where many nodes write: numbers of the whole store have gaps, and times go on within each tenant alone."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A row of `events`, decoded. `link` or `content` is None where its bytes are none, or do not open C."""

    row: EventRow
    link: Link | None
    content: Mapping[str, Any] | None

    @property
    def recorded_at(self) -> int | None:
        """When it was recorded, in microseconds, if its content is there to say so."""
        recorded_at = None if self.content is None else self.content.get("recorded_at")
        return recorded_at if type(recorded_at) is int else None


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The public files of a log. `names` is None where they can be read but not listed."""

    read: Callable[[str], bytes | None]
    names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Span:
    """The entries of one log under its checkpoint, which they lead to: from `start` on, `size` of them.

    `at` is when, in seconds, the quorum of the policy had seen the checkpoint; None if no witness dates it.
    """

    start: int
    size: int
    origin: str
    at: int | None
    verified: int = 0
    """The first entries whose signatures an earlier audit of the same trust has verified: they are these very bytes."""


class Signatures(Protocol):
    """What was found of the signatures of entries while something else was looked at."""

    def holds(self, index: int, key: CoseKey) -> bool:
        """Whether the signature of the entry at `index` was found to hold under this very key."""


@dataclass(frozen=True, slots=True)
class Entries:
    """What the logs hold, one after the other: the entries under checkpoints, then those that none covers yet.

    An entry is None where its bundle is missing or broken.
    """

    size: int
    """Entries that checkpoints cover."""
    entries: tuple[bytes | None, ...] = ()
    proved: bool = False
    """The entries lead to the root of the checkpoint."""
    spans: tuple[Span, ...] = ()
    successions: frozenset[int] = frozenset()
    """Where a log begins with the head that the one before it ended with."""
    others: frozenset[int] = frozenset()
    """Registration policies, and statements of other issuers: judged by those, and not the store's to answer for."""

    leaves: tuple[bytes, ...] = ()
    """The leaf hashes of the entries, up to the first that is missing."""
    ahead: Signatures | None = None

    def seen(self, index: int | None, entry: bytes) -> tuple[int | None, Logged | None]:
        """When witnesses had seen this entry, and the tree it is in; nothing if it does not stand at `index`."""
        span = self.span_of(index, entry)
        if span is None or index is None:
            return None, None
        return span.at, Logged(span.origin, index - span.start + 1)

    def holds(self, index: int | None, span: Span | None, key: CoseKey) -> bool:
        """Whether the signature of the entry at `index`, in its span, was verified under this key just now."""
        if self.ahead is None or index is None or span is None:
            return False
        return self.ahead.holds(index, key)

    def span_of(self, index: int | None, entry: bytes) -> Span | None:
        """The span in which this entry stands at `index`; None if it does not stand there, or in none."""
        if index is None or not 0 <= index < len(self.entries) or self.entries[index] != entry:
            return None
        return next((span for span in self.spans if span.start <= index < span.start + span.size), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What whoever asks brings: their trust, and the time. Times are in microseconds."""

    trust: Trust
    now: int
