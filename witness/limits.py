"""How many heads each log may have cosigned: what the list of logs grants it, or what all others get.

Counted are heads that the log itself signed and that follow, nothing else: a stranger who sends garbage, or
the log's public checkpoint again, uses up nothing of what the log is granted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tlog.errors import RefusedError
from tlog.rate_limit import Rate, RateLimiter
from witness.records import LogRecord

SECONDS_PER_DAY = 86_400
DEFAULT_PER_DAY = 10 * SECONDS_PER_DAY
BURST_SECONDS = 60
MIN_BURST = 60
MAX_BURST = 10**6
MAX_LOGS = 100_000


class HeadLimit(Protocol):
    """Grants a log one more head; RefusedError with code `too_many_requests` if it may not have it now."""

    def charge(self, log: LogRecord) -> None: ...


class _NoLimit:
    def charge(self, log: LogRecord) -> None:
        return None


NO_LIMIT: HeadLimit = _NoLimit()


class DailyLimit:
    """Spreads what a log is granted a day evenly over the day, with room for bursts. Threads may share one."""

    def __init__(
        self, default_per_day: int = DEFAULT_PER_DAY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._default_per_day = default_per_day
        self._clock = clock
        self._mutex = threading.Lock()
        # A limiter grants all it counts the same rate, so there is one for each rate.
        self._limiters: dict[int, RateLimiter] = {}

    def charge(self, log: LogRecord) -> None:
        """Takes one head of what the log is granted; RefusedError with `retry_after_seconds` if it has none."""
        per_day = log.terms.requests_per_day if log.terms else self._default_per_day
        with self._mutex:
            if per_day not in self._limiters:
                self._limiters[per_day] = RateLimiter(_rate(per_day), self._clock, MAX_LOGS)
            wait_seconds = self._limiters[per_day].wait_seconds(log.origin)
        if wait_seconds > 0:
            raise RefusedError(
                "this log sends more heads than it is granted; wait, then go on",
                code="too_many_requests",
                retry_after_seconds=math.ceil(wait_seconds),
            )


def _rate(per_day: int) -> Rate:
    per_second = per_day / SECONDS_PER_DAY
    return Rate(per_second, min(max(MIN_BURST, int(per_second * BURST_SECONDS)), MAX_BURST))
