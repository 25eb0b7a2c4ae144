"""The schema of a store on PostgreSQL: made once, under a lock, partitioned, behind policies; and what would be done.

pg_schema.sql     tables in the schema `muniment` of a database      partitions   of each, by a hash of the tenant
policy `own`      a transaction sees the rows of the tenant that it has set, and without one none
policy `whole`    the role `muniment_whole` sees all: taken for the few things that are of the store as a whole
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from tlog.errors import MalformedError, RefusedError

if TYPE_CHECKING:
    import psycopg

VERSION: Final = 2
OLDER: Final = (1,)
"""Versions whose tables are the same, and whose words `pg_upgrade` makes anew."""
SCHEMA: Final = "muniment"
WHOLE: Final = "muniment_whole"
"""The role of what is done to the store as a whole; that of the nodes has to be a member of it."""
PARTITIONED: Final = (
    "events",
    "acts",
    "subject_keys",
    "content_keys",
    "content_boxes",
    "facts",
    "words",
    "vectors",
    "ledger",
    "conflicts",
    "idempotency",
    "tokens",
    "openings",
    "grants",
)
UNSAMPLED: Final = {
    "content_keys": ("wrapped",),
    "subject_keys": ("wrapped",),
    "tenant_keys": ("wrapped",),
    "content_boxes": ("content", "salt"),
    "vectors": ("vector",),
    "facts": ("text_tag",),
    "idempotency": ("body_tag",),
    "tenants": ("name",),
    "access": ("token_hash", "sealed"),
}
"""Columns of which the server is to keep no samples: no statement looks for their values, and no erasure takes what
ANALYZE has put into its statistics."""
TRUTHS: Final = frozenset({"declared"})
"""Columns that are numbers in a file, and truth values here."""
SEQUENCES: Final = (
    ("event_seqs", "events", "seq"),
    ("tenant_ids", "tenants", "id"),
    ("act_ids", "acts", "id"),
    ("ledger_ids", "ledger", "id"),
    ("idempotency_ids", "idempotency", "id"),
    ("token_ids", "tokens", "id"),
    ("access_ids", "access", "id"),
    ("opening_ids", "openings", "id"),
    ("backup_ids", "backups", "id"),
)
DEFAULT_PARTITIONS: Final = 16
_MIGRATION_LOCK: Final = 0x4D554E49_00000001
_OLDEST: Final = 150000
_OWN: Final = "tenant = nullif(current_setting('muniment.tenant', true), '')::bigint"

_POLICIES: Final = """
    SELECT polname, pg_get_expr(polqual, polrelid), relrowsecurity AND relforcerowsecurity,
           polpermissive AND polcmd = '*' AND polwithcheck IS NULL,
           polroles = CASE polname WHEN 'own' THEN ARRAY[0]::oid[]
                      ELSE ARRAY(SELECT oid FROM pg_roles WHERE rolname = %s) END
    FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid WHERE polrelid = to_regclass(%s)
"""


def ensure_schema(dsn: str, partitions: int = DEFAULT_PARTITIONS) -> bool:
    """Whether the words in the database are of this version; it has the tables, made by whoever is first."""
    from memory.pg_connection import connect, translated

    connection = connect(dsn)
    try:
        with translated():
            require_server(connection)
            if version_of(connection) == VERSION:
                return True
            connection.execute("BEGIN")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            if version_of(connection) is None:
                for statement in statements(partitions):
                    connection.execute(statement)
            connection.execute("COMMIT")
            if version_of(connection) in OLDER:
                return False
            require_version(connection)
            return True
    finally:
        connection.close()


def plan(dsn: str, partitions: int = DEFAULT_PARTITIONS) -> tuple[str, ...]:
    """The statements that `ensure_schema` would run; none where the database has the schema."""
    from memory.pg_connection import connect, translated

    connection = connect(dsn)
    try:
        with translated():
            require_server(connection)
            return () if version_of(connection) in (VERSION, *OLDER) else statements(partitions)
    finally:
        connection.close()


def without_samples() -> tuple[str, ...]:
    """The statements after which the server samples no column of secrets."""
    return tuple(
        f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0"
        for table, columns in UNSAMPLED.items()
        for column in columns
    )


def statements(partitions: int) -> tuple[str, ...]:
    """All that makes the schema, in order."""
    tables = resources.files("memory").joinpath("pg_schema.sql").read_text("utf-8")
    made = [
        f"CREATE SCHEMA {SCHEMA}",
        f"SET LOCAL search_path = {SCHEMA}",
        tables,
        "CREATE TABLE schema_version (version integer NOT NULL)",
        f"INSERT INTO schema_version VALUES ({VERSION})",
    ]
    for table in PARTITIONED:
        made += [
            f"CREATE TABLE {table}_{number} PARTITION OF {table} "
            f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
            for number in range(partitions)
        ]
        made += [
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            # Also for the owner of the tables, which the nodes may be.
            f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
            f"CREATE POLICY own ON {table} USING ({_OWN})",
            f"CREATE POLICY whole ON {table} TO {WHOLE} USING (true)",
        ]
    made += without_samples()
    made += [
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {WHOLE}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO {WHOLE}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {SCHEMA} TO {WHOLE}",
    ]
    return tuple(made)


def require_server(connection: psycopg.Connection[Any]) -> None:
    """Returns if the server is new enough, and the role is one that policies hold for and may take the other."""
    if connection.info.server_version < _OLDEST:
        raise MalformedError("expected PostgreSQL 15 or newer")
    row = connection.execute(
        """SELECT rolsuper OR rolbypassrls, EXISTS (SELECT 1 FROM pg_roles WHERE rolname = %s)
           FROM pg_roles WHERE rolname = current_user""",
        (WHOLE,),
    ).fetchone()
    assert row is not None
    if row[0]:
        raise RefusedError(
            "expected a database role that row-level security holds for: neither a superuser nor one with BYPASSRLS",
            code="role_unsafe",
        )
    known = (
        connection.execute(
            "SELECT pg_has_role(%s, 'MEMBER'), pg_has_role(%s, 'USAGE')", (WHOLE, WHOLE)
        ).fetchone()
        if row[1]
        else None
    )
    if known is None or not known[0]:
        raise MalformedError(
            f"expected the database role to be a member of {WHOLE} "
            f"(CREATE ROLE {WHOLE} NOLOGIN; GRANT {WHOLE} TO the role of the nodes)",
            code="role_missing",
        )
    if known[1]:
        # With what it inherits, every transaction would see all tenants.
        raise RefusedError(
            f"expected the database role to take {WHOLE} only where it asks for it (ALTER ROLE … NOINHERIT)",
            code="role_unsafe",
        )


def require_walls(connection: psycopg.Connection[Any]) -> None:
    """Returns if the policies of every table are switched on, also for its owner, and are ours and no others.

    RefusedError with code `policies_changed` if an administrator had some of it otherwise.
    """
    for table in PARTITIONED:
        found = connection.execute(_POLICIES, (WHOLE, f"{SCHEMA}.{table}")).fetchall()
        told = {(name, _spelled(said), *rest) for name, said, *rest in found}
        if told != {("own", _spelled(_OWN), True, True, True), ("whole", "true", True, True, True)}:
            raise RefusedError(
                f"expected the policies of {SCHEMA}.{table} to be those that muniment init makes, switched on and"
                " forced: without them nothing but our SQL keeps tenants apart",
                code="policies_changed",
            )


def _spelled(expression: str) -> str:
    """An expression without what the server adds when it repeats one."""
    return re.sub(r"::text|[\s()]", "", expression).lower()


def require_version(connection: psycopg.Connection[Any]) -> None:
    """Returns if the database has the schema of this version."""
    found = version_of(connection)
    if found != VERSION:
        raise MalformedError(
            f"expected a store of version {VERSION} in the database, found {found or 'none'}"
        )


def version_of(connection: psycopg.Connection[Any]) -> int | None:
    """The version of the schema in the database; None if there is none."""
    there = connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.schema_version",)).fetchone()
    if there is None or there[0] is None:
        return None
    row = connection.execute(f"SELECT max(version) FROM {SCHEMA}.schema_version").fetchone()
    return None if row is None else row[0]
