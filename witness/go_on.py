"""Work that goes on once its caller has what it needs, and for a moment longer than the process.

A command publishes and ends; what a slow witness says a moment later is worth hearing all the same. So the end of
the process waits for such work, all of it together, and no longer than `EXIT_SECONDS`.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Final

EXIT_SECONDS: Final = 1.0

_mutex = threading.Lock()
_working: set[threading.Thread] = set()


def go_on(work: Callable[[], None]) -> None:
    """Has `work` done in a thread of its own, and returns at once."""

    def run() -> None:
        try:
            work()
        finally:
            with _mutex:
                _working.discard(thread)

    thread = threading.Thread(target=run, daemon=True, name="muniment-listening")
    with _mutex:
        _working.add(thread)
    thread.start()


def await_all(seconds: float) -> None:
    """Returns once all such work is done, or the time is up."""
    end = time.monotonic() + seconds
    with _mutex:
        threads = tuple(_working)
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


atexit.register(await_all, EXIT_SECONDS)
