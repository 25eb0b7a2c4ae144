"""What the store hands out: rows as tuples with names, never a cursor. One is made for each row that is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from memory.model import KnownFact, Status, fact_id, own_name


class TenantRow(NamedTuple):
    """A tenant: its row id, and the random number that stands for it in links."""

    id: int
    number: bytes
    name: str


class EventRow(NamedTuple):
    """One statement. `content` and `content_salt` are None once it is erased; `entry_index` until it is logged."""

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
    def id(self) -> str:
        """The id people use for this statement."""
        return fact_id(self.commitment)


EVENT_COLUMNS: Final = (
    "seq",
    "tenant",
    "tenant_seq",
    "commitment",
    "link",
    "link_salt",
    "content_hash",
    "entry",
    "entry_index",
)
"""The columns of `events`, in the order of the row: those of contents follow in an EventRow."""


class OutboxRow(NamedTuple):
    """A statement that is not in the log yet."""

    seq: int
    commitment: bytes
    entry: bytes


class FactRow(NamedTuple):
    """One write whose content is still there, with its place in the fold."""

    seq: int
    tenant_id: int
    commitment: bytes
    entry_index: int | None
    agent_tag: bytes
    key_tag: bytes | None
    status: Status
    valid_from: int
    valid_until: int | None
    recorded_at: int
    replaced_at: int | None
    end_erased: bool
    content: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The id people use for this fact."""
        return fact_id(self.commitment)

    @property
    def as_known(self) -> KnownFact:
        """The fact as the guard is told of it."""
        content = self.content
        flags = content.get("flags", ())
        return KnownFact(
            commitment=self.commitment,
            status=self.status,
            client=own_name(content["client"], "reported" in flags),
            text=content["text"],
            value=content.get("value"),
            valid_from=self.valid_from,
            valid_until=self.valid_until,
            recorded_at=self.recorded_at,
            many="many" in flags,
        )


class ActRow(NamedTuple):
    """One act of a statement on another; `recorded_at` is None once the acting statement is erased."""

    seq: int
    commitment: bytes
    act: str
    recorded_at: int | None


class SelectedFact(NamedTuple):
    """A fact that an erasure or a retention would remove, unless it is on hold."""

    seq: int
    commitment: bytes
    status: Status
    content: Mapping[str, Any]
    on_hold: int = 0

    @property
    def id(self) -> str:
        """The id people use for this fact."""
        return fact_id(self.commitment)


class TokenRow(NamedTuple):
    """A single-use token that was redeemed: what it was bound to, and the refusal it lifts."""

    bound: bytes
    target: int | None
    expires_at: int


class ConflictRow(NamedTuple):
    """A disagreement: the statement that opened it, and the one that closed it."""

    seq: int
    commitment: bytes
    key_tag: bytes
    closed_by: int | None

    @property
    def id(self) -> str:
        """The id people use for this disagreement: that of the statement that opened it."""
        return fact_id(self.commitment)


class LedgerHit(NamedTuple):
    """A retired value that was looked for, and a key that it was retired for."""

    value_tag: bytes
    key_tag: bytes
    name_tags: tuple[bytes, ...]
    blind: bool = False
    """The fact that said it is erased"""


class LedgerRow(NamedTuple):
    """A value that a key retires, as keyed hashes. `source_seq` is the fact that held it."""

    agent_tag: bytes
    key_tag: bytes
    subject_tag: bytes | None
    value_tag: bytes
    name_tags: tuple[bytes, ...]
    word_count: int
    canon_version: int
    source_seq: int | None
    until: int | None = None
    """Until when what replaced it holds, where that says so itself"""


class OlderRow(NamedTuple):
    """A row of the ledger under older rules, and the content of the fact that it is of."""

    id: int
    row: LedgerRow
    expires_at: int | None
    content: Mapping[str, Any]


class IdempotencyRow(NamedTuple):
    """What an idempotency key was used for; an empty `body_tag` means that the statement is erased."""

    body_tag: bytes
    seq: int
    answer: str


class ErasureRow(NamedTuple):
    """One erasure: `state` is executing or done; `detail` is dCBOR without content."""

    number: int
    tenant_id: int
    request: bytes
    state: str
    tombstone_seq: int | None
    detail: bytes
    manifest: bytes | None


class NewFact(NamedTuple):
    """The row of a write, as the fold of the statements up to now has it."""

    agent_tag: bytes
    key_tag: bytes | None
    subject_tag: bytes | None
    text_tag: bytes
    status: Status
    valid_from: int
    declared: bool
    valid_until: int | None
    recorded_at: int


class Reserved(NamedTuple):
    """The numbers, salts and content that the next statement will have, for whoever has to name them first."""

    tenant: TenantRow
    seq: int
    tenant_seq: int
    link_salt: bytes
    content: bytes
    content_salt: bytes
    content_hash: bytes
    recorded_at: int
