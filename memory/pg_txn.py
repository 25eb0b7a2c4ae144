"""Views and transactions on PostgreSQL: what there is done otherwise than said by the SQL of the other modules.

A transaction is one tenant's, from when that is looked up: then the policies let its rows through, and a transaction
that writes holds the tenant's row. So what is written to a tenant is one history, whichever node writes it, and all
keys of it with it: its statements are numbered without a gap, which orders them anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory.event import COMMITMENT_BYTES, decode_content
from memory.pg_schema import SEQUENCES, TRUTHS, WHOLE
from memory.pg_seal import new_key, place_of, seal, unseal
from memory.pg_search import query_of, split, terms_of
from memory.rows import EventRow, Reserved, TenantRow
from memory.store_read import ID_BYTES, RECORDED_AT, Keeps, Snapshot, marks
from memory.store_write import Txn
from memory.vault import new_number
from tlog import cbor
from tlog.errors import MalformedError, RefusedError, VerificationError

if TYPE_CHECKING:
    from memory.model import Status
    from memory.pg_connection import PgConnection
    from memory.pg_vault import PgVault
    from memory.search import Document

_MAX_META_BYTES: Final = 1 << 20
_TERM_BYTES: Final = 8
_NAME: Final = "name"
_COLUMNS: Final = """
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# To set a sequence is its owner's; whoever may use one can go on until it is past a number.
_SKIP: Final = """
    SELECT max(nextval(%s::regclass))
    FROM generate_series(coalesce(pg_sequence_last_value(%s::regclass), 0) + 1, %s)
"""
_BIND: Final = "SELECT set_config('muniment.tenant', %s, true)"
_SET_META: Final = (
    "INSERT INTO meta (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_AHEAD: Final = """
    SELECT EXISTS (SELECT 1 FROM facts WHERE tenant = %s AND valid_from > recorded_at
                   AND status IN ('active', 'conflict')),
           EXISTS (SELECT 1 FROM ledger WHERE tenant = %s AND until IS NOT NULL)
"""


class _Bound(NamedTuple):
    """The tenant that a transaction is of."""

    id: int
    number: bytes


class PgSnapshot(Snapshot):
    """One consistent view of the store; of one tenant, or, if it is `whole`, of all."""

    def __init__(
        self, connection: PgConnection, vault: PgVault, keeps: Keeps | None, whole: bool, lock: str = ""
    ) -> None:
        super().__init__(connection, keeps)
        self.pg = connection
        self.vault = vault
        self.whole = whole
        self._lock = lock
        self._columns: dict[str, tuple[str, ...]] = {}
        self.bound: _Bound | None = None
        self.floors: dict[int, tuple[int, int]] = {}
        """By tenant that was looked up in a transaction that writes: last number and last time."""

    # Tenants and the store as a whole

    def tenant(self, name_tag: bytes) -> TenantRow | None:
        return self._tenant_where("name_tag = %s", name_tag)

    def tenant_by_id(self, tenant_id: int) -> TenantRow:
        row = self._tenant_where("id = %s", tenant_id)
        if row is None:
            raise LookupError("a row names a tenant that the store does not have")
        return row

    def enter(self, tenant_id: int) -> None:
        self.tenant_by_id(tenant_id)

    def _tenant_where(self, where: str, value: bytes | int) -> TenantRow | None:
        sql = f"SELECT id, number, name, last_seq, recorded_at FROM tenants WHERE {where}{self._lock}"
        row = self.pg.run(sql, (value,)).fetchone()
        if row is None:
            return None
        self.bind(row[0], row[1])
        self.floors[row[0]] = (row[3], row[4])
        return TenantRow(row[0], row[1], self.open_name(row[1], row[2]))

    def bind(self, tenant_id: int, number: bytes) -> None:
        """Lets the rows of a tenant through from now on, and in this transaction those of no other."""
        self.vault.note_tenant(tenant_id, number)
        if self.bound is not None and self.bound.id != tenant_id and not self.whole:
            raise RefusedError("expected a transaction of one tenant", code="tenant_bound")
        if self.bound is None or self.bound.id != tenant_id:
            self.bound = _Bound(tenant_id, number)
            self.pg.run(_BIND, (str(tenant_id),))

    def columns(self, table: str) -> tuple[str, ...]:
        if table not in self._columns:
            self._columns[table] = tuple(name for (name,) in self.pg.run(_COLUMNS, (table,)))
        return self._columns[table]

    def open_name(self, number: bytes, name: str) -> str:
        """The name of a tenant as the row of it has that."""
        if not name:
            return ""
        return unseal(self.vault.home_key, bytes.fromhex(name), place_of(_NAME, number)).decode()

    def named_tenant(self) -> tuple[str, bytes] | None:
        row = self.one("SELECT number, name, name_tag FROM tenants WHERE name <> '' ORDER BY id LIMIT 1")
        return None if row is None else (self.open_name(row[0], row[1]), row[2])

    def last_recorded_at(self) -> int:
        where = "" if self.bound is None or self.whole else f" WHERE id = {int(self.bound.id)}"
        row = self.pg.run(f"SELECT coalesce(max(recorded_at), 0) FROM tenants{where}").fetchone()
        return 0 if row is None else int(row[0])

    def meta(self, name: str) -> int | bytes | str | None:
        row = self.one("SELECT value FROM meta WHERE name = ?", name)
        if row is None:
            return None
        value = cbor.decode(row[0], max_bytes=_MAX_META_BYTES)
        assert isinstance(value, int | bytes | str)
        return value

    # Statements

    def seq_of(self, tenant_id: int, reference: bytes) -> int | None:
        if len(reference) == COMMITMENT_BYTES:
            row = self.one("SELECT seq FROM events WHERE tenant = ? AND commitment = ?", tenant_id, reference)
        elif len(reference) == ID_BYTES:
            row = self.one(
                "SELECT seq FROM events WHERE tenant = ? AND commitment BETWEEN ? AND ?",
                tenant_id,
                reference,
                reference + b"\xff" * (COMMITMENT_BYTES - ID_BYTES),
            )
        else:
            raise MalformedError("expected a commitment of 32 bytes or its first 16")
        return None if row is None else row[0]

    def commitment_of_any(self, seq: int) -> bytes | None:
        if self.whole:
            return super().commitment_of_any(seq)
        # Erasures are one chain over all tenants: what each has to name of the one before is its hash alone.
        self.pg.run(f"SET LOCAL ROLE {WHOLE}")
        try:
            return super().commitment_of_any(seq)
        finally:
            self.pg.run("SET LOCAL ROLE NONE")

    # Words

    def splitter(self) -> Callable[[str], list[str]]:
        return split()

    def matching(self, match: str, limit: int = -1, since: int = 0) -> list[int]:
        if self.bound is None:
            return []
        sql, values = query_of(match, self.blind, self.bound.id)
        sql, values = f"SELECT seq FROM ({sql}) m WHERE seq >= %s ORDER BY seq", [*values, since]
        if limit >= 0:
            sql, values = f"{sql} LIMIT %s", [*values, limit]
        return [seq for (seq,) in self.pg.run(sql, values)]

    def newest_matching(self, match: str, limit: int) -> list[int]:
        if self.bound is None:
            return []
        sql, values = query_of(match, self.blind, self.bound.id)
        found = self.pg.run(f"SELECT seq FROM ({sql}) m ORDER BY seq DESC LIMIT %s", [*values, limit])
        return [seq for (seq,) in found]

    def has_more(self, match: str, count: int) -> bool:
        return len(self.matching(match, count + 1)) > count

    def matching_of_status(
        self, tenant_id: int, agent_tag: bytes, match: str, statuses: Sequence[Status], limit: int = -1
    ) -> list[int]:
        if self.bound is None:
            return []
        sql, values = query_of(match, self.blind, self.bound.id)
        found = self.pg.run(
            f"""SELECT f.seq FROM ({sql}) m JOIN facts f ON f.seq = m.seq
                WHERE f.tenant = %s AND f.agent_tag = %s AND f.on_hold = 0
                AND f.status IN ({marks(statuses).replace("?", "%s")}) ORDER BY f.seq DESC LIMIT %s""",
            [*values, tenant_id, agent_tag, *statuses, None if limit < 0 else limit],
        )
        return [seq for (seq,) in found]

    def blind(self, word: str) -> int:
        """The hash that stands for a word of the tenant of this transaction."""
        assert self.bound is not None
        return _blind(self.vault, self.bound.number, word)


class PgTxn(Txn):
    """One writing transaction."""

    view: PgSnapshot

    def __init__(self, connection: PgConnection, vault: PgVault, keeps: Keeps | None, whole: bool) -> None:
        super().__init__(connection, keeps)
        self.pg = connection
        self.vault = vault
        # Whoever looks a tenant up to write has it to himself until the end.
        self.view = PgSnapshot(connection, vault, keeps, whole, " FOR UPDATE")

    def continue_after(self, seq: int) -> None:
        self.pg.run(_SKIP, ("event_seqs", "event_seqs", seq))
        self._tenant_seqs = {}

    def go_on(self) -> None:
        for sequence, table, column in SEQUENCES:
            last = self.pg.run(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()
            assert last is not None
            self.pg.run(_SKIP, (sequence, sequence, last[0]))

    def as_kept(self, column: str, value: Any) -> Any:
        return bool(value) if column in TRUTHS else value

    def put_tenant(self, row: Sequence[Any], name_tag: bytes, key: bytes | None) -> None:
        row_id, number, name, last_seq = row
        home_key = self.vault.home_key
        if key is not None:
            self.pg.run(
                "INSERT INTO tenant_keys (number, wrapped) VALUES (%s, %s)"
                " ON CONFLICT (number) DO UPDATE SET wrapped = excluded.wrapped",
                (number, seal(home_key, key, place_of("tenant", number))),
            )
        self.vault.note_keys(row_id, number, key)
        sealed = seal(home_key, name.encode(), place_of(_NAME, number)).hex() if name else ""
        self.pg.run(
            "INSERT INTO tenants (id, number, name_tag, name, last_seq) VALUES (%s, %s, %s, %s, %s)",
            (row_id, number, name_tag, sealed, last_seq),
        )

    def find_tenant(self, name_tag: bytes) -> TenantRow | None:
        found = self.view.tenant(name_tag)
        if found is None:
            return None
        row = self.pg.run(_AHEAD, (found.id, found.id)).fetchone()
        assert row is not None
        self.without_ahead = None if row[0] else found.id
        self.without_passing = None if row[1] else found.id
        return found

    def make_tenant(self, name: str, name_tag: bytes) -> TenantRow:
        known = self.find_tenant(name_tag)
        if known is not None:
            return known
        number = new_number()
        sealed = seal(self.vault.home_key, name.encode(), place_of(_NAME, number)).hex()
        # Whoever makes it at the same time waits here, and then finds it.
        self.pg.run(
            "INSERT INTO tenants (number, name_tag, name) VALUES (%s, %s, %s) ON CONFLICT (name_tag) DO NOTHING",
            (number, name_tag, sealed),
        )
        made = self.find_tenant(name_tag)
        assert made is not None
        return made

    def _earliest(self) -> int:
        # Of the tenant alone: there is no one time of all of them without all of them waiting for each other.
        return max((at for _, at in self.view.floors.values()), default=-1) + 1

    def reserve(self, tenant: TenantRow, content: Mapping[str, Any]) -> Reserved:
        if tenant.id not in self.view.floors:
            self.view.tenant_by_id(tenant.id)
        self._tenant_seqs[tenant.id] = self.view.floors[tenant.id][0]
        row = self.pg.run("SELECT nextval('event_seqs')").fetchone()
        assert row is not None
        self._last_seq = row[0] - 1
        return super().reserve(tenant, content)

    def keep_content(self, made: EventRow) -> None:
        assert made.content is not None and made.content_salt is not None
        key, tenant_key = new_key(), self.vault.sealing_key(made.tenant_id, make=True)
        subject = self._subject_of(made)
        wraps = tenant_key if subject is None else self._subject_key(made.tenant_id, subject, tenant_key)
        place = made.tenant_id, made.seq
        self.pg.run(
            "INSERT INTO content_keys (tenant, seq, subject, wrapped) VALUES (%s, %s, %s, %s)",
            (*place, subject, seal(wraps, key, place_of("record", *place))),
        )
        self.pg.run(
            "INSERT INTO content_boxes (tenant, seq, content, salt) VALUES (%s, %s, %s, %s)",
            (
                *place,
                seal(key, made.content, place_of("box", *place)),
                seal(key, made.content_salt, place_of("box", *place)),
            ),
        )

    def _subject_of(self, made: EventRow) -> bytes | None:
        """The tag of whom a statement is about, if it says that."""
        from memory import canon

        assert made.content is not None
        content = decode_content(made.content)
        agent, subject = content.get("agent"), content.get("subject")
        if not isinstance(agent, str) or not isinstance(subject, str):
            return None
        assert self.view.bound is not None
        return self.vault.tag(self.view.bound.number, "sealed", agent, canon.canonical_key(subject))

    def _subject_key(self, tenant_id: int, subject: bytes, tenant_key: bytes) -> bytes:
        place = place_of("subject", tenant_id)
        asked = "SELECT wrapped FROM subject_keys WHERE tenant = %s AND subject = %s"
        row = self.pg.run(asked, (tenant_id, subject)).fetchone()
        if row is not None:
            return unseal(tenant_key, row[0], place)
        key = new_key()
        self.pg.run(
            "INSERT INTO subject_keys (tenant, subject, wrapped) VALUES (%s, %s, %s)",
            (tenant_id, subject, seal(tenant_key, key, place)),
        )
        return key

    def drop_content(self, tenant_id: int, seq: int) -> None:
        place = tenant_id, seq
        gone = self.pg.run(
            "DELETE FROM content_keys WHERE tenant = %s AND seq = %s RETURNING subject", place
        ).fetchone()
        self.pg.run("DELETE FROM content_boxes WHERE tenant = %s AND seq = %s", place)
        if gone is not None and gone[0] is not None:
            # The last record of a subject takes the key of the subject along.
            self.pg.run(
                """DELETE FROM subject_keys s WHERE s.tenant = %s AND s.subject = %s AND NOT EXISTS
                   (SELECT 1 FROM content_keys k WHERE k.tenant = s.tenant AND k.subject = s.subject)""",
                (tenant_id, gone[0]),
            )

    def index_fact(self, seq: int, document: Document) -> None:
        assert self.view.bound is not None
        terms = terms_of(document, self.view.blind)
        self.pg.run(
            """INSERT INTO words (tenant, term, seq, places)
               SELECT %s, term, %s, place FROM unnest(%s::bigint[], %s::smallint[]) AS given (term, place)""",
            (self.view.bound.id, seq, list(terms), list(terms.values())),
        )

    def drop_words(self, documents: Iterable[tuple[int, Document]]) -> None:
        for seq, document in documents:
            assert self.view.bound is not None
            self.pg.run(
                "DELETE FROM words WHERE tenant = %s AND seq = %s AND term = ANY(%s::bigint[])",
                (self.view.bound.id, seq, list(terms_of(document, self.view.blind))),
            )

    def set_entry_indexes(self, pairs: Iterable[tuple[int, int]]) -> None:
        listed = list(pairs)
        seqs, indexes = [seq for seq, _ in listed], [index for _, index in listed]
        # A statement keeps the index it has, and no two have the same.
        self.pg.run(
            """UPDATE events e SET entry_index = given.index
               FROM unnest(%s::bigint[], %s::bigint[]) AS given (seq, index)
               WHERE e.seq = given.seq AND coalesce(e.entry_index, given.index) = given.index
               AND NOT EXISTS (SELECT 1 FROM events o WHERE o.entry_index = given.index AND o.seq <> given.seq)""",
            (seqs, indexes),
        )
        if self.pg.changes() != len(set(seqs)) or len(set(indexes)) != len(listed):
            raise VerificationError(
                "the log gave a statement another index than before, or that of another",
                code="index_changed",
            )

    def set_meta(self, name: str, value: int | bytes | str) -> None:
        if name == RECORDED_AT:
            # Each tenant has a time of its own, which never goes back.
            self.pg.run("UPDATE tenants SET recorded_at = greatest(recorded_at, %s)", (value,))
            return
        self.pg.run(_SET_META, (name, cbor.encode(value)))

    def _set_recorded_at(self, recorded_at: int) -> None:
        assert self.view.bound is not None
        tenant_id = self.view.bound.id
        self.pg.run("UPDATE tenants SET recorded_at = %s WHERE id = %s", (recorded_at, tenant_id))
        # Several statements of one transaction may be of one time, so what is the earliest stays what it was.
        self.view.floors[tenant_id] = (self._tenant_seqs[tenant_id], self.view.floors[tenant_id][1])


@lru_cache(maxsize=1 << 16)
def _blind(vault: PgVault, number: bytes, word: str) -> int:
    tag = vault.tag(number, "term", word)
    return int.from_bytes(tag[:_TERM_BYTES], "big", signed=True)
