"""Locks between nodes, as rows of PostgreSQL that run out: whoever dies or stops loses them, and is told by a token.

    log_lease   log, name → token, holder, until

A lock is taken by an UPDATE of its row that adds one to the token, and only where the row has run out; time is the
database's alone, so the clocks of nodes do not matter. While it is held, a thread puts its end further away. What is
written under a lock is written by a statement that, in the same transaction, locks the row with our token and our
name in it (`HELD`). So a node that was stopped and goes on, after another has taken its lock, changes nothing: not
because it noticed, but because the database compares. The name is of one taking of the lock, so that even a database
that lost its last commits in a failover cannot give one token to two.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory.pg_link import Link
from tlog.errors import UnavailableError
from tlog.storage_rules import ThreadLocks, busy

if TYPE_CHECKING:
    import psycopg

LEASE_SECONDS: Final = 5.0
_RENEWED_PER_LEASE: Final = 4
POLL_SECONDS: Final = 0.1

# What a statement that writes begins with. Its rows are locked until the transaction ends, so nobody takes the lock
# between this comparison and the write; `held` has a row for each lock of ours that is still ours.
HELD: Final = """
WITH held AS (
    SELECT 1 AS one FROM muniment_log.log_lease
    JOIN unnest(%(tokens)s::bigint[], %(holders)s::text[]) AS ours (token, holder) USING (token, holder)
    WHERE log = %(log)s FOR SHARE OF log_lease
), whole AS (SELECT FROM held HAVING count(*) = cardinality(%(tokens)s::bigint[]))
"""
_ROW: Final = """
INSERT INTO muniment_log.log_lease (log, name) VALUES (%(log)s, %(name)s) ON CONFLICT DO NOTHING RETURNING 1
"""
_TAKE: Final = """
UPDATE muniment_log.log_lease
SET token = token + 1, holder = %(holder)s, until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE log = %(log)s AND name = %(name)s AND until < clock_timestamp() RETURNING token
"""
_RENEW: Final = """
UPDATE muniment_log.log_lease SET until = clock_timestamp() + make_interval(secs => %(seconds)s)
FROM unnest(%(tokens)s::bigint[], %(holders)s::text[]) AS ours (token, holder)
WHERE log = %(log)s AND log_lease.token = ours.token AND log_lease.holder = ours.holder
"""
_RELEASE: Final = """
UPDATE muniment_log.log_lease SET until = '-infinity'
WHERE log = %(log)s AND name = %(name)s AND token = %(token)s AND holder = %(holder)s
"""


@dataclass(frozen=True)
class Lease:
    """One taking of one lock."""

    name: str
    token: int
    holder: str


class Leases:
    """The locks of one log, as this process holds them. Any thread may use it; a lock does not nest."""

    def __init__(self, link: Link, log: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._link = link
        self._log = log
        self._lease_seconds = lease_seconds
        self._within = ThreadLocks()
        self._mutex = threading.Lock()
        self._held: dict[str, Lease] = {}
        self._mine = threading.local()
        self._renewing: threading.Thread | None = None

    @contextmanager
    def hold(self, name: str, timeout_seconds: float) -> Iterator[None]:
        """One thread of one node at a time is within the block, and what it writes by `HELD` is written by none else.

        Raises UnavailableError with code `busy` if the lock is not had in time. A node that dies or stops keeps it
        for the seconds of a lease at most.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._within.hold(name, timeout_seconds):
            lease = self._take(name, deadline)
            mine: list[Lease] = self._of_this_thread()
            mine.append(lease)
            try:
                yield
            finally:
                mine.remove(lease)
                with self._mutex:
                    del self._held[name]
                # Where this is not heard, the lock runs out.
                with suppress(UnavailableError):
                    self._run(_RELEASE, name=name, token=lease.token, holder=lease.holder)

    def fence(self) -> dict[str, Any] | None:
        """The values that `HELD` needs: every lock that this thread holds; None if it holds none."""
        mine = self._of_this_thread()
        if not mine:
            return None
        return {
            "log": self._log,
            "tokens": [lease.token for lease in mine],
            "holders": [lease.holder for lease in mine],
        }

    def _of_this_thread(self) -> list[Lease]:
        mine: list[Lease] | None = getattr(self._mine, "leases", None)
        if mine is None:
            mine = self._mine.leases = []
        return mine

    def _take(self, name: str, deadline: float) -> Lease:
        holder = secrets.token_hex(16)
        while not (taken := self._run(_TAKE, name=name, holder=holder, seconds=self._lease_seconds)):
            if self._run(_ROW, name=name):
                continue
            if time.monotonic() >= deadline:
                raise busy()
            time.sleep(min(POLL_SECONDS, max(deadline - time.monotonic(), 0)))
        lease = Lease(name, taken[0][0], holder)
        with self._mutex:
            self._held[name] = lease
            if self._renewing is None:
                self._renewing = threading.Thread(target=self._renew, name="leases", daemon=True)
                self._renewing.start()
        return lease

    def _renew(self) -> None:
        """Puts the end of what is held further away, until nothing has been held for a while."""
        while True:
            time.sleep(self._lease_seconds / _RENEWED_PER_LEASE)
            with self._mutex:
                held = list(self._held.values())
                if not held:
                    self._renewing = None
                    return
            # What is not heard of in time runs out, and whoever holds it is told by the next write.
            with suppress(UnavailableError):
                self._run(
                    _RENEW,
                    seconds=self._lease_seconds,
                    tokens=[lease.token for lease in held],
                    holders=[lease.holder for lease in held],
                )

    def _run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        def work(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement, {"log": self._log, **values})
            return cursor.fetchall() if cursor.description else []

        return self._link.run(work)


def lost() -> UnavailableError:
    """What is raised where another node has taken a lock of ours."""
    return UnavailableError(
        "log: another node has taken over while this one stood still; nothing was written, try again",
        code="busy",
        retry_after_seconds=1,
    )
