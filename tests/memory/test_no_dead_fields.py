"""Every field of a record is read by something: one that nothing reads looks like a mechanism and is none."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from memory import config, grants, model, rows, store_grants, timeline
from memory.event import Link

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SOURCES = [path for package in ("memory", "auditor") for path in sorted((REPOSITORY / package).glob("*.py"))]
RECORDS = [
    *(kind for kind in vars(rows).values() if isinstance(kind, type) and hasattr(kind, "_fields")),
    model.Principal,
    model.Proposal,
    model.KnownFact,
    model.Known,
    model.Decision,
    timeline.FactState,
    timeline.TimelineEvent,
    timeline.Answer,
    config.Config,
    grants.Reading,
    store_grants.GrantRow,
    Link,
]
# What a content holds is read by name from a map.
CONTENT = re.findall(
    r"^\| `(\w+)`(?:, `(\w+)`)?(?:, `(\w+)`)? \|",
    (REPOSITORY / "docs" / "formats" / "statement.md")
    .read_text("utf-8")
    .partition("## The content")[2]
    .partition("\n## ")[0],
    re.MULTILINE,
)
CONTENT_FIELDS = sorted({name for row in CONTENT for name in row if name and name != "field"})


@cache
def attributes_read() -> Counter[str]:
    """How often each name is read as an attribute in the memory: the auditor has records of its own."""
    found: Counter[str] = Counter()
    for path in SOURCES:
        if path.parent.name != "memory":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr] += 1
    return found


@cache
def names_looked_up() -> set[str]:
    """Texts that are an index, or an argument of a call, somewhere: how a field of a map is read."""
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Subscript):
                found |= {
                    one.value
                    for one in ast.walk(node.slice)
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
            elif isinstance(node, ast.Call):
                found |= {
                    one.value
                    for one in node.args
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    return found


def fields_of(kind: type) -> tuple[str, ...]:
    if hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return tuple(field.name for field in dataclasses.fields(kind))


# A field that nothing here reads, with the reason.
UNREAD = {
    ("NewFact", "declared"): "its row is written as a whole, in the order of its fields",
    ("FactState", "replaced_by"): "the column of that name is compared with it, by a test and by the auditor",
}


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_record_is_read(kind: type) -> None:
    read = attributes_read()
    unread = [name for name in fields_of(kind) if not read[name] and (kind.__name__, name) not in UNREAD]
    assert unread == []


def test_every_field_of_a_content_is_read() -> None:
    assert len(CONTENT_FIELDS) > 12
    looked_up = names_looked_up()
    assert [name for name in CONTENT_FIELDS if name not in looked_up] == []


def test_a_field_that_nothing_reads_is_found() -> None:
    assert attributes_read()["commitment"] and not attributes_read()["confidence_that_nobody_reads"]
    assert "text" in names_looked_up() and "mood" not in names_looked_up()
