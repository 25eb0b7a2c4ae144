"""The word index of a store, compared word by word with one made again from the contents.

The rules by which words come from a content are written here a second time, from docs/formats/store.md, so that
an index that says more, or less, than the contents is found.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import apsw

from auditor.findings import Finding, Note, Outcome
from tlog.errors import Error

_MASK: Final = (1 << 64) - 1
_MAX_EXAMINED: Final = 1000
_INDEX: Final = (
    "CREATE VIRTUAL TABLE search USING fts5 (key, value, body, content = '', detail = column, columnsize = 0, "
    "tokenize = \"porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'\")"
)
_COPIES: Final[Mapping[str, str]] = {
    "SELECT id, block FROM search_data": "INSERT INTO search_data (id, block) VALUES (?, ?)",
    "SELECT segid, term, pgno FROM search_idx": "INSERT INTO search_idx (segid, term, pgno) VALUES (?, ?, ?)",
    "SELECT k, v FROM search_config WHERE k = 'version'": "INSERT INTO search_config (k, v) VALUES (?, ?)",
}
_STRUCTURE_ROW: Final = 10
_SIZE: Final = "SELECT sum(length(block)) FROM search_data"
_TIMES: Final = 8
_SPARE_BYTES: Final = 1 << 20
_LAST_ROW: Final = (1 << 63) - 1
_WORD_BYTES: Final = 16
_PIECES: Final = f"SELECT block FROM search_data WHERE id > {_STRUCTURE_ROW} ORDER BY id"
_VOCABULARY: Final = (
    "CREATE VIRTUAL TABLE temp.words USING fts5vocab('main', 'search', 'instance')",
    "CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'search', 'row')",
)
_INSTANCES: Final = "SELECT doc, CAST(term AS BLOB), col FROM temp.words"
_BEGINNINGS: Final = "SELECT DISTINCT segid, CAST(term AS BLOB) FROM search_idx WHERE length(term) > 1"
_FOLLOWING: Final = "SELECT CAST(term AS BLOB) FROM temp.terms WHERE term >= CAST(? AS TEXT) LIMIT 1"
_ASCII_WORDS: Final = bytes(
    code if code == 45 or (code < 128 and chr(code).isalnum()) else 32 for code in range(256)
)
"""Letters, digits and the hyphen of ASCII as they are, everything else as a space."""
_HYPHENS: Final = "-\u2010\u2011"
_UNSEEN: Final = "\u00ad\u0640\u200c\u200d\u2060\ufeff"
_LONGEST: Final = 48
_LEFT_OUT: Final = (
    (0x300, 0x36F),
    (0x483, 0x487),
    (0x591, 0x5BD),
    (0x5BF, 0x5BF),
    (0x5C1, 0x5C2),
    (0x5C4, 0x5C5),
    (0x5C7, 0x5C7),
    (0x610, 0x61A),
    (0x64B, 0x65F),
    (0x670, 0x670),
    (0x6D6, 0x6DC),
    (0x6DF, 0x6E4),
    (0x6E7, 0x6E8),
    (0x6EA, 0x6ED),
)
"""Marks on Latin, Greek, Cyrillic, Hebrew and Arabic letters."""
_WITHOUT_MARKS: Final = ((0xC0, 0x24F), (0x370, 0x52F), (0x621, 0x6D3), (0x1E00, 0x1FFF))
_SPELLED: Final = dict(
    {"\u00df": "ss", "\u00fe": "th", "\u00de": "th", "\u0131": "i"},
    **dict.fromkeys("\u00e6\u00c6", "ae"),
    **dict.fromkeys("\u0153\u0152", "oe"),
    **dict.fromkeys("\u00f8\u00d8", "o"),
    **dict.fromkeys("\u0142\u0141", "l"),
    **dict.fromkeys("\u0111\u0110\u00f0\u00d0", "d"),
    **dict.fromkeys("\u0127\u0126", "h"),
)
"""Letters without marks to lose, as they are written else."""
# Scripts written without spaces between words, and Hangul: their characters are indexed in overlapping pairs.
_UNSPACED: Final = re.compile(
    "[\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3031-\u3035\u3041-\u309f"
    "\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class Indexed(NamedTuple):
    """A fact that the word index has the words of."""

    seq: int
    agent_tag: bytes
    content: Mapping[str, Any]


def check_words(connection: apsw.Connection, facts: Iterable[Indexed]) -> Outcome:
    """The word index holds the words of these facts and no others."""
    count = _Count()
    expected = _make_index(count.of(facts))
    try:
        for statement in _VOCABULARY:
            connection.execute(statement)
        return _compare(connection, expected, count.so_far)
    except (apsw.Error, Error, UnicodeDecodeError):
        return Outcome(
            (Finding("FACT_ALTERED", "store.db search", "The word index is damaged: it can't be read."),)
        )
    finally:
        expected.close()


class _Count:
    """Counts what passes by: facts are gone through once, and need not be in memory together."""

    def __init__(self) -> None:
        self.so_far = 0

    def of(self, facts: Iterable[Indexed]) -> Iterator[Indexed]:
        """The same facts."""
        for fact in facts:
            self.so_far += 1
            yield fact


def columns_of(fact: Indexed) -> tuple[str, ...]:
    """Key, value and body of a fact: words, each after the token of its scope."""
    get = fact.content.get
    key, subject = get("key"), get("subject")
    named = f"{key} {subject}" if key and subject else str(key or subject or "")
    scope = _scope(fact.agent_tag[:8])
    between = " " + scope
    columns = []
    for text in (named, str(get("value") or ""), str(get("text") or "")):
        words = words_of(text)
        columns.append(scope + between.join(words) if words else "")
    return tuple(columns)


@lru_cache(maxsize=4096)
def _scope(tag: bytes) -> str:
    return str(int.from_bytes(tag, "big")).rjust(20, "0")


def words_of(text: str) -> list[str]:
    """The words of a text, each run of words with hyphens between as one, and pairs where no spaces are written."""
    if text.isascii():
        told = text.encode().translate(_ASCII_WORDS).decode()
    else:
        # The tables of Unicode 3.2, which no release changes: what was indexed under one Python is so under another.
        told = "".join(map(_written, unicodedata.ucd_3_2_0.normalize("NFKC", text)))
    apart = told.replace("-", " ")
    pairs = [run[at : at + 2] for run in _UNSPACED.findall(apart) for at in range(len(run))]
    return [*(word for part in _UNSPACED.split(apart) for word in part.split()), *_joined(told), *pairs]


def _joined(told: str) -> Iterator[str]:
    """What single hyphens part, as one word each, if that is of at most 48 characters with spaces between words."""
    for word in told.split():
        for run in word.replace("--", " ").replace(" -", " ").split():
            parts = run.strip("-").split("-")
            whole = "".join(parts)
            if len(parts) > 1 and len(whole) <= _LONGEST and not _UNSPACED.search(whole):
                yield whole


@lru_cache(maxsize=4096)
def _written(character: str) -> str:
    """How the index writes a character: as it is, without its marks, as nothing, or as a word of its own."""
    code = ord(character)
    if character in _HYPHENS:
        return "-"
    if character in _UNSEEN or any(first <= code <= last for first, last in _LEFT_OUT):
        return ""
    category = unicodedata.ucd_3_2_0.category(character)
    if category == "Cn":
        return f" u{code:x} "
    if category == "Nd":
        return f"{unicodedata.ucd_3_2_0.digit(character)}"
    if category[0] not in ("L", "N") and category not in ("Co", "Mn", "Mc"):
        return " "
    if not any(first <= code <= last for first, last in _WITHOUT_MARKS):
        return character
    bare = ""
    for one in unicodedata.ucd_3_2_0.normalize("NFKD", character):
        if not any(first <= ord(one) <= last for first, last in _LEFT_OUT):
            bare += _SPELLED.get(one, one)
    return bare


def _compare(connection: apsw.Connection, expected: apsw.Connection, count: int) -> Outcome:
    findings: list[Finding] = []
    if not _are_alike(connection, expected):
        there, wanted = _digests(connection), _digests(expected)
        count = len(there)
        wrong = {seq for seq in there.keys() | wanted.keys() if there.get(seq) != wanted.get(seq)}
        findings += _explain(connection, expected, sorted(wrong)[:_MAX_EXAMINED])
    findings += _check_beginnings(connection)
    if dict(connection.execute("SELECT k, v FROM search_config")).get("secure-delete") != 1:
        what = "The word index is not set to remove words from its pages as they are deleted."
        findings.append(Finding("FACT_ALTERED", "store.db search_config", what))
    checked = Note("word index", "facts whose words in the index are those of their content", count)
    return Outcome(tuple(findings), (checked,), counts={"indexed": count})


def _are_alike(connection: apsw.Connection, expected: apsw.Connection) -> bool:
    """Whether both indexes come to the same bytes once each is merged into one piece.

    Then they hold the same words of the same rows. Where they do not, they may still: the words then have to tell.
    """
    # What is several times as long as it can be is not copied into memory.
    if _size(connection) > _TIMES * _size(expected) + _SPARE_BYTES:
        return False
    merged = apsw.Connection(":memory:")
    # One more row makes one more piece: an index that is a single one already would stay as it grew.
    row = (_LAST_ROW, os.urandom(_WORD_BYTES).hex())
    expected.execute("BEGIN")
    try:
        merged.execute(_INDEX)
        merged.execute("DELETE FROM search_data; DELETE FROM search_idx; DELETE FROM search_config")
        for rows, copy in _COPIES.items():
            merged.executemany(copy, connection.execute(rows))
        for index in (merged, expected):
            index.execute("INSERT INTO search (rowid, body) VALUES (?, ?)", row)
            index.execute("INSERT INTO search (search) VALUES ('optimize')")
        pieces = zip_longest(merged.execute(_PIECES), expected.execute(_PIECES))
        return all(one == other for one, other in pieces)
    except (apsw.Error, Error, UnicodeDecodeError):
        return False
    finally:
        expected.execute("ROLLBACK")
        merged.close()


def _size(connection: apsw.Connection) -> int:
    rows: list[Any] = connection.execute(_SIZE).fetchall()
    return rows[0][0] or 0


def _make_index(facts: Iterable[Indexed]) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    for statement in (_INDEX, *_VOCABULARY):
        connection.execute(statement)
    with connection:
        connection.executemany(
            "INSERT INTO search (rowid, key, value, body) VALUES (?, ?, ?, ?)",
            ((fact.seq, *columns_of(fact)) for fact in facts),
        )
    return connection


def _digests(connection: apsw.Connection) -> dict[int, int]:
    """For each row a number that its words, with their columns, add up to."""
    digests: dict[int, int] = {}
    for seq, word, column in connection.execute(_INSTANCES):
        # The hash of bytes is keyed anew in each process, so nobody can make two sets of words add up alike. That of a
        # tuple is not: made of those of its parts, it adds up alike where two words have changed columns.
        digests[seq] = digests.get(seq, 0) + hash(b"%b %b" % (column.encode(), word)) & _MASK
    return digests


def _check_beginnings(connection: apsw.Connection) -> Iterator[Finding]:
    """Each page of the index is noted under the beginning of a word that is there: it may be most of the word."""
    rows: list[Any] = connection.execute(_BEGINNINGS).fetchall()
    for segment, term in rows:
        beginning = term[1:]  # after the number of the index within the table
        following: list[Any] = connection.execute(_FOLLOWING, (beginning,)).fetchall()
        if not following or not following[0][0].startswith(beginning):
            what = "The word index has the beginning of a word that no fact has."
            yield Finding("RESIDUE_INDEX", f"store.db search_idx segment {segment}", what)


def _explain(there: apsw.Connection, expected: apsw.Connection, seqs: Collection[int]) -> list[Finding]:
    """For each row that differs, how many words it has too many and too few."""
    if not seqs:
        return []
    found, wanted = _words(there, seqs), _words(expected, seqs)
    findings = []
    for seq in seqs:
        extra, lacking = (
            found.get(seq, set()) - wanted.get(seq, set()),
            wanted.get(seq, set()) - found.get(seq, set()),
        )
        where = f"store.db search row {seq}"
        if extra:
            what = "The word index has words that the fact does not have, or whose fact is gone or held back."
            findings.append(Finding("RESIDUE_INDEX", where, what, {"words": len(extra)}))
        if lacking:
            what = "The word index lacks words of the fact: it is not found by them."
            findings.append(Finding("FACT_ALTERED", where, what, {"words": len(lacking)}))
    return findings


def _words(connection: apsw.Connection, seqs: Collection[int]) -> dict[int, set[tuple[Any, ...]]]:
    wanted = set(seqs)
    words: dict[int, set[tuple[Any, ...]]] = {}
    for seq, *word in connection.execute(_INSTANCES):
        if seq in wanted:
            words.setdefault(seq, set()).add(tuple(word))
    return words
