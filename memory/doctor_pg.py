"""What can be wrong with the database of a home: its role and schema, what it keeps of erased rows, and its clock.

Nothing that is sent to the server is content: contents come sealed, words as hashes. What its logs and copies may keep
of an erased record is the sealed box and the wrapped key, which are worth something with the key of the home alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from memory.diagnosis import Finding, fail, ok, warn
from memory.doctor_pg_values import look_at_checker, look_at_logs, look_at_samples, show
from memory.pg_connection import connect, translated
from memory.pg_schema import require_server, require_version, require_walls

if TYPE_CHECKING:
    import psycopg

    from memory.wiring import Home

_MOST_SKEW_SECONDS: Final = 2.0
_LONG_SECONDS: Final = 600
_SETTINGS: Final = ("fsync", "full_page_writes", "autovacuum", "archive_mode", "wal_keep_size")


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
            settings = {name: show(connection, name) for name in _SETTINGS}
            yield from _durable(settings)
            yield from look_at_logs(connection)
            yield from look_at_samples(connection)
            yield from _copies(connection, settings)
            yield look_at_checker(connection, home.config.database_checker)
            yield from _old_views(connection)
            yield from _clock(connection, home)
    finally:
        connection.close()


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
    if settings["wal_keep_size"] not in ("0", ""):
        told.append(f"{settings['wal_keep_size']} of the write-ahead log (wal_keep_size)")
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
