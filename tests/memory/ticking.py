"""A clock that a test sets, for homes whose times it compares."""

from __future__ import annotations

SECOND = 1_000_000


class Clock:
    """A clock that a test sets; each look at it is a microsecond later."""

    def __init__(self) -> None:
        self.now = 1_900_000_000 * SECOND

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def second(self, later: int = 0) -> int:
        """This second, or one so many seconds later, as an argument of a write."""
        return self.now // SECOND + later

    def pass_seconds(self, seconds: int) -> int:
        """The time once so many seconds have passed."""
        self.now += seconds * SECOND
        return self.now
