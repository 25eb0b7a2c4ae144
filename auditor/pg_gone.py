"""Whether a database has rows of records that were erased, by a connection and statements of the auditor's own.

Rows that a policy hides from whoever looks would pass for none. So a row of nobody is planted in each table first, in
a transaction that comes to nothing: the same statement has to find it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from auditor.pg_copy import require_sees_all
from tlog.errors import UnavailableError

if TYPE_CHECKING:
    import psycopg

_NOBODY: Final = -1
"""The number of the rows that are planted: statements are numbered from 1."""
_BY_NUMBER: Final[Mapping[str, str]] = {
    "content_boxes": "seq = ANY(%(seqs)s)",
    "content_keys": "seq = ANY(%(seqs)s) OR wrapped = ANY(%(texts)s)",
    "subject_keys": "wrapped = ANY(%(texts)s)",
    "facts": "seq = ANY(%(seqs)s)",
    "words": "seq = ANY(%(seqs)s)",
    "vectors": "seq = ANY(%(seqs)s)",
    "grants": "seq = ANY(%(seqs)s)",
    "tokens": "target = ANY(%(seqs)s)",
    "ledger": "source = ANY(%(seqs)s) OR id = ANY(%(ledger)s)",
    # What a request came to is answered as erased, with nothing of what it was.
    "idempotency": "seq = ANY(%(seqs)s) AND (body_tag <> '' OR answer <> '')",
}
"""What a row of an erased record is, in each table that may have one."""
_PLANTED: Final[Mapping[str, str]] = {
    "content_boxes": "(seq, tenant, content, salt) VALUES (%(seq)s, %(tenant)s, %(tag)s, %(tag)s)",
    "content_keys": "(seq, tenant, wrapped) VALUES (%(seq)s, %(tenant)s, %(tag)s)",
    "subject_keys": "(tenant, subject, wrapped) VALUES (%(tenant)s, %(tag)s, %(tag)s)",
    "facts": "(seq, tenant, agent_tag, text_tag, status, valid_from, declared, recorded_at)"
    " VALUES (%(seq)s, %(tenant)s, %(tag)s, %(tag)s, 'discarded', 0, false, 0)",
    "words": "(seq, tenant, term, places) VALUES (%(seq)s, %(tenant)s, 0, 1)",
    "vectors": "(seq, tenant, agent_tag, model, vector) VALUES (%(seq)s, %(tenant)s, %(tag)s, '', %(tag)s)",
    "grants": "(seq, tenant, owner_tag, reader_tag) VALUES (%(seq)s, %(tenant)s, %(tag)s, %(tag)s)",
    "tokens": "(tenant, token_hash, purpose, bound, target, expires_at)"
    " VALUES (%(tenant)s, %(tag)s, '', %(tag)s, %(seq)s, 0)",
    "ledger": "(tenant, agent_tag, key_tag, value_tag, name_tags, word_count, canon_version, source)"
    " VALUES (%(tenant)s, %(tag)s, %(tag)s, %(tag)s, '', 0, 0, %(seq)s)",
    "idempotency": "(tenant, request_tag, body_tag, seq, answer)"
    " VALUES (%(tenant)s, %(tag)s, %(tag)s, %(seq)s, '')",
}


@dataclass(frozen=True, slots=True)
class Erased:
    """What is to be gone: the tenant, numbers of statements, rows of the ledger, and bytes that stood in rows.

    `requests` are rows of idempotency whose values are to be gone, though the rows may stay.
    """

    tenant: int
    seqs: tuple[int, ...]
    ledger: tuple[int, ...] = ()
    requests: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class RowsLeft:
    """How many rows are left, and of how many planted ones how many were found."""

    remaining: int
    planted: int
    found: int


def count_rows(dsn: str, erased: Erased) -> RowsLeft:
    """What there is in the tables of the home's database."""
    tag = os.urandom(32)
    with _undone(dsn) as link:
        for table, row in _PLANTED.items():
            link.execute(
                f"INSERT INTO muniment.{table} {row}", {"seq": _NOBODY, "tenant": erased.tenant, "tag": tag}
            )
        found = sum(
            _count(link, table, Erased(erased.tenant, (_NOBODY,), texts=(tag,))) == 1 for table in _BY_NUMBER
        )
        remaining = sum(_count(link, table, erased) for table in _BY_NUMBER)
    return RowsLeft(remaining, len(_PLANTED), found)


def _count(link: psycopg.Connection[Any], table: str, erased: Erased) -> int:
    sql = f"SELECT count(*) FROM muniment.{table} WHERE tenant = %(tenant)s AND ({_BY_NUMBER[table]})"
    values = {
        "tenant": erased.tenant,
        "seqs": list(erased.seqs),
        "ledger": list(erased.ledger),
        "texts": list(erased.texts),
    }
    row = link.execute(sql, values).fetchone()
    return 0 if row is None else int(row[0])


@contextmanager
def _undone(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that sees every row, and of which nothing stays."""
    import psycopg

    try:
        with psycopg.connect(dsn, connect_timeout=10, application_name="muniment audit") as link:
            try:
                require_sees_all(link)
                link.execute("SET LOCAL statement_timeout = 0; SET LOCAL synchronous_commit = off")
                yield link
            finally:
                link.rollback()
    except psycopg.Error:
        raise UnavailableError("the rows of the database cannot be looked at", code="scan_failed") from None
