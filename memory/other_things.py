"""Whether a text that has a word of a key in it is about something else: another bearer of the name, a relative.

Certain are few cases: a name made of words joined together of which only some are the key's (billing-api beside
checkout-api), somebody who is told of through the key's bearer (Ann's brother), another surname, and another thing of
the same kind (the speed limit beside the order limit). Everything else that has a word of the key is about the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Final

from memory.canon import text_words

_RELATIVES: Final = """
brother sister mother father mum mom dad husband wife partner son daughter cousin uncle aunt nephew niece grandmother
grandfather grandma grandpa parents friend friends neighbour neighbours neighbor neighbors twin fiance fiancé fiancée
stepson stepdaughter stepfather stepmother godfather godmother roommate flatmate
"""
# With these a text may speak of the key's bearer, too.
_BOTH: Final = r"\b(?:she|he|her|him|them|they|both|together|too|also|as well|same|with us|like)\b"
# Words before a noun that make no other thing of it, and parts of a joined name that say what kind of thing it is.
_COMMON: Final = """
main whole entire public production prod live actual real primary existing standard usual normal default official
overall full same right correct true final regular ordinary good maximum minimum max min average typical given
respective current present original own single global total new old big small long short high low first last next
monthly weekly daily nightly hourly yearly annual morning evening today internal external central local remote
service server system app application job task host node cluster instance deployment deploy backend frontend module
component site platform project team prod staging test dev env environment v1 v2 v3 region area setting config
record entry value number data base note fact info memo update reminder fyi ps re
"""
_STAGES: Final = frozenset({"production", "prod", "live", "staging", "test", "dev"})
_JOINED: Final = r"[^\W_]+(?:[-_./][^\W_]+)+"
# What ends so may say how or when a thing is, and not which one: the agreed limit, the weekly job.
_PARTICIPLE: Final = re.compile(r"(?:(?<!spe)(?<!fe)(?<!se)(?<!we)(?<!bre)ed|ing|ly|est)$")
_DETERMINERS: Final = r"(?:the|an?|our|their|your|its|this|that|these|those|every|each|another|some|any|no)"


def is_about_another(base: str, key_words: Collection[str], active_words: Collection[str]) -> bool:
    """Whether every word that a text shares with a key is part of the name of something else.

    `base` is the text in one form, letter case as written; `key_words` are in the order of the key.
    """
    key = tuple(key_words)
    text = text_words(base)
    shared = text.intersection(key)
    if not shared:
        return False
    rest = base
    for pattern, is_other in (
        (_joined_pattern(), _is_another_name),
        (_relative_pattern(), _is_relative),
        (_surname_pattern(), _is_another_surname),
        (_kind_pattern(), _is_another_kind),
    ):
        rest = _without(rest, pattern, partial(is_other, key=key, active=active_words, base=base))
    return rest != base and text_words(rest).isdisjoint(key)


def _without(text: str, pattern: re.Pattern[str], is_other: Callable[[re.Match[str]], bool]) -> str:
    return pattern.sub(lambda match: " " if is_other(match) else match[0], text)


def _is_another_name(match: re.Match[str], key: Sequence[str], active: Collection[str], base: str) -> bool:
    """billing-api, where the key has checkout and api."""
    words = text_words(match[0])
    # Where the key says which stage it is about, another stage is another thing.
    common = _common() - _STAGES if _STAGES.intersection(key) else _common()
    others = words.difference(key, active, common)
    return bool(others) and not words.issuperset(key) and len(key) > 1


def _is_relative(match: re.Match[str], key: Sequence[str], active: Collection[str], base: str) -> bool:
    """Ann Duarte's brother; not where the text goes on to speak of her."""
    if re.search(_BOTH, base.lower()) is not None:
        return False
    names = text_words(match["owner"] or match["of"])
    return bool(names) and names.issubset(key)


def _is_another_surname(match: re.Match[str], key: Sequence[str], active: Collection[str], base: str) -> bool:
    """Ann Kowalski, where the key has ann and duarte."""
    first, second = text_words(match["first"]), text_words(match["second"])
    if len(key) < 2 or not first or not second or not first <= {key[0]}:
        return False
    others = second.difference(active, _common())
    return bool(others) and others.isdisjoint(key) and text_words(base).isdisjoint(key[1:])


def _is_another_kind(match: re.Match[str], key: Sequence[str], active: Collection[str], base: str) -> bool:
    """The speed limit, her new job: the last word of a key of several, where its first is nowhere in the text."""
    head = text_words(match["head"])
    if len(key) < 2 or not head or not head <= {key[-1]} or key[0] in text_words(base):
        return False
    if match["head"][0].isupper():
        return False
    if match["whose"] is not None:
        return True
    kind = match["kind"].lower()
    words = text_words(kind)
    return bool(words) and words.isdisjoint({*key, *active, *_common()}) and _PARTICIPLE.search(kind) is None


@cache
def _common() -> frozenset[str]:
    return frozenset(_COMMON.split())


@cache
def _joined_pattern() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){_JOINED}(?![\w-])")


@cache
def _relative_pattern() -> re.Pattern[str]:
    names = "|".join(_RELATIVES.split())
    word = r"[^\W_][\w-]*"
    which = "(?:(?:older|younger|elder|late|little|big|twin|best|old|good) )?"
    return re.compile(
        rf"(?P<owner>{word}(?: {word})?)'s {which}(?:{names})\b"
        rf"|\b(?:{names}) of (?:(?:the|our|my) )?(?P<of>{word}(?: {word})?)"
    )


@cache
def _surname_pattern() -> re.Pattern[str]:
    return re.compile(r"(?P<first>\b[A-Z]\w+) (?P<second>[A-Z][a-z]\w+)(?=.*\b[a-z]{3,}\b)")


@cache
def _kind_pattern() -> re.Pattern[str]:
    word = r"[^\W_]\w*"
    return re.compile(
        rf"\b(?:(?P<whose>[Hh]er|[Hh]is) (?:{word} )?"
        rf"|(?i:{_DETERMINERS}) (?:(?:new|old|big|small|current|only) )?(?P<kind>{word}) )"
        rf"(?P<head>{word})\b"
    )
