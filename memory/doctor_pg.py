"""What can be wrong with the database of a home: its role and schema, what it keeps of erased rows, and its clock.

Nothing that is sent to the server is content: contents come sealed, words as hashes. What its logs and copies may keep
of an erased record is the sealed box and the wrapped key, which are worth something with the key of the home alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from memory.diagnosis import Finding, fail, ok, warn
from memory.pg_connection import connect, translated
from memory.pg_schema import require_server, require_version, require_walls

if TYPE_CHECKING:
    import psycopg

    from memory.wiring import Home

_MOST_SKEW_SECONDS: Final = 2.0
_LONG_SECONDS: Final = 600
_SETTINGS: Final = (
    "fsync",
    "full_page_writes",
    "autovacuum",
    "log_statement",
    "log_min_duration_statement",
    "log_parameter_max_length",
    "log_min_error_statement",
    "log_parameter_max_length_on_error",
    "archive_mode",
)
_STATEMENTS_ALONE: Final = frozenset({"none", "ddl"})


def examine(home: Home) -> Iterator[Finding]:
    """Everything about the database, in the order of what depends on what."""
    dsn = home.config.database
    assert dsn is not None
    connection = connect(dsn)
    try:
        with translated():
            require_server(connection)
            require_version(connection)
            require_walls(connection)
            version = connection.execute("SHOW server_version").fetchone()
            yield ok(
                "store",
                f"PostgreSQL {version[0] if version else ''}: role, schema and policies are as they have to be",
            )
            settings = {name: _show(connection, name) for name in _SETTINGS}
            yield from _durable(settings)
            yield from _logged(settings)
            yield from _copies(connection, settings)
            yield from _old_views(connection)
            yield from _clock(connection, home)
    finally:
        connection.close()


def _show(connection: psycopg.Connection[Any], name: str) -> str:
    """A setting; empty where this role may not see it."""
    row = connection.execute("SELECT current_setting(%s, true)", (name,)).fetchone()
    return "" if row is None or row[0] is None else str(row[0])


def _durable(settings: dict[str, str]) -> Iterator[Finding]:
    off = [name for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    if off:
        yield fail(
            "store_settings",
            f"{' and '.join(off)} off: what was acknowledged may be gone after a crash",
            "switch it on in postgresql.conf",
        )
    elif settings["autovacuum"] == "off":
        yield warn("store_settings", "autovacuum is off: dead rows stay until an erasure", "switch it on")
    else:
        yield ok("store_settings", "the database writes durably, and vacuums")


def _logged(settings: dict[str, str]) -> Iterator[Finding]:
    """Whether the log of the server has what statements were given: an erasure does not reach into it."""
    every = settings["log_statement"] not in _STATEMENTS_ALONE or settings[
        "log_min_duration_statement"
    ] not in ("-1", "")
    kept = [
        name
        for name, counts in (("log_parameter_max_length", every), ("log_parameter_max_length_on_error", True))
        if counts and settings[name] not in ("0", "")
    ]
    if kept:
        yield warn(
            "database_log",
            "the log of the server has sealed contents and wrapped keys, which no erasure reaches: "
            f"{' and '.join(kept)} is not 0",
            "set it to 0, or keep the log no longer than what is erased may stay",
        )
    else:
        yield ok("database_log", "the log of the server has no values of statements")


def _copies(connection: psycopg.Connection[Any], settings: dict[str, str]) -> Iterator[Finding]:
    """Where else rows are, and for how long: the manifest of an erasure cannot know."""
    slots = connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
    standbys = connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone()
    told = []
    if settings["archive_mode"] not in ("off", ""):
        told.append("an archive of the write-ahead log")
    if standbys and standbys[0]:
        told.append(f"{standbys[0]} standbys")
    if slots and slots[0]:
        told.append(f"{slots[0]} replication slots, which keep the write-ahead log for whoever reads them")
    if told:
        yield warn(
            "database_copies",
            f"erased rows stay, sealed, in {', '.join(told)}",
            "let them go within the time that you promise for an erasure",
        )
    else:
        yield ok("database_copies", "no archive, standby or replication slot keeps what is erased")


def _old_views(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    row = connection.execute(
        """SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL
           AND xact_start < now() - make_interval(secs => %s)""",
        (_LONG_SECONDS,),
    ).fetchone()
    prepared = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone()
    count = (row[0] if row else 0) + (prepared[0] if prepared else 0)
    if count:
        yield warn(
            "wal",
            f"{count} transactions that are old keep dead rows from being taken out",
            "end them: pg_stat_activity and pg_prepared_xacts name them",
        )
    else:
        yield ok("wal", "no old transaction keeps dead rows from being taken out")


def _clock(connection: psycopg.Connection[Any], home: Home) -> Iterator[Finding]:
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    apart = 0.0 if row is None else abs(row[0] - home.clock() / 1_000_000)
    if apart > _MOST_SKEW_SECONDS:
        yield warn(
            "database_clock",
            f"the clocks of this node and of the database are {apart:.0f} s apart",
            "set them: times that are told go by the clock of the node",
        )
    else:
        yield ok("database_clock", "the clocks of this node and of the database agree")
