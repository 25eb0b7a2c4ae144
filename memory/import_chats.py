"""Facts from transcripts of Claude Code and of ChatGPT: each message of a person or a model, as what was said when.

A message is a text without a key: what of it is true, nobody has said yet. Tool calls, their results, pictures and
what a model only thought are skipped, and counted by kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from memory.import_report import Item, Line, Skipped, identity, moment
from tlog.errors import MalformedError

CLAUDE: Final = "claude-code"
CHATGPT: Final = "chatgpt"
_SPEAKERS: Final = ("user", "assistant")
_MAX_DEPTH: Final = 1 << 16


def parse_claude(lines: Iterable[bytes]) -> Iterator[Item]:
    """The messages of a Claude Code session, one JSON object a line."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            entry = json.loads(raw)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            yield number, MalformedError("expected a line to be a JSON object in UTF-8")
        else:
            yield from _entry(number, entry)


def _entry(number: int, entry: Mapping[str, Any]) -> Iterator[Item]:
    kind = entry.get("type")
    if kind not in _SPEAKERS:
        yield Skipped(
            number, f"{kind} entry" if isinstance(kind, str) and kind.isidentifier() else "other entry"
        )
        return
    if entry.get("isMeta") or entry.get("isSidechain"):
        yield Skipped(number, "message of the host or of a helper")
        return
    message = entry.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        yield number, MalformedError("expected a message with its content")
        return
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if isinstance(text, str) and text.strip():
            texts.append(text.strip())
        else:
            yield Skipped(number, _part_kind(part))
    if texts:
        source = " ".join(str(entry[name]) for name in ("sessionId", "uuid") if entry.get(name))
        yield _said(CLAUDE, number, str(kind), "\n\n".join(texts), entry.get("timestamp"), source)


def _part_kind(part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind.replace("_", " ") if isinstance(kind, str) and kind.isidentifier() else "other part"


def parse_chatgpt(data: bytes) -> Iterator[Item]:
    """The messages of the conversations of a ChatGPT export, along the branch that each ended on."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedError("expected conversations.json: one JSON document in UTF-8") from None
    conversations = [document] if isinstance(document, dict) else document
    if not isinstance(conversations, list):
        raise MalformedError("expected conversations.json: a list of conversations")
    number = 0
    for conversation in conversations:
        nodes = conversation.get("mapping") if isinstance(conversation, Mapping) else None
        if not isinstance(nodes, dict):
            number += 1
            yield number, MalformedError("expected a conversation to have a mapping of its messages")
            continue
        branch = _branch(nodes, conversation.get("current_node"))
        for node in branch:
            number += 1
            yield _message(number, node.get("message"))
        if len(nodes) > len(branch):
            for _ in range(len(nodes) - len(branch)):
                number += 1
                yield Skipped(number, "message of a branch that was left")


def _branch(nodes: Mapping[str, Any], last: object) -> list[Mapping[str, Any]]:
    """From the first message to the last one, by the parents of each."""
    if not isinstance(last, str) or last not in nodes:
        leaves = [
            name for name, node in nodes.items() if isinstance(node, Mapping) and not node.get("children")
        ]
        last = leaves[-1] if leaves else None
    found: list[Mapping[str, Any]] = []
    seen: set[object] = set()
    while isinstance(last, str) and last not in seen and len(found) < _MAX_DEPTH:
        node = nodes.get(last)
        if not isinstance(node, Mapping):
            break
        seen.add(last)
        found.append(node)
        last = node.get("parent")
    return found[::-1]


def _message(number: int, message: object) -> Item:
    if not isinstance(message, Mapping):
        return Skipped(number, "root of a conversation")
    author, content = message.get("author"), message.get("content")
    role = author.get("role") if isinstance(author, Mapping) else None
    if role not in _SPEAKERS:
        return Skipped(number, "message of the system or of a tool")
    if not isinstance(content, Mapping) or content.get("content_type") not in ("text", "multimodal_text"):
        return Skipped(number, "message that is no text")
    parts = content.get("parts")
    texts = [part.strip() for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    said = "\n\n".join(text for text in texts if text)
    if not said:
        return Skipped(number, "message without words")
    return _said(CHATGPT, number, str(role), said, message.get("create_time"), str(message.get("id") or ""))


def _said(form: str, number: int, role: str, text: str, when: object, source: str) -> Line:
    arguments: dict[str, Any] = {
        "text": f"{role}: {text}",
        "source": f"{form} {source}".strip(),
        "idempotency_key": identity(form, source, role, text, when),
    }
    since = moment(when)
    if since is not None:
        arguments["valid_from"] = since
    return Line(number, None, arguments)
