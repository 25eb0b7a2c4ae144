"""Cursors: where the next page of an answer begins, for the caller and the question that had the first.

A cursor carries a place, how many there were in all, and the time the first page was read at, so that later pages
are of the same state of the memory. It is sealed with a keyed hash of that, of who asks and of what was asked: one
that was changed, or that comes with other arguments or from somebody else, is refused. It gives no right.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tlog.errors import MalformedError

Tag = Callable[..., bytes]

_DOMAIN: Final = "mcp cursor"
_TAG_BYTES: Final = 16
_MAX_CHARACTERS: Final = 512
# What may differ from page to page of one question.
_FREE: Final = frozenset({"cursor", "budget", "detail"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins, of how many in all, and as of when its memory is read; None is not known yet, and now."""

    first: int = 0
    total: int | None = None
    as_of: str | None = None
    as_recorded: str | None = None


def seal(place: Place, tag: Tag, caller: tuple[str, ...], tool: str, arguments: Mapping[str, Any]) -> str:
    """The cursor to a place, for this caller and question. `tag(domain, *parts)` is a keyed hash."""
    fields = [place.first, place.total, place.as_of, place.as_recorded]
    body = json.dumps(fields, separators=(",", ":")).encode("ascii")
    sealed = _tag(tag, body, caller, tool, arguments) + body
    return base64.urlsafe_b64encode(sealed).decode("ascii").rstrip("=")


def open_cursor(
    cursor: str, tag: Tag, caller: tuple[str, ...], tool: str, arguments: Mapping[str, Any]
) -> Place:
    """The place of a cursor that `seal` made for this caller and question; MalformedError otherwise."""
    try:
        if len(cursor) > _MAX_CHARACTERS:
            raise ValueError
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        sealed, body = data[:_TAG_BYTES], data[_TAG_BYTES:]
        expected = _tag(tag, body, caller, tool, arguments)
        if not hmac.compare_digest(sealed, expected):
            raise ValueError
        place = Place(*json.loads(body))
    except (ValueError, TypeError):
        raise MalformedError(
            "expected a cursor of an earlier answer to this question, with the same arguments",
            code="cursor_invalid",
        ) from None
    return place


def _tag(tag: Tag, body: bytes, caller: tuple[str, ...], tool: str, arguments: Mapping[str, Any]) -> bytes:
    asked = {name: value for name, value in arguments.items() if name not in _FREE}
    question = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return tag(_DOMAIN, *caller, tool, question, body)[:_TAG_BYTES]
