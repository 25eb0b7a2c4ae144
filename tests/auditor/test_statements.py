"""What many checks ask of all statements, found once: the same as if each went through them."""

from __future__ import annotations

from typing import Any

import pytest

from auditor import checks_log
from auditor.evidence import EventRow, Statement
from auditor.opening import open_statements
from auditor.snapshot import copy_store, read_only
from auditor.statements import Statements, by_commitment, by_seq, of_kind, unusual
from auditor.store_rows import read_rows
from memory.event import Link
from tlog.merkle import Frontier, leaf_hash


def row(seq: int, commitment: bytes) -> EventRow:
    return EventRow(seq, 1, seq, commitment, b"", b"", b"", b"", None, None, None)


def statement(seq: int, kind: str | None, *acts: str) -> Statement:
    link = None if kind is None else Link(kind, seq, b"t", seq, dict.fromkeys(acts, (b"c",)))
    return Statement(row(seq, b"c%d" % seq), link, None)


TOLD = (
    statement(1, "write"),
    statement(2, "write", "retires"),
    statement(3, "write", "retires", "conflicts"),
    statement(4, "write", "erases"),
    statement(5, None),
    statement(6, "erase", "erases"),
    statement(7, "lost"),
    statement(8, "retract", "retires"),
)


@pytest.mark.parametrize("statements", [TOLD, Statements(TOLD)], ids=["any", "found once"])
def test_what_is_no_plain_write_is_told_in_order(statements: tuple[Statement, ...]) -> None:
    assert [one.row.seq for one in unusual(statements)] == [3, 4, 6, 7, 8]
    assert [one.row.seq for one in of_kind(statements, "lost")] == [7]
    assert of_kind(statements, "hold") == []


def test_of_several_the_last_is_found() -> None:
    twice = Statements((*TOLD, Statement(row(1, b"c2"), None, None)))
    assert by_commitment(twice)[b"c2"] is twice[-1] and by_commitment(twice) is by_commitment(twice)
    assert by_seq(twice)[1] is twice[-1] and len(by_seq(twice)) == len(TOLD)


def test_of_a_store_they_are_those_that_a_look_at_all_finds(copy: Any) -> None:
    with copy_store(copy.home) as snapshot, read_only(snapshot.pages()) as connection:
        _, statements = open_statements(read_rows(connection, None))
    kinds = {one.link.kind for one in statements if one.link is not None} - {"write"}
    assert len(kinds) > 2
    for kind in kinds:
        assert of_kind(Statements(statements), kind) == [
            one for one in statements if one.link is not None and one.link.kind == kind
        ]


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257, 511, 512, 700, 771])
def test_the_root_comes_from_the_rows_of_hashes_that_tiles_are_cut_from(size: int) -> None:
    """Also where there are entries past the checkpoint."""
    leaves = [leaf_hash(b"%d" % number) for number in range(771)]
    levels = checks_log._levels(leaves)
    assert checks_log._root(levels, size) == Frontier().extend(leaves[:size]).root()
