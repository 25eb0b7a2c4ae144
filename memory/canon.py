"""When two values, or two keys, are the same.

Conservative on purpose: two things of one type written in two ways are one value, and whatever is not surely
that is two. A wrong 'same' refuses a true statement, a wrong 'different' lets one stale copy through.
docs/formats/canon.md lists the types. VERSION is stored with each form, so that a better one can come later.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from memory.canon_names import identifying_words, inner_words, naming_words
from memory.canon_spans import Reading, places_of, spans, value_word_count, word_count, words_beside
from memory.canon_text import fold_case, folded, normal
from memory.canon_types import Canonical, canonical, forms

__all__ = [
    "VERSION",
    "Canonical",
    "canonical_value",
    "value_forms",
    "same_value",
    "canonical_text",
    "canonical_key",
    "key_words",
    "key_names",
    "text_words",
    "Reading",
    "places_of",
    "spans",
    "words_beside",
    "value_word_count",
    "word_count",
]

VERSION: Final = 1
# Names with a capital inside that are one word wherever they stand.
_ONE_NAMES: Final = """
github gitlab youtube linkedin javascript typescript paypal whatsapp wordpress dropbox facebook instagram tiktok
postgresql mongodb graphql sharepoint onedrive powershell airtable bitbucket circleci clickhouse cloudflare
datadog devops docusign elasticsearch fastapi firefox hubspot influxdb jetbrains mariadb microsoft onenote
opensearch powerpoint pytorch rabbitmq salesforce servicenow snowflake soundcloud sqlite tensorflow webpack
zendesk macbook ipad iphone airpods imac
"""


def canonical_value(value: str) -> Canonical:
    """The type a value is written as, and its one form of that type."""
    return canonical(normal(value))


def value_forms(value: str) -> tuple[Canonical, ...]:
    """Every form of a value, `canonical_value` first: mostly that alone, more where it is written ambiguously.

    A ledger keeps each, and finds a value by any.
    """
    return forms(normal(value))


def same_value(left: str, right: str) -> bool:
    """Whether two values are one, however they are spelled: they have a form in common."""
    return left == right or not set(value_forms(left)).isdisjoint(value_forms(right))


def canonical_text(text: str) -> str:
    """A sentence without letter case and white space: what a verbatim repeat has in common with it."""
    return folded(text)


def canonical_key(key: str) -> str:
    """The words of a key, lower case, joined by slashes: case and the kind of separator make no other key."""
    # One word without a capital inside has no parts, nor do those of a key without capitals.
    if key.isascii() and key.isalpha() and key[1:].islower():
        return key.lower()
    return "/".join(_words_of_key(key)) or folded(key)


def key_words(key: str) -> frozenset[str]:
    """The words by which a text names a key; a ledger row keeps their hashes, to know them without the key."""
    return frozenset(key_names(key))


def key_names(key: str) -> tuple[str, ...]:
    """The same, in the order that they have in the key."""
    return identifying_words(_words_of_key(key))


def text_words(text: str) -> frozenset[str]:
    """The words of a text that may name something, comparable with `key_words`."""
    return frozenset(naming_words(text))


def _words_of_key(key: str) -> list[str]:
    text = normal(key)
    if "-" in text:
        text = _minus_pattern().sub(r"\1−", text)
    words = [word for word in _separator_pattern().split(text) if word]
    if text.isascii() and text.islower():
        return words
    # Where every part begins with a capital, as in CheckoutApi/Region, capitals are how this writer joins words.
    style = len(words) > 1 and all(word[0].isupper() for word in words)
    return [fold_case(part) for word in words for part in (_capital_parts(word) if style else _parts(word))]


def _capital_parts(word: str) -> list[str]:
    if fold_case(word) not in _one_names() and _pascal_pattern().fullmatch(word):
        return inner_words(word)
    return _parts(word)


def _parts(word: str) -> list[str]:
    """The words of darkMode, svc17Region, baseURL; iPhone, macOS and GitHub are one, as they are in lower case."""
    if word.islower() or not _joined_pattern().fullmatch(word):
        return [word]
    return inner_words(word)


@cache
def _joined_pattern() -> re.Pattern[str]:
    # Two words with capitals, as in CheckoutApi, are as often the name of one thing: GitHub.
    return re.compile(
        r"(?!.*[a-z]OS$)(?:[a-z]{2,}\d*|[a-z]\d+)(?:[A-Z]+[a-z]*\d*)+|[A-Z][a-z]+\d*(?:[A-Z][a-z]+\d*){2,}"
    )


@cache
def _one_names() -> frozenset[str]:
    return frozenset(_ONE_NAMES.split())


@cache
def _pascal_pattern() -> re.Pattern[str]:
    return re.compile(r"(?!.*[a-z]OS$)[A-Z][a-z]+\d*(?:[A-Z][a-z]+\d*)+")


@cache
def _minus_pattern() -> re.Pattern[str]:
    # The sign of a number that is a whole part or word of a key; between letters a hyphen is a separator.
    return re.compile(r"(^|[\s/\\_:|>,;=·・(])-(?=\.?\d[\d.,]*(?:$|[\s/\\_:|>,;=·・)]))")


@cache
def _separator_pattern() -> re.Pattern[str]:
    # A dot between digits stays: python/3.10 is not python/3/10.
    return re.compile(r"[\s/\\_:|>,;=·・—–-]+|(?<!\d)\.|\.(?!\d)")
