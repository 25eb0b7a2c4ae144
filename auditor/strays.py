"""What stands in a store that nothing owns: rows, settings and columns where content could lie unnoticed.

Nothing of it is repeated: a finding tells table and row, and what was expected there.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import apsw

from auditor.findings import Finding, Note, Outcome
from tlog import cbor
from tlog.errors import Error, MalformedError

_HASH: Final = "typeof({0}) <> 'blob' OR length({0}) <> 32"
_RANDOM: Final = "typeof({0}) <> 'blob' OR length({0}) <> 16"
_HOUR: Final = "typeof({0}) <> 'integer' OR {0} % 3600000000 <> 0"
_HASH_OR_NULL: Final = "{0} IS NOT NULL AND (typeof({0}) <> 'blob' OR length({0}) <> 32)"
_NUMBER: Final = "typeof({0}) <> 'integer'"
# A nonce, blocks of 256 bytes and a seal: nothing shorter or longer, so that no text fits at its end.
_SEALED: Final = (
    "typeof({0}) <> 'blob' OR length({0}) NOT BETWEEN 284 AND 4124 OR (length({0}) - 28) % 256 <> 0"
)
_WAYS: Final = ", ".join(f"CAST('{word}' AS BLOB)" for word in ("opening", "evidence", "export"))
_GIVEN: Final = f"CAST({{0}} AS BLOB) NOT IN ({_WAYS})"
_PURPOSES: Final = (
    "CAST({0} AS BLOB) NOT IN (CAST('reaffirm' AS BLOB), CAST('forget' AS BLOB), CAST('blind' AS BLOB))"
)
_SHAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "tenants": {"name_tag": _HASH, "number": _RANDOM},
    "events": {"commitment": _HASH, "content_hash": _HASH, "link_salt": _HASH},
    "contents": {"salt": _HASH},
    "facts": {"agent_tag": _HASH, "text_tag": _HASH, "key_tag": _HASH_OR_NULL, "subject_tag": _HASH_OR_NULL},
    "ledger": {
        "agent_tag": _HASH,
        "key_tag": _HASH,
        "value_tag": _HASH,
        "subject_tag": _HASH_OR_NULL,
        "name_tags": "length({0}) % 16 <> 0",
    },
    "conflicts": {"agent_tag": _HASH, "key_tag": _HASH},
    "idempotency": {"request_tag": _HASH, "body_tag": "typeof({0}) <> 'blob' OR length({0}) NOT IN (0, 32)"},
    "tokens": {"token_hash": _HASH, "bound": _HASH, "purpose": _PURPOSES, "expires_at": _NUMBER},
    "access": {
        "number": _RANDOM,
        "token_hash": _HASH,
        "tenant_tag": _HASH,
        "sealed": _SEALED,
        "scopes": _NUMBER,
        "made_at": _HOUR,
        "expires_at": "{0} IS NOT NULL AND typeof({0}) <> 'integer'",
    },
    "openings": {
        "recipient": _RANDOM,
        "given_at": _HOUR,
        "kind": _GIVEN,
    },
    "backups": {"number": _RANDOM, "made_at": _HOUR, "expires_at": _HOUR, "last_seq": _NUMBER},
    "erasures": {"request": _RANDOM},
    "grants": {"owner_tag": _HASH, "reader_tag": _HASH},
    "vectors": {"agent_tag": _HASH, "model": "typeof({0}) <> 'text' OR length({0}) NOT BETWEEN 1 AND 512"},
}
"""What the value of a column must not be."""
_OWNED: Final[Mapping[str, str]] = {
    "acts": "tenant NOT IN (SELECT id FROM tenants)",
    "facts": "tenant NOT IN (SELECT id FROM tenants)",
    "ledger": "tenant NOT IN (SELECT id FROM tenants)",
    "conflicts": "tenant NOT IN (SELECT id FROM tenants)",
    "idempotency": "tenant NOT IN (SELECT id FROM tenants)",
    "tokens": "tenant NOT IN (SELECT id FROM tenants)",
    "erasures": "tenant NOT IN (SELECT id FROM tenants)",
    "grants": "tenant NOT IN (SELECT id FROM tenants)",
    "vectors": "tenant NOT IN (SELECT id FROM tenants)",
    "tenants": "NOT EXISTS (SELECT 1 FROM events e WHERE e.tenant = tenants.id)",
    "backups": "last_seq > (SELECT coalesce(max(seq), 0) FROM events)",
    "openings": "NOT EXISTS (SELECT 1 FROM events e WHERE e.seq = openings.seq AND e.tenant = openings.tenant)",
}
"""Rows that no tenant, or no statement, has."""
_META: Final[Mapping[str, tuple[type, ...]]] = {
    "recorded_at": (int,),
    "erasure.executing": (int, bytes),
    "erasure.manifest": (bytes,),
    "erasure.canary": (str,),
    "state.last": (bytes,),
}
_MAX_META_BYTES: Final = 64 * 1024
_OWN_TABLES: Final = "sqlite_"
_MIN_VECTOR_BYTES, _MAX_VECTOR_BYTES = 64, 16 << 20
_CANARY_LETTERS: Final = 24
_CONFIG: Final = frozenset({"version", "secure-delete"})
_AVERAGES, _STRUCTURE = 1, 10
_SEGMENT_BITS: Final = 37
_HEIGHT_BITS: Final = 31
_MAX_LISTED: Final = 100
_MAX_SEGMENTS: Final = 2000


def check_strays(connection: apsw.Connection) -> Outcome:
    """Whether the store has rows, settings or parts of its schema that no store has."""
    findings: list[Finding] = []
    checks = (_check_vectors, _check_schema, _check_meta, _check_shapes, _check_owners, _check_index_rows)
    for check in checks:
        try:
            findings += check(connection)
        except (apsw.Error, Error, UnicodeDecodeError):
            what = "The file can't be read there: it is damaged."
            findings.append(Finding("FACT_ALTERED", "store.db", what))
    columns = sum(len(columns) for columns in _SHAPES.values())
    checked = (
        Note("schema", "parts of the schema, each declared as in a store", len(expected_schema())),
        Note("columns", "columns whose values are hashes, numbers or words of a list in every row", columns),
        Note("word index rows", "rows of the word index that belong to a part of it that is in use"),
    )
    return Outcome(tuple(findings), checked)


def digest_of(sql: str) -> str:
    """What tells one statement of a schema from another, to the byte: a comment in it could say anything."""
    return hashlib.sha256(sql.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@cache
def expected_schema() -> Mapping[str, str]:
    """The schema that a store has, by the file that says so in the installation of whoever audits."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(files("memory").joinpath("schema.sql").read_text("utf-8"))
        return schema_of(connection)
    finally:
        connection.close()


def schema_of(connection: apsw.Connection) -> dict[str, str]:
    """Kind and name of each part of a schema, with the digest of its statement."""
    rows = connection.execute("SELECT type, CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema")
    return {f"{kind} {_text(name)}": digest_of(_text(sql)) for kind, name, sql in rows if sql is not None}


def _check_schema(connection: apsw.Connection) -> Iterator[Finding]:
    found, expected = schema_of(connection), expected_schema()
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) == expected.get(name):
            continue
        if name not in expected:
            if not name.startswith("index "):
                continue  # tables, views and triggers are named by the check of soundness
            yield Finding("RESIDUE_INDEX", "store.db schema", "The store has an index that no store has.")
        elif name not in found:
            what = f"The store lacks the {name}."
            yield Finding("FACT_ALTERED", "store.db schema", what)
        else:
            what = f"The {name} is declared otherwise than in a store."
            yield Finding("FACT_ALTERED", "store.db schema", what)


def _check_meta(connection: apsw.Connection) -> Iterator[Finding]:
    for rowid, name, value in connection.execute("SELECT rowid, CAST(name AS BLOB), value FROM meta"):
        where = f"store.db meta row {rowid}"
        types = _META.get(_text(name))
        if types is None:
            yield Finding("RESIDUE_ROW", where, "The store has a setting of its own that no store has.")
        elif type(value) not in types or not _is_small(value) or not _may_execute(_text(name), value):
            yield Finding("RESIDUE_ROW", where, "A setting of the store has a value that it can't have.")


def _may_execute(name: str, value: object) -> bool:
    """What is noted of an erasure that is executing is its request and what is known of it; 0 is none."""
    if name != "erasure.executing" or value == 0:
        return True
    noted = cbor.decode(value, max_bytes=_MAX_META_BYTES) if isinstance(value, bytes) else None
    return isinstance(noted, list) and [type(one) for one in noted] == [bytes, dict]


def _check_vectors(connection: apsw.Connection) -> Iterator[Finding]:
    """Vectors have a table of their own: another of them holds the meaning of texts, those that are gone among them."""
    sql = "SELECT rowid, CAST(name AS BLOB) FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
    for rowid, name in connection.execute(sql).fetchall():
        if f"table {_text(name)}" in expected_schema() or _text(name).startswith(_OWN_TABLES):
            continue
        quoted = _text(name).replace('"', '""')
        rows = connection.execute(f'SELECT * FROM "{quoted}" LIMIT {_MAX_LISTED}')
        if any(_is_vector(value) for row in rows for value in row):
            what = "The store has a table that holds what looks like vectors."
            yield Finding("RESIDUE_VECTOR", f"store.db sqlite_schema row {rowid}", what)


def _is_vector(value: object) -> bool:
    """Whether bytes read as many numbers of 32 bits are all of a size that vectors have: no text is."""
    if type(value) is not bytes or len(value) % 4 or not _MIN_VECTOR_BYTES <= len(value) <= _MAX_VECTOR_BYTES:
        return False
    numbers: tuple[float, ...] = struct.unpack(f"<{len(value) // 4}f", value)
    told = sum(1e-6 <= abs(number) <= 1e3 for number in numbers)
    return told >= 16 and told + numbers.count(0.0) == len(numbers)


def _is_small(value: object) -> bool:
    if isinstance(value, str):
        return len(value) == _CANARY_LETTERS and value.isascii() and value.isalpha()
    return not isinstance(value, bytes) or len(value) <= _MAX_META_BYTES


def check_copied_rows(connection: apsw.Connection) -> Outcome:
    """The same of the rows of a database that were copied: what stands in columns, and whose each row is."""
    findings = (*_check_shapes(connection, "database"), *_check_owners(connection, "database"))
    columns = sum(len(columns) for columns in _SHAPES.values())
    text = "columns of the database whose values are hashes, numbers or words of a list in every row"
    return Outcome(findings, (Note("columns", text, columns),))


def _check_shapes(connection: apsw.Connection, place: str = "store.db") -> Iterator[Finding]:
    for table, columns in _SHAPES.items():
        anything = " OR ".join(f"({wrong.format(column)})" for column, wrong in columns.items())
        # All columns in one pass: which of them it is, is asked where there is one.
        if not connection.execute(f"SELECT rowid FROM {table} WHERE {anything} LIMIT 1").fetchall():
            continue
        for column, wrong in columns.items():
            sql = f"SELECT rowid FROM {table} WHERE {wrong.format(column)} LIMIT {_MAX_LISTED}"
            for (rowid,) in connection.execute(sql):
                what = f"The column {column} has a value that it can't have: content could stand there."
                yield Finding("RESIDUE_ROW", f"{place} {table} row {rowid}", what)


def _check_owners(connection: apsw.Connection, place: str = "store.db") -> Iterator[Finding]:
    for table, wrong in _OWNED.items():
        for (rowid,) in connection.execute(f"SELECT rowid FROM {table} WHERE {wrong} LIMIT {_MAX_LISTED}"):
            what = "The row belongs to no tenant or statement that is there."
            yield Finding("RESIDUE_ROW", f"{place} {table} row {rowid}", what)


# The word index: rows of FTS5's own tables


def _check_index_rows(connection: apsw.Connection) -> Iterator[Finding]:
    (structure,) = connection.execute(f"SELECT block FROM search_data WHERE id = {_STRUCTURE}").fetchall()[0]
    segments = _segments(structure)
    for (rowid,) in connection.execute("SELECT id FROM search_data ORDER BY id"):
        if rowid in (_AVERAGES, _STRUCTURE):
            continue
        first, last = segments.get(rowid >> _SEGMENT_BITS, (1, 0))
        if not first <= rowid & ((1 << _HEIGHT_BITS) - 1) <= last:
            what = "The word index has a page that no part of it in use has."
            yield Finding("RESIDUE_INDEX", f"store.db search_data row {rowid}", what)
    for rowid, segment in connection.execute("SELECT DISTINCT 0, segid FROM search_idx"):
        if segment not in segments:
            what = "The word index notes pages of a part of it that is not in use."
            yield Finding("RESIDUE_INDEX", f"store.db search_idx segment {rowid or segment}", what)
    for (name,) in connection.execute("SELECT CAST(k AS BLOB) FROM search_config"):
        if _text(name) not in _CONFIG:
            yield Finding(
                "RESIDUE_INDEX", "store.db search_config", "The word index has a setting that no store sets."
            )


def _segments(structure: Any) -> dict[int, tuple[int, int]]:
    """First and last page of each segment that the structure record of an FTS5 index names."""
    if type(structure) is not bytes or len(structure) < 7:
        raise MalformedError("expected the structure record of a word index")
    numbers = _Varints(structure, 8 if structure[4:8] == b"\xff\x00\x00\x01" else 4)
    extended = structure[4:8] == b"\xff\x00\x00\x01"
    levels, total = numbers.next(), numbers.next()
    numbers.next()  # how often it was written
    if max(levels, total) > _MAX_SEGMENTS:
        raise MalformedError("expected fewer segments in a word index")
    segments: dict[int, tuple[int, int]] = {}
    for _ in range(levels):
        numbers.next()
        for _ in range(min(numbers.next(), total)):
            number = numbers.next()
            segments[number] = (numbers.next(), numbers.next())
            for _ in range(5 if extended else 0):
                numbers.next()
    return segments


class _Varints:
    """SQLite's integers of variable length, read one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def next(self) -> int:
        """The next one; MalformedError at the end."""
        value = 0
        for place in range(9):
            if self._at >= len(self._data):
                raise MalformedError("expected a longer structure record of a word index")
            byte = self._data[self._at]
            self._at += 1
            if place == 8:
                return value << 8 | byte
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value
        return value


def _text(value: Any) -> str:
    return str(value, "utf-8", "backslashreplace") if type(value) is bytes else ""
