"""Facts from a mem0 export: a JSON list of memories, or an object that has one as `results` or `memories`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from memory.import_report import Item, Line, Skipped, identity, moment
from tlog.errors import MalformedError

FORM: Final = "mem0"
_LISTS: Final = ("results", "memories")
_TEXTS: Final = ("memory", "text", "data")


def parse_mem0(data: bytes) -> Iterator[Item]:
    """Each memory as a fact of the user that it is about, since when mem0 has it, said by its agent."""
    for number, memory in enumerate(_memories(data), 1):
        yield _item(number, memory)


def _memories(data: bytes) -> list[Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError("expected a mem0 export: one JSON document in UTF-8") from None
    if isinstance(document, dict):
        document = next((document[name] for name in _LISTS if isinstance(document.get(name), list)), None)
    if not isinstance(document, list):
        raise MalformedError(f"expected a mem0 export: a list, or an object with {' or '.join(_LISTS)}")
    return document


def _item(number: int, memory: object) -> Item:
    if not isinstance(memory, Mapping):
        return number, MalformedError("expected a memory to be a JSON object")
    text = next((memory[name] for name in _TEXTS if isinstance(memory.get(name), str)), None)
    if text is None:
        return number, MalformedError("expected a memory to have its text as memory")
    if not text.strip():
        return Skipped(number, "memory without words")
    arguments: dict[str, Any] = {
        "text": text,
        "subject": _text(memory, "user_id"),
        "valid_from": moment(memory.get("updated_at")) or moment(memory.get("created_at")),
        "source": "mem0" if _text(memory, "id") is None else f"mem0 {memory['id']}",
    }
    arguments["idempotency_key"] = identity(FORM, *(arguments[name] for name in sorted(arguments)))
    present = {name: value for name, value in arguments.items() if value is not None}
    return Line(number, _text(memory, "agent_id"), present)


def _text(memory: Mapping[str, Any], name: str) -> str | None:
    value = memory.get(name)
    return value if isinstance(value, str) and value else None
