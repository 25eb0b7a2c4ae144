"""Why facts were found, in words: for whoever reads what a terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memory.answers import Answer

_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "from_words": "its words",
        "from_facts_beside": "facts beside it",
        "from_words_in_common": "words it shares with the best",
        "from_meaning": "its meaning",
    }
)


def recall_text(facts: Sequence[Answer], line: Callable[[Answer], str]) -> str:
    """A line for each fact, and where it is told a second one that says why it stands there."""
    lines: list[str] = []
    for fact in facts:
        lines.append(line(fact))
        if "why" in fact:
            lines.append(f"    {why_line(fact['why'])}")
    return "\n".join(lines) or "nothing found in this scope"


def why_line(why: Answer) -> str:
    """Which words of the query a fact has, what its score is made of, and whether it was put before an older one."""
    return "; ".join(_told(why))


def _told(why: Answer) -> Iterator[str]:
    words = [_word(one) for one in why["words"]]
    yield f"has {', '.join(words)}" if words else "has no word of the query"
    parts = [f"{why[name]:.2f} for {said}" for name, said in _PARTS.items() if why[name]]
    if parts:
        yield f"scores {', '.join(parts)}"
    if why["put_before_older"]:
        yield "put before an older fact about the same"


def _word(one: Mapping[str, Any]) -> str:
    where = " in key, subject or value" if one["in_key"] else ""
    return f"{one['word']} ({one['weight']:.2f}{where})"
