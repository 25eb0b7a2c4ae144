"""Dates, times of day, and both together, as people write them.

A numeric date is read only where one reading is left: 2026-03-01 and 25/12/2026 are dates, 03/04/2026 is not.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from memory.canon_text import fold_case

_MONTHS: Final = (
    "january jan januar janvier enero janeiro gennaio januari",
    "february feb februar fevrier fev febrero fevereiro febbraio februari",
    "march mar marz mars marzo marco maart",
    "april apr avril avr abril aprile",
    "may mai mayo maio maggio mei",
    "june jun juni juin junio junho giugno",
    "july jul juli juillet julio julho luglio",
    "august aug aout agosto augustus",
    "september sep sept septembre septiembre setembro settembre",
    "october oct oktober okt octobre octubre outubro ottobre",
    "november nov novembre noviembre novembro",
    "december dec dezember dez decembre diciembre dezembro dicembre",
)
_WEEKDAYS: Final = (
    "monday mon tuesday tue tues wednesday wed thursday thu thurs friday fri saturday sat sunday sun"
)
_WEEKDAY_NUMBERS: Final = (0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6)
# Abbreviations are kept as they are: several zones share one.
_ZONES: Final = """
utc gmt z cet cest eet eest wet west bst msk est edt cst cdt mst mdt pst pdt akst hst ist jst kst aest aedt
"""
# Words of dates beside these: month names with their accents, and what stands around numbers.
_OTHER_WORDS: Final = "märz février août décembre março noon midnight am pm a.m p.m uhr hrs 年 月 日 년 월 일"
_NAMED_TIMES: Final = {"noon": "12:00", "12 noon": "12:00", "midnight": "0:00", "12 midnight": "0:00"}
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MINUTES_A_DAY: Final = 24 * 60


def read_date_or_time(text: str) -> tuple[str, str] | None:
    """Kind and form of a date, a time, or a date with a time, from a text that is `normal`; None otherwise."""
    lower = fold_case(text)
    date = _read_date(lower)
    if date is not None:
        return date
    split = _date_and_time_pattern().fullmatch(lower)
    if split is not None:
        date, time = _read_date(split["date"].rstrip(",")), _read_time(split["time"])
        if date is not None and date[0] == "date" and not date[1].startswith("--") and time is not None:
            return "datetime", _instant(date[1], *time)
    time = _read_time(lower)
    return None if time is None else ("time", "".join(time))


def compact_date(text: str) -> tuple[str, str] | None:
    """Kind and form of a date written as eight digits, 20260301, of this century or the last; None otherwise."""
    match = _compact_date_pattern().fullmatch(text)
    return None if match is None else _date(*(int(part) for part in match.groups()))


@cache
def date_words() -> frozenset[str]:
    """The words that dates and times have: months, weekdays, halves of the day, zones."""
    return frozenset({*_months(), *_weekdays(), *_zones(), *_OTHER_WORDS.split()})


def _read_date(text: str) -> tuple[str, str] | None:
    match = _numeric_date_pattern().fullmatch(text)
    if match is not None:
        return _numeric_date(match)
    parts = [
        part
        for part in _spelled_date_separator().split(_plain(text))
        if part and part not in ("of", "de", "del", "the")
    ]
    weekday = _weekdays().get(parts[0].rstrip(".")) if len(parts) > 1 else None
    if weekday is not None:
        parts = parts[1:]
    return _spelled_date(parts, weekday) if 2 <= len(parts) <= 3 else None


def _numeric_date(match: re.Match[str]) -> tuple[str, str] | None:
    if match["year"]:
        return _date(int(match["year"]), int(match["month"]), int(match["day"]))
    if match["cjk_year"]:
        return _date(int(match["cjk_year"]), int(match["cjk_month"]), int(match["cjk_day"]))
    if match["month_year"]:
        year, month = int(match["month_year"]), int(match["only_month"])
        return ("month", f"{year:04}-{month:02}") if 1 <= month <= 12 else None
    first, second, year = int(match["first"]), int(match["second"]), int(match["last_year"])
    if first > 12 or first == second:
        return _date(year, second, first)
    return _date(year, first, second) if second > 12 else None


def _spelled_date(parts: list[str], weekday: int | None) -> tuple[str, str] | None:
    numbers: list[str] = []
    month = None
    for part in parts:
        if month is None and part.rstrip(".") in _months():
            month = _months()[part.rstrip(".")]
        else:
            numbers.append(part)
    if month is None or not numbers or len(numbers) > 2:
        return None
    if len(numbers) == 1 and _is_year(numbers[0]):
        return ("month", f"{int(numbers[0]):04}-{month:02}") if weekday is None else None
    if len(numbers) == 2 and _is_year(numbers[0]):
        numbers.reverse()
    day = _day_pattern().fullmatch(numbers[0])
    if day is None or (len(numbers) == 2 and not _is_year(numbers[1])):
        return None
    if len(numbers) == 2:
        return _date(int(numbers[1]), month, int(day[1]), weekday)
    return (
        ("date", f"--{month:02}-{int(day[1]):02}")
        if 1 <= int(day[1]) <= _DAYS[month - 1] and weekday is None
        else None
    )


def _date(year: int, month: int, day: int, weekday: int | None = None) -> tuple[str, str] | None:
    if not (year and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]):
        return None
    if month == 2 and day == 29 and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    if weekday is not None and (_day_number(year, month, day) + 3) % 7 != weekday:
        return None
    return "date", f"{year:04}-{month:02}-{day:02}"


def _read_time(text: str) -> tuple[str, str] | None:
    """The time of day as HH:MM:SS, and its zone or offset, empty where none is said."""
    text = _NAMED_TIMES.get(text, text)
    match = _time_pattern().fullmatch(text)
    if match is None:
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"] or 0), int(match["second"] or 0)
    half = match["half"]
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "p" else 0)
    elif match["minute"] is None:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    zone = _zone(match["tail"].strip())
    if zone is None:
        return None
    fraction = (match["fraction"] or "").rstrip("0")
    return f"{hour:02}:{minute:02}:{second:02}{'.' if fraction else ''}{fraction}", zone


def _zone(tail: str) -> str | None:
    """The form of what follows a time: a zone or an offset; None if it is something else."""
    if tail in ("z", "utc", "gmt"):
        return "z"
    if tail in ("", "h", "hrs", "hours", "uhr", "o'clock"):
        return ""
    offset = _offset_pattern().fullmatch(tail)
    if offset is not None:
        hours, minutes = int(offset["hours"]), int(offset["minutes"] or 0)
        return f"{offset['sign']}{hours:02}:{minutes:02}" if hours or minutes else "z"
    return f" {tail}" if tail in _zones() else None


@cache
def _zones() -> frozenset[str]:
    return frozenset(_ZONES.split())


def _instant(date: str, time: str, zone: str) -> str:
    """A date and time; with an offset, the same instant at offset zero."""
    if not zone or zone[0] not in "+-":
        return f"{date}T{time}{zone}"
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    local = int(time[:2]) * 60 + int(time[3:5]) - (minutes if zone[0] == "+" else -minutes)
    days, minute = divmod(local, _MINUTES_A_DAY)
    year, month, day = (int(part) for part in date.split("-"))
    year, month, day = _civil(_day_number(year, month, day) + days)
    return f"{year:04}-{month:02}-{day:02}T{minute // 60:02}:{minute % 60:02}{time[5:]}z"


def _day_number(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar."""
    shifted = year - (month <= 2)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719468


def _civil(number: int) -> tuple[int, int, int]:
    """The inverse of `_day_number`."""
    era, day_of_era = divmod(number + 719468, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _is_year(text: str) -> bool:
    return len(text) == 4 and text.isdigit()


def _plain(text: str) -> str:
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


@cache
def _months() -> dict[str, int]:
    return {name: number for number, names in enumerate(_MONTHS, start=1) for name in names.split()}


@cache
def _weekdays() -> dict[str, int]:
    return dict(zip(_WEEKDAYS.split(), _WEEKDAY_NUMBERS, strict=True))


@cache
def _numeric_date_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"
        r"|(?P<cjk_year>\d{4}) ?[年년] ?(?P<cjk_month>\d{1,2}) ?[月월] ?(?P<cjk_day>\d{1,2}) ?[日일]"
        r"|(?P<month_year>\d{4})-(?P<only_month>\d{2})"
        r"|(?P<first>\d{1,2})(?P<between>[/.-])(?P<second>\d{1,2})(?P=between)(?P<last_year>\d{4})"
    )


@cache
def _compact_date_pattern() -> re.Pattern[str]:
    return re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)")


@cache
def _spelled_date_separator() -> re.Pattern[str]:
    return re.compile(r"[ ,]+|(?<=\d)-(?=[^\W\d])|(?<=[^\W\d])-(?=\d)|(?<=\d\.)(?=[^\W\d])")


@cache
def _day_pattern() -> re.Pattern[str]:
    return re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|º|\.)?")


@cache
def _time_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?P<hour>\d{1,2})(?:(?::|\.(?=\d\d ?[ap]))(?P<minute>\d{2})"
        r"(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?)?"
        r"(?: ?(?P<half>[ap])\.?m\b\.?)?(?P<tail>(?: ?[+-]\d{1,2}(?::?\d{2})?| ?[^\W\d].*)?)"
    )


@cache
def _offset_pattern() -> re.Pattern[str]:
    return re.compile(r"(?:utc|gmt)? ?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")


@cache
def _date_and_time_pattern() -> re.Pattern[str]:
    return re.compile(r"(?P<date>.*?\d,?)(?: at |, | |t)(?P<time>\d{1,2}(?::\d{2}| ?[ap]\.?m\b).*)")
