"""What a text is about: the words of it, and of a key, that name a thing rather than join a sentence.

Naming is looser than equality: accents and a plural s are dropped, since all that hangs on it is whether a
person has a look.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Final

from memory.canon_text import SCRIPT_CHANGE, fold_case, normal, unspaced

# Words that say nothing about what a sentence is about, and words for the act of telling it.
_JOINING_WORDS: Final = """
a about above actually after again all already also always am an and any are as at back be because been before
being below between both but by can confirm confirmed confirming correct corrected correction could currently did
discussed do does done down during each earlier either else ever every few for from fyi get gets got had has have
having he her here hers him his how i if in into is it its just keep know last later let like make may me mentioned
might more most much must my need needs never new no noted noting nor not note now of off on once one only or other
our out over own per please previously quite rather recall remember reminder said same say says see set shall she
should since so some still such than that the their them then there these they this those through to too under until
up update updated upon us use used uses using very via was we were what when where which while who whom whose why
will with within without would yes yet you your s t re ve ll
が は を に の と で も へ や か な です ます した する して から まで など より 的 了 在 是 和 与 也 都
der die das ein eine ist im und le la les un une est et el los las es y de du des en dans con para por o os um uma e
na em
"""
# Heads of keys that many keys share: user/city is about the city.
_SHARED_HEAD_WORDS: Final = """
user me my self person people profile preference pref setting config configuration option fact memory note info
general default global current app agent client customer account project team company org organization organisation
system service
"""


def naming_words(text: str) -> Iterator[str]:
    """The words of any text that may name a thing, in order and with repetitions."""
    base = normal(text)
    if _inner_capital_pattern().search(base) is not None:
        base = f"{base} {' '.join(_inner_words_of(base))}"
    plain = _without_marks(fold_case(base))
    pattern = _ascii_name_pattern() if plain.isascii() else _name_pattern()
    for match in pattern.finditer(plain):
        word = match[0]
        if not word.isascii() and unspaced(word):
            yield from _pairs(word)
        elif not word.isdigit():
            word = _singular(word)
            if word not in _joining():
                yield word


def identifying_words(key_words: list[str]) -> tuple[str, ...]:
    """Of a key's words, in order, those that name what it is about: not its attribute, where something is left.

    checkout-api/region: checkout, api. user/city: city.
    """
    listed = [list(naming_words(word)) for word in key_words]
    listed = [words for words in listed if words]
    if len(listed) > 1:
        shared = all(word in _shared_heads() for word in listed[0])
        listed = listed[1:] if shared else listed[:-1]
    return tuple(dict.fromkeys(word for words in listed for word in words))


def inner_words(word: str) -> list[str]:
    """The words of one that is written with capitals inside: base and URL of baseURL."""
    return _inner_capital_pattern().split(word)


def _inner_words_of(base: str) -> Iterator[str]:
    """The words inside the words of a text; the whole ones name things, too, as GitHub does."""
    for match in _word_with_capitals_pattern().finditer(base):
        yield from inner_words(match[0])


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _pairs(run: str) -> Iterator[str]:
    """Neighbouring characters of a run without spaces: the shortest pieces that name anything there."""
    if len(run) == 1:
        if run not in _joining():
            yield run
    elif not (len(run) <= 3 and run in _joining()):
        yield from (run[place : place + 2] for place in range(len(run) - 1))


def _without_marks(text: str) -> str:
    if text.isascii():
        return text
    plain = "".join(
        c
        for c in unicodedata.normalize("NFD", text)
        if unicodedata.category(c) != "Mn" or c in "\u3099\u309a"
    )
    return unicodedata.normalize("NFC", plain)


@cache
def _joining() -> frozenset[str]:
    return frozenset(_singular(word) for word in _JOINING_WORDS.split())


@cache
def _shared_heads() -> frozenset[str]:
    return frozenset(_SHARED_HEAD_WORDS.split())


_LETTERS: Final = (
    "^\\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003134f"
)


@cache
def _inner_capital_pattern() -> re.Pattern[str]:
    return re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@cache
def _word_with_capitals_pattern() -> re.Pattern[str]:
    return re.compile(r"[A-Za-z]*[a-z\d][A-Z][A-Za-z\d]*|[A-Z]+[A-Z][a-z][A-Za-z\d]*")


@cache
def _ascii_name_pattern() -> re.Pattern[str]:
    return re.compile("[a-z0-9]+[+#]*")


@cache
def _name_pattern() -> re.Pattern[str]:
    return re.compile(
        "[\u30a1-\u30fa\u30fc-\u30ff]+|[\u3041-\u309f]+|[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f]+"
        "|[\uac00-\ud7a3]+|[\u0e00-\u0eff]+|[\u1000-\u109f]+|[\u1780-\u17ff]+"
        f"|[{_LETTERS}](?:(?!{SCRIPT_CHANGE})[{_LETTERS}])*[+#]*"
    )
