"""Whether the heads of one log that different parties have seen are heads of one log. No IO of its own.

A log that shows two histories has to sign both, and each is somewhere: with a witness, with a client, in what
the log serves today. Two heads of one size and different roots convict it at once; for two sizes the larger
one's tiles say what root the smaller one had to have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tlog.checkpoint import Checkpoint
from tlog.errors import UnavailableError, VerificationError
from tlog.merkle import HashReader, tree_root

ReaderOf = Callable[[Checkpoint], HashReader]
"""Returns a reader of the tree of a head, which believes no hash that does not lead to the head's root."""


@dataclass(frozen=True)
class View:
    """A head that its log signed, who has seen it, and the note with all its lines."""

    seen_by: tuple[str, ...]
    checkpoint: Checkpoint
    note: bytes


@dataclass(frozen=True)
class SplitView:
    """Two heads that no one log can have: of one size with two roots, or a larger one that does not extend the
    smaller, whose root in the larger one's tree is `implied_root`. Both notes convict the log."""

    kind: Literal["same_size", "not_extended"]
    smaller: View
    larger: View
    implied_root: bytes | None = None


@dataclass(frozen=True)
class Comparison:
    """What came of it. `consistent` heads were proved to be of one tree, that of the largest of them;
    `unproved` ones could not be compared.

    No split view and nothing unproved means that all saw one log, as far as they were asked.
    """

    consistent: tuple[View, ...]
    unproved: tuple[View, ...]
    splits: tuple[SplitView, ...]


def compare_heads(views: Sequence[View], reader_of: ReaderOf) -> Comparison:
    """The comparison of heads of one origin, each already verified to be signed by the log.

    `reader_of` may fail for a head whose tree the log does not serve: the next smaller one is tried.
    """
    merged = sorted(_merged(views), key=lambda view: view.checkpoint.size, reverse=True)
    splits = []
    linked: set[int] = set() if len(merged) > 1 else {0}
    consistent = frozenset(linked)
    for position, larger in enumerate(merged):
        after = range(position + 1, len(merged))
        same = [other for other in after if merged[other].checkpoint.size == larger.checkpoint.size]
        splits += [SplitView("same_size", merged[other], larger) for other in same]
        if position in linked:
            continue  # all smaller ones were compared with the head that this one is linked to
        smaller = [other for other in after if other not in same]
        try:
            implied = _implied_roots(larger, [merged[other] for other in smaller], reader_of)
        except (UnavailableError, VerificationError):
            continue  # the log does not serve this head's tree: nothing is proved by it, or against it
        for other, root in zip(smaller, implied, strict=True):
            if root == merged[other].checkpoint.root:
                linked |= {position, other}
            else:
                splits.append(SplitView("not_extended", merged[other], larger, root))
        consistent = consistent or frozenset(linked)
    in_splits = {id(view) for split in splits for view in (split.smaller, split.larger)}
    return Comparison(
        tuple(view for position, view in enumerate(merged) if position in consistent),
        tuple(
            view
            for position, view in enumerate(merged)
            if position not in linked and id(view) not in in_splits
        ),
        tuple(splits),
    )


def _implied_roots(larger: View, smaller: Sequence[View], reader_of: ReaderOf) -> list[bytes]:
    read = reader_of(larger.checkpoint)
    return [tree_root(view.checkpoint.size, read) for view in smaller]


def _merged(views: Sequence[View]) -> list[View]:
    """One view for each head: what several have seen is one head, under all their names."""
    heads: dict[tuple[int, bytes], View] = {}
    for view in views:
        key = (view.checkpoint.size, view.checkpoint.root)
        known = heads.get(key)
        heads[key] = View((*known.seen_by, *view.seen_by), known.checkpoint, known.note) if known else view
    return list(heads.values())
