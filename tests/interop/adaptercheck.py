"""The same steps for a store of somebody else and for ours; run with their packages on the path.

    python adaptercheck.py langgraph|agents|claude FOLDER

Writes one JSON object: the steps, their answers, our answers, and the answers of ours with one write left out.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory.model import Principal
from memory.principal import with_all_scopes
from memory.wiring import open_home

ADA = with_all_scopes(Principal("acme", "ada", "check"))

LANGGRAPH: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("put", (("users", "ada"), "prefs", {"theme": "dark", "n": 1}), {}),
    ("put", (("users", "ada"), "Prefs", {"theme": "light", "n": 2}), {}),
    ("put", (("users", "a.da"[:1]), "x", {"n": 3, "deep": {"list": [1, "two", None, True]}}), {}),
    ("put", (("docs",), "a:b", {"text": "hello", "n": 4}), {}),
    ("put", (("docs", "a"), "b", {"text": "Hello", "n": 5}), {}),
    ("get", (("users", "ada"), "prefs"), {}),
    ("get", (("users", "ada"), "Prefs"), {}),
    ("get", (("users", "ada"), "nothing"), {}),
    ("get", (("docs",), "a:b"), {}),
    ("get", (("docs", "a"), "b"), {}),
    ("put", (("users", "ada"), "prefs", {"theme": "blue", "n": 1}), {}),
    ("get", (("users", "ada"), "prefs"), {}),
    ("put", (("users", "ada"), "prefs", {"theme": "dark", "n": 1}), {}),
    ("get", (("users", "ada"), "prefs"), {}),
    ("search", (("users",),), {}),
    ("search", ((),), {"limit": 2}),
    ("search", ((),), {"limit": 2, "offset": 2}),
    ("search", (("users",),), {"filter": {"theme": "dark"}}),
    ("search", ((),), {"filter": {"n": {"$gt": 2}}}),
    ("search", ((),), {"filter": {"n": {"$gte": 2, "$lt": 4}}}),
    ("search", ((),), {"filter": {"deep": {"list": [1, "two", None, True]}}}),
    ("search", (("nowhere",),), {}),
    ("list_namespaces", (), {}),
    ("list_namespaces", (), {"prefix": ("users",)}),
    ("list_namespaces", (), {"suffix": ("a",)}),
    ("list_namespaces", (), {"prefix": ("*", "ada")}),
    ("list_namespaces", (), {"max_depth": 1}),
    ("list_namespaces", (), {"limit": 1, "offset": 1}),
    ("delete", (("users", "ada"), "prefs"), {}),
    ("get", (("users", "ada"), "prefs"), {}),
    ("delete", (("users", "ada"), "prefs"), {}),
    ("search", (("users",),), {}),
    ("put", (("bad.label",), "k", {"a": 1}), {}),
    ("put", ((), "k", {"a": 1}), {}),
    ("put", (("u",), "%_/\u202e", {"a": 1}), {}),
    ("get", (("u",), "%_/\u202e"), {}),
]

ITEMS = [{"role": "user", "content": f"turn {number}"} for number in range(4)]
AGENTS: list[tuple[str, tuple[Any, ...]]] = [
    ("get_items", ()),
    ("pop_item", ()),
    ("add_items", (ITEMS[:2],)),
    ("add_items", ([],)),
    ("add_items", (ITEMS[2:],)),
    ("get_items", ()),
    ("get_items", (2,)),
    ("get_items", (99,)),
    ("pop_item", ()),
    ("get_items", ()),
    ("add_items", ([ITEMS[0], ITEMS[0]],)),
    ("get_items", ()),
    ("clear_session", ()),
    ("get_items", ()),
    ("add_items", (ITEMS[:1],)),
    ("get_items", ()),
]

CLAUDE: list[dict[str, Any]] = [
    {"command": "create", "path": "/memories/a.md", "file_text": "one\ntwo\nthree\n"},
    {"command": "create", "path": "/memories/a.md", "file_text": "x"},
    {"command": "view", "path": "/memories/a.md"},
    {"command": "view", "path": "/memories/a.md", "view_range": [2, 3]},
    {"command": "str_replace", "path": "/memories/a.md", "old_str": "two", "new_str": "2"},
    {"command": "view", "path": "/memories/a.md"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "zero\n"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": 4, "insert_text": "end"},
    {"command": "view", "path": "/memories/a.md"},
    {"command": "create", "path": "/memories/d/b.md", "file_text": "bee"},
    {"command": "view", "path": "/memories/d/b.md"},
    {"command": "view", "path": "/memories/nothing"},
    {"command": "rename", "old_path": "/memories/d/b.md", "new_path": "/memories/e/c.md"},
    {"command": "view", "path": "/memories/e/c.md"},
    {"command": "view", "path": "/memories/d/b.md"},
    {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/e/c.md"},
    {"command": "delete", "path": "/memories/e/c.md"},
    {"command": "delete", "path": "/memories/e/c.md"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "view", "path": "/memories/../x"},
    {"command": "str_replace", "path": "/memories/a.md", "old_str": "nowhere", "new_str": "x"},
]


def main() -> None:
    which, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True)
    ask = {"langgraph": langgraph, "agents": agents, "claude": claude}[which]
    json.dump(ask(folder), sys.stdout)


def attempt(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The answer, or the kind of error: whatever a store of somebody else raises is one."""
    try:
        return call(*args, **options)
    except Exception as error:  # noqa: BLE001
        return f"error {type(error).__name__}"


def langgraph(folder: Path) -> dict[str, Any]:
    from langgraph.store.memory import InMemoryStore

    from memory.langgraph_store import MunimentStore

    def play(store: Any, leave_out: int = -1) -> list[Any]:
        return [
            None if number == leave_out else plain(attempt(getattr(store, name), *args, **options))
            for number, (name, args, options) in enumerate(LANGGRAPH)
        ]

    def plain(answer: Any) -> Any:
        if isinstance(answer, list):
            # Neither says in which order it lists what it was not asked to rank.
            return sorted((plain(one) for one in answer), key=json.dumps)
        if hasattr(answer, "namespace"):
            return [list(answer.namespace), answer.key, answer.value]
        return list(answer) if isinstance(answer, tuple) else answer

    with open_home(folder / "ours") as ours, open_home(folder / "broken") as broken:
        return {
            "steps": [name for name, _, _ in LANGGRAPH],
            "theirs": play(InMemoryStore()),
            "ours": play(MunimentStore(ours, ADA)),
            "broken": play(MunimentStore(broken, ADA), leave_out=3),
        }


def agents(folder: Path) -> dict[str, Any]:
    from agents import SQLiteSession
    from agents.memory.session import Session

    from memory.agents_session import MunimentSession

    async def play(session: Any, leave_out: int = -1) -> list[Any]:
        return [
            None if number == leave_out else await getattr(session, name)(*args)
            for number, (name, args) in enumerate(AGENTS)
        ]

    with open_home(folder / "ours") as ours, open_home(folder / "broken") as broken:
        session = MunimentSession("s", ours, ADA)
        return {
            "steps": ["fits the protocol", *(name for name, _ in AGENTS)],
            "theirs": [True, *asyncio.run(play(SQLiteSession("s", folder / "theirs.db")))],
            "ours": [isinstance(session, Session), *asyncio.run(play(session))],
            "broken": [True, *asyncio.run(play(MunimentSession("s", broken, ADA), leave_out=2))],
        }


def claude(folder: Path) -> dict[str, Any]:
    from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

    from memory.memory_tool import MemoryTool

    def play(run: Callable[[dict[str, Any]], str], leave_out: int = -1) -> list[Any]:
        return [
            None if number == leave_out else plain(attempt(run, command))
            for number, command in enumerate(CLAUDE)
        ]

    def plain(answer: str) -> str:
        # They show a file's last, empty line or not by version; the lines that say something count.
        return "\n".join(line for line in answer.splitlines() if re.sub(r"^\s*\d+\t", "", line).strip())

    theirs = BetaLocalFilesystemMemoryTool(base_path=str(folder / "theirs"))
    with open_home(folder / "ours") as ours, open_home(folder / "broken") as broken:
        return {
            "steps": [one["command"] for one in CLAUDE],
            "theirs": play(lambda command: str(theirs.call(command))),
            "ours": play(MemoryTool(ours, ADA).run),
            "broken": play(MemoryTool(broken, ADA).run, leave_out=4),
        }


if __name__ == "__main__":
    main()
