"""Whether the indexes of a database have an entry for each row, by the server's own check (the extension amcheck).

An index that lacks an entry hides its row from whoever looks by it: from a node that serves, and from one that erases.
The check has to fail first where it should: on an index of an expression that has changed its mind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from auditor.findings import Finding, Note, Outcome

if TYPE_CHECKING:
    import psycopg

EXTENSION: Final = """
    SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e
    JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
    JOIN pg_catalog.pg_roles r ON r.oid = e.extowner WHERE e.extname = %s AND r.rolsuper
"""
# Without those whose expressions others have written: what runs here runs with the rights of whoever looks.
_INDEXES: Final = """
    SELECT c.oid::bigint, i.indexprs IS NULL AND NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid
        WHERE d.objid = c.oid AND d.refclassid = 'pg_catalog.pg_proc'::regclass AND p.oid >= 16384)
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
    JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace JOIN pg_catalog.pg_am m ON m.oid = c.relam
    WHERE n.nspname = 'muniment' AND m.amname = 'btree' AND c.relkind = 'i' AND i.indisvalid ORDER BY 1
"""
_WHERE: Final = "database indexes"


def check_indexes(link: psycopg.Connection[Any]) -> Outcome:
    """What the server's check of indexes against their tables finds."""
    from psycopg import errors

    found = link.execute(EXTENSION, ("amcheck",)).fetchone()
    if found is None:
        text = "whether indexes have an entry for each row: the database has no extension amcheck"
        return Outcome(not_checked=(Note(_WHERE, text),))
    schema = str(found[0])
    if not _is_controlled(link, schema):
        what = "The server's check of indexes passed one that has no entry for a row: it shows nothing."
        return Outcome((Finding("CONTROL_FAILED", _WHERE, what),))
    sound = unsound = passed_over = 0
    for oid, is_plain in link.execute(_INDEXES).fetchall():
        if not is_plain:
            passed_over += 1
            continue
        try:
            link.execute(f"SELECT {schema}.bt_index_check(%s::oid::regclass, true)", (oid,))
            sound += 1
        except (errors.IndexCorrupted, errors.DataCorrupted):
            unsound += 1
        except errors.UndefinedObject:
            continue  # written anew since
    return Outcome(
        tuple(_findings(unsound)),
        (Note(_WHERE, "indexes of the database that have an entry for each row", sound),),
        (Note(_WHERE, "indexes of expressions, which no store has", passed_over),) if passed_over else (),
    )


def _findings(unsound: int) -> Iterator[Finding]:
    if unsound:
        what = "An index of the database does not have what its table has: rows are hidden from whoever looks by it."
        yield Finding("FACT_ALTERED", _WHERE, what, {"indexes": unsound})


def _is_controlled(link: psycopg.Connection[Any], schema: str) -> bool:
    """Whether the check fails on an index that lacks an entry."""
    from psycopg import errors

    body = "LANGUAGE sql IMMUTABLE AS"
    link.execute(f"CREATE FUNCTION pg_temp.muniment_turns(bigint) RETURNS bigint {body} 'SELECT $1'")
    try:
        link.execute("CREATE TEMPORARY TABLE muniment_turning (seq bigint)")
        link.execute("INSERT INTO muniment_turning SELECT pg_catalog.generate_series(1, 10)")
        link.execute("CREATE INDEX muniment_turned ON muniment_turning (pg_temp.muniment_turns(seq))")
        link.execute(
            f"CREATE OR REPLACE FUNCTION pg_temp.muniment_turns(bigint) RETURNS bigint {body} 'SELECT -$1'"
        )
        try:
            link.execute(f"SELECT {schema}.bt_index_check('pg_temp.muniment_turned'::regclass, true)")
        except (errors.IndexCorrupted, errors.DataCorrupted):
            return True
        return False
    finally:
        link.execute("DROP TABLE IF EXISTS pg_temp.muniment_turning")
        link.execute("DROP FUNCTION pg_temp.muniment_turns(bigint)")
