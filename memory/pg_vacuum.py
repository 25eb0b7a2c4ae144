"""After an erasure: dead rows taken out of the tables, and what keeps bytes of them written anew.

A vacuum frees the place of a dead row in its page and leaves the bytes until something else takes it. Of contents and
words these are sealed, or hashes; of the keys that contents hang on they are not enough either without the key of the
home, and yet they are what an erasure destroys; and a vector is not sealed at all. So these tables are written anew,
and where somebody looks at the pages afterwards, every part of a table that the erasure took from, with its indexes.

A part is written anew as a whole, while nobody reads it: one that is too large for that, or that somebody keeps
reading, stays as it is, and is counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import errors, sql

if TYPE_CHECKING:
    import psycopg

REWRITTEN: Final = ("content_keys", "subject_keys", "vectors")
"""What is worth something to whoever finds its bytes."""
TAKEN_FROM: Final = (
    *REWRITTEN,
    "content_boxes",
    "facts",
    "words",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "grants",
    "tenants",
    "tenant_keys",
    "access",
)
"""All that an erasure takes rows or values from."""
CLEARED: Final = (*TAKEN_FROM, "meta")
MAX_REWRITTEN_BYTES: Final = 256 << 20
"""Of a part that is written anew while it is in use, and nobody has asked for it a second time."""
_LOCK_MILLISECONDS: Final = 5000
_IN_USE: Final = (errors.LockNotAvailable, errors.DeadlockDetected)
# What somebody still sees, and what lay in a page that somebody was just reading; of a table that is written anew, the
# server says the first in other words.
_LEFT: Final = re.compile(r"(\d+) (?:are dead but not yet removable|dead row versions cannot be removed yet)")
_MISSED: Final = re.compile(r"(\d+) dead from \d+ pages not removed")
# The parts of a table that may have rows of a tenant; a table without parts is its own.
_PARTS: Final = """
    SELECT c.relname, pg_table_size(c.oid) FROM pg_class c
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relkind = 'r' AND coalesce(i.inhparent, c.oid) = %(table)s::regclass
    -- A part without a page has nothing to leave.
    AND (pg_relation_size(c.oid) > 0 OR pg_relation_size(nullif(c.reltoastrelid, 0)) > 0)
    AND (i.inhparent IS NULL OR %(tenant)s::bigint IS NULL OR satisfies_hash_partition(
        i.inhparent, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'modulus (\\d+)')::int,
        substring(pg_get_expr(c.relpartbound, c.oid) FROM 'remainder (\\d+)')::int, %(tenant)s::bigint))
"""


@dataclass(frozen=True)
class Cleared:
    """What a vacuum could not do: rows that somebody still sees, or whose page is in use, and parts that were to be
    written anew and were not."""

    pinned: int
    not_rewritten: int

    @property
    def is_done(self) -> bool:
        """Whether nothing had to stay."""
        return not self.pinned and not self.not_rewritten


def clear(
    connection: psycopg.Connection[Any],
    rewritten: Sequence[str] = REWRITTEN,
    tenant_id: int | None = None,
    most_bytes: int | None = None,
) -> Cleared:
    """Takes dead rows out of the tables, and writes some of them anew: those parts that may have rows of the tenant.

    A part of more than `most_bytes` is left as it is; without it, none is.
    """
    told: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        told.append("\n".join(filter(None, (notice.message_primary, notice.message_detail))))

    connection.add_notice_handler(listen)
    # Whoever comes behind a lock that is waited for waits as well.
    connection.execute(f"SET statement_timeout = 0; SET lock_timeout = {_LOCK_MILLISECONDS}")
    left = sum(
        _vacuum_parts(connection, "FULL, VERBOSE", table, tenant_id, most_bytes) for table in rewritten
    )
    in_use = sum(_vacuum_parts(connection, "VERBOSE", table, tenant_id) for table in CLEARED)
    counts = [int(found[1]) for line in told if (found := _LEFT.search(line)) is not None]
    missed = sum(int(found[1]) for line in told if (found := _MISSED.search(line)) is not None)
    # A server that says it in other words shows nothing.
    return Cleared(sum(counts) + missed + in_use if counts else 1, left)


def _vacuum_parts(
    connection: psycopg.Connection[Any],
    options: str,
    table: str,
    tenant_id: int | None,
    most_bytes: int | None = None,
) -> int:
    """How many parts of a table stay as they are; one where somebody keeps even their sizes from being known."""
    try:
        parts = connection.execute(_PARTS, {"table": table, "tenant": tenant_id}).fetchall()
    except _IN_USE:
        return 1
    return sum(
        (most_bytes is not None and size_bytes > most_bytes) or not _vacuum(connection, options, part)
        for part, size_bytes in parts
    )


def _vacuum(connection: psycopg.Connection[Any], options: str, part: str) -> bool:
    """Whether it was done: not where somebody keeps the part locked."""
    try:
        connection.execute(sql.SQL(f"VACUUM ({options}) {{}}").format(sql.Identifier(part)))
    except _IN_USE:
        return False
    return True
