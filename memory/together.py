"""Writes of one process that share a commit, as the requests to a witness do: one flush of the disk for all of them.

Each write is a function of a transaction. Whoever finds the store free takes all that wait, runs them one after the
other in one transaction, and commits; nobody is answered before that. Then it wakes them, and of those that have come
meanwhile the first, who does the same. A write that is refused before it has written
leaves the others as they are. One that fails in any other way takes the whole transaction back, and then each runs in
a transaction of its own: a write may therefore be run more than once, and is committed once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tlog.errors import Error, UnavailableError

if TYPE_CHECKING:
    from memory.store_shared import SharedTxn
    from memory.store_write import Txn

T = TypeVar("T")
MOST: Final = 64
"""As many writes as one transaction holds: the first of them waits for the last."""
MOMENT: Final = 0.00005
"""Seconds that a commit waits at most for each of those that came to the last one: as long as coming back takes."""


class _UndoneError(Exception):
    """A write of a shared transaction failed after it had written."""


class _Job(Generic[T]):
    """One write that waits, or what it came to."""

    __slots__ = ("done", "error", "leads", "result", "woken", "work")

    def __init__(self, work: Callable[[Txn], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        # Each waits at a door of its own: all at one would have to pass it one by one, the served ones, too.
        self.woken = threading.Lock()
        self.woken.acquire()

    def run(self, txn: SharedTxn) -> None:
        """Keeps what the write gives; _UndoneError if it failed and may have changed the transaction.

        Whatever is no refusal of ours may have: where the disk fails, SQLite takes the whole transaction back by
        itself, and what ran after that would be committed statement by statement.
        """
        before = txn.changed()
        try:
            self.result, self.error = self.work(txn), None
        except Error as error:
            self.error = error
            if txn.changed() != before:
                raise _UndoneError from error
        except Exception as error:
            raise _UndoneError from error


class Together:
    """The writes of one store. `transaction` opens one, committed at its end and undone if anything is raised."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Callable[[], SharedTxn]]]) -> None:
        self._transaction = transaction
        self._lock = threading.Lock()
        self._waiting: list[_Job[Any]] = []
        self._led = False
        """Somebody runs writes now, and wakes whoever is to go on. Without anybody nothing waits."""
        self._company = 1
        """How many shared the last commit or came during it: as many are likely to write again at once."""
        self._gathers = False
        self._all_here = threading.Lock()
        self._all_here.acquire()

    def write(self, work: Callable[[Txn], T]) -> T:
        """What `work` gives, once it is durable; what it raises, once nothing of it is left."""
        job = _Job(work)
        self._run_or_wait([job])
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]  # set, as there was no error

    def write_all(self, works: Sequence[Callable[[Txn], T]]) -> list[T | Exception]:
        """What each work gives or raises, run in this order, once all of them are durable."""
        jobs = [_Job(work) for work in works]
        if jobs:
            self._run_or_wait(jobs)
        return [job.result if job.error is None else job.error for job in jobs]  # type: ignore[misc]

    def _run_or_wait(self, jobs: Sequence[_Job[Any]]) -> None:
        """Returns once all of these are done: they wait in their order, and each may be the one that leads."""
        done = 0
        try:
            with self._lock:
                self._waiting += jobs
                if not self._led:
                    self._led = jobs[0].leads = True
                if self._gathers and len(self._waiting) >= self._company:
                    self._gathers = False
                    self._all_here.release()
            for job in jobs:
                self._finish(job)
                done += 1
        finally:
            for job in jobs[done:]:
                self._leave(job, [])

    def _finish(self, job: _Job[Any]) -> None:
        ran: list[_Job[Any]] = []
        try:
            if not job.leads:
                job.woken.acquire()
            if job.leads:
                self._lead(job, ran)
            elif not job.done:
                job.error = _cut_short()
        finally:
            if not job.done or job.leads:
                self._leave(job, ran)

    def _leave(self, job: _Job[Any], ran: list[_Job[Any]]) -> None:
        """Wakes those whose writes this one ran, and who runs the next; one that was cut short no longer waits."""
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
            heir = None
            if job.leads:
                job.leads = False
                self._company = min(len(ran) + len(self._waiting), MOST)
                heir = self._waiting[0] if self._waiting else None
                if heir is None:
                    self._led = False
                else:
                    heir.leads = True
        for other in ran:
            if other is not job:
                other.woken.release()
        if heir is not None:
            heir.woken.release()

    def _lead(self, own: _Job[Any], jobs: list[_Job[Any]]) -> None:
        """Returns once the first of the writes that wait, of which `own` is one, are in `jobs` and done."""
        self._gather()
        with self._lock:
            jobs += self._waiting[:MOST]
            del self._waiting[:MOST]
        try:
            self._run(jobs)
        except Error as error:
            # The disk is full, or the store is busy: none of them is committed.
            for job in jobs:
                job.error = job.error or error
        except BaseException:
            for job in jobs:
                job.error = _cut_short()
                job.done = True
            raise
        for job in jobs:
            job.done = True

    def _gather(self) -> None:
        """Returns once as many wait as came to the last commit, or when that would take too long.

        Those that were answered together come back together, too, and the first of them would find itself alone.
        """
        with self._lock:
            self._gathers = len(self._waiting) < self._company
            if not self._gathers:
                return
        try:
            self._all_here.acquire(timeout=self._company * MOMENT)
        finally:
            with self._lock:
                self._gathers = False
                # The last of them may have said that it is here just after it was no longer waited for.
                self._all_here.acquire(blocking=False)

    def _run(self, jobs: list[_Job[Any]]) -> None:
        try:
            with self._transaction() as new_txn:
                for job in jobs:
                    job.run(new_txn())
                _settle(new_txn())
        except _UndoneError:
            for job in jobs:
                self._run_alone(job)

    def _run_alone(self, job: _Job[Any]) -> None:
        job.error = None
        try:
            with self._transaction() as new_txn:
                job.result = job.work(new_txn())
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is raised where the write was asked for
            job.error = error


def _settle(txn: Txn) -> None:
    """Returns once nothing of the writes waits; _UndoneError if that fails, perhaps for what one of them keeps."""
    try:
        txn.settle()
    except Exception as error:
        raise _UndoneError from error


def _cut_short() -> UnavailableError:
    return UnavailableError(
        "the write was cut short with those beside it; try again", code="busy", retry_after_seconds=1
    )
