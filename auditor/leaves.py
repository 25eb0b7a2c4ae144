"""The pages that the rows of each table stand on, by their digests: a page that is the same has the same rows.

A table of SQLite is a tree by row number. Its inner pages say up to which number the rows of each leaf go, so that
what a leaf had is known from there, without looking at its rows. Which digest belongs to which row stays in memory:
what is kept of it is keyed (`auditor.row_marks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from auditor import sqlite_format as fmt
from auditor.sqlite_file import Pages
from tlog.errors import MalformedError

LAST: Final = (1 << 63) - 1
"""The highest number that a row can have."""
MAX_DEPTH: Final = 40


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaves of a table in the order of their rows, and the pages that long rows go on in."""

    digests: tuple[bytes, ...]
    ends: tuple[int, ...]
    """The number that the rows of each leaf may go up to."""
    overflow: frozenset[bytes]

    def ranges(self) -> Iterator[tuple[bytes, int, int]]:
        """Each leaf with the number that its rows come after, and the one that they go up to."""
        after = -LAST
        for digest, end in zip(self.digests, self.ends, strict=True):
            yield digest, after, end
            after = end


def read_leaves(pages: Pages, roots: Mapping[str, int], owners: Mapping[int, str]) -> dict[str, Leaves]:
    """The leaves of these tables, by the roots of their trees and by which table each page was found to serve."""
    found = {name: _Tree(pages, root) for name, root in roots.items()}
    long: dict[str, list[int]] = {name: [] for name in roots}
    for number, owner in owners.items():
        if owner in found and number not in found[owner].seen:
            long[owner].append(number)
    return {
        name: Leaves(
            tuple(digest for _, digest in tree.leaves),
            tuple(end for end, _ in tree.leaves),
            # Under their numbers, by which a leaf names them: two that changed places are not the same.
            frozenset(
                hashlib.sha256(number.to_bytes(8, "big") + pages.read(number)).digest()
                for number in long[name]
            ),
        )
        for name, tree in found.items()
    }


class _Tree:
    """The leaves of one table, and which pages were seen on the way."""

    def __init__(self, pages: Pages, root: int) -> None:
        self.leaves: list[tuple[int, bytes]] = []
        self.seen: set[int] = set()
        waiting = [(root, LAST, 0)]
        while waiting:
            number, end, depth = waiting.pop()
            if number in self.seen or depth > MAX_DEPTH or not 1 < number <= pages.page_count:
                raise MalformedError("expected a tree whose pages are reached once")
            self.seen.add(number)
            data = pages.read(number)
            if data[0] == fmt.TABLE_LEAF:
                self.leaves.append((end, hashlib.sha256(data).digest()))
                continue
            page = fmt.parse_page(data, pages.header.usable_bytes, 0)
            if page.kind != fmt.TABLE_INTERIOR:
                raise MalformedError("expected a tree of the rows of a table")
            waiting.append((page.right_child, end, depth + 1))
            waiting += [(cell.child, cell.rowid, depth + 1) for cell in reversed(page.cells)]
