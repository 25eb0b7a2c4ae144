from __future__ import annotations

from typing import Any

import pytest

from tlog.checkpoint import Checkpoint
from tlog.errors import UnavailableError, VerificationError
from tlog.merkle import HashReader
from tlog.note import format_note
from witness.compare import Comparison, View, compare_heads


def view(log: Any, size: int, *names: str) -> View:
    return View(names, log.checkpoint(size), format_note(log.note(size)))


def reader_of(*logs: Any) -> Any:
    """Serves the trees of these logs and no others."""

    def read(head: Checkpoint) -> HashReader:
        for log in logs:
            if head.size <= log.size and log.checkpoint(head.size).root == head.root:
                return lambda nodes: log._read(nodes)
        raise VerificationError("tile: does not lead to the checkpoint's root", code="tile")

    return read


def nothing(head: Checkpoint) -> HashReader:
    raise UnavailableError("the log is away")


def sizes(comparison: Comparison) -> tuple[list[int], list[int]]:
    return (
        [one.checkpoint.size for one in comparison.consistent],
        [one.checkpoint.size for one in comparison.unproved],
    )


def kinds(comparison: Comparison) -> list[tuple[str, int, int]]:
    return [(one.kind, one.smaller.checkpoint.size, one.larger.checkpoint.size) for one in comparison.splits]


def test_heads_of_one_log_are_consistent(log: Any) -> None:
    views = [view(log, 7, "a"), view(log, 40, "b"), view(log, 16, "c"), view(log, 0, "d")]
    found = compare_heads(views, reader_of(log))
    assert (sizes(found), kinds(found)) == (([40, 16, 7, 0], []), [])


def test_one_head_seen_by_many_needs_no_tiles(log: Any) -> None:
    found = compare_heads([view(log, 7, "a"), view(log, 7, "b", "c")], nothing)
    (one,) = found.consistent
    assert one.seen_by == ("a", "b", "c")
    assert (found.unproved, found.splits) == ((), ())


def test_nothing_seen_is_nothing_compared() -> None:
    assert compare_heads([], nothing) == Comparison((), (), ())


def test_two_roots_of_one_size_split_without_any_tile(log: Any) -> None:
    fork = log.fork_at(3)
    found = compare_heads([view(log, 9, "a"), view(fork, 9, "b")], nothing)
    assert kinds(found) == [("same_size", 9, 9)]
    (split,) = found.splits
    assert {split.smaller.note, split.larger.note} == {format_note(log.note(9)), format_note(fork.note(9))}
    assert {split.smaller.seen_by, split.larger.seen_by} == {("a",), ("b",)}
    assert found.unproved == ()


@pytest.mark.parametrize("serves", ["log", "fork"])
def test_a_larger_head_that_does_not_extend_a_smaller_one_splits(log: Any, serves: str) -> None:
    fork = log.fork_at(3)
    views = [view(log, 9, "a"), view(fork, 20, "b"), view(log, 15, "c")]
    if serves == "log":
        # The fork's tree is shown to nobody who asks: its head stays without proof, which is told.
        found = compare_heads(views, reader_of(log))
        assert (sizes(found), kinds(found)) == (([15, 9], [20]), [])
        return
    found = compare_heads(views, reader_of(fork))
    assert kinds(found) == [("not_extended", 15, 20), ("not_extended", 9, 20)]
    for split in found.splits:
        assert split.implied_root == fork.checkpoint(split.smaller.checkpoint.size).root
        assert split.implied_root != split.smaller.checkpoint.root


def test_a_split_view_does_not_hide_what_agrees(log: Any) -> None:
    fork = log.fork_at(10)
    views = [view(log, 40, "a"), view(log, 9, "b"), view(fork, 20, "c"), view(log, 20, "d")]
    found = compare_heads(views, reader_of(log, fork))
    assert sizes(found)[0] == [40, 20, 9]
    assert ("same_size", 20, 20) in kinds(found)
    assert ("not_extended", 20, 40) in kinds(found)


def test_where_no_tree_is_served_nothing_is_proved(log: Any) -> None:
    found = compare_heads([view(log, 9, "a"), view(log, 20, "b")], nothing)
    assert (sizes(found), kinds(found)) == (([], [20, 9]), [])


def test_the_largest_head_without_tiles_leaves_the_others_compared(log: Any) -> None:
    shorter = type(log)(log.entries[:30], log.origin)
    shorter.signer = log.signer
    views = [view(log, 40, "a"), view(log, 20, "b"), view(log, 9, "c")]
    found = compare_heads(views, reader_of(shorter))
    assert (sizes(found), kinds(found)) == (([20, 9], [40]), [])
