"""Facts from the Markdown notes of basic-memory.

An observation (`- [category] text #tag (context)`), a relation (`- kind [[Other note]]`) and each paragraph of prose
become a fact about the note. Headings, code and pictures say nothing by themselves and are counted as skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from memory.import_report import Item, Line, Skipped, identity
from tlog.errors import MalformedError

FORM: Final = "basic-memory"
_FENCE: Final = ("```", "~~~")
_OBSERVATION: Final = re.compile(r"[-*]\s+\[([^\]\[]{1,64})\]\s+(.+)")
_RELATION: Final = re.compile(r"[-*]\s+(.{0,128}?)\s*\[\[([^\]\[]{1,256})\]\](.*)")
_BULLET: Final = re.compile(r"^(?:[-*+]|[0-9]+[.)])\s+(?:\[[ xX-]\]\s+)?")
_BOXES: Final = frozenset(" xX-")


def parse_notes(notes: Iterable[tuple[str, bytes]]) -> Iterator[Item]:
    """The facts of notes, each given by its name and its bytes; items are numbered through all of them."""
    number = 0
    for name, data in notes:
        for item in _note(name, data, number):
            number = item[0] if isinstance(item, tuple) else item.number
            yield item


def _note(name: str, data: bytes, number: int) -> Iterator[Item]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield number + 1, MalformedError("expected a note in UTF-8")
        return
    header, body = _split(text)
    title = header.get("title") or name
    for block in _blocks(body):
        number += 1
        yield _item(number, title, block)


def _split(text: str) -> tuple[dict[str, str], str]:
    """The plain fields of the front matter, and what comes after it."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if end is None:
        return {}, text
    fields = {}
    for line in lines[1:end]:
        name, colon, value = line.partition(":")
        if colon and not line.startswith((" ", "-")):
            fields[name.strip()] = value.strip().strip("'\"")
    return fields, "\n".join(lines[end + 1 :])


def _blocks(body: str) -> Iterator[str]:
    """Paragraphs, list items and headings, each as one line; a block of code as the mark it begins with."""
    held: list[str] = []
    fence = ""
    for line in body.splitlines():
        stripped = line.strip()
        if fence:
            fence = "" if stripped.startswith(fence) else fence
            continue
        begins = stripped.startswith((*_FENCE, "#")) and not re.match(r"#\w", stripped)
        if (not stripped or begins or re.match(r"([-*+]|\d+[.)])\s", stripped)) and held:
            yield " ".join(held)
            held = []
        if stripped.startswith(_FENCE):
            fence = stripped[:3]
            yield fence
        elif begins:
            yield stripped
        elif stripped:
            held.append(stripped)
    if held:
        yield " ".join(held)


def _item(number: int, title: str, block: str) -> Item:
    if block.startswith(_FENCE):
        return Skipped(number, "code")
    if block.startswith("#"):
        return Skipped(number, "heading")
    if re.fullmatch(r"[-*_\s]+", block) or re.fullmatch(r"!\[[^\]]*\]\([^)]*\)", block):
        return Skipped(number, "rule or picture")
    observation, relation = _OBSERVATION.fullmatch(block), _RELATION.fullmatch(block)
    if observation and observation[1] not in _BOXES:
        said = f"{title} ({observation[1]}): {observation[2]}"
    elif relation:
        said = " ".join(f"{title} {relation[1] or 'relates to'} {relation[2]}{relation[3]}".split())
    else:
        said = f"{title}: {_BULLET.sub('', block)}"
    return Line(
        number,
        None,
        {
            "text": said,
            "subject": title,
            "source": "basic-memory",
            "idempotency_key": identity(FORM, title, said),
        },
    )
