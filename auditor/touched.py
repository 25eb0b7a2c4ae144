"""Which statements anything new has to do with: those of one key with it, and whatever acts on them or they act on.

What is concluded of a statement depends on those alone. The ties are read from caches of the store (acts, facts, the
value ledger): a row of them that an earlier audit has judged is right, and each other one is among what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import apsw

from auditor.leaves import Leaves
from auditor.row_marks import APPENDED, CHANGING, FIXED, TABLES, Keyed, RowMarks, tail_of
from memory.event import decode_link

SHARE: Final = 2
"""Of what is more than this part of a store nothing is gained."""
MIN_TOUCHED: Final = 4096
_PIECE: Final = 20_000
_TIES: Final = (
    """SELECT o.seq FROM facts f CROSS JOIN facts o ON o.tenant = f.tenant AND o.key_tag = f.key_tag
       WHERE f.seq IN ({}) AND o.key_tag IS NOT NULL""",
    "SELECT a.seq FROM events e CROSS JOIN acts a ON a.tenant = e.tenant AND a.target = e.seq WHERE e.seq IN ({})",
    "SELECT target FROM acts WHERE seq IN ({})",
    "SELECT replaced_by FROM facts WHERE seq IN ({}) AND replaced_by IS NOT NULL",
    """SELECT l.source FROM facts f CROSS JOIN ledger l ON l.tenant = f.tenant AND l.key_tag = f.key_tag
       WHERE f.seq IN ({}) AND +l.source IS NOT NULL""",
    """SELECT o.seq FROM events e CROSS JOIN ledger l ON l.tenant = e.tenant AND l.source = e.seq
       CROSS JOIN facts o ON o.tenant = l.tenant AND o.key_tag = l.key_tag
       WHERE e.seq IN ({}) AND l.source IS NOT NULL AND o.key_tag IS NOT NULL""",
    """SELECT c.seq FROM facts f CROSS JOIN conflicts c ON c.tenant = f.tenant AND c.key_tag = f.key_tag
       WHERE f.seq IN ({})""",
    """SELECT c.closed_by FROM facts f CROSS JOIN conflicts c ON c.tenant = f.tenant AND c.key_tag = f.key_tag
       WHERE f.seq IN ({}) AND c.closed_by IS NOT NULL""",
    """SELECT f.seq FROM conflicts c CROSS JOIN facts f ON f.tenant = c.tenant AND f.key_tag = c.key_tag
       WHERE c.seq IN ({}) AND f.key_tag IS NOT NULL""",
)
_NEW: Final = (
    "SELECT seq FROM events WHERE seq > {events}",
    "SELECT seq FROM acts WHERE id > {acts}",
    "SELECT target FROM acts WHERE id > {acts}",
    "SELECT source FROM ledger WHERE id > {ledger}",
    "SELECT seq FROM idempotency WHERE id > {idempotency}",
    "SELECT target FROM tokens WHERE target IS NOT NULL",
    "SELECT seq FROM grants",
)
"""Whatever rows speak of that are new, or are judged each time."""


def changed_facts(
    connection: apsw.Connection, marks: RowMarks, leaves: Mapping[str, Leaves], keyed: Keyed, last: int
) -> set[int] | None:
    """The numbers between which rows of facts may be other ones than they were; None where rows of another table are
    that should have stayed."""
    if any(_first_of(connection, name) < 1 for name in TABLES):
        return None
    for name in APPENDED:
        if not _has_grown(connection, name, marks, leaves[name], keyed):
            return None
    for name in FIXED:
        same = tuple(map(keyed.of, leaves[name].digests)) == marks.tables[name].leaves
        if not same or _overflow(leaves[name], keyed) != marks.tables[name].overflow:
            return None
    before, now = marks.tables[CHANGING], leaves[CHANGING]
    if before.overflow or now.overflow:
        return None  # no fact is as long as that
    then = list(zip(before.leaves, (0, *before.ends), before.ends, strict=False))
    ours = [(keyed.of(digest), after, end) for digest, after, end in now.ranges()]
    kept = {digest for digest, _, _ in then} & {digest for digest, _, _ in ours}
    return {
        seq
        for digest, after, end in (*then, *ours)
        if digest not in kept
        for seq in range(max(after, 0) + 1, min(end, last) + 1)
    }


def touched(connection: apsw.Connection, begun: Iterable[int], marks: RowMarks, last: int) -> set[int] | None:
    """Every statement that has to do with these, or with rows that are new; None where that is most of the store."""
    ids = {name: marks.tables[name].last for name in APPENDED}
    found = set(begun)
    for sql in _NEW:
        for (seq,) in connection.execute(sql.format(**ids)):
            if type(seq) is not int:
                return None  # a value without its fact: an erasure left it
            found.add(seq)
    found |= set(_targets(connection, marks.last))
    most = max(last // SHARE, MIN_TOUCHED)
    waiting: Collection[int] = found
    while waiting:
        if len(found) > most:
            return None
        following = {seq for sql in _TIES for seq in _asked(connection, sql, waiting)}
        waiting = following - found
        found |= waiting
    return found


def is_in(column: str, numbers: Iterable[int]) -> str:
    """The condition that a column is one of these numbers."""
    return f"{column} IN ({','.join(map(str, sorted(numbers)))})"


def _has_grown(connection: apsw.Connection, name: str, marks: RowMarks, leaves: Leaves, keyed: Keyed) -> bool:
    """Whether every row that the table had is as it was, and no other has come between them."""
    before = marks.tables[name]
    there = {keyed.of(digest): after for digest, after, _ in leaves.ranges()}
    body = frozenset(before.leaves[:-1])
    if not body <= there.keys() or not before.overflow <= _overflow(leaves, keyed):
        return False
    # All that stands before the last leaf stands on the others: there is no room for more rows between them.
    if before.after and any(after < before.after for digest, after in there.items() if digest not in body):
        return False
    return keyed.of(tail_of(connection, name, before.after, before.last)) == before.tail


def _first_of(connection: apsw.Connection, name: str) -> int:
    found: list[Any] = connection.execute(f"SELECT coalesce(min(rowid), 1) FROM {name}").fetchall()
    number: int = found[0][0]
    return number


def _overflow(leaves: Leaves, keyed: Keyed) -> frozenset[bytes]:
    return frozenset(map(keyed.of, leaves.overflow))


def _targets(connection: apsw.Connection, last: int) -> Iterator[int]:
    """What new statements act on, by what they say themselves."""
    for (link,) in connection.execute("SELECT link FROM events WHERE seq > ?", (last,)):
        for targets in decode_link(link).acts.values():
            for target in targets:
                for (seq,) in connection.execute("SELECT seq FROM events WHERE commitment = ?", (target,)):
                    yield seq


def _asked(connection: apsw.Connection, sql: str, numbers: Iterable[int]) -> Iterator[int]:
    left = sorted(numbers)
    for start in range(0, len(left), _PIECE):
        piece = ",".join(map(str, left[start : start + _PIECE]))
        for (seq,) in connection.execute(sql.format(piece)):
            yield seq
