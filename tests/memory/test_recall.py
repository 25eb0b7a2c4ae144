"""What recall gives: what is served, the same folded, rivals together, the newer first, and why each ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import rank, rank_matches, store_search, wiring
from memory.model import SCOPES, Principal
from memory.rows import FactRow
from memory.scope import open_scope
from memory.service import Memory
from memory.store_read import Snapshot
from memory.wiring import Home

ME = Principal("acme", "ops", "desk", SCOPES)
OTHER = Principal("acme", "ops", "till", SCOPES)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with wiring.open_home(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def me(home: Home) -> Memory:
    return home.memory(ME)


def texts(memory: Memory, query: str, **options: object) -> list[str]:
    return [fact["text"] for fact in memory.recall(query, **options)["facts"]]  # type: ignore[arg-type]


# Words


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the server stands in us-east-2", "us-east-2"),
        ("write to jo.bloggs+x@example.org", "jo.bloggs+x@example.org"),
        ("the log is /var/log/app/error.log", "/var/log/app/error.log"),
        ("a well-known café", "well known cafe"),
        ("her email arrived, and the followup", "an e-mail"),
        ("order 1,000 of part 4711-B", "4711-b"),
        ("she bought a kayak", "what did she buy"),
        ("the children went home", "where did the child go"),
        ("I have two cats", "how many: 2"),
        ("今日は成語しりとりをした", "しりとり"),
        ("设备清单", "设备"),
        ("ฉันชอบกาแฟดำ", "กาแฟ"),
        ("서울에서 만났다", "서울"),
    ],
)
def test_finds(me: Memory, text: str, query: str) -> None:
    me.remember("a stone lies by the road")
    me.remember(text)
    me.remember("rain fell all night")
    assert texts(me, query) == [text]


@pytest.mark.parametrize(
    "query", ['"', "a/b", "NEAR(", "***", "key:x", "{body} : x", "x AND", "-x", "^x", "", "a" * 100_000]
)
def test_any_text_is_a_query(me: Memory, query: str) -> None:
    me.remember("nothing like it at all")
    assert me.recall(query)["facts"] == []


def test_asking_for_what_somebody_has_finds_the_key(me: Memory) -> None:
    me.remember("Ana said so on the phone", key="ana/city", value="Porto")
    me.remember("Ana likes the city, and every other city, more than the country")
    assert me.recall("what is Ana's city")["facts"][0]["value"] == "Porto"


@pytest.mark.parametrize("query", ["what is Ana's city", "Ana\u2019s city?", "l'Ana's city"])
def test_what_an_apostrophe_joins_to_a_word_asks_for_nothing(me: Memory, query: str) -> None:
    me.remember("Bo's city is l'Aquila", key="bo/city", value="L'Aquila")
    me.remember("Ana moved to Porto", key="ana/city", value="Porto")
    me.remember("Rain fell all night")
    first, second = me.recall(query, explain=True)["facts"]
    assert (first["value"], second["value"]) == ("Porto", "L'Aquila")
    assert {word["word"] for word in second["why"]["words"]} == {"city"}
    assert me.recall("'s")["facts"][0]["key"] == "bo/city"


# What is served, and how


@pytest.mark.parametrize(
    ("old", "new", "query"),
    [
        (
            "The launch of Basalt is on April 12.",
            "We moved the Basalt launch to May 3.",
            "when is the Basalt launch",
        ),
        ("Dana Whitfield leads Basalt.", "Basalt is now led by Omar Haddad.", "who leads Basalt"),
        (
            "The Basalt office is in York.",
            "Correction: the Basalt office is in Leeds.",
            "where is the Basalt office",
        ),
        (
            "Das Treffen von Basalt ist am Montag.",
            "Das Treffen von Basalt ist verschoben.",
            "wann Treffen Basalt",
        ),
    ],
)
def test_what_tells_of_a_change_comes_before_what_it_changes(
    me: Memory, old: str, new: str, query: str
) -> None:
    for number in range(20):
        me.remember(f"Basalt came up in review {number}, nothing decided.")
    me.remember(old)
    for number in range(20):
        me.remember(f"Somebody asked about Orchid on day {number}.")
    me.remember(new)
    assert texts(me, query)[:2] == [new, old]
    # Nothing is put before what is newer, whatever it says.
    me.remember(old.replace("Basalt", "Orchid"))
    me.remember(new.replace("Basalt", "Quarry"))
    me.remember(old.replace("Basalt", "Quarry"))
    assert texts(me, query.replace("Basalt", "Quarry"))[0] == old.replace("Basalt", "Quarry")


def test_what_says_the_same_is_folded_into_the_newest(me: Memory) -> None:
    old, new = (me.remember(text)["id"] for text in ("The gate is green.", "the  gate is green"))
    me.remember("the gate isn't green")
    first, second = me.recall("green gate")["facts"]
    assert {first["id"], second["id"]} >= {new} and old not in {first["id"], second["id"]}
    assert next(fact for fact in (first, second) if fact["id"] == new)["folded"] == [old]


@pytest.mark.parametrize(
    ("one", "other"),
    [("set it to -5", "set it to 5"), ("he writes C++", "he writes C#"), ("+1 set", "-1 set")],
)
def test_what_differs_in_a_sign_is_not_folded(me: Memory, one: str, other: str) -> None:
    me.remember(one)
    me.remember(other)
    assert set(texts(me, "set writes")) == {one, other}


def test_facts_that_disagree_stand_together(home: Home, me: Memory) -> None:
    me.remember("the launch is in May", key="launch", value="May")
    home.memory(OTHER).remember("lift-off happens in June", key="launch", value="June")
    for number in range(5):
        me.remember(f"the launch party needs chairs, list {number}")
    values = [fact["value"] for fact in me.recall("lift-off June", limit=2)["facts"]]
    assert values == ["June", "May"]


@pytest.mark.parametrize(("limit", "omitted"), [(1, 4), (2, 3), (3, 2), (4, 1), (5, 0), (9, 0)])
def test_rivals_count_as_left_out_where_the_limit_cuts_them(
    home: Home, me: Memory, limit: int, omitted: int
) -> None:
    me.remember("the launch is in May", key="launch", value="May")
    home.memory(OTHER).remember("lift-off happens in June", key="launch", value="June")
    home.memory(Principal("acme", "ops", "third", SCOPES)).remember(
        "the launch happens in July", key="launch", value="July"
    )
    for number in range(2):
        me.remember(f"the launch party needs chairs, list {number}")
    found = me.recall("launch in June or July", limit=limit)
    assert (len(found["facts"]), found["omitted"]) == (min(limit, 5), omitted)


def test_what_is_superseded_is_found_only_when_asked_for(me: Memory) -> None:
    me.remember("Ana lives in Porto", key="ana/city", value="Porto")
    me.remember("Ana lives in Faro", key="ana/city", value="Faro")
    assert texts(me, "where does Ana live") == ["Ana lives in Faro"]
    assert texts(me, "where does Ana live", include_history=True)[0] == "Ana lives in Faro"
    assert "Ana lives in Porto" in texts(me, "where does Ana live", include_history=True)


PADDING = (
    "The meeting ran long and the notes were copied by hand before lunch, which took most of an hour. "
    "Somebody opened a window, somebody else closed it again, and the chairs were carried back downstairs. "
    "There was talk of parking, of the lift that still waits for a spare part, and of plants nobody waters."
)


def test_of_notes_on_one_matter_the_newer_comes_first(me: Memory) -> None:
    for number in range(20):
        me.remember(f"Note {number}: Irene Falk was there. {PADDING}")
    old = "Irene Falk rents a studio in Ghent; the rent of the studio in Ghent is fair."
    new = "Irene Falk wrote that the studio in Ghent is given up, and that she moved to Bruges."
    me.remember(f"{old} {PADDING}")
    me.remember(f"{new} {PADDING}")
    found = texts(me, "studio of Irene Falk")
    assert [text.startswith(one) for text, one in zip(found, (new, old), strict=False)] == [True, True]


ENZYME = (
    "The enzyme is kept at minus twenty in freezer B, second drawer, in aliquots of "
    "fifty microlitres. Activity after "
    "thawing is 90 percent. Yusuf found that the old centrifuge drifts by two "
    "hundred rpm, service comes on Friday."
)


@pytest.mark.parametrize(
    ("later", "query", "is_first"),
    [
        (
            "Freezer B failed over the weekend, and we lost a third. What is left of the "
            "enzyme stands on the corridor in "
            "the red box; Yusuf labelled it. Activity was 84 percent this morning. The "
            "centrifuge has been repaired since.",
            "Where is the enzyme of Yusuf kept?",
            True,
        ),
        (
            "The supplier of the enzyme was here and left samples for Yusuf with the porter, "
            "who put them into a lunch box "
            "until somebody had time to come and sign. He would like to be invited to the "
            "summer party, and so he will be.",
            "Where is the enzyme of Yusuf kept?",
            False,
        ),
        (
            "Yusuf: freezer B failed, the centrifuge too, activity of the enzyme 84 percent.",
            "Where is the enzyme of Yusuf kept?",
            False,
        ),
        (
            "Freezer B failed, and the enzyme went bad: enzyme after enzyme, says Yusuf, and "
            "no enzyme like this enzyme can "
            "be bought. Enzyme, enzyme! Activity was 4 percent this morning. The centrifuge "
            "has been repaired in the meantime.",
            "aliquots of the enzyme in microlitres",
            False,
        ),
    ],
    ids=["goes on", "of another matter", "short", "hardly what is asked for"],
)
def test_a_longer_note_that_goes_on_about_a_matter_comes_before_what_was_told(
    me: Memory, later: str, query: str, is_first: bool
) -> None:
    me.remember(ENZYME)
    me.remember(later)
    for number in range(4):
        me.remember(f"Nobody asked for note {number}. {PADDING}")
    assert texts(me, query)[:2] == ([later, ENZYME] if is_first else [ENZYME, later])


# Keys


CITY = ("I live in Oslo", "I have moved to Bergen")


def talk_of_the_city(me: Memory, count: int = 40) -> None:
    for number in range(count):
        me.remember(f"the city council met in the city hall of the city, day {number}")


@pytest.mark.parametrize("query", ["what is my city", "City?", "city"])
def test_a_query_that_is_nothing_but_a_key_finds_what_the_key_says(me: Memory, query: str) -> None:
    me.remember(CITY[0], key="city", value="Oslo")
    me.remember(CITY[1], key="city", value="Bergen")
    talk_of_the_city(me)
    found = me.recall(query, explain=True)
    assert [fact["text"] == CITY[1] for fact in found["facts"]] == [True] + [False] * 9
    assert [word["in_key"] for word in found["facts"][0]["why"]["words"]] == [True]
    assert (found["facts"][0]["score"], found["omitted"]) == (1.0, 31)
    past = me.recall(query, include_history=True, limit=3)["facts"]
    assert [fact["text"] == CITY[1] for fact in past] == [True, False, False]


def test_a_key_of_several_words_is_found_whatever_is_between_them(me: Memory) -> None:
    me.remember("1234", key="garage/door-code", value="1234")
    for number in range(40):
        me.remember(f"the code of the garage, code and door, garage door {number}")
    assert texts(me, "What is the garage door code?", limit=1) == ["1234"]
    assert texts(me, "garage/door-code", limit=1) == ["1234"]
    assert texts(me, "garage door", limit=1) != ["1234"]
    me.remember("blue", key="door of the garage")
    for number in range(20):
        me.remember(f"a garage has a door, the door is the garage, door garage {number}")
    assert texts(me, "Door of the garage?", limit=1) == ["blue"]


def test_what_a_key_says_is_counted_once_where_it_was_not_read(
    me: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("_SMALL", 8), ("_FREQUENT", 8), ("_READ_OF_TURNS", 3), ("_READ_OF_NOTES", 3)):
        monkeypatch.setattr(rank_matches, name, number)
    talk_of_the_city(me, 6)
    me.remember(CITY[0], key="city", value="Oslo")
    talk_of_the_city(me, 12)
    found = me.recall("city", limit=8, explain=True)
    assert [fact["text"] == CITY[0] for fact in found["facts"]] == [True] + [False] * 7
    assert [word["in_key"] for word in found["facts"][0]["why"]["words"]] == [True]
    assert me.recall("city", limit=2)["omitted"] == 6


def test_what_the_key_of_somebody_else_says_is_not_found_by_it(home: Home, me: Memory) -> None:
    talk_of_the_city(me)
    for other in (Principal("acme", "other", "desk"), Principal("beta", "ops", "desk")):
        home.memory(other).remember(CITY[0], key="city", value="Oslo")
    assert CITY[0] not in texts(me, "city", limit=50)


def test_rivals_of_a_key_that_is_asked_for_stand_together(home: Home, me: Memory) -> None:
    me.remember(CITY[0], key="city", value="Oslo")
    home.memory(OTHER).remember(CITY[1], key="city", value="Bergen")
    talk_of_the_city(me)
    found = me.recall("city", limit=4)
    assert {fact["text"] for fact in found["facts"][:2]} == set(CITY)
    assert (len(found["facts"]), found["omitted"]) == (4, 38)


# Chats and notes


def chat(me: Memory, count: int) -> None:
    for number in range(count):
        me.remember(f"Bo: a fine week, number {number}")


def test_in_a_chat_an_answer_is_found_by_its_question(me: Memory) -> None:
    chat(me, 20)
    me.remember("Al: which instrument did the postman practise?")
    answer = "Bo: that was a bassoon, fine and loud"
    me.remember(answer)
    chat(me, 40)
    assert answer in texts(me, "fine instrument that the postman did practise", limit=2)


def test_notes_take_nothing_of_what_lies_beside(me: Memory) -> None:
    for number in range(20):
        me.remember(f"A fine note, number {number}. {PADDING} {PADDING}")
    me.remember(f"Which instrument did the weather man practise? {PADDING} {PADDING}")
    me.remember(f"A fine bassoon. {PADDING} {PADDING}")
    why = [fact["why"] for fact in me.recall("instrument weather fine", explain=True)["facts"]]
    assert why and all(one["from_facts_beside"] == 0 for one in why)


@pytest.mark.parametrize(("words", "first"), [(60, 17), (20, 18)], ids=["notes", "turns of a chat"])
def test_of_notes_those_come_first_that_have_together_what_the_query_has(words: int, first: int) -> None:
    named = rank.Term("basalt", 1.0, frozenset({"basalt"}), set(range(1, 19)), set())
    told = rank.Term("garden", 2.0, frozenset({"garden"}), {17, 18}, set())
    other = [f"w{place}" for place in range(words)]
    stems = [["basalt", *other]] * 16
    stems += [["basalt", "garden", *other], ["basalt", *other, "garden"]]
    facts = [
        rank.Reading(seq, seq, one, frozenset(one), frozenset(), len(one) * 5)
        for seq, one in enumerate(stems, 1)
    ]
    ranked = rank.second_pass([named, told], facts, frozenset())
    assert ranked[0].seq == first
    assert ranked[0].newer_than is None


# Explaining


def test_explains_the_rank_by_the_words_of_the_query_alone(me: Memory) -> None:
    me.remember("the zeppelin is green", key="ship/colour", value="green")
    me.remember("a green hat")
    first, second = me.recall("green zeppelin", explain=True)["facts"]
    assert [(one["word"], one["in_key"]) for one in first["why"]["words"]] == [
        ("green", True),
        ("zeppelin", False),
    ]
    assert [one["word"] for one in second["why"]["words"]] == ["green"]
    assert first["why"]["from_words"] > second["why"]["from_words"]
    assert "why" not in me.recall("green")["facts"][0]


# Words that many facts have


def test_a_frequent_word_ranks_what_the_rarer_find(me: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_matches, "_FREQUENT", 8)
    monkeypatch.setattr(rank_matches, "_SMALL", 8)
    monkeypatch.setattr(rank_matches, "_LEAST_FOUND", 1)
    me.remember("heron at the mill")
    me.remember("heron at the pond")
    for number in range(12):
        me.remember(f"the pond in week {number}")
    answer = me.recall("heron pond", limit=2)
    assert [fact["text"] for fact in answer["facts"]] == ["heron at the pond", "heron at the mill"]


def test_words_that_are_all_frequent_find_the_newest(me: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_matches, "_FREQUENT", 8)
    monkeypatch.setattr(rank_matches, "_SMALL", 8)
    for number in range(40):
        me.remember(f"the pond in week {number}")
    assert texts(me, "pond", limit=2) == ["the pond in week 39", "the pond in week 38"]


def test_what_is_no_longer_true_hides_nothing(me: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a word stands in what was superseded."""
    monkeypatch.setattr(rank_matches, "_FREQUENT", 8)
    monkeypatch.setattr(rank_matches, "_SMALL", 8)
    kept = "the pond is deep"
    me.remember(kept)
    for number in range(30):
        me.remember(f"the pond had {number} ducks", key="ducks", value=str(number))
    assert kept in texts(me, "pond")


def test_a_frequent_word_counts_in_a_key_however_many_keys_have_it(
    me: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_matches, "_FREQUENT", 8)
    monkeypatch.setattr(rank_matches, "_SMALL", 8)
    monkeypatch.setattr(rank_matches, "_LEAST_FOUND", 1)
    for number in range(12):
        me.remember(f"{number} ducks", key=f"pond/week {number}", value=str(number))
    me.remember("a heron", key="pond/guest", value="heron")
    for query in ("heron pond", "pond"):
        found = me.recall(query, explain=True)["facts"][0]
        assert (found["key"], found["why"]["words"][-1]["in_key"]) == ("pond/guest", True)


def test_reads_no_fact_that_is_not_in_the_answer(me: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        me.remember(f"the pond in week {number}")
    read: list[int] = []

    def noting(view: Snapshot, tenant_id: int, agent_tag: bytes, seqs: Sequence[int]) -> tuple[FactRow, ...]:
        read.extend(seqs)
        return facts_by_seq(view, tenant_id, agent_tag, seqs)

    facts_by_seq = Snapshot.facts_by_seq
    monkeypatch.setattr(Snapshot, "facts_by_seq", noting)
    assert me.recall("pond", limit=5)["omitted"] == 7
    assert len(read) == 5


def test_a_full_scope_is_counted_again_after_an_erasure(home: Home, me: Memory) -> None:
    for number in range(4):
        me.remember(f"the pond in week {number}", key=f"week {number}")
    store, vault = home.parts().store, home.parts().vault

    def size() -> int:
        with store.read() as view:
            scope = open_scope(view, vault, ME)
            assert scope is not None
            return store_search.scope_size(view, scope.tenant_id, scope.agent_tag, 4)

    assert (size(), size()) == (4, 4)
    with wiring.open_home(home.path) as elsewhere:
        other = elsewhere.memory(ME)
        other.forget(key="week 2", confirm=other.forget_preview(key="week 2")["confirm"])
    assert size() == 3


def test_the_first_pass_and_the_second_agree_on_one_word() -> None:
    term = rank.Term("heron", rank.weight_of(9, 2), frozenset({"heron"}), {1, 2}, set())
    stems = ("heron", "pond")
    facts = [rank.Reading(seq, seq, stems, frozenset(stems), frozenset(), 10) for seq in (1, 2)]
    assert [seq for _, seq in rank.first_pass([term], {1, 2})] == [2, 1]
    assert [one.seq for one in rank.second_pass([term], facts, frozenset())] == [2, 1]


def test_of_a_long_text_the_beginning_is_read_and_all_of_it_is_found(
    me: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    split: list[int] = []
    real = store_search.splitter

    def counted(view: Any) -> Any:
        return lambda text: split.append(len(text)) or real(view)(text)

    monkeypatch.setattr(store_search, "splitter", counted)
    long = me.remember("stones and sand " * 2000 + "and one anchor")["id"]
    me.remember("sand on the road")
    assert [fact["id"] for fact in me.recall("anchor")["facts"]] == [long]
    assert me.recall("sand anchor")["facts"][0]["id"] == long
    assert max(split) == 8192
