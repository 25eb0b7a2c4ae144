"""Writes of one process that share a commit, as the requests to a witness do: one flush of the disk for all of them.

Each write is a function of a transaction. Whoever finds the store free takes all that wait, runs them one after the
other in one transaction, and commits; nobody is answered before that. A write that fails without having written
leaves the others as they are. One that fails after it wrote takes the whole transaction back, and then each runs in a
transaction of its own: a write may therefore be run more than once, and is committed once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tlog.errors import Error, UnavailableError

if TYPE_CHECKING:
    from memory.store_write import Txn

T = TypeVar("T")
MOST: Final = 64
"""As many writes as one transaction holds: the first of them waits for the last."""


class _UndoneError(Exception):
    """A write of a shared transaction failed after it had written."""


@dataclass(eq=False)
class _Job(Generic[T]):
    """One write that waits, or what it came to."""

    work: Callable[[Txn], T]
    result: T | None = None
    error: BaseException | None = None
    done: bool = False

    def run(self, txn: Txn) -> None:
        """Keeps what the write gives; _UndoneError if it failed and left something in the transaction."""
        before = txn.connection.total_changes()
        try:
            self.result, self.error = self.work(txn), None
        except Exception as error:
            self.error = error
            if txn.connection.total_changes() != before:
                raise _UndoneError from error


class Together:
    """The writes of one store. `transaction` opens one, committed at its end and undone if anything is raised."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Callable[[], Txn]]]) -> None:
        self._transaction = transaction
        self._waiting: list[_Job[Any]] = []
        self._adding = threading.Lock()
        self._turn = threading.Lock()

    def write(self, work: Callable[[Txn], T]) -> T:
        """What `work` gives, once it is durable; what it raises, once nothing of it is left."""
        job = _Job(work)
        with self._adding:
            self._waiting.append(job)
        with self._turn:
            # Of more than one transaction holds, this thread's may not be among the first.
            while not job.done:
                self._lead(job)
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]  # set, as there was no error

    def _lead(self, own: _Job[Any]) -> None:
        """Returns once the first of the writes that wait are done."""
        with self._adding:
            jobs, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            self._run(jobs)
        except Error as error:
            # The disk is full, or the store is busy: none of them is committed.
            for job in jobs:
                job.error = job.error or error
        except BaseException:
            for job in jobs:
                job.error = UnavailableError(
                    "the write was cut short with those beside it; try again",
                    code="busy",
                    retry_after_seconds=1,
                )
                job.done = True
            own.done = True
            raise
        for job in jobs:
            job.done = True

    def _run(self, jobs: list[_Job[Any]]) -> None:
        try:
            self._run_together(jobs)
        except _UndoneError:
            for job in jobs:
                self._run_alone(job)

    def _run_together(self, jobs: list[_Job[Any]]) -> None:
        with self._transaction() as new_txn:
            for job in jobs:
                job.run(new_txn())

    def _run_alone(self, job: _Job[Any]) -> None:
        job.error = None
        try:
            with self._transaction() as new_txn:
                job.result = job.work(new_txn())
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is raised where the write was asked for
            job.error = error
