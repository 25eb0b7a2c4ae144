"""What is left of the rows of a store once each was opened as it was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from auditor.evidence import Entries, EventRow, StoreRows
from auditor.opening import Opening, check_salts, opened
from auditor.snapshot import copy_store, read_only
from auditor.store_rows import read_rows


@pytest.fixture
def rows(copy: Any) -> Iterator[StoreRows]:
    with copy_store(copy.home) as snapshot, read_only(snapshot.pages()) as connection:
        yield read_rows(connection, None)


def logged(rows: StoreRows) -> Entries:
    entries = {
        row.entry_index: bytes(bytearray(row.entry)) for row in rows.events if row.entry_index is not None
    }
    return Entries(len(entries), tuple(entries[index] for index in sorted(entries)))


def test_bytes_that_were_judged_are_not_kept(rows: StoreRows) -> None:
    entries = logged(rows)
    opening, left = opened(rows, entries)
    assert opening.faults == [] and len(opening.statements) == len(rows.events) > 5
    for before, after, statement in zip(rows.events, left.events, opening.statements, strict=True):
        assert after is statement.row
        assert after.content == (None if before.content is None else b"")
        assert after.content_salt == (None if before.content_salt is None else b"")
        assert after.entry == before.entry
        assert after.entry_index is None or after.entry is entries.entries[after.entry_index]
        plain = statement.link is not None and statement.link.kind == "write" and before.content is not None
        # A manifest says these again.
        assert plain or (after.link, after.link_salt, after.content_hash) == before[4:7]
        assert not plain or after.link == after.link_salt == after.content_hash == b""
    agents = {
        id(one.content["agent"]) for one in opening.statements if one.content and "agent" in one.content
    }
    texts = {one.content["agent"] for one in opening.statements if one.content and "agent" in one.content}
    assert len(agents) == len(texts)


def test_links_are_kept_for_those_who_compare_them(rows: StoreRows) -> None:
    opening = Opening(logged(rows), kept=("link",))
    left = list(opening.take(rows.events, rows.tenants))
    assert [row.link for row in left] == [row.link for row in rows.events]


@pytest.mark.parametrize(("of", "like"), [("content", "link"), ("link", "content"), ("link", "link")])
def test_a_salt_used_twice_is_found_whatever_it_is_of(rows: StoreRows, of: str, like: str) -> None:
    salts = {"link": "link_salt", "content": "content_salt"}
    first, last = [row for row in rows.events if row.content is not None][:2]
    spoiled: EventRow = last._replace(**{salts[of]: getattr(first, salts[like])})
    events = tuple(spoiled if row is last else row for row in rows.events)
    opening, _ = opened(replace(rows, events=events), Entries(0))
    assert [(one.where, one.evidence) for one in check_salts(opening).findings] == [
        (
            f"store.db events seq {last.seq}, salt of the {of}",
            {"first": f"store.db events seq {first.seq}, salt of the {like}"},
        )
    ]


def test_a_salt_of_an_earlier_block_is_found(rows: StoreRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks whose salts are all new are taken at once."""
    monkeypatch.setattr("auditor.pins.BLOCK", 2)
    first, last = rows.events[0], rows.events[-1]
    spoiled = last._replace(link_salt=first.link_salt)
    opening, _ = opened(replace(rows, events=(*rows.events[:-1], spoiled)), Entries(0))
    assert opening.reused == [
        (
            f"store.db events seq {last.seq}, salt of the link",
            f"store.db events seq {first.seq}, salt of the link",
        )
    ]
    whole, _ = opened(rows, Entries(0))
    assert whole.reused == []
    assert whole.salts == len(rows.events) + sum(row.content_salt is not None for row in rows.events)
