"""The word index is compared as merged pages where it can be, and word by word where those differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import pytest

from auditor import words
from auditor.words import Indexed, check_words

INDEX = words._INDEX.replace("CREATE VIRTUAL TABLE", "CREATE VIRTUAL TABLE IF NOT EXISTS")
AGENT = b"a" * 32


def facts(count: int) -> list[Indexed]:
    return [
        Indexed(
            seq, AGENT, {"key": f"lamp/{seq}", "value": str(seq % 7), "text": f"the lamp {seq} is 庭の話 lit"}
        )
        for seq in range(1, count + 1)
    ]


def index_of(known: Sequence[Indexed], at_once: int) -> apsw.Connection:
    """An index that grew in pieces of its own."""
    connection = apsw.Connection(":memory:")
    connection.execute(INDEX)
    connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 1)")
    for start in range(0, len(known), at_once):
        with connection:
            for fact in known[start : start + at_once]:
                add(connection, fact)
    return connection


def add(connection: apsw.Connection, fact: Indexed) -> None:
    row = (fact.seq, *words.columns_of(fact))
    connection.execute("INSERT INTO search (rowid, key, value, body) VALUES (?, ?, ?, ?)", row)


def remove(connection: apsw.Connection, fact: Indexed) -> None:
    row = (fact.seq, *words.columns_of(fact))
    connection.execute(
        "INSERT INTO search (search, rowid, key, value, body) VALUES ('delete', ?, ?, ?, ?)", row
    )


def codes(connection: apsw.Connection, known: Sequence[Indexed]) -> list[str]:
    return [finding.code for finding in check_words(connection, known).findings]


@pytest.mark.parametrize("at_once", [1, 7, 400])
def test_however_it_grew_an_index_is_compared_as_pages(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    known = facts(400)
    connection = index_of(known, at_once)
    for fact in known[::3]:
        remove(connection, fact)
    left = [fact for fact in known if fact not in known[::3]]
    monkeypatch.setattr(words, "_digests", None)
    outcome = check_words(connection, left)
    assert outcome.findings == () and outcome.counts == {"indexed": len(left)}


@pytest.mark.parametrize("count", [1, 60])
def test_each_word_too_many_or_too_few_is_found(count: int) -> None:
    known = facts(count)
    for spoil, code in ((add, "RESIDUE_INDEX"), (remove, "FACT_ALTERED")):
        connection = index_of(known, 9)
        fact = Indexed(count, AGENT, {"text": "lime"} if spoil is add else known[-1].content)
        spoil(connection, fact)
        assert codes(connection, known) == [code]


def test_a_word_under_another_row_or_column_is_found() -> None:
    known = facts(20)
    other = Indexed(20, AGENT, {**known[19].content, "value": "is", "text": "the lamp 20 6 庭の話 lit"})
    assert codes(index_of([*known[:19], other], 9), known) == ["RESIDUE_INDEX", "FACT_ALTERED"]
    moved = Indexed(21, AGENT, known[19].content)
    assert codes(index_of([*known[:19], moved], 9), known) == ["FACT_ALTERED", "RESIDUE_INDEX"]


def test_words_that_changed_columns_never_add_up_alike() -> None:
    known = [Indexed(seq, AGENT, {"value": f"v{seq}", "text": f"t{seq}"}) for seq in range(1, 41)]
    swapped = [
        Indexed(fact.seq, AGENT, {"value": fact.content["text"], "text": fact.content["value"]})
        for fact in known
    ]
    assert codes(index_of(swapped, 9), known) == ["RESIDUE_INDEX", "FACT_ALTERED"] * 40


def test_an_index_that_is_far_too_long_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    known = facts(3)
    connection = index_of(known, 9)
    monkeypatch.setattr(words, "_SPARE_BYTES", 0)
    connection.execute("INSERT INTO search_data VALUES ((99 << 37) + 1, zeroblob(50000))")
    made: list[Any] = []
    opened = apsw.Connection
    monkeypatch.setattr(apsw, "Connection", lambda *where: made.append(where) or opened(*where))
    check_words(connection, known)
    assert len(made) == 1


def test_a_damaged_page_is_judged_whatever_it_says() -> None:
    """One that names columns which the table has not, among others."""
    known = facts(1)
    connection = index_of(known, 1)
    ((page, data),) = connection.execute("SELECT id, block FROM search_data ORDER BY id DESC LIMIT 1")
    found = 0
    for at in range(4, len(data)):
        spoiled = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        connection.execute("UPDATE search_data SET block = ? WHERE id = ?", (spoiled, page))
        found += codes(connection, known) != []
        connection.execute("DROP TABLE IF EXISTS temp.words")
        connection.execute("DROP TABLE IF EXISTS temp.terms")
    assert found > len(data) // 2
