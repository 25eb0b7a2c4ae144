"""Statements of others on their way into the log: judged, gathered, and appended in batches.

Each is judged at once, so that most refusals cost the log nothing. What is taken waits for one thread that
appends all that wait together, under the lock that keeps the policy still, with one flush for all. It is
acknowledged when it is durable; a crash before that loses what nobody was told was taken.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tlog.errors import Error, RefusedError, UnavailableError
from tlog.locator import entry_path
from tlog.log import Log
from tlog.registrar import InForce, Registrar
from tlog.registration import Admitted, entry_id_of, judge

BATCH: Final = 1024
MAX_WAITING: Final = 4096
MAX_UNPUBLISHED: Final = 65_536
_STOP: Final = None


@dataclass(frozen=True)
class Accepted:
    """A statement that is durably in the log."""

    entry: bytes
    entry_id: bytes
    index: int


@dataclass(frozen=True)
class _Waiting:
    statement: bytes
    admitted: Admitted
    accepted: Future[Accepted]


class Intake:
    """The way of statements into one log. Any thread may submit; between `start` and `stop` they are taken."""

    def __init__(
        self,
        log: Log,
        registrar: Registrar,
        published_size: Callable[[], int],
        max_unpublished: int = MAX_UNPUBLISHED,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        """`published_size` is asked after each batch: the log takes no more than it gets to publish.

        `on_death` is called if the thread ends of a fault and not because it was stopped.
        """
        self._log = log
        self._registrar = registrar
        self._published_size = published_size
        self._max_unpublished = max_unpublished
        self._on_death = on_death
        self._queue: queue.Queue[_Waiting | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="muniment-intake", daemon=True)
        self._in_force: InForce | None = None
        self._unpublished = 0
        self._running = False

    def start(self) -> None:
        """Loads the policy and begins to take statements."""
        self.reload()
        self._running = True
        self._thread.start()

    def stop(self) -> None:
        """Returns once all that was submitted is in the log; nothing is taken any more."""
        if self._running:
            self._running = False
            self._queue.put(_STOP)
            self._thread.join()

    def running(self) -> bool:
        """Whether statements are taken."""
        return self._running and self._thread.is_alive()

    def reload(self) -> None:
        """Looks again for the policy and for what was published, by any process."""
        self._in_force = self._registrar.current()
        self.refresh()

    def refresh(self) -> None:
        """Counts again what is in the log and not public; called when something was published."""
        self._unpublished = max(self._log.head().size - self._published_size(), 0)

    def submit(self, statement: bytes) -> Future[Accepted]:
        """What becomes of a signed statement once it is durable; the errors of `judge` are raised at once.

        Raises UnavailableError with code `queue_full` when more is in the log than it gets to publish. The
        future raises RefusedError with code `signed_twice` where the log has the same statement with another
        signature: its receipt would not be a receipt for these bytes.
        """
        in_force = self._in_force
        if in_force is None:
            raise RefusedError("registration: this log takes no statements of others", code="no_policy")
        admitted = judge(statement, in_force.registration)
        if self._unpublished >= self._max_unpublished:
            raise _queue_full()
        accepted: Future[Accepted] = Future()
        try:
            self._queue.put_nowait(_Waiting(statement, admitted, accepted))
        except queue.Full:
            raise _queue_full() from None
        if not self.running():
            _fail([accepted], UnavailableError("the service is stopping", code="stopping"))
        return accepted

    def _run(self) -> None:
        batch: list[_Waiting] = []
        last = False
        try:
            while not last:
                batch, last = self._gather()
                self._take(batch)
                batch = []
        finally:
            died = not last or bool(batch)
            # Also if this thread dies of a bug of ours: nobody waits for what will never come.
            self._running = False
            if died:
                self._on_death()
            while not self._queue.empty():
                one = self._queue.get_nowait()
                batch += [one] if one is not None else []
            left = UnavailableError("the service is stopping", code="stopping")
            _fail([waiting.accepted for waiting in batch], left)

    def _gather(self) -> tuple[list[_Waiting], bool]:
        """All that waits, at least one if it is not the end, and whether it is the end."""
        batch: list[_Waiting] = []
        one = self._queue.get()
        while one is not None:
            batch.append(one)
            if len(batch) == BATCH:
                return batch, False
            try:
                one = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _take(self, batch: Sequence[_Waiting]) -> None:
        # Whoever has gone before this is not told, and not logged.
        batch = [waiting for waiting in batch if waiting.accepted.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            with self._registrar.deciding() as in_force:
                self._in_force = in_force
                kept = [waiting for waiting in batch if _still_admitted(waiting, in_force)]
                indexes = self._log.append([waiting.admitted.entry for waiting in kept]) if kept else ()
            for waiting, index in zip(kept, indexes, strict=True):
                self._answer(waiting, index)
        except Error as error:
            _fail([waiting.accepted for waiting in batch], error)
            return
        try:
            self.refresh()
        except UnavailableError:
            return  # the public checkpoint can't be read now; readiness says so, and the count stays

    def _answer(self, waiting: _Waiting, index: int) -> None:
        admitted, known = waiting.admitted, self._log.read_entry(index)
        if known == admitted.entry:
            waiting.accepted.set_result(Accepted(admitted.entry, admitted.entry_id, index))
        else:
            waiting.accepted.set_exception(_signed_twice(known))


def _still_admitted(waiting: _Waiting, in_force: InForce | None) -> bool:
    """Whether the policy that is in force now takes it too; if not, its submitter is told."""
    if in_force is not None and in_force.registration.number == waiting.admitted.policy_number:
        return True
    try:
        if in_force is None:
            raise RefusedError("registration: this log takes no statements of others", code="no_policy")
        judge(waiting.statement, in_force.registration)
    except Error as error:
        waiting.accepted.set_exception(error)
        return False
    return True


def _signed_twice(known: bytes) -> RefusedError:
    return RefusedError(
        "registration: the log has this statement already, with another signature",
        code="signed_twice",
        instance=entry_path(entry_id_of(known)),
    )


def _queue_full() -> UnavailableError:
    return UnavailableError(
        "too much waits to be published; try again later", code="queue_full", retry_after_seconds=10
    )


def _fail(waiting: Sequence[Future[Accepted]], error: Error) -> None:
    for accepted in waiting:
        with suppress(InvalidStateError):  # it has its answer
            accepted.set_exception(error)
