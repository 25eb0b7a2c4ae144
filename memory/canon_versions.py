"""The rules by which values are compared, one set a version: rows of a ledger stay under those they were made by.

A new version is a new set here, and CURRENT. The old set stays as long as ledgers have rows of it: what is erased
can't be hashed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from memory import canon
from tlog.errors import UnavailableError

_WordsBeside = Callable[
    [str | canon.Reading, canon.Canonical, Collection[canon.Canonical]], frozenset[str] | None
]


@dataclass(frozen=True)
class Rules:
    """One version: the forms of a value, the words that one has, and how a text states one."""

    version: int
    value_forms: Callable[[str], tuple[canon.Canonical, ...]]
    word_count: Callable[[canon.Canonical], int]
    spans: Callable[[canon.Reading, Collection[int]], Iterator[canon.Canonical]]
    words_beside: _WordsBeside


_FIRST: Final = Rules(canon.VERSION, canon.value_forms, canon.word_count, canon.spans, canon.words_beside)
KNOWN: Final[dict[int, Rules]] = {_FIRST.version: _FIRST}


def current() -> Rules:
    """The rules under which new rows are made."""
    return KNOWN[max(KNOWN)]


def rules_of(version: int) -> Rules:
    """The rules of a version; UnavailableError for one that this program does not know."""
    rules = KNOWN.get(version)
    if rules is None:
        # Passed over, its rows would let every value of them back in.
        raise UnavailableError(
            "the value ledger has rows of a version of the canonical forms that is not known here: use the program "
            "that wrote it, or a newer one",
            code="newer_store",
        )
    return rules
