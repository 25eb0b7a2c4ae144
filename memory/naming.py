"""Whether a text without a key states a retired value of something that it names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from memory import denial, other_things
from memory.canon import Canonical, Reading, key_names, text_words, value_forms, words_beside

Word = TypeVar("Word", str, bytes)
WordsBeside = Callable[[str | Reading, Canonical, Collection[Canonical]], frozenset[str] | None]


def states(
    text: str | Reading,
    retired: Canonical,
    key: str,
    active: Sequence[tuple[str, str | None]],
    beside_in: WordsBeside = words_beside,
) -> bool:
    """Whether a text without a key states a value that the key it names has retired.

    `retired` is a form that `canon.spans` found in the text and the ledger holds for the key,
    `active` the texts and values of the facts that stand there now, `beside_in` `canon.words_beside` of its version.
    Where the record that stands has the retired value in its own text, as a thing named after it has, a text that
    states the record's value, too, only says that again. What a text says to hold no more, or says of another thing
    that has a word in common with the key, it does not state.
    """
    current = [form for told, value in active for form in value_forms(told if value is None else value)]
    if any(
        value is not None and _says_any(text, value_forms(value)) and beside_in(told, retired, ()) is not None
        for told, value in active
    ):
        return False
    beside = beside_in(text, retired, current)
    key_words = key_names(key)
    active_words = frozenset(word for told, _ in active for word in text_words(told))
    if not names(beside, key_words, active_words):
        return False
    reading = text if isinstance(text, Reading) else Reading(text)
    if other_things.is_about_another(reading.base, key_words, active_words):
        return False
    subject = denial.Subject(frozenset(key_words), active_words | text_words(key), frozenset(current))
    return not denial.denies(reading, retired, subject)


def names(
    beside: Collection[Word] | None, key_words: Collection[Word], active_words: Collection[Word]
) -> bool:
    """Whether a text is about a key: by one word of the key, by two it shares with the key's text, or by all it has.

    `beside` is what `canon.words_beside` leaves of the text, and nothing is about a key where that is None. All
    three are plain words, or all three their keyed hashes: of a key without facts a ledger has no more.
    """
    if not beside:
        return False
    if any(word in key_words for word in beside):
        return True
    shared = sum(1 for word in beside if word in active_words)
    return shared >= 2 or shared == len(beside)


def _says_any(text: str | Reading, forms: Collection[Canonical]) -> bool:
    return any(words_beside(text, form) is not None for form in forms)
