"""The database that a store is moved into: rows as they were, contents sealed on the way, words hashed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memory.event import decode_content
from memory.home_names import KEYS
from memory.pg_schema import TRUTHS
from memory.pg_seal import new_key, place_of, seal
from memory.pg_store import PgStore, open_pg_store
from memory.pg_txn import PgSnapshot, PgTxn
from memory.rows import EVENT_COLUMNS, EventRow
from memory.search import UNINDEXED, make_document, scope_token
from memory.store_read import RECORDED_AT
from tlog.errors import RefusedError

if TYPE_CHECKING:
    from memory.pg_vault import PgVault

Row = tuple[Any, ...]
_PATIENT: Final = "SET LOCAL statement_timeout = 0"
_AT_ONCE: Final = 1000


class Target:
    """A store in a database while another one is moved into it. Everything may be done again."""

    def __init__(self, store: PgStore) -> None:
        self._store = store
        self._vault: PgVault = store.vault

    def require_free(self, commitments: set[bytes]) -> None:
        """Returns if the database has no statement but such; RefusedError otherwise."""
        with self._store.read_whole() as view:
            known = {bytes(row[0]) for row in view.rows("SELECT commitment FROM events")}
        if not known <= commitments:
            raise RefusedError("the database has statements of another home", code="database_in_use")

    def add_tenant(self, row: Row, key: bytes | None) -> None:
        """A tenant: row id, number, tag, name, last number and last time; with the key of its hashes, if it has one."""
        row_id, number, name_tag, name, last_seq, recorded_at = row
        home_key = self._vault.home_key
        with self._writing() as txn:
            if key is not None:
                wrapped = seal(home_key, key + new_key(), place_of("tenant", number))
                txn.pg.run(
                    "INSERT INTO tenant_keys (number, wrapped) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (number, wrapped),
                )
            sealed = seal(home_key, name.encode(), place_of("name", number)).hex() if name else ""
            txn.pg.run(
                """INSERT INTO tenants (id, number, name_tag, name, last_seq, recorded_at)
                   VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET name_tag = excluded.name_tag,
                   name = excluded.name, last_seq = excluded.last_seq, recorded_at = excluded.recorded_at""",
                (row_id, number, name_tag, sealed, last_seq, recorded_at),
            )

    def add_statements(self, batch: Sequence[tuple[Row, dict[str, Any]]]) -> None:
        """Statements with their contents and facts; those that an earlier attempt has brought are left."""
        with self._writing() as txn:
            seqs = [row[0] for row, _ in batch]
            there = {
                seq for (seq,) in txn.pg.run("SELECT seq FROM events WHERE seq = ANY(%s::bigint[])", (seqs,))
            }
            for row, fact in batch:
                if row[0] not in there:
                    self._add(txn, EventRow(*row), fact)

    def _add(self, txn: PgTxn, made: EventRow, fact: dict[str, Any]) -> None:
        txn.view.enter(made.tenant_id)
        _insert(txn, "events", EVENT_COLUMNS, [made[: len(EVENT_COLUMNS)]])
        if made.content is None:
            return
        txn.keep_content(made)
        if fact["seq"] is None:
            return
        _insert(txn, "facts", list(fact), [tuple(fact.values())])
        if fact["status"] not in UNINDEXED:
            document = make_document(scope_token(fact["agent_tag"]), decode_content(made.content))
            txn.index_fact(made.seq, document)

    def replace_rows(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """The rows of a table, in the place of what was there."""
        with self._writing() as txn:
            txn.pg.run(f"DELETE FROM {table}")
            _insert(txn, table, columns, rows)

    def replace_meta(self, rows: Sequence[Row]) -> None:
        """What the store keeps of itself, but for the time that each tenant has of its own here."""
        with self._writing() as txn:
            for name, value in rows:
                if name != RECORDED_AT:
                    txn.set_meta(name, value)

    def go_on_after(self) -> None:
        """Has new rows numbered after those that are there."""
        with self._writing() as txn:
            txn.go_on()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """What a table has, as the file has it, one row after the other."""
        with self._store.read_whole() as view:
            assert isinstance(view, PgSnapshot)
            view.pg.run(_PATIENT)
            with view.pg.raw.cursor("moved", binary=True) as cursor:
                cursor.itersize = _AT_ONCE
                cursor.execute(f"SELECT {', '.join(columns)} FROM {table}")
                for row in cursor:
                    yield tuple(int(one) if isinstance(one, bool) else one for one in row)

    @contextmanager
    def _writing(self) -> Iterator[PgTxn]:
        with self._store.write_whole() as txn:
            assert isinstance(txn, PgTxn)
            txn.pg.run(_PATIENT)
            yield txn


def _insert(txn: PgTxn, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    truths = [column in TRUTHS for column in columns]
    marks = ", ".join(["%s"] * len(columns))
    made = [
        [bool(value) if truth else value for value, truth in zip(row, truths, strict=True)] for row in rows
    ]
    with txn.pg.raw.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", made)


@contextmanager
def open_target(home: Path, database: str) -> Iterator[Target]:
    """The store of a database, its schema made, under the key of a home."""
    store = open_pg_store(database, home / KEYS)
    try:
        yield Target(store)
    finally:
        store.close()
