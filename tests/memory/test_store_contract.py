"""What every engine of the store promises, and nothing of how one does it: run for each of `storing.ENGINES`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from storing import (
    AGENT,
    ENGINES,
    NOW,
    OTHER_AGENT,
    add,
    erase,
    facts_of,
    found,
    replaced_by,
    sign,
    stored,
    tenant_of,
)

from memory import event
from memory.search import any_of, in_key, make_matches, scope_token
from memory.store import Store
from tlog.errors import MalformedError, RefusedError, VerificationError


@pytest.fixture(params=sorted(ENGINES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = ENGINES[request.param](tmp_path)
    yield opened
    opened.close()


def test_a_statement_opens_its_commitment_and_waits_in_the_outbox(store: Store) -> None:
    made = stored(store, "the sky is blue")
    assert made.content is not None
    assert made.content_salt is not None
    event.open_content(made.commitment, made.link, made.link_salt, made.content, made.content_salt)
    link = event.decode_link(made.link)
    assert (link.kind, link.seq, link.tenant_seq) == ("write", 1, 1)
    assert made.entry == sign(made.commitment)
    with store.read_whole() as view:
        assert [row.seq for row in view.unlogged(10)] == [1]
        assert view.last_logged_index() == -1
        assert view.event(1, made.commitment) == view.event(1, made.commitment[:16]) == made
        assert view.event(2, made.commitment) is None


def test_numbers_are_dense_for_store_and_tenant_also_after_an_undone_write(store: Store) -> None:
    stored(store, "one")
    stored(store, "other", tenant="umbrella")
    with pytest.raises(ZeroDivisionError), store.write() as txn:
        add(txn, "undone")
        raise ZeroDivisionError
    made = stored(store, "two")
    link = event.decode_link(made.link)
    assert (link.seq, link.tenant_seq) == (3, 2)


def test_an_undone_write_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.write() as txn:
        add(txn, "zanzibar", key="k")
        raise ZeroDivisionError
    assert facts_of(store, "k") == ()
    with store.read_whole() as view:
        assert view.counts() == {
            "statements": 0,
            "unlogged": 0,
            "facts": 0,
            "tenants": 0,
            "erasures": 0,
        }
        assert view.last_recorded_at() == 0
    stored(store, "something")
    assert found(store, "zanzibar") == []


def test_recorded_at_goes_on_when_the_clock_goes_back(store: Store) -> None:
    stored(store, "first", now=NOW)
    stored(store, "second", now=NOW - 10**12)
    stored(store, "third", now=NOW)
    with store.read_whole() as view:
        times = [view.facts_by_seq(1, AGENT, (seq,))[0].recorded_at for seq in (1, 2, 3)]
        assert times == [NOW, NOW + 1, NOW + 2]
        assert view.last_recorded_at() == NOW + 2


def test_recorded_at_must_be_the_stamp(store: Store) -> None:
    stored(store, "first", now=NOW)
    with pytest.raises(MalformedError, match="stamp"), store.write() as txn:
        txn.add_event(tenant_of(txn), "write", {"recorded_at": NOW}, sign=sign)


@pytest.mark.parametrize("target", [b"\x00" * 32, b"short"])
def test_an_act_names_a_statement_there_is(store: Store, target: bytes) -> None:
    stored(store, "first")
    with pytest.raises(MalformedError), store.write() as txn:
        add(txn, "second", acts={"retires": (target,)})


def test_an_act_never_reaches_another_tenant(store: Store) -> None:
    made = stored(store, "theirs", tenant="umbrella")
    with pytest.raises(MalformedError, match="of its tenant"), store.write() as txn:
        add(txn, "mine", acts={"retires": (made.commitment,)})


def test_acts_change_the_status_of_their_targets(store: Store) -> None:
    old = stored(store, "old", key="k")
    new = stored(store, "new", key="k", acts={"retires": (old.commitment,)}, outcome="superseded")
    first, second = facts_of(store, "k")
    assert (first.status, replaced_by(store, first.seq)) == ("superseded", new.seq)
    assert first.replaced_at == second.recorded_at
    assert second.status == "active"
    with store.read_whole() as view:
        (act,) = view.acts_on(1, old.seq)
    assert (act.seq, act.act, act.recorded_at) == (new.seq, "retires", second.recorded_at)


def test_log_indexes_are_kept_and_never_changed(store: Store) -> None:
    first, second = stored(store, "one"), stored(store, "two")
    with store.write_whole() as txn:
        txn.set_entry_indexes([(first.seq, 7)])
    with store.write_whole() as txn:
        txn.set_entry_indexes([(first.seq, 7)])
    with pytest.raises(VerificationError) as caught, store.write_whole() as txn:
        txn.set_entry_indexes([(second.seq, 8), (first.seq, 9)])
    assert caught.value.code == "index_changed"
    with pytest.raises(VerificationError), store.write_whole() as txn:
        txn.set_entry_indexes([(second.seq, 7)])
    with store.read_whole() as view:
        assert [row.seq for row in view.unlogged(10)] == [second.seq]
        assert view.last_logged_index() == 7


def test_a_reader_sees_one_moment(store: Store) -> None:
    stored(store, "before")
    with store.read_whole() as view:
        assert view.counts()["statements"] == 1
        stored(store, "meanwhile")
        assert view.counts()["statements"] == 1
    with store.read_whole() as view:
        assert view.counts()["statements"] == 2


def test_reads_stay_in_their_scope(store: Store) -> None:
    mine = stored(store, "shared words")
    theirs = stored(store, "shared words", agent=OTHER_AGENT)
    with store.read_whole() as view:
        assert view.fact(1, AGENT, theirs.commitment) is None
        assert view.facts_by_seq(1, AGENT, (mine.seq, theirs.seq))[0].seq == mine.seq
        assert view.facts_by_seq(2, AGENT, (mine.seq,)) == ()
    assert found(store, "shared") == [mine.seq]
    assert found(store, "shared", OTHER_AGENT) == [theirs.seq]


def test_a_scope_token_in_a_text_opens_nothing(store: Store) -> None:
    stored(store, f"{scope_token(OTHER_AGENT)} words of the first agent")
    assert found(store, "words", OTHER_AGENT) == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("今日は成語しりとりをした", "しりとり"),
        ("设备清单", "设备"),
        ("设备清单", "单"),
        ("お茶が好き", "茶"),
        ("GPT设备 is new", "gpt"),
        ("서울에서 만났다", "서울"),
        ("ตู้เย็นอยู่ในครัว", "ตู้เย็น"),
        ("हिन्दी में लिखा", "हिन्दी"),
        ("Crème brûlée at Café Zoë", "creme brulee"),
        ("ｆｕｌｌ width", "full"),
        ("deployments fail on Mondays", "deployment failed monday"),
        ("checkout-api/region is set", "checkout_api region"),
        ("who are you", "who are you"),
        ("an 8e2f3c1a-77aa-4c1e-9d52-1234567890ab here", "8e2f3c1a-77aa-4c1e-9d52-1234567890ab"),
    ],
)
def test_finds(store: Store, text: str, query: str) -> None:
    made = stored(store, text)
    stored(store, "nothing of that sort")
    assert found(store, query) == [made.seq]


@pytest.mark.parametrize(
    "query",
    [
        *('a/b"c', 'x" OR scope : "1', "NEAR(a b)", "body : x", "a* OR b", "x AND NOT y", "^x", "{key} : x"),
        *(
            "x - y",
            "a'b",
            "x\\",
            "x;--",
            "(((x",
            "x\u200bx",
            "\ud800x",
            "é" * 10_000,
            "x " * 100_000,
            "1" * 100_000,
        ),
    ],
)
def test_any_query_is_data(store: Store, query: str) -> None:
    stored(store, "nothing like it at all", agent=OTHER_AGENT)
    matches = make_matches(scope_token(AGENT), query)
    with store.read_whole() as view:
        for match in [*matches, *map(in_key, matches)]:
            assert view.matching(match) == []
        if matches:
            assert view.matching_of_status(1, AGENT, any_of(matches), ("active",)) == []


@pytest.mark.parametrize("query", ["", " ", "***", '"', "\u2620", "\n\t", "-/-"])
def test_a_query_without_words_asks_nothing(query: str) -> None:
    assert make_matches("1", query) == ()


def test_the_scope_is_part_of_every_match(store: Store) -> None:
    """So that the index itself gives one scope's rows, and the filter beside it is a second lock."""
    mine = stored(store, "shared words")
    theirs = stored(store, "shared words", agent=OTHER_AGENT)
    match = any_of(make_matches(scope_token(AGENT), "shared words"))
    other = any_of(make_matches(scope_token(OTHER_AGENT), "shared words"))
    with store.read_whole() as view:
        view.enter(1)
        assert view.matching(match) == [mine.seq]
        assert view.matching_of_status(1, AGENT, other, ("active",)) == []
        assert view.matching_of_status(2, AGENT, match, ("active",)) == []
        assert view.matching_of_status(1, OTHER_AGENT, other, ("active",)) == [theirs.seq]


def test_words_of_a_key_weigh_more(store: Store) -> None:
    key = stored(store, "it was mentioned once", key="region")
    value = stored(store, "it was mentioned twice", key="place", value="a region")
    text = stored(store, "the region was mentioned once")
    assert found(store, "region") == [value.seq, key.seq, text.seq]


def test_a_token_holds_once_until_it_expires(store: Store) -> None:
    stored(store, "x")
    with store.write_whole() as txn:
        txn.add_token(1, b"a" * 32, "forget", b"bound", NOW + 100)
        txn.add_token(1, b"b" * 32, "forget", b"bound", NOW + 10)
    with store.write_whole() as txn:
        assert txn.take_token(1, b"a" * 32, "reaffirm", NOW) is None
        assert txn.take_token(2, b"a" * 32, "forget", NOW) is None
        taken = txn.take_token(1, b"a" * 32, "forget", NOW)
        assert taken is not None
        assert taken.bound == b"bound"
        assert txn.take_token(1, b"a" * 32, "forget", NOW) is None
        assert txn.take_token(1, b"b" * 32, "forget", NOW + 10) is None


def test_a_token_taken_in_an_undone_transaction_still_holds(store: Store) -> None:
    stored(store, "x")
    with store.write_whole() as txn:
        txn.add_token(1, b"a" * 32, "forget", b"bound", NOW + 100)
    with pytest.raises(RefusedError), store.write_whole() as txn:
        txn.take_token(1, b"a" * 32, "forget", NOW)
        raise RefusedError("no")
    with store.write_whole() as txn:
        assert txn.take_token(1, b"a" * 32, "forget", NOW) is not None


def test_an_erased_statement_keeps_its_link_and_hash(store: Store) -> None:
    made = stored(store, "quartz zebra", key="k", value="v")
    assert erase(store, made.seq) == 1
    assert erase(store, made.seq) == 0
    assert facts_of(store, "k") == ()
    assert found(store, "quartz") == []
    with store.read_whole() as view:
        row = view.event_by_seq(made.seq)
    assert row is not None
    assert row.content is None
    assert row.content_salt is None
    event.open_link(row.commitment, row.link, row.link_salt, row.content_hash)


def test_what_matches_is_told_from_a_number_on_and_up_to_one(store: Store) -> None:
    made = [stored(store, f"heron number {number}") for number in range(3)]
    match = any_of(make_matches(scope_token(AGENT), "heron"))
    with store.read_whole() as view:
        view.enter(1)
        assert view.matching(match, since=made[1].seq) == [made[1].seq, made[2].seq]
        assert view.matching(match, 1, made[1].seq) == [made[1].seq]
        assert [view.has_more(match, count) for count in (0, 2, 3)] == [True, True, False]
