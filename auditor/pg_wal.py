"""The write-ahead log of a server, page by page, as a superuser of the database may look at it.

Each page of its files says which place of the log it was written for. A file that was used up is given a new name and
keeps its old pages until they are written over, so names tell nothing. What is older than an erasure may have what was
erased; what is younger has not, once no page of a table has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

# The place stands in the bytes 8 to 15 of a page, the lowest first. A page that was never used is zero.
_PAGES: Final = """
    WITH size AS (SELECT pg_catalog.current_setting('wal_block_size')::bigint AS bytes),
    files AS (
      SELECT 'pg_wal/' || w.name AS path, w.size FROM pg_catalog.pg_ls_waldir() AS w
      WHERE w.name ~ '^[0-9A-F]{24}(\\.partial)?$'),
    heads AS (
      SELECT f.path, b.number,
             pg_catalog.pg_read_binary_file(f.path, b.number * s.bytes, 16, true) AS head
      FROM files f, size s, LATERAL pg_catalog.generate_series(0, f.size / s.bytes - 1) AS b (number)),
    places AS (
      SELECT path, number, head, (
        SELECT pg_catalog.sum(pg_catalog.get_byte(head, 8 + i)::numeric * 256::numeric ^ i)
        FROM pg_catalog.generate_series(0, 7) AS i) AS place
      FROM heads WHERE pg_catalog.length(head) = 16)
    SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE place < %(since)s AND (
        place > 0 OR pg_catalog.get_byte(head, 0) > 0
        OR pg_catalog.pg_read_binary_file(path, number * s.bytes, s.bytes, true)
           <> pg_catalog.decode(pg_catalog.repeat('00', s.bytes::int), 'hex')))
    FROM places, size s
"""
_COPIES: Final = """
    SELECT pg_catalog.current_setting('archive_mode') <> 'off'
           OR (SELECT archived_count > 0 FROM pg_catalog.pg_stat_archiver),
           (SELECT count(*) FROM pg_catalog.pg_replication_slots),
           (SELECT count(*) FROM pg_catalog.pg_stat_replication)
"""


@dataclass(frozen=True, slots=True)
class Wal:
    """The pages of a write-ahead log, and how many of them are older than a place in it."""

    pages: int
    older: int


@dataclass(frozen=True, slots=True)
class Copies:
    """Where else the write-ahead log of a server goes, as far as the server knows."""

    archived: bool
    slots: int
    standbys: int

    @property
    def are_none(self) -> bool:
        """Whether nothing that the server knows of keeps anything."""
        return not (self.archived or self.slots or self.standbys)


def look_at_wal(link: psycopg.Connection[Any], since: int) -> Wal:
    """What the files of the write-ahead log have from before a place in it."""
    row = link.execute(_PAGES, {"since": since}).fetchone()
    return Wal(0, 0) if row is None else Wal(int(row[0]), int(row[1]))


def look_at_copies(link: psycopg.Connection[Any]) -> Copies:
    """Archives, replication slots and standbys that the server has now, or had."""
    row = link.execute(_COPIES).fetchone()
    assert row is not None
    return Copies(bool(row[0]), int(row[1]), int(row[2]))
