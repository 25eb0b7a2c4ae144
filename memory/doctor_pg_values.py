"""Where a server of PostgreSQL puts values besides its tables, which no erasure reaches: its log, and its statistics.

Statements are sent with their values apart, so their texts, in whatever the server keeps of these, have none
(log_min_error_statement, pg_stat_activity, pg_stat_statements). The values themselves come into the log where a setting
says so, or inside a plan or an error. A test sets each of these on a real server and looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from memory.diagnosis import Finding, ok, warn
from memory.pg_connection import connect, translated
from memory.pg_schema import SCHEMA, UNSAMPLED
from tlog.errors import Error

if TYPE_CHECKING:
    import psycopg

_STATEMENTS_ALONE: Final = frozenset({"none", "ddl", ""})
_NEVER: Final = frozenset({"-1", ""})
_NOTHING: Final = frozenset({"0", ""})
# What has plans in the log: a plan that was made for its values has them in it.
_PLANS: Final = ("debug_print_parse", "debug_print_rewritten", "debug_print_plan", "pgaudit.log_parameter")
# -1 or NULL is the default of the server: it then samples.
_SAMPLED: Final = """
    SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'p') AND coalesce(a.attstattarget, -1) <> 0
    AND coalesce(i.inhparent, c.oid) = %s::regclass AND a.attname = ANY(%s)
"""
_CHECKER: Final = """
    SELECT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), current_database(),
           EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pageinspect')
"""


def show(connection: psycopg.Connection[Any], name: str) -> str:
    """A setting; empty where there is none of that name, or this role may not see it."""
    row = connection.execute("SELECT current_setting(%s, true)", (name,)).fetchone()
    return "" if row is None or row[0] is None else str(row[0])


def look_at_logs(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Whether the log of the server has what statements were given: an erasure does not reach into it."""
    kept = tuple(_kept(connection))
    if kept:
        yield warn(
            "database_log",
            "the log of the server has sealed contents, wrapped keys or hashes, which no erasure reaches, because of "
            f"{' and '.join(kept)}",
            "set log_parameter_max_length and log_parameter_max_length_on_error to 0 and the others off, or keep the "
            "log no longer than what is erased may stay",
        )
    elif show(connection, "log_error_verbosity") != "terse":
        yield ok(
            "database_log",
            "the log of the server has no values of statements, but for those of a row that a constraint refuses "
            "(log_error_verbosity = terse leaves these out, too)",
        )
    else:
        yield ok("database_log", "the log of the server has no values of statements")


def _kept(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """The settings because of which values are in the log."""

    def is_in(name: str, harmless: frozenset[str]) -> bool:
        return show(connection, name) in harmless

    logs_statements = not (
        is_in("log_statement", _STATEMENTS_ALONE)
        and is_in("log_min_duration_statement", _NEVER)
        and (is_in("log_min_duration_sample", _NEVER) or is_in("log_statement_sample_rate", _NOTHING))
        and is_in("log_transaction_sample_rate", _NOTHING)
    )
    if logs_statements and not is_in("log_parameter_max_length", _NOTHING):
        yield "log_parameter_max_length"
    if not is_in("log_parameter_max_length_on_error", _NOTHING):
        yield "log_parameter_max_length_on_error"
    if not is_in("auto_explain.log_min_duration", _NEVER):
        yield "auto_explain.log_min_duration"
    yield from (name for name in _PLANS if show(connection, name) == "on")


def look_at_samples(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Whether the server keeps samples of what an erasure destroys (pg_statistic)."""
    sampled = [
        table
        for table, columns in UNSAMPLED.items()
        if (row := connection.execute(_SAMPLED, (SCHEMA, f"{SCHEMA}.{table}", list(columns))).fetchone())
        and row[0]
    ]
    if sampled:
        wanted = " ".join(
            f"ALTER TABLE {SCHEMA}.{table} ALTER COLUMN {column} SET STATISTICS 0;"
            for table in sampled
            for column in UNSAMPLED[table]
        )
        yield warn(
            "database_statistics",
            f"the server keeps samples of columns of {', '.join(sampled)}: what is erased stays in them",
            f"{wanted} then, as a superuser, DELETE FROM pg_statistic the rows of these tables and of their parts, and "
            "VACUUM FULL pg_statistic",
        )
    else:
        yield ok("database_statistics", "the server keeps no samples of keys, boxes and vectors")


def look_at_checker(connection: psycopg.Connection[Any], dsn: str | None) -> Finding:
    """Whether somebody may look at the pages of the database after an erasure."""
    if dsn is None:
        return warn(
            "database_checker",
            "nobody looks at the pages of the database after an erasure: none of them is called complete",
            "set database_checker in config.toml to the connection of a superuser (docs/POSTGRES.md)",
        )
    name = connection.execute("SELECT current_database()").fetchone()
    try:
        with translated():
            link = connect(dsn)
            try:
                # What others have put into the schema of the store must not run as a superuser.
                link.execute("SET search_path = pg_catalog")
                row = link.execute(_CHECKER).fetchone()
            finally:
                link.close()
    except Error as error:
        return warn("database_checker", error.message, "correct database_checker in config.toml")
    assert row is not None and name is not None
    if not row[0] or row[1] != name[0] or not row[2]:
        return warn(
            "database_checker",
            "the connection that is to look at pages after an erasure may not: it has to be of a superuser, to the "
            "same database, and that with the extension pageinspect",
            "correct database_checker in config.toml; CREATE EXTENSION pageinspect",
        )
    return ok("database_checker", "pages and write-ahead log of the database are looked at after an erasure")
