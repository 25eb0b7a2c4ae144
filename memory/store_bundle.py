"""The SQL of evidence bundles: a copy of the store as it may be handed out.

A copy is written by SQLite from its rows, so no page of it has bytes of what is gone. Where somebody is not to have
all contents, the others are taken out in memory before a byte reaches the disk: what is not named here as harmless
goes.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import apsw

from memory import vfs
from tlog.errors import MalformedError

if TYPE_CHECKING:
    from memory.store_read import Snapshot

# Content-free for all tenants: links and signed entries. Every other table loses the rows of those left out.
_FOR_ALL: Final = frozenset({"events"})
_TAG_BYTES: Final = 32


def tenant_of_name(view: Snapshot, name: str) -> tuple[int, bytes]:
    """Row id and number of the tenant of this name; MalformedError without repeating it."""
    row = view.one("SELECT id, number FROM tenants WHERE name = ? AND name <> ''", name)
    if row is None:
        raise MalformedError("expected the name of a tenant of this home", code="unknown_tenant")
    return int(row[0]), bytes(row[1])


def copy_part(view: Snapshot, tenant_id: int | None, target: Path) -> None:
    """Returns once `target`, an empty file, has all links, and of contents those of one tenant, or none."""
    copy = apsw.Connection(":memory:", vfs=vfs.register())
    try:
        source = cast("apsw.Connection", view.connection)
        with copy.backup("main", source, "main") as backup:
            backup.step(-1)
        copy.execute("PRAGMA foreign_keys = OFF; PRAGMA secure_delete = ON")
        _strip(copy, tenant_id)
        copy.execute("VACUUM INTO ?", (str(target),))
    finally:
        copy.close(True)


def take_out_access(path: Path) -> None:
    """Returns once a copy of all has no access token: whether one holds is for its home to say, and for nobody else."""
    copy = apsw.Connection(str(path), vfs=vfs.register())
    try:
        copy.execute("PRAGMA secure_delete = ON; PRAGMA journal_mode = MEMORY")
        copy.execute("DELETE FROM access")
        copy.execute("VACUUM")
    finally:
        copy.close(True)


def contents_in(path: Path) -> tuple[tuple[int, int], ...]:
    """Tenant and number of each statement whose content is in a copy."""
    sql = "SELECT e.tenant, c.seq FROM contents c JOIN events e ON e.seq = c.seq ORDER BY c.seq"
    return tuple((int(tenant), int(seq)) for tenant, seq in _read(path, sql))


def count_events(path: Path) -> int:
    """How many statements are in a copy."""
    return int(_read(path, "SELECT count(*) FROM events")[0][0])


def _read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows: list[tuple[Any, ...]] = connection.execute(sql).fetchall()
        return rows
    finally:
        connection.close(True)


def _strip(copy: apsw.Connection, tenant_id: int | None) -> None:
    """Takes out all rows of other tenants but their links; of what has no tenant, everything."""
    kept = -1 if tenant_id is None else tenant_id
    schema = copy.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    tables = {str(name): str(sql) for name, sql in schema}
    virtual = [name for name, sql in tables.items() if sql.upper().startswith("CREATE VIRTUAL")]
    copy.execute("BEGIN")
    copy.execute("DELETE FROM contents WHERE seq NOT IN (SELECT seq FROM events WHERE tenant = ?)", (kept,))
    for name in virtual:
        # Words of all tenants stand in one index, and an audit of one tenant does not look at it.
        copy.execute(f'INSERT INTO "{name}" ("{name}") VALUES (\'delete-all\')')
    for name in tables:
        shadow = any(name == one or name.startswith(f"{one}_") for one in virtual)
        if shadow or name in _FOR_ALL or name in ("contents", "tenants") or name.startswith("sqlite_"):
            continue
        columns = {row[1] for row in copy.execute(f'PRAGMA table_info("{name}")')}
        if "tenant" in columns:
            copy.execute(f'DELETE FROM "{name}" WHERE tenant <> ?', (kept,))
        else:
            copy.execute(f'DELETE FROM "{name}"')
    for (other,) in copy.execute("SELECT id FROM tenants WHERE id <> ?", (kept,)).fetchall():
        copy.execute(
            "UPDATE tenants SET name = '', name_tag = ? WHERE id = ?",
            (secrets.token_bytes(_TAG_BYTES), other),
        )
    copy.execute("COMMIT")
