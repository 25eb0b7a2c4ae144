"""Facts from an inspeximus store: a SQLite file with a JSON document a record, or the older JSON file of a list.

Records are written in the order in which they were recorded, so that what was superseded is superseded here, and is
refused when somebody brings it back. One whose successor is gone is not brought back as current: it is skipped, as are
records that were never let through.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memory.import_report import Item, Line, Skipped, identity, moment
from tlog.errors import MalformedError

FORM: Final = "inspeximus"
_SQLITE: Final = b"SQLite format 3\0"
_TAKEN: Final = ("active", "superseded", "provisional")


def parse_inspeximus(path: Path, only: str | None = None) -> Iterator[Item]:
    """The records of one tenant and agent as facts.

    `only` is "tenant/agent" (either may be empty); without it a store that has records of several is an error.
    """
    records = _sorted(_records(path))
    owners = {_owner(record) for record in records}
    if only is None and len(owners) > 1:
        raise MalformedError(
            f"expected --only TENANT/AGENT: the store has records of {len(owners)} tenants and agents"
        )
    if only is not None:
        tenant, slash, agent = only.partition("/")
        if not slash:
            raise MalformedError("expected --only to be TENANT/AGENT")
        records = [record for record in records if _owner(record) == (tenant, agent)]
    followed = _last_by_key(records)
    for number, record in enumerate(records, 1):
        yield _item(number, record, followed)


def _owner(record: Mapping[str, Any]) -> tuple[str, str]:
    return str(record.get("tenant") or ""), str(record.get("owner_agent") or "")


def _records(path: Path) -> list[Any]:
    try:
        with path.open("rb") as stream:
            is_database = stream.read(len(_SQLITE)) == _SQLITE
        return _rows(path) if is_database else _listed(path.read_bytes())
    except OSError as error:
        raise MalformedError(f"expected FILE to be a readable file ({error.strerror})") from None


def _rows(path: Path) -> list[Any]:
    import apsw

    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            rows = connection.execute("SELECT doc FROM records ORDER BY ord").fetchall()
        finally:
            connection.close()
        return [json.loads(str(row[0])) for row in rows]
    except (apsw.Error, ValueError, TypeError, RecursionError):
        raise MalformedError("expected an inspeximus store: a SQLite file with records as JSON") from None


def _listed(data: bytes) -> list[Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError("expected an inspeximus store: SQLite, or one JSON document") from None
    if isinstance(document, dict):
        document = next((document[name] for name in ("items", "records") if name in document), None)
    if not isinstance(document, list):
        raise MalformedError("expected an inspeximus store: a JSON list of records")
    return document


def _sorted(records: Sequence[Any]) -> list[dict[str, Any]]:
    if not all(isinstance(record, dict) for record in records):
        raise MalformedError("expected each record of the store to be a JSON object")
    return sorted(records, key=lambda record: _number(record.get("ts")) or 0.0)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _last_by_key(records: Sequence[Mapping[str, Any]]) -> dict[object, object]:
    """The id of the last record of each key that took a place: what came before it was followed."""
    return {_key(record): record.get("id") for record in records if _key(record) and _is_taken(record)}


def _key(record: Mapping[str, Any]) -> str | None:
    key = record.get("key")
    return key if isinstance(key, str) and key else None


def _is_taken(record: Mapping[str, Any]) -> bool:
    return record.get("status", "active") in _TAKEN


def _item(number: int, record: Mapping[str, Any], last: Mapping[object, object]) -> Item:
    text, key, value = record.get("text"), _key(record), record.get("object")
    status = record.get("status", "active")
    if not _is_taken(record):
        known = isinstance(status, str) and status.isidentifier()
        return Skipped(number, f"{status} record" if known else "other record")
    if not isinstance(text, str) or not text.strip():
        return number, MalformedError("expected a record to have a text")
    if status == "superseded" and (not key or last.get(key) == record.get("id")):
        return Skipped(number, "superseded record whose successor is gone")
    arguments: dict[str, Any] = {
        "text": text,
        "key": key,
        "value": value if isinstance(value, str) and value else None,
        "source": record.get("source") if isinstance(record.get("source"), str) else None,
        "valid_from": moment(_number(record.get("valid_from"))) or moment(_number(record.get("ts"))),
        "provisional": True if status == "provisional" else None,
    }
    arguments["idempotency_key"] = identity(FORM, record.get("id"), *(str(one) for one in arguments.values()))
    return Line(number, None, {name: one for name, one in arguments.items() if one is not None})
