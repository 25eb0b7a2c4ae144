"""Every INSERT and UPDATE of a write. A statement is made in one way: `Txn.add_event`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memory import event
from memory.rows import EventRow, LedgerRow, TenantRow, TokenRow
from memory.store_read import RECORDED_AT, Snapshot
from memory.vault import new_number, new_salt
from tlog.errors import MalformedError

if TYPE_CHECKING:
    import apsw

    from memory.model import Status
    from memory.search import Document

SignEntry = Callable[[bytes], bytes]
"""The signed entry that states a commitment C."""

# What becomes of a fact that a statement acts on. `lifts` revives a refusal only when a person reaffirms it:
# a write that redeems a token stands in its place, and the refusal stays one.
_STATUS_AFTER: Final[Mapping[str, Status]] = {
    "retires": "superseded",
    "retracts": "retracted",
    "confirms": "active",
    "discards": "discarded",
    "keeps": "active",
    "conflicts": "conflict",
}
_ENDS: Final = frozenset({"retires", "retracts"})


class Txn:
    """One writing transaction. `view` reads what it has written so far."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.view = Snapshot(connection)

    def stamp(self, now: int) -> int:
        """The recorded_at of this transaction: `now`, or just after the latest there is if the clock went back."""
        return max(now, self.view.last_recorded_at() + 1)

    def make_tenant(self, name: str, name_tag: bytes) -> TenantRow:
        """The tenant of this name, made if the store does not have it."""
        known = self.view.tenant(name_tag)
        if known is not None:
            return known
        number = new_number()
        self.connection.execute(
            "INSERT INTO tenants (number, name_tag, name) VALUES (?, ?, ?)", (number, name_tag, name)
        )
        return TenantRow(self.connection.last_insert_rowid(), number, name)

    def add_event(
        self,
        tenant: TenantRow,
        kind: str,
        content: Mapping[str, Any],
        *,
        sign: SignEntry,
        acts: Mapping[str, Sequence[bytes]] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> EventRow:
        """A new statement, signed and in the outbox, its acts applied to the facts they name.

        `content` carries `recorded_at`, from `stamp`. The numbers are part of what is signed, so this happens
        inside the transaction: a statement that is undone leaves no gap.
        """
        recorded_at = content.get(RECORDED_AT)
        if type(recorded_at) is not int or recorded_at <= self.view.last_recorded_at():
            raise MalformedError("expected recorded_at to come from this transaction")
        ...


# skeleton
