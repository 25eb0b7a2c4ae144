"""The word index of a store, compared word by word with one made again from the contents.

The rules by which words come from a content are written here a second time, from docs/formats/store.md, so that
an index that says more, or less, than the contents is found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import apsw

from auditor.findings import Finding, Note, Outcome
from tlog.errors import Error

_MASK: Final = (1 << 64) - 1
_MAX_EXAMINED: Final = 1000
_INDEX: Final = (
    "CREATE VIRTUAL TABLE search USING fts5 (scope, key, value, body, grams, content = '', "
    "tokenize = \"porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'\")"
)
_VOCABULARY: Final = "CREATE VIRTUAL TABLE temp.words USING fts5vocab('main', 'search', 'instance')"
_INSTANCES: Final = "SELECT doc, CAST(term AS BLOB), col, offset FROM temp.words"
# Scripts written without spaces between words, and Hangul: their characters are indexed in overlapping pairs.
_UNSPACED: Final = re.compile(
    "[\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3031-\u3035\u3041-\u309f"
    "\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


@dataclass(frozen=True, slots=True)
class Indexed:
    """A fact that the word index has the words of."""

    seq: int
    agent_tag: bytes
    content: Mapping[str, Any]


def check_words(connection: apsw.Connection, facts: Iterable[Indexed]) -> Outcome:
    """The word index holds the words of these facts and no others."""
    expected = _make_index(facts)
    try:
        connection.execute(_VOCABULARY)
        return _compare(connection, expected)
    except (apsw.Error, Error, UnicodeDecodeError):
        return Outcome(
            (Finding("FACT_ALTERED", "store.db search", "The word index is damaged: it can't be read."),)
        )
    finally:
        expected.close()


def columns_of(fact: Indexed) -> tuple[str, str, str, str, str]:
    """Scope, key, value, body and grams of a fact."""
    content = fact.content
    named = " ".join(str(content[name]) for name in ("key", "subject") if content.get(name))
    texts = [
        _normal(text) for text in (named, str(content.get("value") or ""), str(content.get("text") or ""))
    ]
    grams = " ".join(gram for text in texts for run in _UNSPACED.findall(text) for gram in _pairs(run))
    scope = str(int.from_bytes(fact.agent_tag[:16], "big"))
    key, value, body = (_UNSPACED.sub(" ", text) for text in texts)
    return scope, key, value, body, grams


def _compare(connection: apsw.Connection, expected: apsw.Connection) -> Outcome:
    there, wanted = _digests(connection), _digests(expected)
    wrong = {seq for seq in there.keys() | wanted.keys() if there.get(seq) != wanted.get(seq)}
    findings = _explain(connection, expected, sorted(wrong)[:_MAX_EXAMINED])
    sizes = set(_sizes(connection)) ^ set(_sizes(expected))
    findings += [
        Finding(
            "FACT_ALTERED", f"store.db search_docsize row {seq}", "The word index has a wrong count of words."
        )
        for seq in sorted({seq for seq, _ in sizes} - wrong)
    ]
    if dict(connection.execute("SELECT k, v FROM search_config")).get("secure-delete") != 1:
        what = "The word index is not set to remove words from its pages as they are deleted."
        findings.append(Finding("FACT_ALTERED", "store.db search_config", what))
    checked = Note("word index", "facts whose words in the index are those of their content", len(there))
    return Outcome(tuple(findings), (checked,), counts={"indexed": len(there)})


def _make_index(facts: Iterable[Indexed]) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(_INDEX)
    connection.execute(_VOCABULARY)
    with connection:
        connection.executemany(
            "INSERT INTO search (rowid, scope, key, value, body, grams) VALUES (?, ?, ?, ?, ?, ?)",
            ((fact.seq, *columns_of(fact)) for fact in facts),
        )
    return connection


def _digests(connection: apsw.Connection) -> dict[int, int]:
    """For each row a number that its words, with their columns and places, add up to."""
    digests: dict[int, int] = {}
    for seq, *word in connection.execute(_INSTANCES):
        # The hash of a text is keyed anew in each process, so nobody can make two sets of words add up alike.
        digests[seq] = digests.get(seq, 0) + hash(tuple(word)) & _MASK
    return digests


def _sizes(connection: apsw.Connection) -> Iterator[tuple[int, bytes]]:
    """How many words the index says that each row has, by column: what ranks what is found."""
    yield from connection.execute("SELECT id, sz FROM search_docsize")


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


def _normal(text: str) -> str:
    # The tables of Unicode 3.2, which no release changes: what was indexed under one Python is so under another.
    return unicodedata.ucd_3_2_0.normalize("NFKC", text)


def _pairs(run: str) -> Iterator[str]:
    """Each character with the one after it, the last one alone."""
    return (run[at : at + 2] for at in range(len(run)))
