"""Who else names somebody: texts in one form of Unicode, without case, and whole words alone.

A name is looked for as the store compares texts (memory.canon_text), so it makes no difference whether a letter
is composed, wide or capital, or which hyphen or space stands in it. Of a subject the separators are alike, as
they are in its tag: dana-scully is Dana Scully. user-1 is in neither user-10 nor superuser-1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from memory.canon_text import folded

FIELDS: Final = ("text", "key", "value", "subject", "source")
_SEPARATORS: Final = r"\s/\\_:|>,;.-"
_BETWEEN: Final = f"[{_SEPARATORS}]{{1,3}}"
# Between fields: no word goes on over it, and no name has its parts on both sides of it.
_BESIDE: Final = " = "


class Mentions:
    """Tells which contents mention one of some names: each a pattern, and a part that is in whatever matches it."""

    def __init__(self, names: Iterable[tuple[str, str]]) -> None:
        self._names = tuple((part, re.compile(pattern)) for pattern, part in dict.fromkeys(names))

    def __bool__(self) -> bool:
        return bool(self._names)

    def __call__(self, content: Mapping[str, Any]) -> bool:
        """Whether a content mentions one of the names."""
        text = folded(_BESIDE.join(str(content[name]) for name in FIELDS if content.get(name)))
        return any(part in text and _has_word(text, pattern) for part, pattern in self._names)


def mentions_of_subjects(names: Iterable[str]) -> Mentions:
    """Mentions of these names, whatever separates their parts."""
    split = [parts for name in names if (parts := _parts(folded(name)))]
    return Mentions((_BETWEEN.join(map(re.escape, parts)), max(parts, key=len)) for parts in split)


def mentions_of_values(values: Iterable[str]) -> Mentions:
    """Mentions of these values, as they are written."""
    return Mentions((re.escape(text), text) for value in values if (text := folded(value)))


def _parts(name: str) -> list[str]:
    """The parts of a name between separators; the whole of it where it is made of nothing else."""
    return [part for part in re.split(f"[{_SEPARATORS}]+", name) if part] or ([name] if name else [])


def _has_word(text: str, pattern: re.Pattern[str]) -> bool:
    at = 0
    while match := pattern.search(text, at):
        start, end = match.span()
        before = start == 0 or not _joined(text[start - 1], text[start])
        if before and (end == len(text) or not _joined(text[end - 1], text[end])):
            return True
        at = start + 1
    return False


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours are of one word. Scripts without spaces have no bounds, so none is asked for."""
    unspaced = "Lo" in (unicodedata.category(left), unicodedata.category(right))
    return left.isalnum() and right.isalnum() and not unspaced
