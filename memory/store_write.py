"""Every INSERT and UPDATE of a write. A statement is made in one way: `Txn.add_event`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from memory import event
from memory.rows import EventRow, NewFact, Reserved, TenantRow, TokenRow
from memory.sql import NEW_CONTENT, NEW_EVENT, NEW_FACT, NEW_WORDS
from memory.store_ledger import knows_key
from memory.store_read import RECORDED_AT, Keeps, Snapshot
from memory.vault import new_number, new_salt
from tlog.errors import MalformedError, VerificationError

if TYPE_CHECKING:
    from memory.model import Status
    from memory.search import Document
    from memory.sql import Connection

Told = TypeVar("Told")
SignEntry = Callable[[bytes], bytes]
"""The signed entry that states a commitment C."""

# What becomes of a fact that a statement acts on, in the order of the fold (memory.timeline). `lifts` revives a
# refusal only when a person reaffirms it: a write that redeems a token stands in its place, the refusal stays.
_STATUS_AFTER: Final[Mapping[str, Status]] = {
    "conflicts": "conflict",
    "confirms": "active",
    "dates": "history",
    "keeps": "active",
    "lifts": "active",
    "discards": "discarded",
    "retires": "superseded",
    "retracts": "retracted",
}
_TENANT: Final = """
    SELECT id, number, name, last_seq, (SELECT value FROM meta WHERE name = ?), (SELECT max(seq) FROM events),
           EXISTS (SELECT 1 FROM facts f INDEXED BY facts_ahead WHERE f.tenant = t.id
                   AND f.valid_from > f.recorded_at AND f.status IN ('active', 'conflict')),
           EXISTS (SELECT 1 FROM ledger l INDEXED BY ledger_until WHERE l.tenant = t.id AND l.until IS NOT NULL)
    FROM tenants t WHERE name_tag = ?
"""
_ENDS: Final = frozenset({"retires", "retracts"})
_STARTS: Final = frozenset({"confirms", "lifts"})


# What a hold does to the fact that it names, and a release to the facts of the hold that it names.
_HOLDING: Final[Mapping[str, str]] = {
    "holds": "UPDATE facts SET on_hold = on_hold + 1 WHERE seq = ?1 AND tenant = ?2",
    "releases": """UPDATE facts SET on_hold = on_hold - 1 WHERE tenant = ?2
                   AND seq IN (SELECT target FROM acts WHERE seq = ?1 AND act = 'holds')""",
}


class Txn:
    """One writing transaction. `view` reads what it has written so far."""

    def __init__(self, connection: Connection, keeps: Keeps | None = None) -> None:
        self.connection = connection
        self.view = Snapshot(connection, keeps)
        # Nobody else writes while this lasts, so what was counted once goes on from there.
        self._floor: int | None = None
        self._last_seq: int | None = None
        self._tenant_seqs: dict[int, int] = {}
        self._told: dict[Callable[[], Any], Any] = {}
        self.without_ahead: int | None = None
        """The tenant, if it had no record written ahead when it was looked up: nothing of it can have begun."""
        self.without_passing: int | None = None
        """The tenant, if nothing of it was retired for a time when it was looked up."""

    def once(self, ask: Callable[[], Told]) -> Told:
        """What `ask` gave when it was first asked in this transaction."""
        if ask not in self._told:
            self._told[ask] = ask()
        told: Told = self._told[ask]
        return told

    def settle(self) -> None:
        """Returns once all that was written is in the store: here it is at once."""

    def look_again(self) -> None:
        """What was looked up of a tenant may be another thing now."""

    def stamp(self, now: int) -> int:
        """The recorded_at of this transaction: `now`, or just past the latest there is if the clock went back."""
        return max(now, self._earliest())

    def continue_after(self, seq: int) -> None:
        """The next statement gets the number after this one: those before it are lost, and theirs are not reused."""
        self._last_seq, self._tenant_seqs = seq, {}

    def find_tenant(self, name_tag: bytes) -> TenantRow | None:
        """The tenant found by the keyed hash of its name, and with one look what `stamp` and `add_event` go on from."""
        row = self.view.one(_TENANT, RECORDED_AT, name_tag)
        if row is None:
            return None
        row_id, number, name, tenant_seq, recorded_at, last_seq, ahead, passing = row
        self.without_ahead = None if ahead else row_id
        self.without_passing = None if passing else row_id
        if self._floor is None:
            self._floor = int(recorded_at or 0) + 1
        self._last_seq = last_seq or 0
        # What was counted since the transaction began need not be noted yet.
        self._tenant_seqs.setdefault(row_id, tenant_seq)
        return TenantRow(row_id, number, name)

    def knows_key(self, tenant_id: int, key_tag: bytes) -> bool:
        """Whether there is a fact of a key, whatever its status, or a value that the key has retired."""
        return knows_key(self.view, tenant_id, key_tag)

    def make_tenant(self, name: str, name_tag: bytes) -> TenantRow:
        """The tenant of this name, made if the store does not have it."""
        known = self.find_tenant(name_tag)
        if known is not None:
            return known
        number = new_number()
        made = self.view.rows(
            "INSERT INTO tenants (number, name_tag, name) VALUES (?, ?, ?) RETURNING id",
            number,
            name_tag,
            name,
        )
        return TenantRow(made[0][0], number, name)

    # Statements

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
        return self.add_reserved(self.reserve(tenant, content), kind, sign=sign, acts=acts, details=details)

    def reserve(self, tenant: TenantRow, content: Mapping[str, Any]) -> Reserved:
        """What the statement with this content is going to be, which has to be the next one that is added."""
        recorded_at = content.get(RECORDED_AT)
        if type(recorded_at) is not int or recorded_at < self._earliest():
            raise MalformedError("expected recorded_at to be the stamp of this transaction")
        if self._last_seq is None:
            self._last_seq = self._number("SELECT coalesce(max(seq), 0) FROM events")
        if tenant.id not in self._tenant_seqs:
            self._tenant_seqs[tenant.id] = self._number(
                "SELECT last_seq FROM tenants WHERE id = ?", tenant.id
            )
        encoded = event.encode_content(content)
        link_salt, content_salt = new_salt(), new_salt()
        return Reserved(
            tenant,
            self._last_seq + 1,
            self._tenant_seqs[tenant.id] + 1,
            link_salt,
            encoded,
            content_salt,
            event.content_hash(encoded, content_salt),
            recorded_at,
        )

    def add_reserved(
        self,
        reserved: Reserved,
        kind: str,
        *,
        sign: SignEntry,
        acts: Mapping[str, Sequence[bytes]] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> EventRow:
        """The statement that was reserved, as `add_event` makes it."""
        link = event.Link(
            kind,
            reserved.seq,
            reserved.tenant.number,
            reserved.tenant_seq,
            {name: tuple(targets) for name, targets in acts.items() if targets} if acts else {},
            {name: value for name, value in details.items() if value is not None} if details else {},
        ).encode()
        commitment = event.commitment(event.link_hash(link, reserved.link_salt), reserved.content_hash)
        made = EventRow(
            reserved.seq,
            reserved.tenant.id,
            reserved.tenant_seq,
            commitment,
            link,
            reserved.link_salt,
            reserved.content_hash,
            self._entry(commitment, sign),
            None,
            reserved.content,
            reserved.content_salt,
        )
        self._insert(made, sign)
        self._last_seq, self._tenant_seqs[made.tenant_id] = made.seq, made.tenant_seq
        self._note(made, reserved.recorded_at)
        if acts:
            self.apply_acts(made, kind, acts, reserved.recorded_at)
        return made

    def _entry(self, commitment: bytes, sign: SignEntry) -> bytes:
        return sign(commitment)

    def _insert(self, made: EventRow, sign: SignEntry) -> None:
        self.connection.execute(NEW_EVENT, made[:8])
        self.keep_content(made)

    def _note(self, made: EventRow, recorded_at: int) -> None:
        """Keeps what the next transaction goes on from."""
        self.set_last_seq(made.tenant_id, made.tenant_seq)
        self._set_recorded_at(recorded_at)

    def set_last_seq(self, tenant_id: int, tenant_seq: int) -> None:
        """Keeps how many statements a tenant has."""
        self.connection.execute("UPDATE tenants SET last_seq = ? WHERE id = ?", (tenant_seq, tenant_id))

    def keep_content(self, made: EventRow) -> None:
        """Keeps what an erasure destroys of a statement."""
        self.connection.execute(NEW_CONTENT, (made.seq, made.content, made.content_salt))

    def drop_content(self, tenant_id: int, seq: int) -> None:
        """Destroys what was kept of a statement of a tenant."""
        self.connection.execute("DELETE FROM contents WHERE seq = ?", (seq,))

    def drop_words(self, documents: Iterable[tuple[int, Document]]) -> None:
        """Takes the words of facts out of the index, each by the very columns it was made of."""
        from memory.store_words import remove_words

        remove_words(self, documents)

    def apply_acts(
        self, made: EventRow, kind: str, acts: Mapping[str, Sequence[bytes]], recorded_at: int
    ) -> None:
        """Does to the facts that a statement names what it says, and notes that it did."""
        reached = [(act, self._target(made, target)) for act, targets in acts.items() for target in targets]
        if not reached:
            return
        for act, seq in reached:
            self.connection.execute(
                "INSERT INTO acts (tenant, target, seq, act) VALUES (?, ?, ?, ?)",
                (made.tenant_id, seq, made.seq, act),
            )
            if act in _HOLDING:
                self.connection.execute(_HOLDING[act], (seq, made.tenant_id))
        for act, status in _STATUS_AFTER.items():
            if act != "lifts" or kind == "reaffirm":
                for seq in [seq for name, seq in reached if name == act]:
                    self._set_status(made, act, seq, status, recorded_at)

    def _target(self, made: EventRow, commitment: bytes) -> int:
        seq = self.view.seq_of(made.tenant_id, commitment)
        if seq is None or seq >= made.seq:
            raise MalformedError("expected an act to name an earlier statement of its tenant")
        return seq

    def _set_status(self, made: EventRow, act: str, seq: int, status: Status, recorded_at: int) -> None:
        ended = (recorded_at, made.seq) if act in _ENDS else (None, None)
        # As in the fold: what was held or refused holds from now on, unless its writer said since when.
        starts = recorded_at if act in _STARTS else None
        self.connection.execute(
            """UPDATE facts SET status = ?1, replaced_at = ?2, replaced_by = ?3,
                   valid_from = CASE WHEN declared OR ?4 IS NULL THEN valid_from ELSE max(valid_from, ?4) END
               WHERE seq = ?5 AND tenant = ?6""",
            (status, *ended, starts, seq, made.tenant_id),
        )

    def set_entry_indexes(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Takes statements out of the outbox: pairs of their number and the index the log gave them."""
        for seq, index in pairs:
            # A statement keeps the index it has, and no two have the same.
            self.connection.execute(
                """UPDATE events SET entry_index = ?1 WHERE seq = ?2 AND coalesce(entry_index, ?1) = ?1
                   AND NOT EXISTS (SELECT 1 FROM events WHERE entry_index = ?1 AND seq <> ?2)""",
                (index, seq),
            )
            if self.connection.changes() != 1:
                raise VerificationError(
                    "the log gave a statement another index than before, or that of another",
                    code="index_changed",
                    seq=seq,
                )

    def as_kept(self, column: str, value: Any) -> Any:
        """A value of a row of a file, as this engine has that column."""
        return value

    def put_tenant(self, row: Sequence[Any], name_tag: bytes, key: bytes | None) -> None:
        """A tenant as it was: row id, random number, name, last number; with its keys, where the store has those."""
        sql = "INSERT INTO tenants (id, number, name, last_seq, name_tag) VALUES (?, ?, ?, ?, ?)"
        self.connection.execute(sql, (*row, name_tag))

    def go_on(self) -> None:
        """Has new rows numbered after those that are there."""

    # Facts and their words

    def add_fact(self, made: EventRow, fact: NewFact) -> None:
        """The row of a write in the cache of the fold."""
        self.connection.execute(NEW_FACT, (made.seq, made.tenant_id, *fact))

    def index_fact(self, seq: int, document: Document) -> None:
        """Makes the words of a fact findable; what is withheld from the start is not indexed."""
        self.connection.execute(NEW_WORDS, (seq, *document.columns))

    # Conflicts

    def open_conflict(self, made: EventRow, agent_tag: bytes, key_tag: bytes) -> None:
        """Records a disagreement about a key; one that is open already goes on."""
        self.connection.execute(
            "INSERT OR IGNORE INTO conflicts (seq, tenant, agent_tag, key_tag) VALUES (?, ?, ?, ?)",
            (made.seq, made.tenant_id, agent_tag, key_tag),
        )

    def close_conflict(self, tenant_id: int, key_tag: bytes, closed_by: int) -> None:
        """Settles the open disagreement about a key, if there is one."""
        self.connection.execute(
            "UPDATE conflicts SET closed_by = ? WHERE tenant = ? AND key_tag = ? AND closed_by IS NULL",
            (closed_by, tenant_id, key_tag),
        )

    # Idempotency keys and tokens

    def add_idempotency(
        self, tenant_id: int, request_tag: bytes, body_tag: bytes, seq: int, answer: str
    ) -> None:
        """Notes what an idempotency key was used for."""
        self.connection.execute(
            "INSERT INTO idempotency (tenant, request_tag, body_tag, seq, answer) VALUES (?, ?, ?, ?, ?)",
            (tenant_id, request_tag, body_tag, seq, answer),
        )

    def add_token(
        self,
        tenant_id: int,
        token_hash: bytes,
        purpose: str,
        bound: bytes,
        expires_at: int,
        target: int | None = None,
    ) -> None:
        """Notes a token, by its hash, with what it is bound to."""
        self.connection.execute(
            """INSERT INTO tokens (tenant, token_hash, purpose, bound, target, expires_at)
               VALUES (?, ?, ?, ?, ?, ?)""",
            (tenant_id, token_hash, purpose, bound, target, expires_at),
        )

    def take_token(self, tenant_id: int, token_hash: bytes, purpose: str, now: int) -> TokenRow | None:
        """The token with this hash, which is gone once the transaction commits; None if it does not hold.

        Tokens that have expired are removed with it.
        """
        self.drop_expired_tokens(now)
        row = self.view.rows(
            """DELETE FROM tokens WHERE tenant = ? AND token_hash = ? AND purpose = ?
               RETURNING bound, target, expires_at""",
            tenant_id,
            token_hash,
            purpose,
        )
        return TokenRow(*row[0]) if row else None

    def drop_expired_tokens(self, now: int) -> None:
        """Removes tokens that nobody can redeem any more."""
        self.connection.execute("DELETE FROM tokens WHERE expires_at <= ?", (now,))

    # Settings

    def set_meta(self, name: str, value: int | bytes | str) -> None:
        """Keeps a value of the store itself; never content."""
        # The row stays where it is, and with it the index of names.
        self.connection.execute(
            """INSERT INTO meta (name, value) VALUES (?, ?)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value""",
            (name, value),
        )

    def _set_recorded_at(self, recorded_at: int) -> None:
        self.set_meta(RECORDED_AT, recorded_at)

    def _earliest(self) -> int:
        if self._floor is None:
            self._floor = self.view.last_recorded_at() + 1
        return self._floor

    def _number(self, sql: str, *values: object) -> int:
        return int(self.view.rows(sql, *values)[0][0])
