"""The rows of a store in PostgreSQL, in one view of the database, as a database in memory that every check reads.

With code of the auditor's own: what is read, how a content is opened, and that nothing is hidden from whoever reads.
Only what a transaction sees is copied: dead rows, indexes, the write-ahead log and standbys are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from auditor.settings import place_in_settings
from tlog import cbor
from tlog.errors import MalformedError, RefusedError, UnavailableError
from tlog.keys import load_secret

if TYPE_CHECKING:
    import psycopg

_SEES_ALL: Final = "muniment_whole"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_MAX_META_BYTES: Final = 1 << 20
_AT_ONCE: Final = 2000
_TABLES: Final[Mapping[str, str]] = {
    "tenants": "id, number, name, last_seq, recorded_at, name_tag",
    "events": "seq, tenant, tenant_seq, commitment, link, link_salt, content_hash, entry, entry_index",
    "acts": "tenant, target, seq, act",
    "facts": "seq, tenant, agent_tag, key_tag, subject_tag, text_tag, status, valid_from, declared, valid_until,"
    " recorded_at, replaced_at, replaced_by, end_erased, on_hold",
    "conflicts": "seq, tenant, agent_tag, key_tag, closed_by",
    "ledger": "id, tenant, agent_tag, key_tag, subject_tag, name_tags, word_count, canon_version, source, expires_at,"
    " until, value_tag",
    "idempotency": "id, tenant, seq, body_tag, answer, request_tag",
    "tokens": "id, tenant, target, token_hash, purpose, bound, expires_at",
    "access": "id, number, token_hash, tenant_tag, sealed, scopes, made_at, expires_at",
    "erasures": "number, tenant, request, state, tombstone, detail, manifest",
    "openings": "id, tenant, seq, recipient, kind, given_at",
    "backups": "number, last_seq, made_at, expires_at",
    "grants": "seq, tenant, owner_tag, reader_tag",
    "vectors": "seq, tenant, agent_tag, model",
    "content_keys": "tenant, seq, subject",
}
_BOXES: Final = """
    SELECT b.tenant, b.seq, t.number, s.wrapped, k.wrapped, k.subject IS NOT NULL, b.content, b.salt
    FROM muniment.content_boxes b LEFT JOIN muniment.content_keys k ON k.tenant = b.tenant AND k.seq = b.seq
    LEFT JOIN muniment.subject_keys s ON s.tenant = k.tenant AND s.subject = k.subject
    LEFT JOIN muniment.tenants t ON t.id = b.tenant
"""
_SUBJECTS: Final = """
    SELECT s.tenant, s.subject, t.number, s.wrapped
    FROM muniment.subject_keys s LEFT JOIN muniment.tenants t ON t.id = s.tenant
"""


def database_of(home: Path) -> str | None:
    """The settings of the connection to the database of a home; None where its store is a file."""
    return place_in_settings(home, "database")


@contextmanager
def copy_database(home: Path, dsn: str) -> Iterator[apsw.Connection]:
    """The rows that the database has now; gone from memory when the block ends."""
    try:
        import psycopg
    except ImportError:
        raise UnavailableError(
            "a store on PostgreSQL needs the extra muniment[postgres]", code="extra_missing"
        ) from None
    key = load_secret(home / "keys" / "seal.key")
    copy = apsw.Connection(":memory:")
    try:
        try:
            with psycopg.connect(dsn, connect_timeout=10, application_name="muniment audit") as source:
                source.read_only = True
                source.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                require_sees_all(source)
                _copy(source, copy, key)
        except psycopg.errors.UndefinedTable:
            raise MalformedError("expected a store in the database") from None
        except psycopg.errors.InsufficientPrivilege:
            raise RefusedError(
                "expected a database role that may read the store", code="role_unsafe"
            ) from None
        except psycopg.OperationalError:
            raise UnavailableError(
                "the database cannot be reached", code="database_unavailable", retry_after_seconds=1
            ) from None
        yield copy
    finally:
        copy.close(True)


def require_sees_all(source: psycopg.Connection[Any]) -> None:
    """Returns if no policy of the database hides rows from this role: hidden rows would pass for none."""
    row = source.execute(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    if row is not None and row[0]:
        return
    known = source.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (_SEES_ALL,)).fetchone()
    member = known and source.execute("SELECT pg_has_role(%s, 'MEMBER')", (_SEES_ALL,)).fetchone()
    if not member or not member[0]:
        raise RefusedError(
            f"expected a database role that sees every row: one with BYPASSRLS, or a member of {_SEES_ALL}",
            code="role_unsafe",
        )
    source.execute(f"SET LOCAL ROLE {_SEES_ALL}")


def _copy(source: psycopg.Connection[Any], copy: apsw.Connection, key: bytes) -> None:
    copy.execute("BEGIN")
    tenant_keys: dict[bytes, bytes] = dict(_tenant_keys(source, key))
    for table, columns in _TABLES.items():
        copy.execute(f"CREATE TABLE {table} ({columns})")
        marks = ", ".join("?" * (columns.count(",") + 1))
        rows = _rows(source, f"SELECT {columns} FROM muniment.{table}")
        made = (_plain_tenant(row, key) if table == "tenants" else _plain(row) for row in rows)
        copy.executemany(f"INSERT INTO {table} VALUES ({marks})", made)
    copy.execute("CREATE TABLE meta (name, value)")
    copy.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        ((name, _meta(value)) for name, value in _rows(source, "SELECT name, value FROM muniment.meta")),
    )
    copy.execute("CREATE TABLE subject_keys (tenant, subject, opens)")
    copy.executemany(
        "INSERT INTO subject_keys VALUES (?, ?, ?)",
        (
            (tenant, subject, _opens(tenant, number, wrapped, tenant_keys))
            for tenant, subject, number, wrapped in _rows(source, _SUBJECTS)
        ),
    )
    copy.execute("CREATE TABLE contents (seq INTEGER PRIMARY KEY, content, salt)")
    opened = (_opened(row, tenant_keys) for row in _rows(source, _BOXES))
    copy.executemany("INSERT INTO contents VALUES (?, ?, ?)", opened)
    copy.execute("COMMIT")


def _rows(source: psycopg.Connection[Any], sql: str) -> Iterator[tuple[Any, ...]]:
    with source.cursor(name="audit", binary=True) as cursor:
        cursor.itersize = _AT_ONCE
        cursor.execute(sql)
        yield from cursor


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(int(value) if value is True or value is False else value for value in row)


def _plain_tenant(row: tuple[Any, ...], key: bytes) -> tuple[Any, ...]:
    number, name = bytes(row[1]), row[2]
    place = b"name\0" + number
    try:
        told = _open(key, bytes.fromhex(name), place).decode() if name else ""
    except (_UnopenedError, ValueError):
        # A name that is none of ours: it equals none that a statement says.
        told = "\0"
    return (row[0], number, told, *row[3:])


def _meta(value: bytes) -> object:
    try:
        return cbor.decode(value, max_bytes=_MAX_META_BYTES)
    except MalformedError:
        return value


def _tenant_keys(source: psycopg.Connection[Any], key: bytes) -> Iterator[tuple[bytes, bytes]]:
    for number, wrapped in _rows(source, "SELECT number, wrapped FROM muniment.tenant_keys"):
        try:
            yield bytes(number), _open(key, wrapped, b"tenant\0" + number)[_KEY_BYTES:]
        except _UnopenedError:
            continue  # what hangs on it is then found not to open


def _opens(tenant: int, number: bytes, wrapped: bytes, tenant_keys: Mapping[bytes, bytes]) -> bool:
    try:
        return bool(_open(tenant_keys[number], wrapped, b"subject\0" + tenant.to_bytes(8, "big")))
    except (KeyError, _UnopenedError):
        return False


class _UnopenedError(Exception):
    """A box did not open."""


def _opened(row: tuple[Any, ...], tenant_keys: Mapping[bytes, bytes]) -> tuple[int, bytes, bytes]:
    """Number, content and salt of a row. What does not open is copied as it is, which no promise is of."""
    tenant, seq, number, subject_key, record_key, has_subject, content, salt = row
    owner, place = tenant.to_bytes(8, "big"), tenant.to_bytes(8, "big") + b"\0" + seq.to_bytes(8, "big")
    try:
        if record_key is None or (has_subject and subject_key is None) or number not in tenant_keys:
            raise _UnopenedError
        key = tenant_keys[number]
        if has_subject:
            key = _open(key, subject_key, b"subject\0" + owner)
        key = _open(key, record_key, b"record\0" + place)
        return seq, _open(key, content, b"box\0" + place), _open(key, salt, b"box\0" + place)
    except _UnopenedError:
        return seq, bytes(content), bytes(salt)


def _open(key: bytes, box: bytes, place: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], place)
    except (InvalidTag, ValueError):
        raise _UnopenedError from None
