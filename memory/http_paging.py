"""Pages of a list: where one ended is said by a cursor, which is a place in the list and no right to anything.

Every page is read anew with the rights of whoever asks, so a cursor needs no seal. It names the last item given; once
that one is gone, its time says where to go on.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tlog.errors import MalformedError

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1000
MAX_CURSOR_CHARACTERS: Final = 256
_PLACE: Final = re.compile(r"([0-9T:.+Z-]{1,40})/([a-z2-7]{26})", re.ASCII)

Item = Mapping[str, Any]


def check_page_limit(value: object) -> int:
    """`value`, if it is how many items a page may have; the default for None."""
    if value is None:
        return DEFAULT_PAGE
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,3}", value, re.ASCII):
        value = int(value)
    if type(value) is not int or not 1 <= value <= MAX_PAGE:
        raise MalformedError(f"expected limit to be a whole number from 1 to {MAX_PAGE}")
    return value


def page(
    items: Sequence[Item], listed_by: str, limit: int, cursor: object
) -> tuple[Sequence[Item], str | None]:
    """The items after a cursor, at most `limit`, and the cursor of what comes after them.

    `items` are in order, each with an `id` and, under `listed_by`, the time that they are ordered by.
    """
    start = 0 if cursor is None else _after(items, listed_by, cursor)
    given = items[start : start + limit]
    if start + limit >= len(items) or not given:
        return given, None
    return given, _format(given[-1], listed_by)


def _after(items: Sequence[Item], listed_by: str, cursor: object) -> int:
    time, last = _parse(cursor)
    for place, item in enumerate(items):
        if item["id"] == last:
            return place + 1
    # Times are written in one form, but a fraction only where there is one: without its Z, order is that of texts.
    return next(
        (place for place, item in enumerate(items) if item[listed_by].rstrip("Z") > time.rstrip("Z")),
        len(items),
    )


def _format(item: Item, listed_by: str) -> str:
    place = f"{item[listed_by]}/{item['id']}".encode("ascii")
    return base64.urlsafe_b64encode(place).decode("ascii").rstrip("=")


def _parse(cursor: object) -> tuple[str, str]:
    found = None
    if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR_CHARACTERS:
        try:
            text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            found = _PLACE.fullmatch(text.decode("ascii"))
        except (binascii.Error, ValueError):
            found = None
    if found is None:
        raise MalformedError("expected cursor to be the `next` of a page of the same list")
    return found[1], found[2]
