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
from collections.abc import Iterator, Sequence
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
    connection: psycopg.Connection[Any], rewritten: Sequence[str] = REWRITTEN, tenant_id: int | None = None
) -> Cleared:
    """Takes dead rows out of the tables, and writes some of them anew: those parts that may have rows of the tenant."""
    told: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        told.append("\n".join(filter(None, (notice.message_primary, notice.message_detail))))

    connection.add_notice_handler(listen)
    connection.execute("SET statement_timeout = 0")
    left = sum(_rewrite(connection, table, tenant_id) for table in rewritten)
    for table in CLEARED:
        for part, _ in _parts(connection, table, tenant_id):
            _vacuum(connection, "VERBOSE", part)
    counts = [int(found[1]) for line in told if (found := _LEFT.search(line)) is not None]
    missed = sum(int(found[1]) for line in told if (found := _MISSED.search(line)) is not None)
    # A server that says it in other words shows nothing.
    return Cleared(sum(counts) + missed if counts else 1, left)


def _rewrite(connection: psycopg.Connection[Any], table: str, tenant_id: int | None) -> int:
    """How many parts of a table stay as they are."""
    left = 0
    for part, size_bytes in _parts(connection, table, tenant_id):
        if size_bytes > MAX_REWRITTEN_BYTES:
            left += 1
            continue
        try:
            _vacuum(connection, "FULL, VERBOSE", part)
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            left += 1
    return left


def _parts(
    connection: psycopg.Connection[Any], table: str, tenant_id: int | None
) -> Iterator[tuple[str, int]]:
    rows = connection.execute(_PARTS, {"table": table, "tenant": tenant_id}).fetchall()
    yield from rows


def _vacuum(connection: psycopg.Connection[Any], options: str, part: str) -> None:
    connection.execute(sql.SQL(f"VACUUM ({options}) {{}}").format(sql.Identifier(part)))
