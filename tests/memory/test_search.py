"""What is found, and in which order: by words of the own scope, whatever else the index holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.words import words_of
from memory import search, wiring
from memory.model import SCOPES, Principal
from memory.service import Memory
from memory.wiring import Home

ME = Principal("acme", "ops", "desk", SCOPES)
SAME_TENANT = Principal("acme", "sales", "desk", SCOPES)
OTHER = Principal("umbrella", "ops", "desk", SCOPES)

FACTS = (
    ("the quarterly report names the harbour", None, None),
    ("the harbour closes early", None, None),
    ("the harbour opens late", None, None),
    ("a lantern hangs at the gate", None, None),
    ("the gate is painted green", "gate/colour", "green"),
    ("green lanterns are for sale, as the report says", None, None),
    ("a report about reports", None, None),
)
QUERIES = ("harbour lantern", "report gate green", "the", "lantern report harbour gate", "green sale closing")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


def fill(memory: Memory) -> None:
    for text, key, value in FACTS:
        memory.remember(text, key=key, value=value)


def ranks(memory: Memory) -> list[list[tuple[str, float]]]:
    """For each query what is found, with its score."""
    return [[(fact["text"], fact["score"]) for fact in memory.recall(query)["facts"]] for query in QUERIES]


# Scopes


@pytest.mark.parametrize("principal", [SAME_TENANT, OTHER])
def test_what_others_write_moves_no_rank(home: Home, principal: Principal) -> None:
    me, other = home.memory(ME), home.memory(principal)
    fill(me)
    alone = ranks(me)
    for number in range(60):
        other.remember(f"lantern lantern {number}")
        other.remember(f"harbour, report number {number} of many a word and more than that to say about it")
        other.remember("green", key=f"gate{number}", value="green")
    fill(other)
    assert ranks(me) == alone


def test_what_others_wrote_before_moves_no_rank_either(tmp_path: Path, home: Home) -> None:
    me, other = home.memory(ME), home.memory(OTHER)
    for number in range(60):
        other.remember(f"lantern lantern {number}, a report")
    fill(me)
    with wiring.open_home(tmp_path / "alone") as alone:
        fill(alone.memory(ME))
        assert ranks(me) == ranks(alone.memory(ME))


def test_what_others_erase_moves_no_rank(home: Home) -> None:
    me, other = home.memory(ME), home.memory(OTHER)
    fill(me)
    alone = ranks(me)
    fill(other)
    other.forget(all=True, confirm=other.forget_preview(all=True)["confirm"])
    assert ranks(me) == alone


def test_a_word_of_one_scope_is_no_word_of_another() -> None:
    """Not even where a text spells the other's out: a scope's words all begin with as many digits."""
    mine, theirs = search.scope_token(bytes(32)), search.scope_token(b"\x00" * 7 + b"\x01" * 25)
    assert len(mine) == len(theirs) == 20 and mine != theirs and mine.isdigit() and theirs.isdigit()
    words = {*" ".join(search.make_document(mine, {"text": f"{theirs}secret {theirs}"}).columns).split()}
    assert all(word.startswith(mine) for word in words)
    assert not words & {*search.make_document(theirs, {"text": "secret"}).body.split()}


# Order


def test_a_rare_word_counts_for_more(home: Home) -> None:
    me = home.memory(ME)
    for number in range(10):
        me.remember(f"the meeting number {number}")
    rare = me.remember("a meeting about zeppelins")["id"]
    common = me.remember("the number of a meeting")["id"]
    assert me.recall("zeppelins or a meeting")["facts"][0]["id"] == rare
    assert me.recall("which number has the meeting")["facts"][0]["id"] == common


def test_more_words_count_for_more_and_of_equals_the_newest_comes_first(home: Home) -> None:
    me = home.memory(ME)
    first, both, last = (me.remember(text)["id"] for text in ("red thing", "red and blue thing", "red one"))
    me.remember("blue one")
    found = [fact["id"] for fact in me.recall("red blue")["facts"]]
    assert found[0] == both
    assert found.index(last) < found.index(first)


def test_scores_are_told_against_the_best(home: Home) -> None:
    me = home.memory(ME)
    me.remember("red thing")
    me.remember("red and blue thing")
    scores = [fact["score"] for fact in me.recall("red blue")["facts"]]
    assert scores[0] == 1.0 and 0 < scores[1] < 1


# Words


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("great😀 news", "great"),
        ("great😀 news", "😀"),
        ("അവൻ വന്നു", "അവൻ"),
        ("ߒߞߏ is a script", "ߒߞߏ"),
        ("naïve, Ångström", "naive angstrom"),
        ("设备：清单A1", "清单 a1"),
        ("x\u00b2 and \u00bd", "2"),
        ("don't", "dont don"),
    ],
)
def test_finds_whatever_script(home: Home, text: str, query: str) -> None:
    me = home.memory(ME)
    made = me.remember(text)
    me.remember("nothing of that sort")
    assert [fact["id"] for fact in me.recall(query)["facts"]] == [made["id"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("e-mail", "email"),
        ("wi-fi", "wifi"),
        ("us-east-2", "useast2"),
        ("non\u2011stop", "nonstop"),
        ("\u0386\u03b8\u03b7\u03bd\u03b1", "\u03b1\u03b8\u03b7\u03bd\u03b1"),
        ("\u03bf\u03b4\u03cc\u03c2", "\u039f\u0394\u039f\u03a3"),
        ("\u0451\u043b\u043a\u0430", "\u0435\u043b\u043a\u0430"),
        ("\u0438\u0306\u043e\u0434", "\u0439\u043e\u0434"),
        ("Stra\u00dfe", "STRASSE"),
        ("\u0130zmir", "izmir"),
        ("\u0131\u015f\u0131k", "isik"),
        ("\uff37\uff29\uff26\uff29", "wifi"),
        ("\u0645\u064f\u062d\u064e\u0645\u0651\u064e\u062f", "\u0645\u062d\u0640\u0645\u062f"),
        ("\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("\u0662\u0660\u0662\u0666", "2026"),
        ("soft\u00adware", "software"),
        ("\u0141\u00f3d\u017a", "lodz"),
    ],
)
def test_one_word_written_two_ways_is_found_by_either(home: Home, one: str, other: str) -> None:
    me = home.memory(ME)
    made = [me.remember(f"{word} is what it says")["id"] for word in (one, other)]
    me.remember("nothing of that sort")
    for query in (one, other):
        assert {fact["id"] for fact in me.recall(query)["facts"]} == {*made}


# With marks and without, of several scripts, hyphens, what is not seen, and characters that are parted.
DOUBTFUL = (
    "aZ9-._ \u2010\u00e9\u00df\u0130\u0131\u0451\u0386\u0645\u064f\u0640"
    "\u05e9\u05b8\u0662\u4eac\u304c\u0939\u093f\u00ad\u0301"
)


@given(st.text(st.sampled_from(DOUBTFUL)))
def test_an_audit_makes_the_same_words(text: str) -> None:
    assert sorted(search.index_words(text)) == sorted(words_of(text))


TOKENS = apsw.Connection(":memory:").fts5_tokenizer(
    "porter", ["unicode61", "remove_diacritics", "2", "categories", "L* N* Co Mn Mc"]
)


def tokens(text: str) -> list[str]:
    """What the index takes for words."""
    told: list[str] = TOKENS(
        text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return told


@given(st.text())
def test_each_word_is_one_of_the_index_and_of_its_scope(text: str) -> None:
    """Otherwise a part of it would stand in the index without the scope."""
    scope = search.scope_token(b"\x17" * 32)
    # A word of one letter may be an ending for the stemmer, and then the scope is all that is left of it.
    for column in search.make_document(scope, {"text": text, "key": text, "value": text}).columns:
        found = tokens(column)
        assert len(found) == len(column.split())
        assert all(token.startswith(scope) for token in found)


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_ascii_takes_the_short_way_to_the_same_words(text: str) -> None:
    assert sorted([*search.index_words(text), "e"]) == sorted(search.index_words(f"{text} \u00e9"))


@given(st.text(min_size=1))
def test_a_text_is_found_by_its_own_words(text: str) -> None:
    words = {*search.index_words(text)}
    asked = search.query_words(text)
    assert bool(asked) == bool(words)
    for word in asked:
        assert any(one.startswith(word.rstrip("*")) for one in words)
