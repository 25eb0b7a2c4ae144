"""Imports from other memories and from transcripts: what is taken, what is skipped, and that twice adds nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import cli, import_report
from memory.cli_import import read_items
from memory.import_chats import parse_chatgpt, parse_claude
from memory.import_graph import parse_graph
from memory.import_inspeximus import parse_inspeximus
from memory.import_mem0 import parse_mem0
from memory.import_notes import parse_notes
from memory.import_report import count_items
from tlog.errors import MalformedError

Line, Skipped = import_report.Line, import_report.Skipped

GRAPH = b"\n".join(
    json.dumps(one).encode()
    for one in (
        {
            "type": "entity",
            "name": "Otilia",
            "entityType": "person",
            "observations": ["likes tea", "lives in Graz"],
        },
        {"type": "entity", "name": "Graz", "entityType": "city", "observations": []},
        {"type": "relation", "from": "Otilia", "to": "Acme", "relationType": "works_at"},
    )
)
MEM0 = {
    "results": [
        {
            "id": "7d5f",
            "memory": "Prefers window seats",
            "user_id": "otilia",
            "created_at": "2026-03-01T10:00:00-07:00",
        },
        {
            "id": "8a",
            "memory": "Is vegetarian",
            "user_id": "otilia",
            "agent_id": "travel",
            "created_at": "2026-03-02",
        },
        {"id": "9b", "memory": " "},
    ]
}
NOTE = """---
title: Coffee brewing
type: note
tags: [coffee]
---
# Coffee brewing

Water just off the boil works best,
said twice by the roaster.

- [method] Pour over takes three minutes #slow (kitchen)
- [ ] buy filters
- improves_with [[Fresh beans]] (always)

```
- [not] a fact
```
![a cup](cup.png)
"""
CLAUDE = [
    {"type": "summary", "summary": "x"},
    {
        "type": "user",
        "sessionId": "s1",
        "uuid": "u1",
        "timestamp": "2026-05-01T09:00:00.000Z",
        "message": {"role": "user", "content": "The staging box is called heron."},
    },
    {
        "type": "assistant",
        "sessionId": "s1",
        "uuid": "u2",
        "timestamp": "2026-05-01T09:00:03.000Z",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Noted: heron."},
                {"type": "tool_use", "name": "x", "input": {}},
            ],
        },
    },
    {"type": "user", "isMeta": True, "message": {"role": "user", "content": "from the host"}},
]
CHATGPT = [
    {
        "title": "t",
        "current_node": "c",
        "mapping": {
            "r": {"message": None, "parent": None, "children": ["a"]},
            "a": {
                "message": {
                    "id": "a",
                    "author": {"role": "user"},
                    "create_time": 1760000000.25,
                    "content": {"content_type": "text", "parts": ["Where is the key?"]},
                },
                "parent": "r",
                "children": ["b", "c"],
            },
            "b": {
                "message": {
                    "id": "b",
                    "author": {"role": "assistant"},
                    "content": {"content_type": "text", "parts": ["Under the mat."]},
                },
                "parent": "a",
                "children": [],
            },
            "c": {
                "message": {
                    "id": "c",
                    "author": {"role": "assistant"},
                    "content": {"content_type": "text", "parts": ["With the neighbour."]},
                },
                "parent": "a",
                "children": [],
            },
        },
    }
]


def texts(items: Iterator[Any]) -> list[str]:
    return [item.arguments["text"] for item in items if isinstance(item, Line)]


def skipped(items: Iterator[Any]) -> list[str]:
    return sorted(item.what for item in items if isinstance(item, Skipped))


def make_inspeximus(path: Path, records: list[dict[str, Any]]) -> None:
    """A store as version 3.23 writes it."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE records (id TEXT PRIMARY KEY, ord INTEGER NOT NULL, doc TEXT NOT NULL)")
    for number, record in enumerate(records):
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", (record["id"], number, json.dumps(record)))
    connection.close()


RECORDS = [
    {
        "id": "2",
        "key": "region",
        "object": "us-east-2",
        "text": "it moved to us-east-2",
        "status": "active",
        "ts": 20.5,
    },
    {
        "id": "1",
        "key": "region",
        "object": "eu-west-1",
        "text": "it runs in eu-west-1",
        "status": "superseded",
        "ts": 10.5,
    },
    {"id": "3", "text": "plain note", "status": "active", "ts": 30.5, "valid_from": 25.5},
    {"id": "4", "key": "drink", "object": "tea", "text": "likes tea", "status": "superseded", "ts": 31.0},
    {"id": "5", "key": "pet", "object": "cat", "text": "has a cat", "status": "provisional", "ts": 32.0},
    {"id": "6", "text": "x", "status": "quarantined", "ts": 33.0},
]


def owned(**fields: Any) -> list[dict[str, Any]]:
    return [{**record, "tenant": "acme", "owner_agent": "bot", **fields} for record in RECORDS]


def test_the_graph_of_the_reference_server() -> None:
    items = list(parse_graph(GRAPH.splitlines()))
    assert texts(iter(items)) == [
        "Otilia: likes tea",
        "Otilia: lives in Graz",
        "Graz: is a city",
        "Otilia works at Acme",
    ]
    assert {item.arguments["subject"] for item in items if isinstance(item, Line)} == {"Otilia", "Graz"}


def test_a_mem0_export() -> None:
    items = list(parse_mem0(json.dumps(MEM0).encode()))
    assert texts(iter(items)) == ["Prefers window seats", "Is vegetarian"]
    first, second = items[0], items[1]
    assert isinstance(first, Line) and isinstance(second, Line)
    assert (first.client, first.arguments["valid_from"]) == (None, "2026-03-01T10:00:00-07:00")
    assert second.client == "travel" and "valid_from" not in second.arguments, (
        "a date without a zone is left out"
    )
    assert skipped(iter(items)) == ["memory without words"]
    assert list(parse_mem0(json.dumps(MEM0["results"]).encode())) == items


def test_notes_of_basic_memory() -> None:
    items = list(parse_notes([("coffee", NOTE.encode()), ("plain", b"One line only.\n")]))
    assert texts(iter(items)) == [
        "Coffee brewing: Water just off the boil works best, said twice by the roaster.",
        "Coffee brewing (method): Pour over takes three minutes #slow (kitchen)",
        "Coffee brewing: buy filters",
        "Coffee brewing improves_with Fresh beans (always)",
        "plain: One line only.",
    ]
    assert skipped(iter(items)) == ["code", "heading", "rule or picture"]
    numbers = [item[0] if isinstance(item, tuple) else item.number for item in items]
    assert numbers == sorted(set(numbers)), "items are numbered through all notes"


def test_a_session_of_claude_code() -> None:
    lines = [json.dumps(one).encode() for one in CLAUDE]
    items = list(parse_claude(lines))
    assert texts(iter(items)) == ["user: The staging box is called heron.", "assistant: Noted: heron."]
    assert skipped(iter(items)) == [
        "message of the host or of a helper",
        "summary entry",
        "thinking",
        "tool use",
    ]
    taken = [item for item in items if isinstance(item, Line)]
    assert taken[0].arguments["valid_from"] == "2026-05-01T09:00:00.000Z"
    assert taken[0].arguments["source"] == "claude-code s1 u1"


def test_an_export_of_chatgpt() -> None:
    items = list(parse_chatgpt(json.dumps(CHATGPT).encode()))
    assert texts(iter(items)) == ["user: Where is the key?", "assistant: With the neighbour."]
    assert skipped(iter(items)) == ["message of a branch that was left", "root of a conversation"]
    first = next(item for item in items if isinstance(item, Line))
    assert first.arguments["valid_from"] == "2025-10-09T08:53:20.250000Z"


def test_a_circle_of_parents_ends() -> None:
    nodes = {"a": {"message": None, "parent": "b"}, "b": {"message": None, "parent": "a"}}
    document = [{"mapping": nodes, "current_node": "a"}]
    assert texts(parse_chatgpt(json.dumps(document).encode())) == []


def test_an_inspeximus_store_keeps_its_corrections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, home = tmp_path / "their.db", str(tmp_path / "home")
    make_inspeximus(store, owned())
    assert cli.main(["import", "inspeximus", str(store), "--home", home, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["outcomes"] == {"stored": 2, "superseded": 1, "held": 1}
    assert answer["skipped"] == {"superseded record whose successor is gone": 1, "quarantined record": 1}
    assert cli.main(["get", "region", "--home", home, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["current"] == "us-east-2"
    echo = ["remember", "it is in EU-WEST-1", "--key", "region", "--value", "EU-WEST-1", "--home", home]
    assert cli.main(echo) == 1, "a value that was corrected there is refused here"
    capsys.readouterr()
    assert cli.main(["import", "inspeximus", str(store), "--home", home, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["new"], again["known"]) == (0, 4)


def test_records_of_several_agents_are_not_poured_together(tmp_path: Path) -> None:
    store = tmp_path / "their.db"
    mine, theirs = owned(), [{**record, "id": f"x{record['id']}"} for record in owned(owner_agent="other")]
    make_inspeximus(store, mine + theirs)
    with pytest.raises(MalformedError, match="2 tenants and agents"):
        list(parse_inspeximus(store))
    assert len(texts(parse_inspeximus(store, "acme/bot"))) == 4
    assert texts(parse_inspeximus(store, "acme/nobody")) == []


def test_the_older_json_store(tmp_path: Path) -> None:
    path = tmp_path / "their.json"
    path.write_text(json.dumps({"items": RECORDS}), "utf-8")
    assert len(texts(parse_inspeximus(path))) == 4


FILES = {
    "mcp-memory": GRAPH,
    "mem0": json.dumps(MEM0).encode(),
    "basic-memory": NOTE.encode(),
    "claude-code": b"\n".join(json.dumps(one).encode() for one in CLAUDE),
    "chatgpt": json.dumps(CHATGPT).encode(),
}


@pytest.mark.parametrize("form", sorted(FILES))
def test_an_import_is_found_and_twice_adds_nothing(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, home = tmp_path / "file", str(tmp_path / "home")
    path.write_bytes(FILES[form])
    command = ["import", form, str(path), "--home", home, "--json"]
    assert cli.main([*command, "--dry-run"]) == 0
    dry = json.loads(capsys.readouterr().out)
    assert not Path(home).exists(), "a dry run makes no home"
    assert cli.main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["new"] == dry["outcomes"]["readable"] > 0 and first["skipped"] == dry["skipped"]
    assert cli.main(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["new"], again["known"]) == (0, first["new"])
    assert cli.main(["status", "--home", home, "--json"]) == 0
    assert sum(json.loads(capsys.readouterr().out)["facts"].values()) == first["new"]


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.md").write_text("Second.", "utf-8")
    (tmp_path / "a.md").write_text("First.", "utf-8")
    (tmp_path / "a.txt").write_text("Not a note.", "utf-8")
    assert texts(iter(read_items("basic-memory", str(tmp_path)))) == ["a: First.", "b: Second."]
    with pytest.raises(MalformedError, match="expected files"):
        read_items("claude-code", str(tmp_path))


BAD = [
    ("mcp-memory", b"[]\n"),
    ("mcp-memory", b'{"type":"entity","name":1,"observations":[]}'),
    ("mcp-memory", b'{"type":"relation","from":"a","to":"b"}'),
    ("mcp-memory", b'{"type":"entity","name":"a","observations":[7]}'),
    ("mem0", b"{}"),
    ("mem0", b'["x"]'),
    ("mem0", b'[{"memory": 5}]'),
    ("chatgpt", b"nonsense"),
    ("chatgpt", b'[{"title": "t"}]'),
    ("claude-code", b"nonsense"),
    ("claude-code", b'{"type":"user","message":{}}'),
    ("basic-memory", b"\xff\xfe\x00"),
    ("inspeximus", b"SQLite format 3\0 but no more"),
    ("inspeximus", b"[1]"),
    ("inspeximus", b"nonsense"),
    ("mem0", b"[" * 100_000),
    ("mcp-memory", b"[" * 100_000),
]


@pytest.mark.parametrize(("form", "data"), BAD)
def test_bad_input_is_an_answer(
    form: str, data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, home = tmp_path / "file", str(tmp_path / "home")
    path.write_bytes(data)
    assert cli.main(["import", form, str(path), "--home", home, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert "error" in document or document["not_taken"]


def test_identities_tell_lists_apart() -> None:
    assert import_report.identity("f", "ab", "c") != import_report.identity("f", "a", "bc")
    assert import_report.identity("f", None) != import_report.identity("f")


@pytest.mark.parametrize(
    "odd",
    [
        {"key": ["region"]},
        {"key": {}},
        {"ts": 10**400},
        {"ts": float("nan")},
        {"id": ["1"], "valid_from": 1e308},
    ],
)
def test_an_inspeximus_record_of_odd_fields_stops_nothing(tmp_path: Path, odd: dict[str, Any]) -> None:
    store = tmp_path / "store.json"
    store.write_text(json.dumps([{**RECORDS[0], **odd}, {"id": "9", "text": "said", "ts": 1.0}]))
    items = list(parse_inspeximus(store))
    assert len(items) == 2 and len(texts(iter(items))) == 2
    assert count_items(iter(items)).outcomes == {"readable": 2}


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.cli_import.MAX_LINE_BYTES", 1000)
    path = tmp_path / "facts.jsonl"
    path.write_bytes(
        b'{"text": "one"}\n' + b"x" * 5000 + b'\n{"text": "two"}\n' + b'{"text": "' + b"y" * 1000
    )
    report = count_items(read_items("jsonl", str(path)))
    assert (report.lines, report.outcomes) == (4, {"readable": 2})
    assert [one["line"] for one in report.not_taken] == [2, 4]
