"""Requests that arrive while a commit is under way wait for it together, and share the next one.

One thread runs the batches. The event loop goes on taking in requests while that thread waits for the disk,
so under load a batch is what has arrived during the one before it; alone, a request waits for nobody.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")

MAX_BATCH = 64


class GroupCommit(Generic[A]):
    """Hands bodies in batches to `run`, which gives one answer for each, in order. Of one event loop only."""

    def __init__(
        self, run: Callable[[Sequence[bytes]], Sequence[A]], failed: A, max_batch: int = MAX_BATCH
    ) -> None:
        """`failed` is the answer for a batch of which `run` raised an error: our own bug."""
        self._run = run
        self._failed = failed
        self._max_batch = max_batch
        self._pending: queue.SimpleQueue[tuple[bytes, Callable[[A], None]]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def put(self, body: bytes, deliver: Callable[[A], None]) -> None:
        """Has the body answered; `deliver` is called in the event loop, once."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._work, daemon=True, name="muniment-commit").start()
        self._pending.put((body, deliver))

    async def submit(self, body: bytes) -> A:
        """The answer for one body."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()

        def deliver(answer: A) -> None:
            if not future.done():  # else nobody waits any more
                future.set_result(answer)

        self.put(body, deliver)
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
            try:
                answers = self._run([body for body, _ in batch])
            except Exception:  # noqa: BLE001 -- an outermost loop: a bug must reach those who wait, not end it
                traceback.print_exc(file=sys.stderr)
                answers = [self._failed] * len(batch)
            try:
                loop.call_soon_threadsafe(_deliver, [deliver for _, deliver in batch], answers)
            except RuntimeError:
                return  # the loop was closed: the process is stopping, and nobody waits any more


def _deliver(delivers: Sequence[Callable[[A], None]], answers: Sequence[A]) -> None:
    for deliver, answer in zip(delivers, answers, strict=True):
        deliver(answer)
