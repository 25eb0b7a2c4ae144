"""What a person is asked through the client, and what counts as an answer.

A client that declares elicitation shows the question, or answers it by itself: nobody but its host knows which. So an
answer never stands in for a token that an act needs, and what a fooled model must not do alone wants words that only
the question asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from memory.mcp_view import cut_text
from tlog.errors import MalformedError, RefusedError

Shape = Mapping[str, Any]

LEAVE: Final = "leave"
_SHOWN_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Question:
    """A question as a form: its words, the JSON schema of the answer, and a hash of what it is about."""

    message: str
    schema: dict[str, Any]
    about: str

    @property
    def digest(self) -> str:
        """What an answer is bound to: exactly this question about exactly this."""
        said = json.dumps([self.message, self.schema, self.about], sort_keys=True)
        return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Reply:
    """What came back: `accept`, `decline` or `cancel`, with the fields of the form."""

    action: str
    content: Shape = field(default_factory=dict)


@dataclass(frozen=True)
class Person:
    """Who sits behind the client: whether it can ask, and what was answered to the question of which digest."""

    askable: bool = False
    reply: Reply | None = None
    digest: str | None = None

    def reply_to(self, question: Question) -> Reply | None:
        """The answer to this question, None if it was not asked yet; RefusedError unless it was accepted."""
        if self.reply is None or self.digest != question.digest:
            return None
        if self.reply.action != "accept":
            raise RefusedError("the person did not agree; nothing was changed", code="declined")
        return self.reply


NOBODY: Final = Person()


def ask_to_erase(preview: Shape, everything: bool) -> Question:
    """Whether what a preview showed may go."""
    count, by_status = preview["count"], preview["by_status"]
    parts = ", ".join(f"{number} {status}" for status, number in sorted(by_status.items()))
    what = "everything that this agent remembers" if everything else "what was selected"
    held = f" {preview['held']} under a legal hold stay." if preview["held"] else ""
    return Question(
        f"Erase {what} for good: {count} {'fact' if count == 1 else 'facts'} ({parts})?{held} This cannot be undone.",
        {"type": "object", "properties": {}},
        _hash(preview["ids"], preview["guard"]),
    )


def ask_to_review(fact: Shape, decisions: Sequence[str]) -> Question:
    """What is to become of a write that was held or refused."""
    choices = [*decisions, LEAVE]
    names = {
        "confirm": "Serve it from now on",
        "discard": "Drop it",
        "reaffirm": "It holds again (say why)",
        LEAVE: "Leave it waiting",
    }
    properties: dict[str, Any] = {
        "decision": {
            "type": "string",
            "title": "Decision",
            "enum": choices,
            "enumNames": [names[one] for one in choices],
        }
    }
    if "reaffirm" in decisions:
        properties["reason"] = {"type": "string", "title": "Why it holds again", "maxLength": 2000}
    current = fact["current"]
    now = "" if current is None else f" Its key says now: {_shown(current, 'value')}"
    return Question(
        f"A write of {_shown(fact, 'client')} was {fact['status']} ({fact['reason']}). It says: {_said(fact)}{now}",
        {"type": "object", "properties": properties, "required": ["decision"]},
        _hash(fact["id"], fact["status"], fact["shown"]),
    )


def read_review(reply: Reply, decisions: Sequence[str]) -> tuple[str, str | None]:
    """The decision of the person, and the reason in the person's own words."""
    decision, reason = reply.content.get("decision"), reply.content.get("reason")
    if decision not in (*decisions, LEAVE):
        raise RefusedError("the answer has no decision in it; nothing was changed", code="declined")
    if decision == "reaffirm" and not (isinstance(reason, str) and reason.strip()):
        raise RefusedError(
            "a value holds again only with the person's reason; nothing was changed", code="declined"
        )
    return str(decision), reason if isinstance(reason, str) else None


def ask_to_resolve(conflict: Shape) -> Question:
    """Which side of a conflict holds."""
    facts = conflict["facts"]
    sides = "; ".join(f"{_shown(fact, 'client')}: {_said(fact)}" for fact in facts)
    return Question(
        f"Clients disagree on {_shown(facts[0], 'key')}. {sides}. Which one holds?",
        {
            "type": "object",
            "properties": {
                "keep": {
                    "type": "string",
                    "title": "This one holds",
                    "enum": [fact["id"] for fact in facts],
                    "enumNames": [f"{_said(fact)[:80]} ({_shown(fact, 'client')})" for fact in facts],
                }
            },
            "required": ["keep"],
        },
        _hash(conflict["id"], [fact["id"] for fact in facts]),
    )


def read_resolve(reply: Reply, conflict: Shape) -> str:
    """The id of the fact that the person chose."""
    keep = reply.content.get("keep")
    if keep not in [fact["id"] for fact in conflict["facts"]]:
        raise RefusedError("the answer names no side of the conflict; nothing was changed", code="declined")
    return str(keep)


def find(items: Sequence[Shape], id: str, what: str) -> Shape:
    """The item with this id; MalformedError with code `unknown_id` if there is none."""
    for item in items:
        if item["id"] == id.strip():
            return item
    raise MalformedError(f"expected the id of {what} in this scope", code="unknown_id")


def _said(fact: Shape) -> str:
    value, text = fact.get("value"), _shown(fact, "text")
    return text if value is None else f"{_shown(fact, 'key')} = {_shown(fact, 'value')} ({text})"


def _shown(fact: Shape, name: str) -> str:
    text = str(fact.get(name))
    return text if len(text) <= _SHOWN_CHARACTERS else cut_text(text, _SHOWN_CHARACTERS, fact["id"])


def _hash(*parts: object) -> str:
    return sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()
