"""What a caller's arguments have to be, checked once: after this, a proposal cannot be malformed.

Errors say which argument is wrong and what was expected, and never repeat it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Final, Literal

from memory.model import MAX_NAME_CHARACTERS, MAX_TEXT_BYTES, MAX_VALUE_BYTES, Proposal
from memory.times import parse_time
from tlog.errors import MalformedError

MAX_KEY_BYTES: Final = 4096
MAX_REASON_BYTES: Final = 16 * 1024
MAX_LIMIT: Final = 1000
WAITS: Final = ("logged", "witnessed")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
# Of other categories, and yet nothing to see: fillers, joiners, selectors of variants, the blank pattern of Braille.
_BLANK: Final = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
)

Wait = Literal["logged", "witnessed"]


def check_text(value: object, name: str, max_bytes: int) -> str:
    """`value`, if it is valid Unicode with something visible in it, without NUL and not too long."""
    if not isinstance(value, str):
        raise MalformedError(f"expected {name} to be a text")
    if len(value) <= max_bytes and value.isascii() and value.isprintable() and value.strip():
        return value
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise MalformedError(f"expected {name} to be valid Unicode, without lone surrogates") from None
    if size > max_bytes:
        raise MalformedError(f"expected {name} to have at most {max_bytes} bytes, it has {size}")
    if "\0" in value:
        raise MalformedError(f"expected {name} to have no NUL character in it")
    if not value.strip() or all(_is_invisible(character) for character in value):
        raise MalformedError(f"expected {name} not to be blank")
    return value


def _is_invisible(character: str) -> bool:
    return character in _BLANK or unicodedata.category(character) in _INVISIBLE


def check_key(value: object, name: str = "key") -> str:
    """`value`, if it can be a key or a subject."""
    return check_text(value, name, MAX_KEY_BYTES)


def make_proposal(now: int, arguments: Mapping[str, Any]) -> Proposal:
    """The write that these arguments of `remember` ask for; times are read against `now`."""
    key, value, subject = arguments.get("key"), arguments.get("value"), arguments.get("subject")
    reason, source = arguments.get("reason"), arguments.get("source")
    proposal = Proposal(
        text=check_text(arguments.get("text"), "text", MAX_TEXT_BYTES),
        key=None if key is None else check_key(key),
        value=None if value is None else check_text(value, "value", MAX_VALUE_BYTES),
        subject=None if subject is None else check_key(subject, "subject"),
        valid_from=_time(arguments, "valid_from", now),
        valid_until=_time(arguments, "valid_until", now),
        provisional=_flag(arguments, "provisional"),
        many=_flag(arguments, "many"),
        restatement=_flag(arguments, "restatement"),
        source=None if source is None else check_text(source, "source", MAX_KEY_BYTES),
        reason=None if reason is None else check_text(reason, "reason", MAX_REASON_BYTES),
    )
    if proposal.value is not None and proposal.key is None:
        raise MalformedError("expected a key with the value: a value is what a key has")
    start = now if proposal.valid_from is None else proposal.valid_from
    if proposal.valid_until is not None and proposal.valid_until <= start:
        raise MalformedError("expected valid_until to lie after valid_from")
    return proposal


def check_idempotency_key(value: object) -> str:
    """`value`, if it can be an idempotency key."""
    key = check_text(value, "idempotency_key", MAX_KEY_BYTES)
    if len(key) > MAX_NAME_CHARACTERS:
        raise MalformedError(f"expected idempotency_key to have at most {MAX_NAME_CHARACTERS} characters")
    return key


def check_wait(value: object) -> Wait | None:
    """`value`, if it is a state that a write can wait for, or None."""
    if value is None:
        return None
    if value == "logged":
        return "logged"
    if value == "witnessed":
        return "witnessed"
    raise MalformedError(f"expected wait to be one of {', '.join(WAITS)}")


def check_limit(value: object) -> int:
    """`value`, if it is a number of facts that a read may give."""
    if type(value) is not int or not 1 <= value <= MAX_LIMIT:
        raise MalformedError(f"expected limit to be a whole number from 1 to {MAX_LIMIT}")
    return value


def check_flag(value: object, name: str) -> bool:
    """`value`, if it is true or false."""
    if type(value) is not bool:
        raise MalformedError(f"expected {name} to be true or false")
    return value


def _flag(arguments: Mapping[str, Any], name: str) -> bool:
    return check_flag(arguments.get(name, False), name)


def _time(arguments: Mapping[str, Any], name: str, now: int) -> int | None:
    value = arguments.get(name)
    return None if value is None else parse_time(value, now, name=name)
