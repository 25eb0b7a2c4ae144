"""Operations of peers.py against inspeximus, run by the Python of its own environment: lines of JSON in and out.

    python peers_inspeximus.py STORE receipts|plain

The lines look like those of an MCP server, so that it can stand in the place of one; there is less around each call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from inspeximus import Inspeximus  # type: ignore[import-not-found]


def remember_many(store: Any, facts: list[list[str]]) -> int:
    """Facts one after the other; the file of receipts is written once for all of them, as its own `recommit` does."""
    store._defer_receipt_flush = True
    try:
        for text, key, value in facts:
            store.remember(text, key=key, object=value)
    finally:
        store._defer_receipt_flush = False
    store._persist_receipts()
    store.flush()
    return len(facts)


def operations(store: Any) -> dict[str, Callable[..., Any]]:
    """What each operation does, by its name."""
    return {
        "remember_many": lambda facts: remember_many(store, facts),
        "remember": lambda text, key, value: store.remember(text, key=key, object=value),
        "recall": lambda query: [one["text"] for one in store.recall(query, k=10)],
        "get": lambda key: store.current(key)["text"],
        "as_of": lambda key: store.as_of(key, time.time())["text"],
        "history": lambda key: len(store.history(key)),
        "provenance": lambda key: store.provenance(key=key),
        "forget": lambda key: store.forget(ids=[one["id"] for one in store.history(key)]),
    }


def main() -> None:
    path, kind = sys.argv[1:]
    known = operations(Inspeximus(path=path, receipts=kind == "receipts", echo_guard=True))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result: Any = {}
        if request["method"] == "tools/call":
            given = request["params"]
            text = json.dumps(known[given["name"]](**given["arguments"]), default=str)
            result = {"content": [{"type": "text", "text": text}]}
        print(json.dumps({"id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
