"""Facts from the memory file of the reference MCP memory server: JSON lines of entities and relations.

An observation of an entity becomes a fact about it, a relation a sentence about where it begins. Which observation
takes the place of which, the file does not say, so none has a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from memory.import_report import Item, Line, Skipped, identity
from tlog.errors import MalformedError

FORM: Final = "mcp-memory"


def parse_graph(lines: Iterable[bytes]) -> Iterator[Item]:
    """The facts of each line, or what is wrong with it."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            yield number, MalformedError("expected a line to be a JSON object in UTF-8")
        elif document.get("type") == "entity":
            yield from _entity(number, document)
        elif document.get("type") == "relation":
            yield _relation(number, document)
        else:
            yield number, MalformedError("expected a line of type entity or relation")


def _entity(number: int, document: dict[str, Any]) -> Iterator[Item]:
    name, kind = document.get("name"), document.get("entityType")
    observations = document.get("observations")
    if not isinstance(name, str) or not isinstance(observations, list):
        yield number, MalformedError("expected an entity with a name and a list of observations")
        return
    if not observations:
        # Of an entity that nobody observed, its kind is all there is to say.
        observations = [f"is a {kind}"] if isinstance(kind, str) and kind else []
        if not observations:
            yield Skipped(number, "entity that nothing is said of")
    for text in observations:
        if not isinstance(text, str) or not text.strip():
            yield number, MalformedError("expected each observation to be a text")
            continue
        yield Line(number, None, _arguments(name, f"{name}: {text}"))


def _relation(number: int, document: dict[str, Any]) -> Item:
    parts = [document.get(name) for name in ("from", "relationType", "to")]
    if not all(isinstance(part, str) and part for part in parts):
        return number, MalformedError("expected a relation with from, to and relationType")
    begins, kind, ends = (str(part) for part in parts)
    return Line(number, None, _arguments(begins, f"{begins} {kind.replace('_', ' ')} {ends}"))


def _arguments(subject: str, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "subject": subject,
        "source": "mcp server-memory",
        "idempotency_key": identity(FORM, subject, text),
    }
