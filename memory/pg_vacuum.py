"""After an erasure: dead rows taken out of the tables, and the tables of keys and vectors written anew.

A vacuum frees the place of a dead row in its page and leaves the bytes until something else takes it. Of contents and
words these are sealed, or hashes; of the keys that contents hang on they are not enough either without the key of the
home, and yet they are what an erasure destroys; and a vector is not sealed at all. So these tables are written anew, as
long as they are small.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

if TYPE_CHECKING:
    import psycopg

REWRITTEN: Final = ("content_keys", "subject_keys", "tenant_keys", "vectors")
CLEARED: Final = (
    "content_boxes",
    "facts",
    "words",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "grants",
    "tenants",
    "meta",
)
MAX_REWRITTEN_BYTES: Final = 256 << 20
# What somebody still sees, and what lay in a page that somebody was just reading.
_LEFT: Final = re.compile(r"(\d+) are dead but not yet removable")
_MISSED: Final = re.compile(r"(\d+) dead from \d+ pages not removed")
_PARTS: Final = """
    SELECT c.relname, pg_relation_size(c.oid) FROM pg_partition_tree(%s::regclass) t
    JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf
    -- A part without a page has nothing to leave.
    AND (pg_relation_size(c.oid) > 0 OR pg_relation_size(nullif(c.reltoastrelid, 0)) > 0)
"""


def vacuum(connection: psycopg.Connection[Any]) -> int:
    """How many dead rows had to stay, because a transaction somewhere looks at them, or at their page."""
    told: list[str] = []
    connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    connection.execute("SET statement_timeout = 0")
    for table in REWRITTEN:
        for part, size_bytes in connection.execute(_PARTS, (table,)).fetchall():
            full = "FULL, " if size_bytes <= MAX_REWRITTEN_BYTES else ""
            _vacuum(connection, f"{full}VERBOSE", part)
    for table in CLEARED:
        _vacuum(connection, "VERBOSE", table)
    counts = [int(found[1]) for line in told if (found := _LEFT.search(line)) is not None]
    # A server that says it in other words shows nothing.
    missed = sum(int(found[1]) for line in told if (found := _MISSED.search(line)) is not None)
    return sum(counts) + missed if counts else 1


def _vacuum(connection: psycopg.Connection[Any], options: str, table: str) -> None:
    connection.execute(sql.SQL(f"VACUUM ({options}) {{}}").format(sql.Identifier(table)))
