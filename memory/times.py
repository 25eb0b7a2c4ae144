"""Times and durations as people write them, and as the store keeps them: whole microseconds since 1970, UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from tlog.errors import MalformedError

MICROSECONDS: Final = 1_000_000
HOUR: Final = 3600 * MICROSECONDS
"""As fine as a time may be that outlives what it is about: in a manifest, or in a row that an erasure left."""
NOW: Final = "now"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_IN_UTC: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
# Years 1 to 9999: what datetime can hold, and so what can be shown again.
MIN_TIME: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
MAX_TIME: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
MAX_TIME_CHARACTERS: Final = 64
MAX_DURATION: Final = 365_250 * 24 * 3600 * 1_000_000
"""What is counted from now, forwards or backwards, is still a time."""
_EPOCH_SECONDS: Final = re.compile(r"-?[0-9]{1,12}", re.ASCII)
_DATE_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,6})?)?"
    r"(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)",
    re.ASCII,
)
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EXPECTED: Final = "an ISO-8601 time with a zone (2026-05-04T09:30:00Z), epoch seconds, or now"


def parse_time(value: object, now: int, *, name: str = "time") -> int:
    """Microseconds since 1970 of a time in ISO-8601 with a zone, in epoch seconds, or "now".

    Raises MalformedError for anything else: a date without a zone could mean any of two days.
    """
    if type(value) is int:
        return _checked(value * MICROSECONDS, name)
    if not isinstance(value, str) or len(value) > MAX_TIME_CHARACTERS:
        raise _error(name)
    text = value.strip()
    if text.lower() == NOW:
        return now
    if _EPOCH_SECONDS.fullmatch(text):
        return _checked(int(text) * MICROSECONDS, name)
    if not _DATE_TIME.fullmatch(text):
        raise _error(name)
    try:
        moment = datetime.fromisoformat(text.upper().replace(",", "."))
        return _checked((moment - _EPOCH) // _MICROSECOND, name)
    except (ValueError, OverflowError):
        raise _error(name) from None


def format_time(microseconds: int) -> str:
    """ISO-8601 in UTC with a Z; a fraction, of six digits, only where there is one."""
    return f"{(_EPOCH_IN_UTC + timedelta(microseconds=microseconds)).isoformat()}Z"


def format_optional(microseconds: int | None) -> str | None:
    """`format_time` of a time that may be absent."""
    return None if microseconds is None else format_time(microseconds)


def whole_hour(microseconds: int) -> int:
    """The beginning of the hour that a time lies in."""
    return microseconds - microseconds % HOUR


def month_after(microseconds: int) -> int:
    """The same time of day a month later; on the last day of a month that has no such day."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    first = (moment.replace(day=1) + timedelta(days=32)).replace(day=1)
    last = ((first + timedelta(days=32)).replace(day=1) - timedelta(days=1)).day
    return (first.replace(day=min(moment.day, last)) - _EPOCH) // _MICROSECOND


def parse_duration(value: object, *, name: str = "duration") -> int:
    """Microseconds of a whole number and one of s, m, h, d, w, such as 90d."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= 32 else None
    if match is None:
        raise MalformedError(f"expected {name} to be a whole number and one of s, m, h, d, w, such as 90d")
    microseconds = int(match[1]) * _UNIT_SECONDS[match[2]] * MICROSECONDS
    if microseconds > MAX_DURATION:
        raise MalformedError(f"expected {name} to be a thousand years at most")
    return microseconds


def _checked(microseconds: int, name: str) -> int:
    if not MIN_TIME <= microseconds <= MAX_TIME:
        raise MalformedError(f"expected {name} to lie in the years 1 to 9999")
    return microseconds


def _error(name: str) -> MalformedError:
    return MalformedError(f"expected {name} to be {_EXPECTED}")
