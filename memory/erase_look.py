"""What is looked at below the rows once an erasure took them: pages of the file, or of the database, and its log.

Each kind of store answers in the same form: the systems that a manifest lists for it, and its checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memory.erase_checks import Check, check_free_space

if TYPE_CHECKING:
    from memory.parts import Parts
    from memory.store_read import Snapshot


@dataclass(frozen=True)
class Traces:
    """By what the pages of a store are searched for what an erasure took; in memory alone.

    `ledger` and `requests` are rows whose values went, `texts` bytes that stood in rows of the erased and in no others.
    `until` is when, by an earlier manifest, nothing of it is in copies of a database any more.
    """

    tenant_id: int
    seqs: tuple[int, ...]
    ledger: tuple[int, ...] = ()
    requests: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()
    until: int | None = None


@dataclass(frozen=True)
class Looked:
    """The systems of the store as a manifest lists them, the check of its free space, and what else was checked."""

    systems: tuple[dict[str, Any], ...]
    free_space: Check
    others: tuple[Check, ...] = ()


def take_traces(
    parts: Parts,
    view: Snapshot,
    tenant_id: int,
    *,
    seqs: tuple[int, ...],
    ledger: tuple[int, ...],
    requests: tuple[int, ...],
) -> Traces:
    """What to look for afterwards of these rows of a tenant, before they go."""
    if parts.home.config.database is None:
        return Traces(tenant_id, seqs, ledger, requests)
    from memory.pg_look import texts_of

    return Traces(tenant_id, seqs, ledger, requests, texts_of(view, tenant_id, seqs))


def look_at_store(parts: Parts, cleared: tuple[dict[str, Any], ...], traces: Traces) -> Looked:
    """What is found; `cleared` is what became of rows that are gone, by the word of who took them out."""
    if parts.home.config.database is None:
        return Looked(cleared, check_free_space(parts.home))
    from memory.pg_look import look_at_database

    return look_at_database(parts, cleared, traces)
