"""The SQL of the word index when words leave it: nothing of them stays, not even where one page ends.

FTS5 notes for each page of its index a beginning of the page's first word, long enough to tell it from the word
before. Its secure-delete takes words out of the pages and leaves that note, which may be most of a name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import apsw

if TYPE_CHECKING:
    from memory.search import Document
    from memory.store_write import Txn

_TOKENIZER: Final = "porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc"]
# Two pages are merged into one only if there are two: this one has a word of no scope, for as long as that takes.
_FILLER: Final = (0, "0", "", "")
_MAIN_INDEX: Final = b"0"


def split_words(connection: Any) -> Callable[[str], list[str]]:
    """What makes of a text the words that the index has of it."""
    tokenizer = connection.fts5_tokenizer(*_TOKENIZER)

    def split(text: str) -> list[str]:
        words: Any = tokenizer(
            text.encode(),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        told: list[str] = words
        return told

    return split


def remove_words(txn: Txn, documents: Iterable[tuple[int, Document]]) -> None:
    """Takes the words of facts out of the index, each by the very columns it was made of."""
    split = split_words(txn.connection)
    gone: set[bytes] = set()
    for seq, document in documents:
        txn.connection.execute(
            "INSERT INTO search (search, rowid, key, value, body) VALUES ('delete', ?, ?, ?, ?)",
            (seq, *document.columns),
        )
        for column in document.columns:
            gone.update(word.encode() for word in split(column))
    if gone and _has_stale_beginning(txn, sorted(gone)):
        _rewrite(txn)


def _has_stale_beginning(txn: Txn, gone: Sequence[bytes]) -> bool:
    """Whether a page is noted under the beginning of a word that is gone, and no word that is there begins so.

    `gone` is sorted.
    """
    # A row for each place of a word, of which the first is enough: to count them takes as long as they are many.
    txn.connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab('main', 'search', 'instance')"
    )
    for (term,) in txn.view.rows("SELECT DISTINCT CAST(term AS BLOB) FROM search_idx"):
        noted = term.removeprefix(_MAIN_INDEX)
        if noted and _begins(gone, noted):
            there = txn.view.one(
                "SELECT CAST(term AS BLOB) FROM temp.words WHERE term >= CAST(? AS TEXT) LIMIT 1", noted
            )
            if there is None or not there[0].startswith(noted):
                return True
    return False


def _begins(words: Sequence[bytes], noted: bytes) -> bool:
    place = bisect_left(words, noted)
    return place < len(words) and words[place].startswith(noted)


def _rewrite(txn: Txn) -> None:
    """Makes every page of the index anew, from the words that are there."""
    txn.connection.execute("INSERT INTO search (rowid, key, value, body) VALUES (?, ?, ?, ?)", _FILLER)
    txn.connection.execute("INSERT INTO search (search) VALUES ('optimize')")
    txn.connection.execute(
        "INSERT INTO search (search, rowid, key, value, body) VALUES ('delete', ?, ?, ?, ?)", _FILLER
    )
