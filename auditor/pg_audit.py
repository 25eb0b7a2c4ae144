"""What there is to say of a store in PostgreSQL: every check of rows, and what is not looked at there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from auditor.checks import check_store
from auditor.checks_pg_keys import check_keys
from auditor.checks_pg_pages import check_pg_pages, gone_of
from auditor.exhibits import Exhibits, exhibits_of_store
from auditor.findings import Note, Outcome
from auditor.pg_copy import copy_database
from auditor.promises import Held, check_promises_held
from auditor.store_rows import read_rows
from auditor.strays import check_copied_rows

if TYPE_CHECKING:
    from pathlib import Path

    from auditor.chain import AuditedLog
    from auditor.evidence import Asked, StoreRows

_NOT_LOOKED_AT: Final = (
    ("word index", "which facts are found by which words: the index of a database is of keyed hashes"),
    (
        "log notes",
        "what the log keeps to itself in the database: heads that it has signed, and staged entries",
    ),
    ("guard keys", "keys of tenants' hashes, which are rows of the database"),
)
_NO_PAGES: Final = Note(
    "database pages",
    "dead rows and free space of tables and indexes, and the write-ahead log: give --pages with a connection of a"
    " superuser",
)
_COPIES: Final = Note("database copies", "standbys, archives, base backups and dumps of the database")


def audit_database(
    home: Path,
    dsn: str,
    log: AuditedLog,
    asked: Asked,
    tenant: str | None,
    held: Sequence[Held],
    pages: str | None,
) -> tuple[list[Outcome], Exhibits]:
    """The outcomes of every check of rows, of pages where `pages` connects to them, and what they have to show."""
    with copy_database(home, dsn) as copy:
        gone = gone_of(copy)
        below = (check_copied_rows(copy), check_keys(copy))
        rows = replace(read_rows(copy, tenant), many_writers=True)
    verified = log.verified
    cosigned_at = max((each.timestamp for each in verified.cosignatures), default=None) if verified else None
    outcome, statements = check_store(rows, log.files, log.entries, cosigned_at, asked)
    outcomes = [outcome, *below, *_promises(held, log, rows, asked)]
    outcomes.append(
        Outcome(not_checked=(_NO_PAGES, _COPIES)) if pages is None else check_pg_pages(pages, dsn, gone)
    )
    outcomes.append(Outcome(not_checked=tuple(Note(name, text) for name, text in _NOT_LOOKED_AT)))
    root = b"" if verified is None else verified.checkpoint.root
    return outcomes, exhibits_of_store(rows, statements, log.files, root, asked.trust.policy)


def _promises(held: Sequence[Held], log: AuditedLog, rows: StoreRows, asked: Asked) -> list[Outcome]:
    if held:
        return [check_promises_held(held, log.entries, rows, asked)]
    text = "no receipts of clients were given: a write that was hidden with all its traces is not noticed"
    return [Outcome(not_checked=(Note("receipts", text),))]
