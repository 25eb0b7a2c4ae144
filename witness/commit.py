"""Requests that arrive while a commit is under way wait for it together, and share the next one.

One thread runs the batches. The event loop goes on taking in requests while that thread waits for the disk,
so under load a batch is what has arrived during the one before it; alone, a request waits for nobody.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")

MAX_BATCH = 64

_Pending = tuple[bytes, "asyncio.Future[A]"]


class GroupCommit(Generic[A]):
    """Hands bodies in batches to `run`, which gives one answer for each, in order."""

    def __init__(self, run: Callable[[Sequence[bytes]], Sequence[A]], max_batch: int = MAX_BATCH) -> None:
        self._run = run
        self._max_batch = max_batch
        self._pending: queue.SimpleQueue[tuple[bytes, asyncio.Future[A]]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def submit(self, body: bytes) -> A:
        """The answer for one body. Of one event loop only."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._work, daemon=True, name="muniment-commit").start()
        future: asyncio.Future[A] = self._loop.create_future()
        self._pending.put((body, future))
        return await future

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        while True:
            batch = [self._pending.get()]
            while len(batch) < self._max_batch:
                try:
                    batch.append(self._pending.get_nowait())
                except queue.Empty:
                    break
            futures = [future for _, future in batch]
            try:
                answers = self._run([body for body, _ in batch])
            except BaseException as error:  # noqa: BLE001 -- a bug must reach those who wait, not end the thread
                self._deliver(loop, _fail, futures, error)
                continue
            self._deliver(loop, _resolve, futures, answers)

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[..., None], *values: object
    ) -> None:
        try:
            loop.call_soon_threadsafe(deliver, *values)
        except RuntimeError:
            return  # the loop was closed: the process is stopping, and nobody waits any more


def _resolve(futures: Sequence[asyncio.Future[A]], answers: Sequence[A]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def _fail(futures: Sequence[asyncio.Future[A]], error: BaseException) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
