"""The store in a PostgreSQL database, for any number of nodes: its connections and its transactions.

The modules that begin with store_ have the SQL for both engines, `pg_dialect` spells it, `pg_txn` has what is done
otherwise. What is read in one transaction is one view; what is written to a tenant is written by one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.types.composite import CompositeInfo, register_composite

from memory import pg_schema
from memory.pg_connection import PgConnection, connect, is_loss, is_to_be_run_again, translated
from memory.pg_locks import ERASURES, WRITERS
from memory.pg_seal import place_of, unseal
from memory.pg_txn import PgSnapshot, PgTxn
from memory.pg_vault import SEAL_KEY, PgVault
from memory.store import MAX_IDLE_CONNECTIONS, Store
from memory.together import MOST
from tlog.errors import Error, MalformedError, UnavailableError, VerificationError

if TYPE_CHECKING:
    from memory.pg_vacuum import Cleared
    from memory.store_read import Snapshot
    from memory.store_write import Txn

Result = TypeVar("Result")
_TRIES: Final = 8
_PAUSE_SECONDS: Final = 0.02
# A node that is stopped while it edits a document keeps others from it for so long.
_EDIT_MILLISECONDS: Final = 60_000
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Who counts the statements of the whole store waits for whoever writes now, and no number below theirs comes later.
_WRITE: Final = f"BEGIN; SELECT pg_advisory_xact_lock_shared({WRITERS})"
_ALONE: Final = f"BEGIN; SELECT pg_advisory_xact_lock({WRITERS})"
_HOME: Final = "home"


class PgStore(Store):
    """The store of a database. Any thread may use it; each transaction has a connection of its own."""

    vault: PgVault

    def __init__(self, dsn: str, vault: PgVault) -> None:
        super().__init__(Path("store.db"), vault)
        self.dsn = dsn
        self._free: list[psycopg.Connection[Any]] = []
        self._sealed: CompositeInfo | None = None

    def write_together(self, work: Callable[[Txn], Result]) -> Result:
        """What `work` gives, once it is durable. It is run again where others beside it had it undone."""
        # Each in a transaction of its own: the server has those share a flush that end at the same time.
        for left in reversed(range(_TRIES)):
            try:
                with self.write() as txn:
                    return work(txn)
            except UnavailableError as error:
                if not left or not is_to_be_run_again(error.__cause__):
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError

    def write_all_together(self, works: Sequence[Callable[[Txn], Result]]) -> list[Result | Exception]:
        """What each of these gives or raises, in order and once all of them are durable; they share transactions."""
        came: list[Result | Exception] = []
        while len(came) < len(works):
            came += self._share(works[len(came) : len(came) + MOST])
        return came

    def _share(self, works: Sequence[Callable[[Txn], Result]]) -> list[Result | Exception]:
        """The same of as many as one transaction holds; where the server undid it, each is run alone."""
        try:
            with self._borrowed(_WRITE, whole=False) as raw, _pipelined(raw) as pipeline:
                return [self._at_a_savepoint(PgConnection(raw, pipeline), work) for work in works]
        except psycopg.Error:
            # The server refuses what one of them says: the others are no worse for it.
            return [self._alone(work) for work in works]
        except Error as error:
            if is_to_be_run_again(error.__cause__):
                return [self._alone(work) for work in works]
            # It may be that they are stored: whoever asks again with the same idempotency key is told.
            return [error for _ in works]

    def _at_a_savepoint(self, connection: PgConnection, work: Callable[[Txn], Result]) -> Result | Exception:
        """What one of several writes of a transaction gives, or what it refused, of which nothing is left."""
        connection.run("SAVEPOINT one")
        try:
            given = work(PgTxn(connection, self.vault, self.keeps_now(), whole=False))
        except Error as error:
            connection.run("ROLLBACK TO one")
            return error
        connection.run("RELEASE one")
        return given

    def _alone(self, work: Callable[[Txn], Result]) -> Result | Exception:
        try:
            return self.write_together(work)
        except (Error, psycopg.Error) as error:
            return error

    @contextmanager
    def write(self) -> Iterator[Txn]:
        with self._writing(_WRITE, whole=False) as txn:
            yield txn

    @contextmanager
    def write_whole(self) -> Iterator[Txn]:
        with self._writing(_WRITE, whole=True) as txn:
            yield txn

    @contextmanager
    def write_alone(self) -> Iterator[Txn]:
        with self._writing(_ALONE, whole=True) as txn:
            yield txn

    def settle(self) -> None:
        with self.write_alone():
            pass

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        with self._reading(whole=False) as view:
            yield view

    @contextmanager
    def read_whole(self) -> Iterator[Snapshot]:
        with self._reading(whole=True) as view:
            yield view

    @contextmanager
    def _writing(self, begin: str, whole: bool) -> Iterator[Txn]:
        with self._borrowed(begin, whole) as raw, _pipelined(raw) as pipeline:
            yield PgTxn(PgConnection(raw, pipeline), self.vault, self.keeps_now(), whole)

    @contextmanager
    def _reading(self, whole: bool) -> Iterator[Snapshot]:
        with self._borrowed(_READ, whole) as raw:
            yield PgSnapshot(PgConnection(raw), self.vault, self.keeps_now(), whole)
            raw.execute("ROLLBACK")

    @contextmanager
    def alone_erasing(self, deadline_seconds: float) -> Iterator[None]:
        with self._locked(ERASURES, deadline_seconds):
            yield

    @contextmanager
    def alone_editing(self, tag: bytes, deadline_seconds: float) -> Iterator[None]:
        # Beside the locks that are numbered above.
        with self._locked(int.from_bytes(tag[:7], "big") | 1 << 62, deadline_seconds, _EDIT_MILLISECONDS):
            yield

    @contextmanager
    def _locked(self, number: int, deadline_seconds: float, idle_milliseconds: int = 0) -> Iterator[None]:
        """Returns once no other node has the lock, and keeps it so; UnavailableError if one has it for longer."""
        connection = self.connect()
        try:
            with translated():
                connection.execute(
                    f"SET lock_timeout = {max(int(deadline_seconds * 1000), 1)}; SET statement_timeout = 0;"
                    f"SET idle_session_timeout = {idle_milliseconds}"
                )
                connection.execute("SELECT pg_advisory_lock(%s)", (number,))
            yield
        finally:
            # With the connection goes the lock.
            connection.close()

    def checkpoint_truncate(self, deadline_seconds: float = 10.0) -> bool:
        """True once no dead row of what an erasure takes is in the tables; False if a transaction still sees one."""
        from memory.pg_vacuum import MAX_REWRITTEN_BYTES

        return self.clear_pages(deadline_seconds, most_bytes=MAX_REWRITTEN_BYTES).is_done

    def clear_pages(
        self,
        deadline_seconds: float,
        rewritten: Sequence[str] | None = None,
        tenant_id: int | None = None,
        most_bytes: int | None = None,
    ) -> Cleared:
        """What is left once dead rows are taken out and these tables written anew, in parts that a tenant may be in.

        Parts of more than `most_bytes` are not.
        """
        from memory.pg_vacuum import REWRITTEN, clear

        until = time.monotonic() + deadline_seconds
        while True:
            connection = self.connect()
            try:
                with translated():
                    left = clear(
                        connection, REWRITTEN if rewritten is None else rewritten, tenant_id, most_bytes
                    )
            finally:
                connection.close()
            if not left.pinned or time.monotonic() >= until:
                return left
            time.sleep(0.1)

    def copy_to(self, target: Path) -> None:
        raise MalformedError(
            "expected a store on SQLite: this is not there yet on PostgreSQL", code="not_here"
        )

    def require_promises(self) -> None:
        """Returns if the database is of our schema, and this role one that the policies hold for."""
        connection = self.connect()
        try:
            with translated():
                pg_schema.require_server(connection)
                pg_schema.require_version(connection)
                pg_schema.require_walls(connection)
        finally:
            connection.close()

    def write_anew(self) -> None:
        """Returns once no page of what erasures take from is older than this call, where that could be done."""
        from memory.pg_vacuum import TAKEN_FROM

        self.clear_pages(0.0, TAKEN_FROM)

    def check(self) -> tuple[str, ...]:
        """Nothing: the server has checks of its own (amcheck, checksums)."""
        return ()

    def close(self) -> None:
        with self._idle_lock:
            idle, self._free = self._free, []
        for connection in idle:
            connection.close()

    def connect(self) -> psycopg.Connection[Any]:
        """A fresh connection without a transaction."""
        return connect(self.dsn)

    @contextmanager
    def _borrowed(self, begin: str, whole: bool) -> Iterator[psycopg.Connection[Any]]:
        with translated():
            raw = self._begun(f"{begin}; SET LOCAL ROLE {pg_schema.WHOLE}" if whole else begin)
            try:
                yield raw
            except BaseException:
                with suppress(psycopg.Error):
                    raw.execute("ROLLBACK")
                self._give_back(raw)
                raise
            self._give_back(raw)

    def _begun(self, begin: str) -> psycopg.Connection[Any]:
        while True:
            with self._idle_lock:
                raw = self._free.pop() if self._free else None
            is_fresh = raw is None
            if raw is None:
                raw = self._connected()
            try:
                raw.execute(begin)
            except psycopg.Error as error:
                raw.close()
                # One that was lost while nobody used it was asked for nothing yet, so another one is as good.
                if is_fresh or not is_loss(error):
                    raise
                continue
            return raw

    def _connected(self) -> psycopg.Connection[Any]:
        raw = self.connect()
        try:
            if self._sealed is None:
                self._sealed = CompositeInfo.fetch(raw, f"{pg_schema.SCHEMA}.sealed")
            if self._sealed is None:
                raise MalformedError("expected a store in the database: muniment init makes one")
            register_composite(self._sealed, raw, factory=partial(_open_sealed, self.vault))
        except BaseException:
            raw.close()
            raise
        return raw

    def _give_back(self, raw: psycopg.Connection[Any]) -> None:
        usable = not raw.closed and raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._idle_lock:
            if usable and len(self._free) < MAX_IDLE_CONNECTIONS:
                self._free.append(raw)
                return
        raw.close()


@contextmanager
def _pipelined(raw: psycopg.Connection[Any]) -> Iterator[psycopg.Pipeline]:
    """What sends a transaction's statements without a wait for each; at its end they are committed and durable."""
    with raw.pipeline() as pipeline:
        yield pipeline
        done = raw.execute("COMMIT")
        pipeline.sync()
        if done.statusmessage != "COMMIT":
            # A statement of it failed, and nobody minded: the server has then undone all of it.
            raise UnavailableError(
                "the transaction was undone; nothing was stored", code="busy", retry_after_seconds=1
            )


def _open_sealed(
    vault: PgVault, tenant: int, seq: int, subject_key: bytes | None, record_key: bytes, box: bytes
) -> bytes:
    """What is in a box: content or salt of a statement."""
    place = tenant, seq

    def opened(key: bytes) -> bytes:
        if subject_key is not None:
            key = unseal(key, subject_key, place_of("subject", tenant))
        return unseal(unseal(key, record_key, place_of("record", *place)), box, place_of("box", *place))

    try:
        return opened(vault.sealing_key(tenant))
    except VerificationError:
        return opened(vault.look_again(tenant))


def open_pg_store(dsn: str, keys: Path) -> PgStore:
    """The store in a database, whose schema is made if it is not there yet; `keys` is the folder of the home's keys.

    UnavailableError with code `key_mismatch` if the database belongs to a home with other keys.
    """
    is_of_this_version = pg_schema.ensure_schema(dsn)
    vault = PgVault(keys, partial(connect, dsn))
    store = PgStore(dsn, vault)
    try:
        _require_own(store, vault, keys)
        if not is_of_this_version:
            from memory.pg_upgrade import bring_up

            bring_up(store)
    except BaseException:
        store.close()
        raise
    return store


def _require_own(store: PgStore, vault: PgVault, keys: Path) -> None:
    """Returns if the database is this home's, which it is from the first home that opens it."""
    with store.write_whole() as txn:
        proof = txn.view.meta(_HOME)
        if proof is None and not (keys / SEAL_KEY).exists():
            vault.make_home_key()
        if proof is None:
            txn.set_meta(_HOME, vault.proof())
        elif not (keys / SEAL_KEY).exists() or proof != vault.proof():
            raise UnavailableError(
                "the database belongs to a home with another keys/seal.key: put that one back",
                code="key_mismatch",
            )
