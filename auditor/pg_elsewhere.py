"""Bytes of an erased record in tables that are not the store's: a copy that somebody made in the same database.

A wrapped key that was copied opens what it was the key of, whatever the table is called. So every page of every other
table is searched, materialized views, large objects and the server's samples of columns as well. Temporary tables of
others cannot be looked at, and go with whoever made them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from auditor.pg_probe import counter_of

if TYPE_CHECKING:
    from auditor.pg_probe import Probe

_CONTROL: Final = "pg_temp.muniment_elsewhere"
# What lies beside a table because it is long belongs to that table.
_OTHERS: Final = """
    WITH RECURSIVE ours AS (
      SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'muniment' AND c.relname = ANY(%s)
      UNION ALL
      SELECT i.inhrelid FROM ours o JOIN pg_catalog.pg_inherits i ON i.inhparent = o.oid)
    SELECT pg_catalog.format('%%I.%%I', m.nspname, r.relname)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_class r ON r.oid IN (c.oid, c.reltoastrelid)
    JOIN pg_catalog.pg_namespace m ON m.oid = r.relnamespace
    WHERE c.relkind IN ('r', 'm') AND c.oid NOT IN (SELECT oid FROM ours)
    AND (c.relpersistence <> 't' OR n.oid = pg_catalog.pg_my_temp_schema())
    AND (n.nspname NOT IN ('pg_catalog', 'information_schema')
         OR c.relname IN ('pg_largeobject', 'pg_statistic', 'pg_statistic_ext_data'))
    ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The pages of other tables, the places in them where such bytes stand, and whether planted ones were found."""

    pages: int
    texts: int
    control_found: bool


def look_elsewhere(probe: Probe, ours: Sequence[str], texts: tuple[bytes, ...]) -> Elsewhere:
    """What is found of these bytes in any table of the database but these of the store."""
    control = os.urandom(32)
    probe.link.execute(f"CREATE TEMPORARY TABLE {_CONTROL.partition('.')[2]} (box bytea)")
    try:
        probe.link.execute(f"INSERT INTO {_CONTROL} VALUES (%s)", (control,))
        pages = found = planted = 0
        with probe.view():
            for (part,) in probe.link.execute(_OTHERS, (list(ours),)).fetchall():
                for raw in probe.pages_of(part):
                    pages += 1
                    found += counter_of(texts)(raw)
                    planted += raw.count(control)
    finally:
        probe.link.execute(f"DROP TABLE {_CONTROL}")
    return Elsewhere(pages, found, planted == 1)
