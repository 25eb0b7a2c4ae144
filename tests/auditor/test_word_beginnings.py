"""What the pages of the word index are noted under leads to every word, or is found."""

from __future__ import annotations

import random
from collections.abc import Iterator

import apsw
import pytest
from copies import Copy

from auditor import words
from auditor.word_beginnings import _number, check_beginnings, first_and_last
from memory.model import SCOPES, Principal
from memory.wiring import open_home

LETTERS = "abcdeäß話"


def spelled(choose: random.Random) -> str:
    if choose.random() < 0.02:
        return choose.choice(LETTERS) * choose.randrange(100, 3000)
    return "".join(choose.choices(LETTERS, k=choose.randrange(1, 7)))


@pytest.fixture(scope="module")
def index() -> apsw.Connection:
    """An index in many pieces, of whose words many were taken out again."""
    connection, choose = apsw.Connection(":memory:"), random.Random(7)
    connection.execute(words._INDEX)
    connection.execute("INSERT INTO search (search, rank) VALUES ('secure-delete', 1)")
    known = [" ".join(spelled(choose) for _ in range(40)) for _ in range(300)]
    for row, text in enumerate(known):
        connection.execute("INSERT INTO search (rowid, body) VALUES (?, ?)", (row, text))
    with connection:
        for row in range(0, 300, 3):
            sql = "INSERT INTO search (search, rowid, body) VALUES ('delete', ?, ?)"
            connection.execute(sql, (row, known[row]))
    return connection


def all_of(page: bytes) -> Iterator[bytes]:
    """Every word of a page, one after the other."""
    marks, at, word = page[int.from_bytes(page[2:4], "big") :], 0, b""
    place = 0
    while at < len(marks):
        step, at = _number(marks, at)
        place += step
        common, after = (0, place) if place == step else _number(page, place)
        size, after = _number(page, after)
        word = word[:common] + page[after : after + size]
        yield word


def test_the_ends_of_a_page_are_those_of_its_words(index: apsw.Connection) -> None:
    pages = [page for (page,) in index.execute("SELECT block FROM search_data WHERE id > 10")]
    assert len(pages) > 30
    for page in pages:
        told = list(all_of(page))
        assert told == sorted(told)
        assert first_and_last(page) == ((told[0], told[-1]) if told else None)


def test_an_index_as_it_grew_leads_to_its_words(index: apsw.Connection) -> None:
    assert list(check_beginnings(index)) == []


def test_a_page_noted_too_early_is_found(index: apsw.Connection) -> None:
    """Each is noted under the first letter of a word on the page before it, which SQLite's own check mostly lets be."""
    sql = "SELECT i.segid, i.term, i.pgno FROM search_idx i JOIN search_data d ON d.id = (segid << 37) + (pgno >> 1)"
    noted = [one for one in index.execute(sql) if one[1]]
    unnoticed = 0
    for segment, term, place in noted:
        sql = "UPDATE search_idx SET term = ? WHERE segid = ? AND pgno = ?"
        index.execute(sql, (b"0", segment, place))
        found = list(check_beginnings(index))
        unnoticed += index.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        index.execute(sql, (term, segment, place))
        assert [one.where for one in found] == [f"store.db search_idx segment {segment}"]
    assert unnoticed > 5


@pytest.mark.parametrize("block", [7, b"\0\0\0\4\x90", b"\0\0\0\5\0\x7f", b"\0\0\0\4\x81\x80\x80\x80\0"])
def test_a_page_that_is_none_is_found(index: apsw.Connection, block: object) -> None:
    sql = "SELECT d.id, d.block FROM search_idx JOIN search_data d ON d.id = (segid << 37) + (pgno >> 1) LIMIT 1"
    ((page, data),) = index.execute(sql)
    index.execute("UPDATE search_data SET block = ? WHERE id = ?", (block, page))
    found = list(check_beginnings(index))
    index.execute("UPDATE search_data SET block = ? WHERE id = ?", (data, page))
    assert [one.code for one in found] == ["FACT_ALTERED"]


def test_words_that_nobody_is_led_to_are_found_by_an_audit(copy: Copy) -> None:
    choose = random.Random(3)
    with open_home(copy.home) as home:
        memory = home.memory(Principal("acme", "bot", "one", SCOPES))
        memory.remember(" ".join("".join(choose.choices("abcdefghij", k=6)) for _ in range(900)))
        home.publish()
    assert copy.codes() == set()
    (place,) = copy.ask("SELECT segid, pgno FROM search_idx WHERE length(term) > 2 LIMIT 1")
    copy.sql_unchecked(f"UPDATE search_idx SET term = x'30' WHERE segid = {place[0]} AND pgno = {place[1]}")
    assert copy.codes() == {"FACT_ALTERED"}


def test_an_index_that_does_not_say_what_it_is_made_of_is_found(copy: Copy) -> None:
    copy.sql_unchecked("DELETE FROM search_data WHERE id = 10")
    assert "FACT_ALTERED" in copy.codes()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE search_data SET block = CAST('likes green tea' AS BLOB) WHERE id = 1",
        "UPDATE search_data SET block = block || CAST('likes green tea' AS BLOB) WHERE id = 1",
        "UPDATE search_data SET block = 'tea' WHERE id = 1",
        "UPDATE search_idx SET pgno = '2 likes green tea' WHERE term = x''",
    ],
)
def test_no_content_stands_beside_the_words(copy: Copy, sql: str) -> None:
    copy.sql_unchecked(sql)
    assert "RESIDUE_INDEX" in copy.codes()
