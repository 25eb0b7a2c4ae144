"""The write-ahead log of a database begun anew: what is older than now is thrown away or written over.

The server keeps a file of its log until a checkpoint needs it no more. Then it deletes it, or gives it a new name and
writes it over when its turn comes: that is what rounds of beginning a file and a checkpoint hasten. What a slot, an
archive or a standby holds back, nothing here frees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory.pg_connection import connect, translated

if TYPE_CHECKING:
    import psycopg

_MOST_ROUNDS: Final = 64
_MOST_IN_VAIN: Final = 2
_BEGIN: Final = "SELECT pg_logical_emit_message(false, 'muniment', ''), pg_switch_wal()"
_PLACE: Final = """
    SELECT l.place - mod(l.place, pg_size_bytes(current_setting('wal_segment_size')))
    FROM (SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS place) AS l
"""
# A file is written over from its front, and as a whole once another is begun. The first page of one that was never used
# is zero.
_OLDER: Final = """
    SELECT count(*) FROM pg_ls_waldir() AS w, LATERAL (
      SELECT pg_read_binary_file('pg_wal/' || w.name, 0, 16, true) AS head) AS page, LATERAL (
      SELECT sum(get_byte(page.head, 8 + i)::numeric * 256::numeric ^ i) AS place
      FROM generate_series(0, 7) AS i) AS told
    WHERE w.name ~ '^[0-9A-F]{24}$' AND length(page.head) = 16 AND told.place > 0 AND told.place < %s
"""


def empty_log(dsn: str) -> int:
    """The place in the log before which everything was to go; whether it did, somebody else has to look."""
    connection = connect(dsn)
    try:
        with translated():
            # Whoever owns the schema of the store may put functions there, which would run as a superuser.
            connection.execute("SET search_path = pg_catalog; SET statement_timeout = 0")
            connection.execute(_BEGIN)
            since = _number(connection, _PLACE)
            fewest, in_vain = _round(connection, since), 0
            for _ in range(_MOST_ROUNDS):
                # Once more when all are begun: the one that is being written may be old behind where it is written.
                last = not fewest
                connection.execute(_BEGIN)
                left = _round(connection, since)
                fewest, in_vain = min(left, fewest), 0 if left < fewest else in_vain + 1
                if last or in_vain == _MOST_IN_VAIN:
                    break
            return since
    finally:
        connection.close()


def _round(connection: psycopg.Connection[Any], since: int) -> int:
    """How many files begin with an older page, after a checkpoint."""
    connection.execute("CHECKPOINT")
    return _number(connection, _OLDER, since)


def _number(connection: psycopg.Connection[Any], sql: str, *values: int) -> int:
    row = connection.execute(sql, values).fetchone()
    return 0 if row is None else int(row[0])
