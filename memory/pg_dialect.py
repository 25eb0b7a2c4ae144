"""The statements of the store as PostgreSQL takes them: the same SQL, said in its dialect.

The SQL of the store is written once, for SQLite. What differs is a matter of spelling: placeholders, hints to the
planner, two functions, one list of numbers. What differs by more than that is a method of `memory.pg_txn`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

_SPELLINGS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), spelling)
    for pattern, spelling in (
        (r"%", "%%"),
        (r"\s(?:NOT INDEXED|INDEXED BY \w+)", ""),
        (r"\bCROSS JOIN\b", "JOIN"),
        # Both rows of a pair are of one tenant, which every key begins with; b, j and s stand for lists of numbers.
        (
            r"JOIN (\w+) (\w) ON \2\.seq = ([ac-ik-rt-z])\.(\w+)",
            r"JOIN \1 \2 ON \2.seq = \3.\4 AND \2.tenant = \3.tenant",
        ),
        (
            r"json_each\((\?\d*)\) j",
            r"(SELECT value::bigint, place FROM jsonb_array_elements_text(\1::jsonb)"
            r" WITH ORDINALITY AS listed (value, place)) j",
        ),
        (r"\bIN story\b", "IN (SELECT seq FROM story)"),
        (r"\bmax\(([^(),]+),([^()]+)\)", r"greatest(\1,\2)"),
        (r"\bmin\(([^(),]+),([^()]+)\)", r"least(\1,\2)"),
        # A value that is NULL has no type of its own.
        (r"(\?\d*) IS NULL\b", r"\1::bigint IS NULL"),
        (r"\bx''", "''::bytea"),
        (r"\(end_erased OR on_hold\)", "(end_erased <> 0 OR on_hold <> 0)"),
        (r"\bAND ((?:f\.)?on_hold)(?= LIMIT|\s*$)", r"AND \1 <> 0"),
        (r"\bWHEN f\.end_erased\b", "WHEN f.end_erased <> 0"),
    )
)
_PLACE: Final = re.compile(r"\?(\d*)")
_OR_IGNORE: Final = "INSERT OR IGNORE INTO"


class Statement(NamedTuple):
    """A statement for psycopg, and where each of its placeholders finds its value; None for one after the other."""

    sql: str
    places: tuple[int, ...] | None

    def values(self, given: Sequence[Any]) -> Sequence[Any]:
        """The values in the order of the placeholders."""
        return given if self.places is None else [given[place] for place in self.places]


@lru_cache(maxsize=1024)
def translate(sql: str) -> Statement:
    """The statement in the dialect of PostgreSQL."""
    for pattern, spelling in _SPELLINGS:
        sql = pattern.sub(spelling, sql)
    if _OR_IGNORE in sql:
        sql = sql.replace(_OR_IGNORE, "INSERT INTO") + " ON CONFLICT DO NOTHING"
    if ") j" in sql and "DISTINCT" not in sql and "ORDER BY j." not in sql:
        sql += " ORDER BY j.place"
    numbers = _PLACE.findall(sql)
    sql = _PLACE.sub("%s", sql)
    if not any(numbers):
        return Statement(sql, None)
    return Statement(sql, tuple(int(number) - 1 for number in numbers))
