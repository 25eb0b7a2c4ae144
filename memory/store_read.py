"""Every SELECT of the store that reads and serving need. All of them carry the tenant."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from memory.event import COMMITMENT_BYTES, Link, decode_content, decode_link
from memory.rows import (
    ActRow,
    ConflictRow,
    ErasureRow,
    EventRow,
    FactRow,
    IdempotencyRow,
    OutboxRow,
    TenantRow,
)
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.model import Status
    from memory.sql import Connection

ID_BYTES: Final = 16
RECORDED_AT: Final = "recorded_at"
_EVENT: Final = """
    SELECT e.seq, e.tenant, e.tenant_seq, e.commitment, e.link, e.link_salt, e.content_hash, e.entry,
           e.entry_index, c.content, c.salt
    FROM events e LEFT JOIN contents c ON c.seq = e.seq
"""
FACT: Final = """
    SELECT f.seq, f.tenant, e.commitment, e.entry_index, f.agent_tag, f.key_tag, f.status, f.valid_from,
           f.valid_until, f.recorded_at, f.replaced_at, f.end_erased, c.content
    FROM facts f CROSS JOIN events e ON e.seq = f.seq AND f.on_hold = 0 CROSS JOIN contents c ON c.seq = f.seq
"""
_LISTED: Final = FACT.replace("FROM facts f", "FROM json_each(?) j CROSS JOIN facts f ON f.seq = j.value")
"""The facts of a list of numbers, in its order."""
_OPEN_CONFLICT: Final = """
    SELECT c.seq, e.commitment, c.key_tag, c.closed_by FROM conflicts c CROSS JOIN events e ON e.seq = c.seq
    WHERE c.tenant = ? AND c.closed_by IS NULL
"""
_ERASURE: Final = "SELECT number, tenant, request, state, tombstone, detail, manifest FROM erasures"


Keeps = Callable[[FactRow], bool]


class Snapshot:
    """One consistent view of the store, as long as its transaction lasts."""

    def __init__(self, connection: Connection, keeps: Keeps | None = None) -> None:
        self.connection = connection
        self.keeps = keeps
        """Which facts are within their retention, None for all: the others are in no answer."""

    # Tenants and the store as a whole

    def tenant(self, name_tag: bytes) -> TenantRow | None:
        """The tenant found by the keyed hash of its name."""
        row = self.one("SELECT id, number, name FROM tenants WHERE name_tag = ?", name_tag)
        return None if row is None else TenantRow(*row)

    def tenant_by_id(self, tenant_id: int) -> TenantRow:
        """The tenant of a row id that a row of the store names."""
        row = self.one("SELECT id, number, name FROM tenants WHERE id = ?", tenant_id)
        if row is None:
            raise LookupError("a row names a tenant that the store does not have")
        return TenantRow(*row)

    def enter(self, tenant_id: int) -> None:
        """Has the view be of this tenant: for whoever knows it already, and looks for none by its name."""

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of a table, by the schema."""
        return tuple(row[1] for row in self.rows(f"PRAGMA table_info({table})"))

    def open_name(self, number: bytes, name: str) -> str:
        """The name of a tenant as the row of it has that."""
        return name

    def named_tenant(self) -> tuple[str, bytes] | None:
        """Name and name_tag of a tenant whose name is still there, if there is one."""
        row = self.one("SELECT name, name_tag FROM tenants WHERE name <> '' ORDER BY id LIMIT 1")
        return None if row is None else (row[0], row[1])

    def agent_of_a_fact(self, tenant_id: int) -> tuple[str, bytes] | None:
        """The agent of some fact of a tenant, from its content, and the tag that the row has for it."""
        row = self.one(
            "SELECT c.content, f.agent_tag FROM facts f JOIN contents c ON c.seq = f.seq WHERE f.tenant = ? LIMIT 1",
            tenant_id,
        )
        return None if row is None else (decode_content(row[0])["agent"], row[1])

    def last_recorded_at(self) -> int:
        """The latest recorded_at there is; 0 in an empty store."""
        return int(self.meta(RECORDED_AT) or 0)

    def meta(self, name: str) -> int | bytes | str | None:
        """A value of the store itself, None if it was never set."""
        row = self.one("SELECT value FROM meta WHERE name = ?", name)
        return None if row is None else row[0]

    def counts(self) -> dict[str, int]:
        """How many statements, statements not yet logged, facts with content, tenants and erasures there are."""
        row = self.one(
            """SELECT (SELECT count(*) FROM events),
                      (SELECT count(*) FROM events WHERE entry_index IS NULL),
                      (SELECT count(*) FROM facts), (SELECT count(*) FROM tenants),
                      (SELECT count(*) FROM erasures)"""
        )
        assert row is not None
        return dict(zip(("statements", "unlogged", "facts", "tenants", "erasures"), row, strict=True))

    def status_counts(self, tenant_id: int, agent_tag: bytes) -> dict[str, int]:
        """How many facts of a scope have each status."""
        sql = "SELECT status, count(*) FROM facts WHERE tenant = ? AND agent_tag = ? GROUP BY status"
        return dict(self.rows(sql, tenant_id, agent_tag))

    # Statements

    def event(self, tenant_id: int, reference: bytes) -> EventRow | None:
        """The statement of a tenant with this commitment, or whose commitment starts with these 16 bytes."""
        seq = self.seq_of(tenant_id, reference)
        return None if seq is None else self.event_by_seq(seq)

    def event_by_seq(self, seq: int) -> EventRow | None:
        """The statement with this number."""
        row = self.one(f"{_EVENT} WHERE e.seq = ?", seq)
        return None if row is None else EventRow(*row)

    def events(self, tenant_id: int, after_seq: int, limit: int) -> tuple[EventRow, ...]:
        """Statements of a tenant after a number, in order."""
        rows = self.rows(
            f"{_EVENT} WHERE e.tenant = ? AND e.seq > ? ORDER BY e.seq LIMIT ?", tenant_id, after_seq, limit
        )
        return tuple(EventRow(*row) for row in rows)

    def seq_of(self, tenant_id: int, reference: bytes) -> int | None:
        """The number of the statement of a tenant that a commitment or its first 16 bytes stand for."""
        if len(reference) == COMMITMENT_BYTES:
            row = self.one("SELECT seq, tenant FROM events WHERE commitment = ?", reference)
        elif len(reference) == ID_BYTES:
            row = self.one(
                "SELECT seq, tenant FROM events WHERE commitment BETWEEN ? AND ?",
                reference,
                reference + b"\xff" * (COMMITMENT_BYTES - ID_BYTES),
            )
        else:
            raise MalformedError("expected a commitment of 32 bytes or its first 16")
        return row[0] if row is not None and row[1] == tenant_id else None

    def commitments(self, seqs: Iterable[int]) -> dict[int, bytes]:
        """The commitments of statements by their numbers."""
        found = {}
        for seq in seqs:
            row = self.one("SELECT commitment FROM events WHERE seq = ?", seq)
            if row is not None:
                found[seq] = row[0]
        return found

    def commitment_of_any(self, seq: int) -> bytes | None:
        """The commitment of a statement of whatever tenant."""
        return self.commitments((seq,)).get(seq)

    def unlogged(self, limit: int) -> tuple[OutboxRow, ...]:
        """Statements that are not in the log yet, in order."""
        rows = self.rows(
            "SELECT seq, commitment, entry FROM events WHERE entry_index IS NULL ORDER BY seq LIMIT ?", limit
        )
        return tuple(OutboxRow(*row) for row in rows)

    def last_logged_index(self) -> int:
        """The largest log index that a statement was given; -1 if none was."""
        row = self.one("SELECT max(entry_index) FROM events WHERE entry_index IS NOT NULL")
        return -1 if row is None or row[0] is None else int(row[0])

    def links(self, seqs: Iterable[int]) -> dict[int, Link]:
        """What statements say that is kept for good, by their numbers."""
        found = {}
        for seq in seqs:
            row = self.one("SELECT link FROM events WHERE seq = ?", seq)
            if row is not None:
                found[seq] = decode_link(row[0])
        return found

    def acts_on(self, tenant_id: int, target_seq: int) -> tuple[ActRow, ...]:
        """What statements did to one statement, in order."""
        rows = self.rows(
            """SELECT a.seq, e.commitment, a.act, c.content
               FROM acts a CROSS JOIN events e ON e.seq = a.seq LEFT JOIN contents c ON c.seq = a.seq
               WHERE a.tenant = ? AND a.target = ? ORDER BY a.seq""",
            tenant_id,
            target_seq,
        )
        return tuple(
            ActRow(seq, commitment, act, _recorded_at(content)) for seq, commitment, act, content in rows
        )

    # Facts. What is on hold (memory.store_holds) is in none of these, nor what is past its retention.

    def fact(self, tenant_id: int, agent_tag: bytes, reference: bytes) -> FactRow | None:
        """The fact of a scope that a commitment or its first 16 bytes stand for, whatever its status."""
        seq = self.seq_of(tenant_id, reference)
        found = () if seq is None else self.facts_by_seq(tenant_id, agent_tag, (seq,))
        return found[0] if found else None

    def facts_by_seq(self, tenant_id: int, agent_tag: bytes, seqs: Iterable[int]) -> tuple[FactRow, ...]:
        """Facts of a scope by their numbers, in the order asked for; those that are not there are left out."""
        rows = self.rows(
            f"{_LISTED} WHERE f.tenant = ? AND f.agent_tag = ?", json.dumps(list(seqs)), tenant_id, agent_tag
        )
        return self.kept(rows)

    def facts_of_key(
        self, tenant_id: int, key_tag: bytes, statuses: Sequence[Status] | None = None
    ) -> tuple[FactRow, ...]:
        """The facts of a key in the order they were recorded, of some statuses or of all."""
        if statuses is None:
            rows = self.rows(
                f"{FACT} WHERE f.tenant = ? AND f.key_tag = ? ORDER BY f.seq", tenant_id, key_tag
            )
        else:
            rows = self.rows(_of_key(len(statuses)), tenant_id, key_tag, *statuses)
        return self.kept(rows)

    def waiting(self, tenant_id: int, agent_tag: bytes, limit: int) -> tuple[FactRow, ...]:
        """The newest facts of a scope that are held, or refused and not lifted since: oldest of them first."""
        rows = self.rows(
            f"""{FACT} WHERE f.tenant = ? AND f.agent_tag = ? AND f.status IN ('held', 'refused')
                AND NOT EXISTS (SELECT 1 FROM acts a
                                WHERE a.tenant = f.tenant AND a.target = f.seq AND a.act = 'lifts')
                ORDER BY f.seq DESC LIMIT ?""",
            tenant_id,
            agent_tag,
            limit,
        )
        return self.kept(rows[::-1])

    def facts_of_text(
        self, tenant_id: int, text_tag: bytes, statuses: Sequence[Status]
    ) -> tuple[FactRow, ...]:
        """The facts of a scope that say the same in so many words, of some statuses."""
        rows = self.rows(
            f"{FACT} WHERE f.tenant = ? AND f.text_tag = ? AND f.status IN ({marks(statuses)}) ORDER BY f.seq",
            tenant_id,
            text_tag,
            *statuses,
        )
        return self.kept(rows)

    def is_partly_hidden(self, tenant_id: int, key_tag: bytes) -> bool:
        """Whether a fact of a key was ended by a statement which is erased since, or is under a legal hold."""
        hidden = "SELECT 1 FROM facts WHERE tenant = ? AND key_tag = ? AND (end_erased OR on_hold) LIMIT 1"
        return self.one(hidden, tenant_id, key_tag) is not None

    def story_of_key(self, tenant_id: int, key_tag: bytes) -> tuple[EventRow, ...]:
        """The writes of a key and whatever acted on them, directly or through what is erased, in order."""
        return self._story("SELECT seq FROM facts WHERE tenant = ?1 AND key_tag = ?2", tenant_id, key_tag)

    def story_of_fact(self, tenant_id: int, seq: int) -> tuple[EventRow, ...]:
        """A write and whatever acted on it, directly or through what is erased, in order."""
        return self._story("SELECT seq FROM facts WHERE tenant = ?1 AND seq = ?2", tenant_id, seq)

    def _story(self, writes: str, tenant_id: int, value: object) -> tuple[EventRow, ...]:
        rows = self.rows(
            f"""WITH RECURSIVE story (seq) AS (
                    {writes} UNION
                    SELECT a.seq FROM story s CROSS JOIN acts a ON a.tenant = ?1 AND a.target = s.seq
                    WHERE a.act <> 'erases')
                {_EVENT} WHERE e.seq IN story ORDER BY e.seq""",
            tenant_id,
            value,
        )
        return tuple(EventRow(*row) for row in rows)

    def matching(self, match: str, limit: int = -1, since: int = 0) -> list[int]:
        """Numbers of facts whose words match, from `since` on, so many at most; `match` is of memory.search."""
        sql = "SELECT rowid FROM search WHERE search MATCH ? AND rowid >= ? LIMIT ?"
        return [seq for (seq,) in self.rows(sql, match, since, limit)]

    def newest_matching(self, match: str, limit: int) -> list[int]:
        """Numbers of the newest facts whose words match, of any status, newest first."""
        # As one text, which takes a third less than a row for each number.
        sql = """SELECT json_group_array(m.seq) FROM (
                   SELECT rowid AS seq FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?) m"""
        [(found,)] = self.rows(sql, match, limit)
        seqs: list[int] = json.loads(found)
        return seqs

    def has_more(self, match: str, count: int) -> bool:
        """Whether the words of more facts than so many match."""
        found = self.rows("SELECT 1 FROM search WHERE search MATCH ? LIMIT 1 OFFSET ?", match, count)
        return bool(found)

    def matching_of_status(
        self, tenant_id: int, agent_tag: bytes, match: str, statuses: Sequence[Status], limit: int = -1
    ) -> list[int]:
        """Numbers of the facts of a scope whose words match, of some statuses: of all, or of the newest."""
        rows = self.rows(
            f"""SELECT f.seq FROM search m CROSS JOIN facts f ON f.seq = m.rowid
                WHERE m.search MATCH ? AND f.tenant = ? AND f.agent_tag = ? AND f.on_hold = 0
                AND f.status IN ({marks(statuses)}) ORDER BY m.rowid DESC LIMIT ?""",
            match,
            tenant_id,
            agent_tag,
            *statuses,
            limit,
        )
        return [seq for (seq,) in rows]

    def splitter(self) -> Callable[[str], list[str]]:
        """What makes of a text the words that the index has of it."""
        from memory.store_words import split_words

        return split_words(self.connection)

    # Conflicts, idempotency, erasures

    def conflict(self, tenant_id: int, agent_tag: bytes, seq: int) -> ConflictRow | None:
        """The disagreement of a scope that a statement opened."""
        row = self.one(
            """SELECT c.seq, e.commitment, c.key_tag, c.closed_by FROM conflicts c CROSS JOIN events e ON e.seq = c.seq
               WHERE c.seq = ? AND c.tenant = ? AND c.agent_tag = ?""",
            seq,
            tenant_id,
            agent_tag,
        )
        return None if row is None else ConflictRow(*row)

    def open_conflict(self, tenant_id: int, key_tag: bytes) -> ConflictRow | None:
        """The disagreement about a key that is not settled yet."""
        row = self.one(f"{_OPEN_CONFLICT} AND c.key_tag = ?", tenant_id, key_tag)
        return None if row is None else ConflictRow(*row)

    def open_conflicts(self, tenant_id: int, agent_tag: bytes) -> tuple[ConflictRow, ...]:
        """The disagreements of a scope that are not settled yet, oldest first."""
        rows = self.rows(f"{_OPEN_CONFLICT} AND c.agent_tag = ? ORDER BY c.seq", tenant_id, agent_tag)
        return tuple(ConflictRow(*row) for row in rows)

    def idempotency(self, tenant_id: int, request_tag: bytes) -> IdempotencyRow | None:
        """What an idempotency key was used for."""
        asked = "SELECT body_tag, seq, answer FROM idempotency WHERE tenant = ? AND request_tag = ?"
        row = self.one(asked, tenant_id, request_tag)
        return None if row is None else IdempotencyRow(*row)

    def erasure(self, number: int) -> ErasureRow | None:
        """The erasure with this number."""
        row = self.one(f"{_ERASURE} WHERE number = ?", number)
        return None if row is None else ErasureRow(*row)

    def last_erasure(self) -> ErasureRow | None:
        """The erasure with the largest number; None if there was none."""
        row = self.one(f"{_ERASURE} ORDER BY number DESC LIMIT 1")
        return None if row is None else ErasureRow(*row)

    def erasures(self, state: str | None = None) -> tuple[ErasureRow, ...]:
        """Erasures in order, of one state or all."""
        if state is None:
            rows = self.rows(f"{_ERASURE} ORDER BY number")
        else:
            rows = self.rows(f"{_ERASURE} WHERE state = ? ORDER BY number", state)
        return tuple(ErasureRow(*row) for row in rows)

    # For the modules of the store alone

    def kept(self, rows: Iterable[tuple[Any, ...]]) -> tuple[FactRow, ...]:
        facts = tuple(_fact(row) for row in rows)
        return facts if self.keeps is None else tuple(fact for fact in facts if self.keeps(fact))

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a statement, None if it has none."""
        found = self.rows(sql, *values)
        return found[0] if found else None

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        return self.connection.execute(sql, values).fetchall()


@cache
def _of_key(statuses: int) -> str:
    """The facts of a key with one of so many statuses."""
    marks = ", ".join("?" * statuses)
    return f"{FACT} WHERE f.tenant = ? AND f.key_tag = ? AND f.status IN ({marks}) ORDER BY f.seq"


def _fact(row: tuple[Any, ...]) -> FactRow:
    return FactRow(*row[:-1], decode_content(row[-1]))  # type: ignore[call-arg]


def _recorded_at(content: bytes | None) -> int | None:
    return None if content is None else decode_content(content).get(RECORDED_AT)


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
