"""After an erasure: dead rows taken out of the tables, and the small tables of keys written anew.

A vacuum frees the place of a dead row in its page and leaves the bytes until something else takes it. Of contents and
words these are sealed, or hashes; of the keys that contents hang on they are not enough either without the key of the
home, and yet they are what an erasure destroys. So the tables of keys are written anew, as long as they are small.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

if TYPE_CHECKING:
    import psycopg

KEYS: Final = ("content_keys", "subject_keys", "tenant_keys")
CLEARED: Final = (
    "content_boxes",
    "facts",
    "words",
    "vectors",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "grants",
    "tenants",
    "meta",
)
MAX_REWRITTEN_BYTES: Final = 256 << 20
_LEFT: Final = re.compile(r"(\d+) are dead but not yet removable")
_PARTS: Final = """
    SELECT c.relname, pg_relation_size(c.oid) FROM pg_partition_tree(%s::regclass) t
    JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf
"""


def vacuum(connection: psycopg.Connection[Any]) -> int:
    """How many dead rows had to stay, because a transaction somewhere may still look at them."""
    told: list[str] = []
    connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    connection.execute("SET statement_timeout = 0")
    for table in KEYS:
        for part, size_bytes in connection.execute(_PARTS, (table,)).fetchall():
            full = "FULL, " if size_bytes <= MAX_REWRITTEN_BYTES else ""
            _vacuum(connection, f"{full}VERBOSE", part)
    for table in CLEARED:
        _vacuum(connection, "VERBOSE", table)
    counts = [int(found[1]) for line in told if (found := _LEFT.search(line)) is not None]
    # A server that says it in other words shows nothing.
    return sum(counts) if counts else 1


def _vacuum(connection: psycopg.Connection[Any], options: str, table: str) -> None:
    connection.execute(sql.SQL(f"VACUUM ({options}) {{}}").format(sql.Identifier(table)))
