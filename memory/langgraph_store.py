"""LangGraph's `BaseStore` over a home: what a graph keeps across threads, with receipts, history and erasure.

Needs `muniment[langgraph]`. Items are documents (memory.documents) of one caller, so tenant and agent are bound by the
host, and a namespace only divides what is that caller's. Values are JSON and come back as they were put; a search with
a query is by words. Deleting an item stops serving it; `muniment forget` erases it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)

from memory import json_documents
from memory.documents import Document, Documents
from memory.search import query_words

if TYPE_CHECKING:
    from memory.model import Principal
    from memory.wiring import Home

COLLECTION: Final = "langgraph store"
_MICROSECONDS: Final = 1_000_000


class MunimentStore(BaseStore):
    """A store for one caller of a home. Safe to share between threads."""

    supports_ttl = False

    def __init__(self, home: Home, principal: Principal) -> None:
        self._documents = Documents(home.parts(), principal, COLLECTION)

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """What each operation gives. Reads see nothing of the writes beside them; of two writes the last counts."""
        asked = list(ops)
        results = [None if isinstance(op, PutOp) else self._answer(op) for op in asked]
        last = {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}
        if last:
            with self._documents.editing():  # a later version keeps when the first was made
                for op in last.values():
                    self._write(op)
        return results

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """The same, off the event loop."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _answer(self, op: Any) -> Any:
        if isinstance(op, GetOp):
            document = self._documents.get(json_documents.name_of(*op.namespace, op.key))
            return None if document is None else _item(document)
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError("expected a get, put, search or list of namespaces")

    def _write(self, op: PutOp) -> None:
        name = json_documents.name_of(*op.namespace, op.key)
        if op.value is None:
            self._documents.delete(name)
            return
        there = self._documents.get(name)
        created = None if there is None else json_documents.decode(there.text).get("created_at")
        made = {"created_at": created or datetime.now(UTC).isoformat(), "value": dict(op.value)}
        self._documents.put(name, json_documents.encode(made))

    def _items(self) -> list[Item]:
        found = [_item(document) for document in self._documents.all()]
        return sorted(found, key=lambda item: item.created_at)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        depth = len(op.namespace_prefix)
        items = [
            item
            for item in self._items()
            if item.namespace[:depth] == tuple(op.namespace_prefix)
            and all(
                json_documents.fits(item.value.get(key), wanted) for key, wanted in (op.filter or {}).items()
            )
        ]
        scored: list[tuple[float | None, Item]] = [(None, item) for item in items]
        if op.query:
            words = [word.lower() for word in query_words(op.query)]
            scored = [(_score(words, item), item) for item in items]
            scored.sort(key=lambda pair: -(pair[0] or 0.0))
        return [_found(item, score) for score, item in scored[op.offset : op.offset + op.limit]]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        found = {item.namespace for item in self._items()}
        found = {one for one in found if all(_matches(condition, one) for condition in conditions)}
        if op.max_depth is not None:
            found = {one[: op.max_depth] for one in found}
        return sorted(found)[op.offset : op.offset + op.limit]


def _item(document: Document) -> Item:
    *namespace, key = json_documents.parts_of(document.name)
    kept = json_documents.decode(document.text)
    return Item(
        value=kept["value"],
        key=key,
        namespace=tuple(namespace),
        created_at=datetime.fromisoformat(kept["created_at"]),
        updated_at=datetime.fromtimestamp(document.recorded_at / _MICROSECONDS, UTC),
    )


def _found(item: Item, score: float | None) -> SearchItem:
    return SearchItem(
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=score,
    )


def _score(words: list[str], item: Item) -> float:
    """Which part of a query's words an item has."""
    if not words:
        return 0.0
    said = {word.lower() for word in query_words(json_documents.encode(item.value))}
    return sum(word in said for word in words) / len(words)


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    else:
        raise ValueError("expected a match by prefix or suffix")
    return all(wanted in ("*", one) for wanted, one in zip(path, part, strict=True))
