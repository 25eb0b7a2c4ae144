"""A writing transaction that several writes share: what each of them would look up or note again is, once.

What it keeps in memory is true as long as the transaction lasts, for nobody else writes meanwhile. What a later
transaction goes on from is written as it ends, before it is committed: a commit that fails leaves nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.store_late import UNSIGNED, LateRows
from memory.store_ledger import knows_key
from memory.store_read import RECORDED_AT, Snapshot
from memory.store_write import SignEntry, Txn

if TYPE_CHECKING:
    import apsw

    from memory.rows import EventRow, NewFact, TenantRow
    from memory.search import Document
    from memory.store_read import Keeps


class SharedTxn(Txn):
    """One transaction for several writes, of which each begins with `next_write`."""

    def __init__(self, connection: apsw.Connection, keeps: Keeps | None = None) -> None:
        self._rows = LateRows(connection)
        super().__init__(self._rows, keeps)
        self._now = Snapshot(connection)
        """What is in the store without the rows that wait."""
        self._tenants: dict[bytes, tuple[TenantRow, int | None, int | None]] = {}
        self._recorded_at: int | None = None
        self._last_seqs: dict[int, int] = {}

    def changed(self) -> int:
        """How many rows have been changed so far; statements that were undone count as well."""
        return self._rows.total_changes()

    def next_write(self) -> SharedTxn:
        """The transaction for another write, whose stamp is later than those of the writes before it."""
        if self._recorded_at is not None:
            self._floor = self._recorded_at + 1
        return self

    def settle(self) -> None:
        self._rows.settle()

    def finish(self) -> None:
        """Notes what the next transaction goes on from; nothing is written after it."""
        self.settle()
        for tenant_id, tenant_seq in self._last_seqs.items():
            self.set_last_seq(tenant_id, tenant_seq)
        if self._recorded_at is not None:
            self.set_meta(RECORDED_AT, self._recorded_at)

    def find_tenant(self, name_tag: bytes) -> TenantRow | None:
        known = self._tenants.get(name_tag)
        if known is not None:
            tenant, self.without_ahead, self.without_passing = known
            return tenant
        found = super().find_tenant(name_tag)
        if found is not None:
            self._tenants[name_tag] = found, self.without_ahead, self.without_passing
        return found

    def look_again(self) -> None:
        self._tenants.clear()

    def add_fact(self, made: EventRow, fact: NewFact) -> None:
        self._rows.add_fact(made, fact)
        if fact.valid_from > fact.recorded_at:
            self.look_again()

    def index_fact(self, seq: int, document: Document) -> None:
        self._rows.add_words(seq, document)

    def knows_key(self, tenant_id: int, key_tag: bytes) -> bool:
        return self._rows.waits_for(tenant_id, key_tag) or knows_key(self._now, tenant_id, key_tag)

    def _entry(self, commitment: bytes, sign: SignEntry) -> bytes:
        return UNSIGNED

    def _insert(self, made: EventRow, sign: SignEntry) -> None:
        self._rows.add_statement(made, sign)

    def _note(self, made: EventRow, recorded_at: int) -> None:
        self._recorded_at, self._last_seqs[made.tenant_id] = recorded_at, made.tenant_seq
