"""Facts as a model gets them: in few words or in full, as many as a budget holds, and where the rest begins.

The budget is of tokens of the whole answer, estimated as one for every three bytes of its JSON in UTF-8. English
takes less, ideographs take about that; no tokenizer of a model is asked. What is left out is counted, and a cursor
leads to it; a text that alone is longer than the budget is cut, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from memory.quarantine import MARK_CHARACTERS

Shape = dict[str, Any]

DEFAULT_BUDGET: Final = 4000
MIN_BUDGET: Final = 400
MAX_BUDGET: Final = 20_000
BYTES_PER_TOKEN: Final = 3
CONCISE_CHARACTERS: Final = 600
"""Of one text of a fact in few words; in full there is no such limit but the budget."""
# What an answer holds beside its facts: notice, scope, times, cursor.
_FRAME_TOKENS: Final = 160
_TEXTS: Final = ("text", "value", "key", "subject", "client", "source")
_PROOFS: Final = {
    "pending": "signed, not in the log yet",
    "logged": "in the log, not witnessed",
    "witnessed": "in the log, witnessed",
}


@dataclass(frozen=True, slots=True)
class Page:
    """The items that fit, and at which place of all the next would be; None after the last."""

    items: tuple[Shape, ...]
    next_place: int | None


def tokens_of(value: object) -> int:
    """About how many tokens a value takes as JSON."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return -(-len(data) // BYTES_PER_TOKEN)


def make_page(items: Sequence[Shape], first: int, budget: int) -> Page:
    """As many of `items`, which begin at the place `first` of all, as the budget holds, and at least one."""
    left = budget - _FRAME_TOKENS
    taken: list[Shape] = []
    for item in items:
        cost = tokens_of(item)
        if cost > left and not taken:
            item = cut_to(item, left)
            cost = left
        if cost > left:
            break
        taken.append(item)
        left -= cost
    more = len(taken) < len(items)
    return Page(tuple(taken), first + len(taken) if more else None)


def cut_to(item: Shape, budget: int) -> Shape:
    """The item with its texts shortened until the budget holds it, as far as that can be done."""
    characters = CONCISE_CHARACTERS * 8
    while characters > 16 and tokens_of(item) > budget:
        item = _shortened(item, characters)
        characters //= 2
    return item if tokens_of(item) <= budget else _with_fewer_reasons(item, budget)


def _with_fewer_reasons(item: Shape, budget: int) -> Shape:
    """The item with as many of the words that it was found by as the budget holds, and how many those are not."""
    words = item.get("why", {}).get("words", [])
    for count in range(len(words) - 1, -1, -1):
        item = {**item, "why": {**item["why"], "words": words[:count], "words_omitted": len(words) - count}}
        if tokens_of(item) <= budget:
            break
    return item


def in_few_words(fact: Shape) -> Shape:
    """What a model needs of a fact: what it says, whose word it is, and how far it is proved."""
    short: Shape = {"id": fact["id"]}
    for name in ("key", "value", "text"):
        if fact.get(name) is not None:
            short[name] = fact[name]
    if short.get("text") == short.get("value"):
        short.pop("text", None)
    short["status"] = fact["status"]
    short["from"] = origin_of(fact)
    short["proof"] = _PROOFS.get(fact["receipt"]["state"], fact["receipt"]["state"])
    for name in ("valid_until", "followed_by"):
        if fact.get(name) is not None:
            short[name] = fact[name]
    if fact.get("quarantine"):
        short["quarantine"] = fact["quarantine"]
    if "why" in fact:
        short["why"] = fact["why"]
    return _shortened(short, CONCISE_CHARACTERS)


def in_full(fact: Shape) -> Shape:
    """The whole fact, with the same words about it."""
    proof = _PROOFS.get(fact["receipt"]["state"], fact["receipt"]["state"])
    return {**fact, "from": origin_of(fact), "proof": proof}


def origin_of(fact: Shape) -> str:
    """In a few words: who said it and when, whether that name is proved, and the source that was given."""
    word = "proved name" if fact.get("trust") == "authenticated" else "own word"
    client = _first(fact.get("client") or "unknown", 64)
    said = f"{client} ({word}), {str(fact.get('recorded_at'))[:10]}"
    source = fact.get("source")
    return said if source is None else f"{said}, source {_first(source, 80)}"


def _first(text: str, characters: int) -> str:
    """The beginning of a text. What is wrapped as data has its end mark last, and is better left out."""
    if len(text) <= characters:
        return text
    return "(quarantined)" if text.startswith("⟦quarantined ") else text[:characters] + "…"


def _shortened(item: Shape, characters: int) -> Shape:
    """The item with no text longer than so many characters; of a conflict, those of each of its facts."""
    short = dict(item)
    cut = 0
    for name in _TEXTS:
        text = short.get(name)
        if isinstance(text, str) and len(text) > characters:
            kept = cut_text(text, characters, str(short.get("id", "")))
            cut += len(text) - len(kept)
            short[name] = kept
    if isinstance(short.get("facts"), list):
        short["facts"] = [_shortened(one, characters) for one in short["facts"]]
    if cut > 0:
        short["cut"] = short.get("cut", 0) + cut
    return short


def cut_text(text: str, characters: int, id: str) -> str:
    """The beginning of a text, and of one that is wrapped as data the mark that ends it."""
    end = f" ⟦end {id[:MARK_CHARACTERS]}⟧"
    if text.endswith(end):
        head = text.index("⟧") + 1
        return text[: max(characters, head)] + "…" + end
    return text[:characters] + "…"
