"""Guard cases against inspeximus, run by the Python of its own environment: cases on stdin, what it served on stdout.

Each case begins with empty stores, one for each tenant and agent. Arguments that it does not have (the client,
valid_until, many, restatement) are left out; an operation that it does not have ends the case with `skipped`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import datetime
from typing import Any

from inspeximus import Inspeximus  # type: ignore[import-not-found]


def seconds(value: object) -> float | None:
    """A time as it takes them."""
    if value is None or isinstance(value, int | float):
        return value
    return time.time() if value == "now" else datetime.fromisoformat(str(value)).timestamp()


class Case:
    """The stores of one case, and what its steps answered."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.stores: dict[str, Any] = {}

    def store(self, scope: str) -> Any:
        tenant, agent, _ = scope.split("/", 2)
        name = f"{tenant}-{agent}"
        if name not in self.stores:
            path = f"{self.folder}/{len(self.stores)}.json"
            self.stores[name] = Inspeximus(path=path, tenant=tenant, agent=agent, echo_guard=True)
        return self.stores[name]

    def run(self, step: dict[str, Any]) -> dict[str, Any]:
        """The answer to one step: what is served after it, as far as it can be asked for."""
        run = getattr(self, f"op_{step['op']}", None)
        return (
            {"skipped": step["op"]} if run is None else dict(run(self.store(step.get("as", "a/b/c")), step))
        )

    def op_remember(self, store: Any, step: dict[str, Any]) -> dict[str, Any]:
        made = store.remember(
            step["text"],
            key=step.get("key"),
            object=step.get("value"),
            valid_from=seconds(step.get("valid_from")),
            provisional=bool(step.get("provisional")),
            reaffirm=step.get("reaffirm") is not None,
        )
        if step.get("key") is not None:
            return {"id": made}
        return {"id": made, "served": any(one["id"] == made for one in store.recall(step["text"], k=20))}

    def op_get(self, store: Any, step: dict[str, Any]) -> dict[str, Any]:
        if step.get("as_of") is not None or step.get("as_recorded") is not None:
            found = store.as_of(
                step["key"], seconds(step.get("as_of", "now")), seconds(step.get("as_recorded"))
            )
        else:
            found = store.current(step["key"])
        active = [
            one for one in store.items if one.get("key") == step["key"] and one.get("status") == "active"
        ]
        said = None if found is None else found.get("object") or found.get("text")
        return {"current": said, "active": len(active)}

    def op_retention(self, store: Any, step: dict[str, Any]) -> dict[str, Any]:
        store.apply_retention(0.0)
        return {}


def main() -> None:
    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryDirectory(prefix="guard-other-") as folder:
            stores = Case(folder)
            answers = []
            for step in case["steps"]:
                if step["op"] == "wait":
                    time.sleep(step["seconds"])
                    answers.append({})
                    continue
                try:
                    answers.append(stores.run(step))
                except Exception as error:  # noqa: BLE001 -- whatever it refuses is an answer, too
                    answers.append({"error": type(error).__name__})
        print(json.dumps({"id": case["id"], "answers": answers}), flush=True)


if __name__ == "__main__":
    main()
