"""The SQL of backups: rows out of a store, and rows into the one that is restored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory.event import decode_content
from memory.rows import EVENT_COLUMNS, EventRow
from memory.search import UNINDEXED, make_document, scope_token
from memory.store_read import RECORDED_AT
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.store_read import Snapshot
    from memory.store_write import Txn

# What is free of content and stands in a backup as it is.
OPEN: Final = ("acts", "openings", "backups")
# Rows that are keyed hashes, or tell a time more finely than the log, by the space of their keys: table, and the column
# that numbers a row.
HASHED: Final = {
    "ledger": ("ledger", "id"),
    "request": ("idempotency", "id"),
    "conflict": ("conflicts", "seq"),
    "grant": ("grants", "seq"),
    "erasure": ("erasures", "number"),
}
# What a backup does not have: tokens hold for minutes, an access token that was revoked since would hold again, and
# what is found by words or by meaning is made anew.
LEFT_OUT: Final = frozenset(
    {"tokens", "access", "vectors", "search", "search_data", "search_idx", "search_config"}
)
WHOLE: Final = frozenset({"meta", "tenants", "events", "contents", "facts"})
BATCH: Final = 1000
HOME: Final = "home"
"""Name of the value by which a database knows its home: of the database, and not of what is in it."""
Row = dict[str, Any]


class Record(NamedTuple):
    """A statement: its open columns, and what an erasure destroys, None once it is erased."""

    event: tuple[Any, ...]
    secret: tuple[Any, ...] | None
    subject_tag: bytes | None

    @property
    def seq(self) -> int:
        """Its number."""
        return int(self.event[0])


def records(view: Snapshot, batch: int = BATCH) -> Iterator[Record]:
    """Every statement in order, with its content, salt and fact."""
    facts = columns_of(view, "facts")
    columns = ", ".join(
        [*(f"e.{name}" for name in EVENT_COLUMNS), "c.content", "c.salt", *(f"f.{name}" for name in facts)]
    )
    after = 0
    while True:
        rows = view.rows(
            f"""SELECT {columns} FROM events e LEFT JOIN contents c ON c.seq = e.seq
                LEFT JOIN facts f ON f.seq = e.seq WHERE e.seq > ? ORDER BY e.seq LIMIT ?""",
            after,
            batch,
        )
        if not rows:
            return
        for row in rows:
            yield _record(row, facts)
        after = rows[-1][0]


def _record(row: tuple[Any, ...], columns: Sequence[str]) -> Record:
    event, rest = row[: len(EVENT_COLUMNS)], row[len(EVENT_COLUMNS) :]
    content, salt = rest[0], rest[1]
    if content is None:
        return Record(event, None, None)
    fact = {name: _plain(value) for name, value in zip(columns, rest[2:], strict=True)}
    if fact["seq"] is None:
        return Record(event, (content, salt, None), None)
    return Record(event, (content, salt, fact), fact["subject_tag"])


def _plain(value: Any) -> Any:
    """A value as the file has it, which knows no truth values."""
    return int(value) if isinstance(value, bool) else value


def columns_of(view: Snapshot, table: str) -> tuple[str, ...]:
    """The columns of a table, by the schema."""
    return view.columns(table)


def tables(view: Snapshot) -> set[str]:
    """The tables that a store has, by the schema."""
    rows = view.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {row[0] for row in rows}


def whole_rows(view: Snapshot, table: str, batch: int = BATCH) -> Iterator[Row]:
    """The rows of one of the tables of OPEN and HASHED, in the order of their numbers."""
    columns = columns_of(view, table)
    number, after = columns[0], 0
    sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {number} > ? ORDER BY {number} LIMIT ?"
    while rows := view.rows(sql, after, batch):
        yield from (dict(zip(columns, row, strict=True)) for row in rows)
        after = rows[-1][0]


def hashed_numbers(view: Snapshot, space: str) -> set[int]:
    """The numbers of the rows that a table of keyed hashes, or that of tenants with a name, has now."""
    if space == "tenant":
        rows = view.rows("SELECT id FROM tenants WHERE name <> ''")
    else:
        table, number = HASHED[space]
        rows = view.rows(f"SELECT {number} FROM {table}")
    return {row[0] for row in rows}


def tenants(view: Snapshot) -> list[tuple[Any, ...]]:
    """Number of the row, random number, name and last sequence number of each tenant."""
    rows = view.rows("SELECT id, number, name, last_seq FROM tenants ORDER BY id")
    return [(row[0], row[1], view.open_name(row[1], row[2]), row[3]) for row in rows]


def meta(view: Snapshot) -> list[tuple[str, Any]]:
    """The values that the store keeps of itself, and the latest time there is."""
    names = sorted({RECORDED_AT, *(row[0] for row in view.rows("SELECT name FROM meta"))} - {HOME})
    known = {name: view.meta(name) for name in names} | {RECORDED_AT: view.last_recorded_at()}
    return [(name, known[name]) for name in names]


def add_backup(txn: Txn, number: bytes, made_at: int, expires_at: int, last_seq: int) -> None:
    """Notes that there is a backup, before there is."""
    txn.connection.execute(
        "INSERT INTO backups (number, made_at, expires_at, last_seq) VALUES (?, ?, ?, ?)",
        (number, made_at, expires_at, last_seq),
    )


def note_backup(txn: Txn, number: bytes, made_at: int, expires_at: int, last_seq: int) -> None:
    """Notes a backup that something tells of, unless it is noted."""
    if txn.view.one("SELECT 1 FROM backups WHERE number = ?", number) is None:
        add_backup(txn, number, made_at, expires_at, last_seq)


def backups(view: Snapshot) -> list[tuple[bytes, int, int, int]]:
    """Of each backup: number, hour, hour of expiry, and its last statement."""
    return view.rows("SELECT number, made_at, expires_at, last_seq FROM backups ORDER BY id")


def backups_holding(view: Snapshot, seqs: Sequence[int]) -> list[tuple[bytes, int, int, int]]:
    """Of each backup with some of these statements: number, hour, hour of expiry, and how many it has.

    What is being erased was never erased before, so a backup has it if it goes so far.
    """
    rows = backups(view)
    found = [
        (number, made_at, expires_at, sum(1 for seq in seqs if seq <= last_seq))
        for number, made_at, expires_at, last_seq in rows
    ]
    return [row for row in found if row[3]]


def oldest_end(view: Snapshot) -> int | None:
    """The last statement in the backup that has the fewest; None where no backup was made."""
    return view.rows("SELECT min(last_seq) FROM backups")[0][0]  # type: ignore[no-any-return]


# Restoring


def insert(txn: Txn, table: str, row: Row) -> None:
    """One row as it was; MalformedError where it has a column that the table has not."""
    if not row.keys() <= set(columns_of(txn.view, table)):
        raise MalformedError("expected the rows of a store of this version")
    marks = ", ".join("?" * len(row))
    values = tuple(txn.as_kept(name, value) for name, value in row.items())
    txn.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", values)


def drop_meta(txn: Txn, name: str) -> None:
    """A value that the store keeps of itself is gone."""
    txn.connection.execute("DELETE FROM meta WHERE name = ?", (name,))


def insert_event(txn: Txn, event: Sequence[Any]) -> None:
    """The columns of a statement that are free of content."""
    insert(txn, "events", dict(zip(EVENT_COLUMNS, event, strict=True)))


def insert_secret(txn: Txn, event: Sequence[Any], content: bytes, salt: bytes, fact: Row | None) -> None:
    """What an erasure would destroy of a statement, with its words in the index."""
    made = EventRow(*event, content, salt)  # type: ignore[call-arg]  # the columns of a statement, as they are listed
    txn.view.enter(made.tenant_id)
    txn.keep_content(made)
    if fact is None:
        return
    insert(txn, "facts", fact)
    if fact["status"] not in UNINDEXED:
        document = make_document(scope_token(fact["agent_tag"]), decode_content(content))
        txn.index_fact(made.seq, document)


def set_entry_index(txn: Txn, commitment: bytes, position: int) -> None:
    """Where the log has a statement."""
    txn.connection.execute("UPDATE events SET entry_index = ? WHERE commitment = ?", (position, commitment))


def forget_positions(txn: Txn, start: int) -> None:
    """Puts what is at this position or a later one back in the outbox, for a log whose entries changed place."""
    txn.connection.execute("UPDATE events SET entry_index = NULL WHERE entry_index >= ?", (start,))


def has_number(view: Snapshot, tenant_id: int, seq: int, tenant_seq: int) -> bool:
    """Whether a statement of the tenant has one of these numbers: that of the store, or its own."""
    sql = "SELECT 1 FROM events WHERE tenant = ? AND (seq = ? OR tenant_seq = ?)"
    return view.one(sql, tenant_id, seq, tenant_seq) is not None


def tenant_numbered(txn: Txn, number: bytes, name_tag: bytes) -> int:
    """The row of the tenant with a random number; one that came after the backup has no name, and this tag."""
    row = txn.view.one("SELECT id FROM tenants WHERE number = ?", number)
    if row is not None:
        return int(row[0])
    made = txn.view.rows(
        "INSERT INTO tenants (number, name, name_tag) VALUES (?, '', ?) RETURNING id", number, name_tag
    )
    return int(made[0][0])


def first_tenant(view: Snapshot) -> int | None:
    """The row of the first tenant."""
    row = view.one("SELECT min(id) FROM tenants")
    return None if row is None else row[0]


def last_seq(view: Snapshot) -> int:
    """The number of the last statement; 0 without any."""
    return int(view.rows("SELECT coalesce(max(seq), 0) FROM events")[0][0])


def nameless(view: Snapshot) -> set[bytes]:
    """The numbers of the tenants whose names are gone."""
    return {bytes(number) for (number,) in view.rows("SELECT number FROM tenants WHERE name = ''")}


def unused_numbers(view: Snapshot) -> int:
    """How many numbers of tenants no statement has."""
    given = view.rows("SELECT coalesce(sum(last_seq), 0) FROM tenants")[0][0]
    return int(given) - int(view.rows("SELECT count(*) FROM events")[0][0])


def positions(view: Snapshot) -> dict[bytes, int | None]:
    """Every commitment, with its place in the log as the store knows it."""
    return dict(view.rows("SELECT commitment, entry_index FROM events"))


def insert_past(txn: Txn, event: Sequence[Any]) -> None:
    """A statement from past the backup, of which the content is not known, counted in its tenant."""
    insert_event(txn, event)
    _, tenant_id, tenant_seq = event[:3]
    txn.connection.execute(
        "UPDATE tenants SET last_seq = max(last_seq, ?) WHERE id = ?", (tenant_seq, tenant_id)
    )


def insert_entry(txn: Txn, row: Row) -> None:
    """A row of the value ledger as it was, under a number of its own; nothing where the value has one already."""
    known = {name: value for name, value in row.items() if name != "id"}
    if not known.keys() <= set(columns_of(txn.view, "ledger")):
        raise MalformedError("expected the rows of a store of this version")
    marks = ", ".join("?" * len(known))
    txn.connection.execute(
        f"INSERT OR IGNORE INTO ledger ({', '.join(known)}) VALUES ({marks})", tuple(known.values())
    )


def seqs_after(view: Snapshot, seq: int) -> dict[bytes, int]:
    """The number of each statement with a larger one than this, by its commitment."""
    return dict(view.rows("SELECT commitment, seq FROM events WHERE seq > ?", seq))


def agent_of(view: Snapshot, seq: int) -> bytes | None:
    """The tag of the agent whose fact this is; None if it is none, or erased."""
    row = view.one("SELECT agent_tag FROM facts WHERE seq = ?", seq)
    return None if row is None else row[0]


def replace_erasure(txn: Txn, row: Row) -> None:
    """An erasure in the store's list, in place of what the list has under its number."""
    txn.connection.execute("DELETE FROM erasures WHERE number = ?", (row["number"],))
    insert(txn, "erasures", row)


def skip_numbers(txn: Txn, lost: int) -> None:
    """Leaves room in every tenant for statements that are lost: nobody knows which of them were whose."""
    txn.connection.execute("UPDATE tenants SET last_seq = last_seq + ?", (lost,))
