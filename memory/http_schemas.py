"""What the HTTP API takes and answers, as JSON Schema: for its OpenAPI document, and for whoever writes a client.

A text here is one with something visible in it, and a time is as people write it (docs/SERVING.md); the schemas name
these forms and leave the judgement to `memory.edge`, which speaks for every surface. Answers may gain fields.
"""

from __future__ import annotations

from typing import Any, Final

from memory.model import MAX_NAME_CHARACTERS, MAX_TEXT_BYTES, MAX_VALUE_BYTES

Schema = dict[str, Any]

MAX_KEY_CHARACTERS: Final = 4096
MAX_PAGE: Final = 1000
ID_PATTERN: Final = "^[a-z2-7]{25}[aeimquy4]$"
REQUEST_PATTERN: Final = "^[0-9a-f]{32}$"


def text(description: str, at_most: int = MAX_KEY_CHARACTERS) -> Schema:
    """A text with something visible in it."""
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": at_most,
        "format": "visible-text",
        "description": description,
    }


def time(description: str) -> Schema:
    """A time as people write it."""
    return {
        "type": ["string", "integer"],
        "format": "muniment-time",
        "description": f"{description}: ISO-8601 with a zone, seconds since 1970, or now",
    }


def flag(description: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": description}


def identifier(description: str) -> Schema:
    """The id of a fact, a conflict, a grant or a hold."""
    return {"type": "string", "pattern": ID_PATTERN, "description": description}


def arguments(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """A body that has these members and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def answer(properties: Schema) -> Schema:
    """An answer that has all of these members, and may have more."""
    return {"type": "object", "properties": properties, "required": sorted(properties)}


_WORD: Final[Schema] = {"type": "string"}
_MAYBE: Final[Schema] = {"type": ["string", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_IDS: Final[Schema] = {"type": "array", "items": _WORD}
_OBJECT: Final[Schema] = {"type": "object"}
_MAYBE_OBJECT: Final[Schema] = {"type": ["object", "null"]}
_FLAG: Final[Schema] = {"type": "boolean"}

RECEIPT: Final[Schema] = {
    "type": "object",
    "properties": {
        "state": {"type": "string", "enum": ["pending", "logged", "witnessed"]},
        "entry": {"type": ["integer", "null"], "minimum": 0},
    },
    "required": ["state", "entry"],
}
FACT: Final[Schema] = {
    "type": "object",
    "properties": {
        "id": _WORD,
        "key": _MAYBE,
        "value": _MAYBE,
        "text": _MAYBE,
        "subject": _MAYBE,
        "status": _WORD,
        "valid_from": _WORD,
        "valid_until": _MAYBE,
        "recorded_at": _WORD,
        "replaced_at": _MAYBE,
        "client": _MAYBE,
        "quarantine": {"type": "array", "items": _WORD, "description": "why a text is wrapped as data"},
        "trust": {"type": "string", "enum": ["asserted", "authenticated"]},
        "receipt": RECEIPT,
    },
    "required": ["id", "key", "value", "text", "status", "trust", "receipt", "quarantine"],
}
FACTS: Final[Schema] = {"type": "array", "items": FACT}
NEXT: Final[Schema] = {
    "type": ["string", "null"],
    "description": "the cursor of the next page; null on the last",
}
PROBLEM: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": _WORD,
        "title": _WORD,
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "the short name to act on"},
        "detail": {"type": "string", "description": "a sentence for people; never what was sent"},
    },
    "required": ["type", "title", "status", "code", "detail"],
}

READING: Final[Schema] = {
    "as_of": time("what was true then"),
    "as_recorded": time("what this memory believed then"),
    "owner": text("another agent that granted you reading", MAX_NAME_CHARACTERS),
}
PAGE: Final[Schema] = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_PAGE,
        "description": "at most so many (100 without it)",
    },
    "cursor": {
        "type": "string",
        "format": "page-cursor",
        "description": "where the page before ended",
    },
}
REMEMBER: Final = arguments(
    {
        "text": text("the fact as one plain sentence", MAX_TEXT_BYTES),
        "key": text("what the fact is about, subject/attribute"),
        "value": text("the value alone; with a key", MAX_VALUE_BYTES),
        "subject": text("the person or thing concerned, for later erasure"),
        "valid_from": time("since when it is true, if not now"),
        "valid_until": time("until when"),
        "provisional": flag("a guess: held until confirmed"),
        "many": flag("the key has many values at once"),
        "restatement": flag("says again what is known; replaces nothing"),
        "source": text("where it comes from"),
        "idempotency_key": text("same key and body: same answer", MAX_NAME_CHARACTERS),
        "reaffirm": text("the token of a refusal; with a reason", MAX_NAME_CHARACTERS),
        "reason": text("why the refused value holds again"),
        "wait": {
            "type": "string",
            "enum": ["logged", "witnessed"],
            "description": "publish now, and wait for it",
        },
    },
    ("text",),
)
SCOPE: Final[Schema] = {
    "id": {"type": "array", "items": identifier("a fact"), "minItems": 1, "maxItems": 10_000},
    "key": text("every fact of this key"),
    "subject": text("every fact about this subject"),
    "value": text("every fact that says this value"),
    "all": {"type": "boolean", "const": True, "description": "the whole memory of this agent"},
    "tenant": {"type": "boolean", "const": True, "description": "the whole tenant"},
    "recorded_from": time("what was recorded from then on"),
    "recorded_until": time("what was recorded before then"),
}
IDENTIFIERS: Final[Schema] = {
    "type": "array",
    "items": text("another name"),
    "minItems": 1,
    "maxItems": 64,
}
CONFIRM: Final = text("the token of the preview of the same request", 128)
SELECTOR: Final[Schema] = {
    **SCOPE,
    "identifiers": IDENTIFIERS,
    "guard": {
        "type": "string",
        "description": "keep, erase, or expire= and a time: the values that stay refused",
    },
    "reason": {"type": "string", "description": "a code: data_subject, operator and others"},
    "received_at": time("when the request came"),
    "due_at": time("when it has to be done"),
}
REMEMBERED: Final = answer(
    {
        "outcome": {
            "type": "string",
            "enum": ["stored", "superseded", "agreed", "history", "conflict", "held", "refused"],
        },
        "reason": _MAYBE,
        "message": _WORD,
        "id": _MAYBE,
        "key": _MAYBE,
        "retired": _IDS,
        "conflict_with": _IDS,
        "current": _MAYBE_OBJECT,
        "reaffirm": _MAYBE,
        "receipt": RECEIPT,
    }
)
DONE: Final = answer({"id": _WORD, "status": _WORD, "receipt": RECEIPT})
RECALLED: Final = answer({"facts": FACTS, "omitted": _COUNT, "scope": _OBJECT, "next": NEXT})
CURRENT: Final = answer(
    {"key": _WORD, "current": _MAYBE, "active": FACTS, "conflict": _FLAG, "scope": _OBJECT}
)
HISTORY: Final = answer({"key": _WORD, "facts": FACTS, "scope": _OBJECT, "next": NEXT})
PROVENANCE: Final = answer(
    {
        "fact": _MAYBE_OBJECT,
        "origin": _MAYBE_OBJECT,
        "history": {"type": "array"},
        "statement": _OBJECT,
        "receipt": _OBJECT,
        "limits": {"type": "array", "items": answer({"code": _WORD, "text": _WORD})},
    }
)
RECEIPT_FILE: Final = answer(
    {
        "id": _WORD,
        "format": {"type": "string", "enum": ["cose", "tlog-proof"]},
        "receipt": {"type": "string", "contentEncoding": "base64"},
    }
)
CONFLICTS: Final = answer(
    {
        "conflicts": {
            "type": "array",
            "items": answer({"id": _WORD, "key": _MAYBE, "facts": FACTS, "opened_at": _WORD}),
        },
        "next": NEXT,
    }
)
REVIEW: Final = answer({"facts": FACTS, "omitted": _COUNT, "next": NEXT})
GRANTS: Final = answer({"made": {"type": "array"}, "given": {"type": "array"}, "scope": _OBJECT})
HOLDS: Final = answer({"holds": {"type": "array", "items": answer({"id": _WORD, "facts": _COUNT})}})
HELD: Final = answer({"id": _WORD, "held": _COUNT, "ids": _IDS, "review_by": _WORD, "receipt": RECEIPT})
PREVIEW: Final = answer({"preview": _OBJECT, "confirm": _WORD, "expires_at": _WORD})
ERASED: Final = answer(
    {"erased": _COUNT, "manifest": _WORD, "state": _WORD, "residue": _OBJECT, "claim": _WORD}
)
DENIED: Final = answer({"state": _WORD, "request": _WORD, "manifest": _WORD, "claim": _WORD})
FOLLOWED: Final = answer({"state": _WORD, "request": _WORD, "manifest": _WORD})
MANIFEST: Final = answer(
    {
        "request": _WORD,
        "number": _COUNT,
        "state": _WORD,
        "digest": _WORD,
        "manifest": {"type": "string", "contentEncoding": "base64"},
    }
)
REQUESTED: Final = answer(
    {"request": _WORD, "state": _WORD, "overdue": _FLAG, "recipients": {"type": "array"}, "left": _OBJECT}
)
RETENTION: Final = answer({"matched": _COUNT, "removed": _COUNT, "receipt": _MAYBE_OBJECT})
PUBLISHED: Final = answer({"size": _COUNT, "root": _WORD, "state": _WORD})
STATUS: Final = answer({"facts": _OBJECT, "conflicts": _COUNT, "log": _OBJECT, "guard": _WORD})
EXPORT: Final[Schema] = {"type": "object"}
