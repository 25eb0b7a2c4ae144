"""Lines of standard input as JSON-RPC messages: which of them a client sent well, and what the others are answered.

A transport that drops what it cannot read leaves its client waiting for ever. So every line that asks for something
and cannot be taken gets an error, with its id where that can be read; what can be read goes on to the server as text
that has one meaning: UTF-8, no lone surrogates, no numbers that JSON does not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from tlog.errors import MalformedError

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
# JSON-RPC 2.0, 5.1.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
_MAX_ID_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What a line is answered that cannot be taken. `silent`: it asked for no answer, or was one."""

    code: int
    message: str
    id: str | int | None = None
    silent: bool = False


def read_message(raw: bytes, fits: Callable[[str], bool]) -> str | Unreadable | None:
    """The message of a line as text, what it is answered instead, or None for a blank line.

    `fits` says whether a text is a message of the protocol in shape.
    """
    if len(raw) > MAX_LINE_BYTES:
        return Unreadable(INVALID_REQUEST, f"expected a message of at most {MAX_LINE_BYTES} bytes")
    if not raw.strip():
        return None
    try:
        text, broken = raw.decode("utf-8"), False
    except UnicodeDecodeError:
        text, broken = raw.decode("utf-8", "replace"), True
    try:
        message = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError, MalformedError):
        return Unreadable(PARSE_ERROR, "expected a line to be one JSON-RPC message in UTF-8")
    if not isinstance(message, dict):
        return Unreadable(INVALID_REQUEST, "expected a line to be one JSON-RPC message, an object")
    return _judge(message, text, broken, fits)


def _judge(message: dict[str, Any], text: str, broken: bool, fits: Callable[[str], bool]) -> str | Unreadable:
    sent = _id(message)
    # Nobody waits for an answer to a notification, or to an answer.
    silent = "id" not in message or "method" not in message
    if broken:
        return Unreadable(PARSE_ERROR, "expected a message in UTF-8", sent, silent)
    if not _is_text(message):
        return Unreadable(
            INVALID_PARAMS, "expected texts of valid Unicode, without lone surrogates", sent, silent
        )
    if sent is None and not silent:
        # Taken for a notification, it would never be answered.
        return Unreadable(
            INVALID_REQUEST,
            f"expected id to be an integer or a text of at most {_MAX_ID_CHARACTERS} characters",
        )
    if not fits(text):
        # Without a method and without a result it is no message at all, and its sender should know.
        known = "method" in message or "result" in message or "error" in message
        return Unreadable(INVALID_REQUEST, "expected a JSON-RPC 2.0 message", sent, silent and known)
    return text


def _id(message: dict[str, Any]) -> str | int | None:
    """The id of a message, if it is one that an answer can carry."""
    sent = message.get("id")
    if type(sent) is int and abs(sent) < 1 << 63:
        return sent
    if isinstance(sent, str) and len(sent) <= _MAX_ID_CHARACTERS and _is_text(sent):
        return sent
    return None


def _is_text(value: Any) -> bool:
    """Whether every text in a value of JSON can be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse(_: str) -> NoReturn:
    raise MalformedError("expected JSON without NaN and Infinity")
